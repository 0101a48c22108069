-- On the way back the latest life of each reservation: there is room for one.
INSERT INTO reservations (partition, id, tenant, state, step, epoch, sequence, record, uncharged, fingerprint, keyed, operation,
    policy_version, period_start, meters, subjects, born_at, expires_at, resolved_at)
SELECT partition, id, tenant, state, step, epoch, sequence, record, uncharged, fingerprint, keyed, operation,
    policy_version, period_start, meters, subjects, born_at, expires_at, resolved_at FROM reservations_archive ORDER BY born_at DESC ON CONFLICT DO NOTHING;
DROP TABLE reservations_archive;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        REVOKE DELETE ON reservations FROM tollgate_service;
    END IF;
END
$$;
