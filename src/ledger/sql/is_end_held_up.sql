-- Whether a grant of the quota has ended in this period, and is not cut until use is taken back.
SELECT EXISTS (
    SELECT FROM held_up_ends
    WHERE tenant = $1 AND meter = $2 AND due_at <= $3 AND cut_at >= $4 AND cut_at < $5
) AS is_held_up
