SELECT concat_ws(' ', 'balance', tenant, meter, to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) AS what,
    string_agg(concat(account, ' is ', figure.stands, ', by entries ', figure.follows), '; ' ORDER BY place) AS detail
FROM (
    SELECT tenant, meter, period_start,
        ARRAY[
            coalesce(b.granted, 0), coalesce(b.rolled_in, 0), coalesce(b.carried_in, 0), coalesce(b.overage, 0),
            coalesce(b.adjusted, 0), coalesce(b.available, 0), coalesce(b.reserved, 0), coalesce(b.consumed, 0),
            coalesce(b.lapsed, 0), coalesce(b.voided, 0), coalesce(b.rolled_out, 0), coalesce(b.carried_out, 0),
            coalesce(b.repaid, 0),
            coalesce(b.reserved_beside_gate, 0), coalesce(b.consumed_beside_gate, 0), coalesce(b.consumed_of_carried, 0)
        ] AS stands,
        ARRAY[
            coalesce(e.granted, 0), coalesce(e.rolled_in, 0), coalesce(e.carried_in, 0), coalesce(e.overage, 0),
            coalesce(e.adjusted, 0), coalesce(e.available, 0), coalesce(e.reserved, 0), coalesce(e.consumed, 0),
            coalesce(e.lapsed, 0), coalesce(e.voided, 0), coalesce(e.rolled_out, 0), coalesce(e.carried_out, 0),
            coalesce(e.repaid, 0),
            coalesce(e.reserved_beside_gate, 0), coalesce(e.consumed_beside_gate, 0), coalesce(e.consumed_of_carried, 0)
        ] AS follows
    FROM (SELECT * FROM balances WHERE tenant = ANY($1)) b
    FULL JOIN (SELECT * FROM balances_by_entries WHERE tenant = ANY($1)) e USING (tenant, meter, period_start)
) c
CROSS JOIN LATERAL unnest(
    ARRAY[
        'granted', 'rolled_in', 'carried_in', 'overage', 'adjusted', 'available', 'reserved', 'consumed', 'lapsed',
        'voided', 'rolled_out', 'carried_out', 'repaid',
        'reserved beside the gate', 'consumed beside the gate', 'consumed of carried holds'
    ],
    c.stands, c.follows
) WITH ORDINALITY AS figure(account, stands, follows, place)
WHERE c.stands <> c.follows AND figure.stands <> figure.follows
GROUP BY tenant, meter, period_start
UNION ALL
SELECT concat_ws(' ', 'balance', tenant, meter, to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')),
    'is missing: its period includes nothing, something of it may go on, and without a balance it is never closed'
FROM quota_periods_without_balance
WHERE tenant = ANY($1)
LIMIT $2
