-- $1 is the meter, $2 its name as events and parked calls have it. What waits may be taken for a use by accident.
SELECT EXISTS (SELECT FROM balances WHERE meter = $1)
    OR EXISTS (SELECT FROM quarantine WHERE status = 'open' AND position($2 IN event) > 0)
    OR EXISTS (SELECT FROM parked WHERE state = 'waiting' AND position($2 IN payload) > 0)
    OR EXISTS (SELECT FROM parked WHERE state = 'conflict' AND position($2 IN payload) > 0) AS found
