SELECT EXISTS (SELECT FROM (SELECT FROM reservations WHERE tenant = $1 ORDER BY born_at DESC LIMIT 1) newest)
    OR EXISTS (SELECT FROM balances WHERE tenant = $1)
    OR EXISTS (SELECT FROM quota_periods WHERE tenant = $1)
    OR EXISTS (SELECT FROM statements WHERE tenant = $1)
    OR EXISTS (SELECT FROM (SELECT FROM grants WHERE tenant = $1 ORDER BY id LIMIT 1) granted)
    OR EXISTS (SELECT FROM adjustments WHERE tenant = $1 AND state <> 'declined')
    OR EXISTS (SELECT FROM parked WHERE tenant = $1 AND state <> 'done')
    OR EXISTS (SELECT FROM quarantine WHERE tenant = $1 AND status = 'open') AS found
