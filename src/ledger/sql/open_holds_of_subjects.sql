-- Reads the index of subjects, so that the tenant's other holds cost nothing.
WITH named AS MATERIALIZED (
    SELECT id, tenant, record FROM reservations_open
    WHERE subjects <> '{}' AND subjects && (
        SELECT array_agg(s.number) FROM unnest($2::text[], $3::text[]) AS w(kind, id)
        JOIN subjects s ON s.tenant = $1 AND s.kind = w.kind AND s.id = w.id
    )
)
SELECT id, record FROM named WHERE tenant = $1
