-- Notes what was taken back from before a cut of its quota. Cursors are at the place of the last event that is booked,
-- and balances have all before it.
INSERT INTO unwindings (tenant, operation_id, meter, period_start, epoch, sequence, amount, consumed, is_settled)
SELECT b.tenant, w.operation_id, b.meter, b.period_start, p.epoch, p.sequence, w.amount, l.consumed, false
FROM unnest($1::smallint[], $2::text[], $3::uuid[], $4::text[], $5::timestamptz[], $6::numeric[])
    AS w(partition, tenant, operation_id, meter, period_start, amount)
JOIN cursors p ON p.partition = w.partition
JOIN balances b ON b.tenant = w.tenant AND b.meter = w.meter AND b.period_start = w.period_start
CROSS JOIN LATERAL (SELECT b.consumed - b.adjusted - b.consumed_of_carried AS consumed) l
WHERE EXISTS (
    SELECT FROM cuts c
    WHERE c.tenant = b.tenant AND c.meter = b.meter AND c.period_start = b.period_start
        AND c.consumed - c.consumed_of_carried > l.consumed
)
ON CONFLICT DO NOTHING
