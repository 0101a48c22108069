INSERT INTO balances (tenant, meter, period_start, period_end,
    granted, rolled_in, carried_in, overage, adjusted, available, reserved, consumed, lapsed, voided,
    rolled_out, carried_out, repaid, reserved_beside_gate, consumed_beside_gate, consumed_of_carried, is_closed
)
SELECT w.tenant, w.meter, w.period_start, w.period_end,
    e.granted, e.rolled_in, e.carried_in, e.overage, e.adjusted, e.available, e.reserved, e.consumed, e.lapsed,
    e.voided, e.rolled_out, e.carried_out, e.repaid, e.reserved_beside_gate, e.consumed_beside_gate,
    e.consumed_of_carried, EXISTS (
        SELECT FROM period_closures k WHERE k.tenant = w.tenant AND k.meter = w.meter AND k.period_start = w.period_start
    )
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
JOIN balances_by_entries e USING (tenant, meter, period_start)
