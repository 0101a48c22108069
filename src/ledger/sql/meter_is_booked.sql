-- $1 is the meter, $2 its name as written in events and parked calls. The name may be in them by accident: that
-- counts as a use.
SELECT EXISTS (SELECT FROM balances WHERE meter = $1)
    OR EXISTS (SELECT FROM quarantine WHERE status = 'open' AND position($2 IN event) > 0)
    OR EXISTS (SELECT FROM parked WHERE state = 'waiting' AND position($2 IN payload) > 0)
    OR EXISTS (SELECT FROM parked WHERE state = 'conflict' AND position($2 IN payload) > 0) AS found
