-- A grant is voided by one adjustment: what was unburnt of it counts for that one alone.
CREATE UNIQUE INDEX adjustment_grants_voided_once ON adjustment_grants (tenant, grant_id) WHERE is_voided;
