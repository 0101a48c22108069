-- What a tenant has asked for and not got ends with it: a later one of its name has not asked for it.
CREATE TEMPORARY TABLE asked_before ON COMMIT DROP AS
SELECT u.tenant, u.id, u.plan, u.effective_at
FROM upgrade_requests u
WHERE u.state <> 'declined' AND u.applied_at IS NULL
    AND (NOT EXISTS (SELECT FROM tenants t WHERE t.id = u.tenant) OR EXISTS (
        SELECT FROM policy_history h
        WHERE h.kind = 'tenant' AND h.id = u.tenant AND h.definition IS NULL
            AND coalesce(h.effective_at, h.changed_at) > u.requested_at
    ));
UPDATE upgrade_requests u
SET state = 'declined', decided_at = now(), decided_by = 'installation', effective_at = NULL
FROM asked_before a WHERE u.tenant = a.tenant AND u.id = a.id;
-- Periods that were opened ahead with the plan of such a request are looked at again.
UPDATE quota_periods q SET followed_version = 0
FROM asked_before a
WHERE q.tenant = a.tenant AND q.period_start >= a.effective_at AND q.followed_version IS NOT NULL;
INSERT INTO audit_log (actor, action, object, detail)
SELECT 'installation', 'decline', 'upgrade_request ' || id,
    jsonb_build_object('tenant', tenant, 'plan', plan, 'reason', 'its tenant is deleted')
FROM asked_before;
