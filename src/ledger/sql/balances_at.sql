SELECT b.meter, b.period_start, b.period_end,
    ARRAY[granted, rolled_in, carried_in, overage, adjusted,
        available, reserved, consumed, lapsed, voided, rolled_out, carried_out, repaid] AS accounts,
    q.included, q.overdraft, b.reserved_beside_gate, b.consumed_beside_gate, b.consumed_of_carried
FROM balances b
LEFT JOIN quota_periods q USING (tenant, meter, period_start)
WHERE b.tenant = $1 AND b.period_start <= $2 AND b.period_end > $2
ORDER BY b.meter
