-- What statements say was used, beside the books of their periods. What corrects an earlier period that is billed is in
-- a note to that one's statement: what the note says was used is what the statement says, with all that was booked for
-- its period in those that had ended when the note was issued. What of it is overage is known where no holds went over:
-- what returns of them later was unused too. Of a quota that was not opened it is less by what its plan included.
-- What is corrected of carried holds before their period is closed is in its own statement.
WITH said AS (
    SELECT s.tenant, u.key AS meter, s.period_start, (u.value ->> 'consumed')::numeric AS consumed, (u.value ->> 'overage')::numeric AS overage
    FROM statements s
    CROSS JOIN LATERAL jsonb_each(s.document::jsonb -> 'used') u
    WHERE s.tenant = ANY($1) AND s.corrects IS NULL
), booked AS (
    SELECT b.tenant, b.meter, b.period_start, b.consumed - b.adjusted - c.consumed + w.adjusted AS consumed,
        greatest(
            greatest(b.overage - coalesce(k.paid_by_next, 0) - c.consumed, 0)
                + w.burnt - least(
                    coalesce(k.lapsed + k.rolled + greatest(c.consumed - greatest(b.overage - k.paid_by_next, 0) - coalesce(h.charged, 0), 0), 0),
                    greatest(w.burnt, 0)
                ), 0
        ) AS overage
    FROM statements s
    JOIN billing g USING (tenant)
    JOIN balances b USING (tenant, period_start)
    LEFT JOIN period_closures k USING (tenant, meter, period_start)
    LEFT JOIN carried_holds h USING (tenant, meter, period_start)
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(l.consumed), 0) AS consumed
        FROM corrections l
        WHERE l.tenant = b.tenant AND l.meter = b.meter AND l.booked_in = b.period_start AND l.period_start >= g.begun_at
    ) c
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(l.adjusted), 0) AS adjusted,
            coalesce(sum(l.adjusted), 0) - least(coalesce(sum(l.of_held), 0) + greatest(b.consumed_of_carried - b.carried_in, 0), 0) AS burnt
        FROM corrections l
        WHERE l.tenant = b.tenant AND l.meter = b.meter AND l.booked_in = b.period_start AND l.period_start = b.period_start
    ) w
    WHERE s.tenant = ANY($1) AND s.corrects IS NULL
), notes AS (
    SELECT n.tenant, n.number, n.period_start, n.issued_at, n.billed_in, n.document::jsonb -> 'used' AS used, o.document::jsonb -> 'used' AS original
    FROM statements n
    JOIN statements o ON o.tenant = n.tenant AND o.number = n.corrects
    WHERE n.tenant = ANY($1)
), corrected AS (
    SELECT l.tenant, n.number, l.meter, sum(l.consumed + l.adjusted) AS more, sum(l.of_held) AS of_held
    FROM notes n
    JOIN corrections l USING (tenant, period_start)
    LEFT JOIN period_closures k ON k.tenant = l.tenant AND k.meter = l.meter AND k.period_start = l.booked_in
    WHERE l.booked_in <> l.period_start AND CASE WHEN n.billed_in IS NULL THEN k.closed_at <= n.issued_at ELSE l.booked_in <= n.billed_in END
    GROUP BY 1, 2, 3
), noted AS (
    SELECT n.tenant, n.number, m.meter, n.period_start, coalesce((n.used -> m.meter ->> 'consumed')::numeric, 0) AS consumed,
        coalesce((n.used -> m.meter ->> 'overage')::numeric, 0) AS overage,
        greatest(coalesce((n.original -> m.meter ->> 'consumed')::numeric, 0) + coalesce(l.more, 0), 0) AS consumed_in_all,
        q.tenant IS NOT NULL AS is_opened,
        CASE WHEN h.tenant IS NULL OR l.more IS NULL THEN greatest(
            coalesce((n.original -> m.meter ->> 'overage')::numeric, 0) + f.burnt
                - least(
                    greatest(
                        coalesce(k.lapsed + k.rolled + greatest(w.late - greatest(b.overage - k.paid_by_next, 0), 0), 0)
                            - greatest(f.own, 0), 0
                    ) + greatest(-f.own - w.overage, 0),
                    greatest(f.burnt, 0)
                ), 0
        ) END AS overage_in_all
    FROM notes n
    CROSS JOIN LATERAL (
        SELECT jsonb_object_keys(n.used) AS meter
        UNION
        SELECT jsonb_object_keys(n.original)
        UNION
        SELECT c.meter FROM corrected c WHERE c.tenant = n.tenant AND c.number = n.number
    ) m
    LEFT JOIN corrected l ON l.tenant = n.tenant AND l.number = n.number AND l.meter = m.meter
    LEFT JOIN period_closures k ON k.tenant = n.tenant AND k.meter = m.meter AND k.period_start = n.period_start
    LEFT JOIN quota_periods q ON q.tenant = n.tenant AND q.meter = m.meter AND q.period_start = n.period_start
    LEFT JOIN carried_holds h ON h.tenant = n.tenant AND h.meter = m.meter AND h.period_start = n.period_start
    LEFT JOIN balances b ON b.tenant = n.tenant AND b.meter = m.meter AND b.period_start = n.period_start
    LEFT JOIN billing g ON g.tenant = n.tenant
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(o.adjusted) FILTER (WHERE o.period_start = o.booked_in), 0) AS adjusted,
            coalesce(sum(o.of_held) FILTER (WHERE o.period_start = o.booked_in), 0) AS of_held,
            greatest(coalesce(b.consumed_of_carried - b.carried_in, 0), 0) AS charged,
            coalesce(sum(o.consumed) FILTER (WHERE o.period_start >= g.begun_at), 0) AS late,
            greatest(
                coalesce(b.overage - coalesce(k.paid_by_next, 0), 0)
                    - coalesce(sum(o.consumed) FILTER (WHERE o.period_start >= g.begun_at), 0), 0
            ) AS overage
        FROM corrections o
        WHERE o.tenant = n.tenant AND o.meter = m.meter AND o.booked_in = n.period_start
    ) w
    CROSS JOIN LATERAL (
        SELECT w.adjusted - least(w.of_held + w.charged, 0) AS own,
            coalesce(l.more, 0) - least(w.of_held + coalesce(l.of_held, 0) + w.charged, 0) + least(w.of_held + w.charged, 0) AS burnt
    ) f
)
SELECT concat_ws(' ', 'statement of', tenant, meter, period_start AT TIME ZONE 'UTC') AS what,
    concat('says ', s.consumed, ' used and ', s.overage, ' overage, the books ', b.consumed, ' and ', b.overage) AS detail
FROM said s
FULL JOIN booked b USING (tenant, meter, period_start)
WHERE coalesce(s.consumed, 0) <> coalesce(b.consumed, 0) OR coalesce(s.overage, 0) <> coalesce(b.overage, 0)
UNION ALL
SELECT concat_ws(' ', 'credit note', number, 'of', tenant, meter, period_start AT TIME ZONE 'UTC'),
    concat('says ', consumed, ' used and ', overage, ' overage, the books ', consumed_in_all, ' and ', overage_in_all)
FROM noted
WHERE consumed <> consumed_in_all OR overage > overage_in_all OR (is_opened AND overage < overage_in_all)
LIMIT $2
