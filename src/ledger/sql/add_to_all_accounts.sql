INSERT INTO balances AS b (tenant, meter, period_start, period_end, granted, rolled_in, carried_in, overage, adjusted,
    available, reserved, consumed, lapsed, voided, rolled_out, carried_out, repaid,
    reserved_beside_gate, consumed_beside_gate, consumed_of_carried)
SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::numeric[], $6::numeric[],
    $7::numeric[], $8::numeric[], $9::numeric[], $10::numeric[], $11::numeric[], $12::numeric[], $13::numeric[],
    $14::numeric[], $15::numeric[], $16::numeric[], $17::numeric[], $18::numeric[], $19::numeric[], $20::numeric[])
ON CONFLICT (tenant, meter, period_start) DO UPDATE SET
    granted = b.granted + excluded.granted,
    rolled_in = b.rolled_in + excluded.rolled_in,
    carried_in = b.carried_in + excluded.carried_in,
    overage = b.overage + excluded.overage,
    adjusted = b.adjusted + excluded.adjusted,
    available = b.available + excluded.available,
    reserved = b.reserved + excluded.reserved,
    consumed = b.consumed + excluded.consumed,
    lapsed = b.lapsed + excluded.lapsed,
    voided = b.voided + excluded.voided,
    rolled_out = b.rolled_out + excluded.rolled_out,
    carried_out = b.carried_out + excluded.carried_out,
    repaid = b.repaid + excluded.repaid,
    reserved_beside_gate = b.reserved_beside_gate + excluded.reserved_beside_gate,
    consumed_beside_gate = b.consumed_beside_gate + excluded.consumed_beside_gate,
    consumed_of_carried = b.consumed_of_carried + excluded.consumed_of_carried
