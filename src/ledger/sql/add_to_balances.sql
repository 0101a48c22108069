-- The sums that events of the gate move.
INSERT INTO balances AS b (tenant, meter, period_start, period_end, available, reserved, consumed)
SELECT tenant, meter, period_start, period_end, available, reserved, consumed
FROM unnest($1::moved_balance[])
ON CONFLICT (tenant, meter, period_start) DO UPDATE SET
    available = b.available + excluded.available,
    reserved = b.reserved + excluded.reserved,
    consumed = b.consumed + excluded.consumed
