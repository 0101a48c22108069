-- Zone and anchor day by their dates: a tenant that has booked changes them at the end of its open period.
CREATE TABLE calendars (
    tenant text NOT NULL,
    from_at timestamptz NOT NULL,
    zone text NOT NULL,
    anchor_day smallint NOT NULL CONSTRAINT calendar_anchor_is_a_day CHECK (anchor_day BETWEEN 1 AND 31),
    -- Where the first period of this calendar ends, for whoever opens it by an older one.
    first_period_end timestamptz NOT NULL,
    PRIMARY KEY (tenant, from_at),
    CONSTRAINT calendar_period_ends_after_it_starts CHECK (first_period_end > from_at)
);
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, DELETE ON calendars TO tollgate_service;
    END IF;
END
$$;
