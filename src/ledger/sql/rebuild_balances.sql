-- Puts balances right that differ from their entries; one without any entry has nothing in its accounts.
UPDATE balances b SET
    granted = f.granted, rolled_in = f.rolled_in, carried_in = f.carried_in, overage = f.overage,
    adjusted = f.adjusted, available = f.available, reserved = f.reserved, consumed = f.consumed,
    lapsed = f.lapsed, voided = f.voided, rolled_out = f.rolled_out, carried_out = f.carried_out,
    repaid = f.repaid, reserved_beside_gate = f.reserved_beside_gate,
    consumed_beside_gate = f.consumed_beside_gate, consumed_of_carried = f.consumed_of_carried
FROM (
    SELECT tenant, meter, period_start,
        coalesce(e.granted, 0) AS granted, coalesce(e.rolled_in, 0) AS rolled_in,
        coalesce(e.carried_in, 0) AS carried_in, coalesce(e.overage, 0) AS overage,
        coalesce(e.adjusted, 0) AS adjusted, coalesce(e.available, 0) AS available,
        coalesce(e.reserved, 0) AS reserved, coalesce(e.consumed, 0) AS consumed,
        coalesce(e.lapsed, 0) AS lapsed, coalesce(e.voided, 0) AS voided,
        coalesce(e.rolled_out, 0) AS rolled_out, coalesce(e.carried_out, 0) AS carried_out,
        coalesce(e.repaid, 0) AS repaid, coalesce(e.reserved_beside_gate, 0) AS reserved_beside_gate,
        coalesce(e.consumed_beside_gate, 0) AS consumed_beside_gate,
        coalesce(e.consumed_of_carried, 0) AS consumed_of_carried
    FROM (SELECT tenant, meter, period_start FROM balances WHERE tenant = ANY($1)) s
    LEFT JOIN (SELECT * FROM balances_by_entries WHERE tenant = ANY($1)) e USING (tenant, meter, period_start)
) f
WHERE b.tenant = f.tenant AND b.meter = f.meter AND b.period_start = f.period_start
    AND (
        b.granted, b.rolled_in, b.carried_in, b.overage, b.adjusted, b.available, b.reserved, b.consumed,
        b.lapsed, b.voided, b.rolled_out, b.carried_out, b.repaid, b.reserved_beside_gate,
        b.consumed_beside_gate, b.consumed_of_carried
    ) <> (
        f.granted, f.rolled_in, f.carried_in, f.overage, f.adjusted, f.available, f.reserved, f.consumed,
        f.lapsed, f.voided, f.rolled_out, f.carried_out, f.repaid, f.reserved_beside_gate,
        f.consumed_beside_gate, f.consumed_of_carried
    )
RETURNING b.tenant, b.meter, b.period_start
