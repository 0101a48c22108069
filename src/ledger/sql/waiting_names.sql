-- What still has to be booked, decided or resolved under this name.
SELECT (SELECT count(*) FROM quarantine WHERE tenant = $1 AND status = 'open' AND position($2::bytea IN event) > 0)
    + (SELECT count(*) FROM parked WHERE tenant = $1 AND state <> 'done' AND position($2 IN payload) > 0)
    + (SELECT count(*) FROM repeats WHERE tenant = $1 AND undone_at IS NULL AND position($2 IN event) > 0)
    + (
        SELECT count(*) FROM subjects s
        JOIN reservations_open r ON r.tenant = s.tenant AND r.subjects @> ARRAY[s.number]
        WHERE s.tenant = $1 AND s.kind = $3 AND s.id = $4
    ) AS waiting
