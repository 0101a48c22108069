-- Settled events and calls that name the subject, which nothing reads any more.
WITH events AS (
    DELETE FROM quarantine WHERE tenant = $1 AND status <> 'open' AND position($2::bytea IN event) > 0
), calls AS (
    DELETE FROM parked WHERE tenant = $1 AND state = 'done' AND position($2 IN payload) > 0
)
DELETE FROM violations WHERE tenant = $1 AND subject_kind = $3 AND subject_hash = $4
