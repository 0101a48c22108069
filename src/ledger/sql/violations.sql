SELECT minute, tenant, limit_id, subject_kind, subject_hash,
    sum(counted)::bigint AS counted, sum(bans)::bigint AS bans, sum(under_ban)::bigint AS under_ban
FROM violations
WHERE ($1::text IS NULL OR tenant = $1)
    AND ($2::text IS NULL OR limit_id = $2)
    AND ($3::text IS NULL OR (subject_kind = $3 AND subject_hash = $4))
    AND minute >= $5::timestamptz
    AND minute < $6::timestamptz
    AND ($7::timestamptz IS NULL OR (
        minute <= $7 AND (minute, tenant, limit_id, subject_kind, subject_hash) < ($7, $8::text, $9::text, $10::text, $11::text)
    ))
GROUP BY minute, tenant, limit_id, subject_kind, subject_hash
ORDER BY minute DESC, tenant DESC, limit_id DESC, subject_kind DESC, subject_hash DESC
LIMIT $12
