INSERT INTO corrections AS c (tenant, meter, period_start, booked_in, consumed, adjusted, of_held)
SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::numeric[], $6::numeric[], $7::numeric[])
ON CONFLICT (tenant, booked_in, meter, period_start) DO UPDATE SET
    consumed = c.consumed + excluded.consumed,
    adjusted = c.adjusted + excluded.adjusted,
    of_held = c.of_held + excluded.of_held
