INSERT INTO violations AS stored
    (id, minute, tenant, limit_id, subject_kind, subject_hash, counted, bans, under_ban)
SELECT id, minute, tenant, limit_id, subject_kind, subject_hash, counted, bans, under_ban
FROM unnest(
    $1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
    $9::bigint[]
) AS v(id, minute, tenant, limit_id, subject_kind, subject_hash, counted, bans, under_ban)
ON CONFLICT (id) DO UPDATE SET
    counted = greatest(stored.counted, excluded.counted),
    bans = greatest(stored.bans, excluded.bans),
    under_ban = greatest(stored.under_ban, excluded.under_ban)
