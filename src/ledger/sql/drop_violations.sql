DELETE FROM violations WHERE id IN (SELECT id FROM violations WHERE minute < $2::timestamptz ORDER BY minute LIMIT $1)
