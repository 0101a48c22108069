DELETE FROM carried_returns r
USING unnest($2::bigint[], $3::bigint[], $4::smallint[]) AS w(epoch, sequence, line)
WHERE r.partition = $1 AND (r.epoch, r.sequence, r.line) = (w.epoch, w.sequence, w.line)
