-- While the period before is not closed, what became of its open holds may be booked here, and they still stand there.
SELECT concat_ws(' ', 'balance', tenant, meter, to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) AS what,
    concat('sources hold ', sources, ', places ', places) AS detail
FROM (
    SELECT *,
        granted + rolled_in + carried_in + overage + adjusted AS sources,
        available + reserved + consumed + lapsed + voided + rolled_out + carried_out + repaid AS places
    FROM balances WHERE tenant = ANY($1)
) b
WHERE sources <> places OR consumed < adjusted OR (reserved < 0 AND reserved + (
    SELECT coalesce(sum(e.reserved), 0) FROM balances e
    WHERE e.tenant = b.tenant AND e.meter = b.meter AND e.period_start < b.period_start
) < 0)
LIMIT $2
