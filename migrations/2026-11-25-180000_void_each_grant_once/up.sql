-- A grant is voided by one adjustment: what was unburnt of it counts for that one alone. Versions before could note it
-- for two; the one that was posted first keeps it.
DELETE FROM adjustment_grants later USING adjustment_grants first, adjustments a, adjustments b
WHERE later.is_voided AND first.is_voided AND first.tenant = later.tenant AND first.grant_id = later.grant_id
    AND a.tenant = first.tenant AND a.id = first.adjustment AND b.tenant = later.tenant AND b.id = later.adjustment
    AND (a.posted_at, a.id) < (b.posted_at, b.id);
CREATE UNIQUE INDEX adjustment_grants_voided_once ON adjustment_grants (tenant, grant_id) WHERE is_voided;
