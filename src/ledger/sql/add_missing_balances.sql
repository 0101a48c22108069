INSERT INTO balances (tenant, meter, period_start, period_end,
    granted, rolled_in, carried_in, overage, adjusted, available, reserved, consumed, lapsed, voided,
    rolled_out, carried_out, repaid, reserved_beside_gate, consumed_beside_gate, consumed_of_carried
)
SELECT w.tenant, w.meter, w.period_start, w.period_end,
    e.granted, e.rolled_in, e.carried_in, e.overage, e.adjusted, e.available, e.reserved, e.consumed, e.lapsed,
    e.voided, e.rolled_out, e.carried_out, e.repaid, e.reserved_beside_gate, e.consumed_beside_gate,
    e.consumed_of_carried
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
JOIN balances_by_entries e USING (tenant, meter, period_start)
