-- Reservations that were resolved before and change once more, such as by a late consume.
INSERT INTO reservations_resolved (partition, id, tenant, state, step, epoch, sequence, record, uncharged, fingerprint,
    keyed, operation, policy_version, period_start, meters, subjects, born_at, expires_at, resolved_at)
SELECT partition, id, tenant, state, step, epoch, sequence, record, uncharged, fingerprint,
    keyed, operation, policy_version, period_start, meters, subjects, born_at, expires_at, resolved_at
FROM unnest($1::booked_reservation[])
ON CONFLICT (partition, id, tenant) DO UPDATE SET
    state = excluded.state,
    step = excluded.step,
    epoch = excluded.epoch,
    sequence = excluded.sequence,
    record = excluded.record,
    uncharged = excluded.uncharged,
    expires_at = excluded.expires_at,
    resolved_at = excluded.resolved_at
