-- What the tenant's periods from this instant on open with has to be looked at again.
UPDATE quota_periods SET followed_version = 0
WHERE tenant = $1 AND period_start >= $2 AND followed_version IS NOT NULL
