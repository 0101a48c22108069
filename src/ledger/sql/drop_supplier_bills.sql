DELETE FROM supplier_bills
WHERE id IN (
    SELECT id FROM supplier_bills b
    WHERE b.created_at < clock_timestamp() - $2 * interval '1 day'
        AND NOT EXISTS (SELECT FROM supplier_matches m WHERE m.bill = b.id)
    LIMIT $1
)
