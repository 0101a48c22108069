-- Open reservations that stay open.
INSERT INTO reservations_open (partition, id, tenant, state, step, epoch, sequence, record, uncharged, fingerprint,
    keyed, operation, policy_version, period_start, meters, subjects, born_at, expires_at, resolved_at)
SELECT partition, id, tenant, state, step, epoch, sequence, record, uncharged, fingerprint,
    keyed, operation, policy_version, period_start, meters, subjects, born_at, expires_at, resolved_at
FROM unnest($1::booked_reservation[])
ON CONFLICT (partition, id, tenant) DO UPDATE SET
    step = excluded.step,
    epoch = excluded.epoch,
    sequence = excluded.sequence,
    record = excluded.record,
    uncharged = excluded.uncharged,
    expires_at = excluded.expires_at
