DELETE FROM due_cuts d USING grants g
WHERE g.tenant = d.tenant AND g.id = d.grant_id AND g.period_start IS NULL;
