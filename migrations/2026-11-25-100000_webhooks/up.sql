-- Webhooks: who receives which notices of quotas, and one delivery for each receiver and notice.
CREATE TABLE webhooks (
    id uuid PRIMARY KEY,
    url text NOT NULL,
    events text[] NOT NULL CONSTRAINT webhook_has_events CHECK (cardinality(events) > 0),
    -- Only of this tenant; null for all.
    tenant text,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL
);
CREATE INDEX webhooks_newest_first ON webhooks (created_at DESC, id DESC);

-- A row is made in the transaction that raises or resolves its notice, and is dropped with it.
CREATE TABLE webhook_deliveries (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    percent smallint NOT NULL,
    event text COLLATE "C" NOT NULL
        CONSTRAINT webhook_event_is_known CHECK (event IN ('quota.threshold', 'quota.forecast', 'quota.resolved')),
    webhook uuid NOT NULL REFERENCES webhooks ON DELETE CASCADE,
    -- Receivers tell repeats by it.
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT webhook_delivery_is_named_once UNIQUE,
    created_at timestamptz NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'waiting'
        CONSTRAINT webhook_delivery_state_is_known CHECK (state IN ('waiting', 'delivered', 'failed')),
    -- Since it was made or last replayed.
    attempts integer NOT NULL DEFAULT 0,
    -- By the service's time.
    next_attempt_at timestamptz,
    -- Set by the first attempt that fails.
    retried_until timestamptz,
    last_attempt_at timestamptz,
    last_status smallint,
    last_error text,
    -- Who sends it holds it until then, by the database's clock; the number rises with each claim.
    claim bigint NOT NULL DEFAULT 0,
    claimed_until timestamptz,
    PRIMARY KEY (tenant, meter, period_start, percent, event, webhook),
    FOREIGN KEY (tenant, meter, period_start, percent) REFERENCES quota_notices ON DELETE CASCADE,
    CONSTRAINT webhook_delivery_waits_until_it_ends CHECK ((state = 'waiting') = (next_attempt_at IS NOT NULL))
);
CREATE INDEX webhook_deliveries_newest_first ON webhook_deliveries (webhook, created_at DESC, id DESC);
CREATE INDEX webhook_deliveries_by_state ON webhook_deliveries (webhook, state, created_at DESC, id DESC);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook, next_attempt_at, id) WHERE next_attempt_at IS NOT NULL;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON webhooks, webhook_deliveries TO tollgate_service;
    END IF;
END
$$;
