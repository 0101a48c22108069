-- Marks the balances of closed periods, and no others. Names those that were marked otherwise.
UPDATE balances b SET is_closed = NOT b.is_closed
WHERE b.tenant = ANY($1) AND b.is_closed <> EXISTS (
    SELECT FROM period_closures k WHERE k.tenant = b.tenant AND k.meter = b.meter AND k.period_start = b.period_start
)
RETURNING concat_ws(' ', 'balance', b.tenant, b.meter, to_char(b.period_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) AS what,
    CASE WHEN b.is_closed THEN 'was not marked as closed' ELSE 'was marked as closed' END AS detail
