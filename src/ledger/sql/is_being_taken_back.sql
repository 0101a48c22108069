-- Whether use of a quota's period is about to be taken back, or has been, and what it leaves of grants that had ended
-- is not booked.
SELECT EXISTS (
    SELECT FROM adjustments
    WHERE tenant = $1 AND meter = $2 AND gate_period = $3 AND state = 'approved' AND amount < 0
) OR EXISTS (
    SELECT FROM unwindings WHERE tenant = $1 AND meter = $2 AND period_start = $3 AND NOT is_settled
) AS is_being_taken_back
