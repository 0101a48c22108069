DELETE FROM supplier_matches
WHERE (bill, outcome, number) IN (
    SELECT m.bill, m.outcome, m.number FROM supplier_bills b JOIN supplier_matches m ON m.bill = b.id
    WHERE b.created_at < clock_timestamp() - $2 * interval '1 day'
    LIMIT $1
)
