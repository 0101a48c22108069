INSERT INTO balances (tenant, meter, period_start, period_end,
    granted, rolled_in, carried_in, overage, adjusted, available, reserved, consumed, lapsed, voided,
    rolled_out, carried_out, repaid, reserved_beside_gate, consumed_beside_gate, consumed_of_carried, is_closed
)
SELECT w.tenant, w.meter, w.period_start, w.period_end,
    coalesce(e.granted, 0), coalesce(e.rolled_in, 0), coalesce(e.carried_in, 0), coalesce(e.overage, 0),
    coalesce(e.adjusted, 0), coalesce(e.available, 0), coalesce(e.reserved, 0), coalesce(e.consumed, 0),
    coalesce(e.lapsed, 0), coalesce(e.voided, 0), coalesce(e.rolled_out, 0), coalesce(e.carried_out, 0),
    coalesce(e.repaid, 0), coalesce(e.reserved_beside_gate, 0), coalesce(e.consumed_beside_gate, 0),
    coalesce(e.consumed_of_carried, 0), EXISTS (
        SELECT FROM period_closures k WHERE k.tenant = w.tenant AND k.meter = w.meter AND k.period_start = w.period_start
    )
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
LEFT JOIN balances_by_entries e USING (tenant, meter, period_start)
