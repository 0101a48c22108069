-- The start of the period in whose bill a document is: its own, or for a note, and for a statement that was left out
-- before, a later one. Instances of the version before leave it out.
ALTER TABLE statements ADD COLUMN billed_in timestamptz;
ALTER TABLE statements DISABLE TRIGGER statements_are_never_edited;
-- A document is issued at the end of a grace, and the last period that ended before is the one that it was issued with.
UPDATE statements s SET billed_in = b.period_start
FROM (
    SELECT i.tenant, i.number, max(c.period_start) AS period_start
    FROM statements i
    JOIN LATERAL (
        SELECT period_start FROM period_closures k WHERE k.tenant = i.tenant AND k.period_end < i.issued_at
        UNION ALL
        SELECT period_start FROM statements w WHERE w.tenant = i.tenant AND w.issued_at = i.issued_at
    ) c ON true
    GROUP BY i.tenant, i.number
) b
WHERE b.tenant = s.tenant AND b.number = s.number AND b.period_start > s.period_start;
ALTER TABLE statements ENABLE TRIGGER statements_are_never_edited;
