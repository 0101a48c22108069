-- The start of the period in whose bill a document is: its own, or for a note, and for a statement that was left out
-- before, a later one. Instances of the version before leave it out.
-- A document is issued when a period closes, and the last one that closed by then is the one that it was issued with.
-- That is looked up before the table is locked.
CREATE TEMPORARY TABLE billed_later ON COMMIT DROP AS
SELECT i.tenant, i.number, max(c.period_start) AS period_start
FROM statements i
JOIN LATERAL (
    SELECT period_start FROM period_closures k WHERE k.tenant = i.tenant AND k.closed_at <= i.issued_at AND k.period_start > i.period_start
    UNION ALL
    SELECT period_start FROM statements w WHERE w.tenant = i.tenant AND w.issued_at = i.issued_at AND w.period_start > i.period_start
) c ON true
GROUP BY i.tenant, i.number;
ALTER TABLE statements ADD COLUMN billed_in timestamptz;
ALTER TABLE statements DISABLE TRIGGER statements_are_never_edited;
UPDATE statements s SET billed_in = b.period_start FROM billed_later b WHERE b.tenant = s.tenant AND b.number = s.number;
ALTER TABLE statements ENABLE TRIGGER statements_are_never_edited;
