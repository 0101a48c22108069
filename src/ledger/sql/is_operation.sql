-- Whether this operation is one of the tenant's.
SELECT EXISTS (SELECT FROM reservations r WHERE r.partition = get_byte(uuid_send($2), 12) AND r.id = $2 AND r.tenant = $1)
    OR EXISTS (SELECT FROM reservations_archive r WHERE r.partition = get_byte(uuid_send($2), 12) AND r.id = $2 AND r.tenant = $1)
    OR EXISTS (SELECT FROM grants g WHERE g.tenant = $1 AND g.id = $2)
    OR EXISTS (SELECT FROM adjustments a WHERE a.tenant = $1 AND a.id = $2) AS is_known
