-- Each period that was billed, also without a document: one follows the other, so that a month which nobody has billed
-- is a gap. An end is noted once, since a tenant without books may get another calendar.
CREATE TABLE billed_periods (
    tenant text NOT NULL,
    period_end timestamptz NOT NULL,
    period_start timestamptz NOT NULL,
    -- The tenant's last document then; 0 before the first. Instances of the version before do not say it.
    last_number bigint CONSTRAINT billed_period_has_documents_from_1 CHECK (last_number >= 0),
    PRIMARY KEY (tenant, period_end),
    CONSTRAINT billed_period_ends_after_it_starts CHECK (period_end > period_start)
);
CREATE INDEX billed_periods_without_a_number ON billed_periods (tenant, period_end) WHERE last_number IS NULL;

-- Notes what instances of the version before bill, and forgets a tenant that is deleted.
CREATE FUNCTION note_billed_period() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM billed_periods b WHERE b.tenant = OLD.tenant;
    ELSE
        INSERT INTO billed_periods (tenant, period_end, period_start)
        VALUES (NEW.tenant, NEW.billed_until, CASE WHEN OLD.begun_at IS NULL THEN NEW.begun_at ELSE OLD.billed_until END)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER billing_notes_billed_periods AFTER UPDATE OF billed_until ON billing FOR EACH ROW
WHEN ((OLD.begun_at IS NULL OR OLD.billed_until < NEW.billed_until) AND NEW.begun_at < NEW.billed_until) EXECUTE FUNCTION note_billed_period();
CREATE TRIGGER billing_forgets_billed_periods AFTER DELETE ON billing FOR EACH ROW EXECUTE FUNCTION note_billed_period();

-- All that was billed before counts as one period. Since the triggers were made nobody else bills.
INSERT INTO billed_periods (tenant, period_end, period_start, last_number)
SELECT b.tenant, b.billed_until, b.begun_at, coalesce((SELECT max(s.number) FROM statements s WHERE s.tenant = b.tenant), 0)
FROM billing b
WHERE b.begun_at < b.billed_until;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, DELETE ON billed_periods TO tollgate_service;
    END IF;
END
$$;
