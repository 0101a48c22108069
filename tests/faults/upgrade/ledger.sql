SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE TYPE public.account AS ENUM (
    'granted',
    'rolled_in',
    'carried_in',
    'overage',
    'adjusted',
    'available',
    'reserved',
    'consumed',
    'lapsed',
    'voided',
    'rolled_out',
    'carried_out',
    'repaid'
);
CREATE TYPE public.entry_class AS ENUM (
    'usage',
    'grant',
    'period',
    'correction'
);
CREATE TYPE public.booked_entry AS (
	tenant text,
	operation_id uuid,
	step integer,
	line smallint,
	leg smallint,
	meter text,
	period_start timestamp with time zone,
	credit public.account,
	debit public.account,
	amount numeric,
	class public.entry_class,
	excess boolean,
	late boolean,
	carried boolean,
	degraded boolean,
	happened_at timestamp with time zone,
	operation text,
	hour_at timestamp with time zone,
	subjects bigint[],
	chain smallint,
	batch bigint
);
CREATE TYPE public.booked_reservation AS (
	partition smallint,
	id uuid,
	tenant text,
	state text,
	step integer,
	epoch bigint,
	sequence bigint,
	record bytea,
	uncharged bigint[],
	fingerprint bytea,
	keyed boolean,
	operation text,
	policy_version bigint,
	period_start timestamp with time zone,
	meters text[],
	subjects bigint[],
	born_at timestamp with time zone,
	expires_at timestamp with time zone,
	resolved_at timestamp with time zone
);
CREATE FUNCTION public.ensure_entries_month(month date) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO '$user', 'public'
    AS $$
DECLARE
    first date := date_trunc('month', month)::date;
    name text := 'entries_' || to_char(first, 'YYYY_MM');
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('ensure_entries_month'));
    -- Asked of the catalogue's rows: waiting for the lock does not refresh what to_regclass remembers.
    IF EXISTS (SELECT FROM pg_class WHERE relname = name AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'entries'::regclass)) THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE entries INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
    EXECUTE format('CREATE TRIGGER entries_are_never_truncated BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', name);
    -- Attaching, unlike creating in place, does not stop those who read and write other months.
    EXECUTE format('ALTER TABLE entries ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name,
        first::timestamp AT TIME ZONE 'UTC', (first + interval '1 month')::timestamp AT TIME ZONE 'UTC');
    RETURN true;
END
$$;
CREATE FUNCTION public.number_key_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE key_changes SET number = number + 1 RETURNING number INTO NEW.change;
    RETURN NEW;
END
$$;
CREATE FUNCTION public.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: the books are never edited', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
CREATE FUNCTION public.refuse_key_removal() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: set revoked_at instead', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.__diesel_schema_migrations (
    version character varying(50) NOT NULL,
    run_on timestamp without time zone DEFAULT CURRENT_TIMESTAMP NOT NULL
);
CREATE TABLE public.api_keys (
    id text NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    tenant text,
    hash bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    change bigint DEFAULT 0 NOT NULL
);
CREATE TABLE public.audit_log (
    number bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    object text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL
);
ALTER TABLE public.audit_log ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_log_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.balances (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamp with time zone NOT NULL,
    period_end timestamp with time zone NOT NULL,
    granted numeric(28,9) DEFAULT 0 NOT NULL,
    rolled_in numeric(28,9) DEFAULT 0 NOT NULL,
    carried_in numeric(28,9) DEFAULT 0 NOT NULL,
    overage numeric(28,9) DEFAULT 0 NOT NULL,
    adjusted numeric(28,9) DEFAULT 0 NOT NULL,
    available numeric(28,9) DEFAULT 0 NOT NULL,
    reserved numeric(28,9) DEFAULT 0 NOT NULL,
    consumed numeric(28,9) DEFAULT 0 NOT NULL,
    lapsed numeric(28,9) DEFAULT 0 NOT NULL,
    voided numeric(28,9) DEFAULT 0 NOT NULL,
    rolled_out numeric(28,9) DEFAULT 0 NOT NULL,
    carried_out numeric(28,9) DEFAULT 0 NOT NULL,
    repaid numeric(28,9) DEFAULT 0 NOT NULL,
    CONSTRAINT balance_amounts_are_bounded CHECK (((granted < '1000000000000000000'::numeric) AND (rolled_in < '1000000000000000000'::numeric) AND (carried_in < '1000000000000000000'::numeric) AND (overage < '1000000000000000000'::numeric) AND (abs(adjusted) < '1000000000000000000'::numeric) AND (abs(available) < '1000000000000000000'::numeric) AND (reserved < '1000000000000000000'::numeric) AND (consumed < '1000000000000000000'::numeric) AND (lapsed < '1000000000000000000'::numeric) AND (voided < '1000000000000000000'::numeric) AND (rolled_out < '1000000000000000000'::numeric) AND (carried_out < '1000000000000000000'::numeric) AND (repaid < '1000000000000000000'::numeric)))
);
CREATE TABLE public.batches (
    chain smallint NOT NULL,
    number bigint NOT NULL,
    rows integer NOT NULL,
    hash bytea NOT NULL,
    previous bytea NOT NULL,
    booked_at timestamp with time zone NOT NULL,
    CONSTRAINT batch_has_rows CHECK ((rows > 0))
);
CREATE TABLE public.booked_keys (
    number bigint NOT NULL,
    ids bytea NOT NULL,
    CONSTRAINT booked_keys_are_whole CHECK (((length(ids) > 0) AND ((length(ids) % 16) = 0)))
);
ALTER TABLE public.booked_keys ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.booked_keys_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.calendars (
    tenant text NOT NULL,
    from_at timestamp with time zone NOT NULL,
    zone text NOT NULL,
    anchor_day smallint NOT NULL,
    first_period_end timestamp with time zone NOT NULL,
    CONSTRAINT calendar_anchor_is_a_day CHECK (((anchor_day >= 1) AND (anchor_day <= 31))),
    CONSTRAINT calendar_period_ends_after_it_starts CHECK ((first_period_end > from_at))
);
CREATE TABLE public.counter_generations (
    limit_id text NOT NULL,
    shape text NOT NULL,
    generation bigint NOT NULL,
    since_ms bigint NOT NULL,
    CONSTRAINT counter_generation_is_positive CHECK ((generation > 0))
);
CREATE TABLE public.cursors (
    partition smallint NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    sequence bigint DEFAULT 0 NOT NULL,
    event_hash bytea,
    booked_at timestamp with time zone DEFAULT now() NOT NULL,
    given_up bigint DEFAULT 0 NOT NULL,
    CONSTRAINT given_up_epoch_is_not_negative CHECK ((given_up >= 0))
);
CREATE TABLE public.damages (
    work text NOT NULL,
    item text NOT NULL,
    reason text NOT NULL,
    times bigint DEFAULT 1 NOT NULL,
    first_at timestamp with time zone DEFAULT now() NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.entries (
    tenant text NOT NULL,
    operation_id uuid NOT NULL,
    step integer NOT NULL,
    line smallint NOT NULL,
    leg smallint NOT NULL,
    meter text NOT NULL,
    period_start timestamp with time zone NOT NULL,
    credit public.account NOT NULL,
    debit public.account NOT NULL,
    amount numeric(28,9) NOT NULL,
    class public.entry_class NOT NULL,
    excess boolean DEFAULT false NOT NULL,
    late boolean DEFAULT false NOT NULL,
    carried boolean DEFAULT false NOT NULL,
    degraded boolean DEFAULT false NOT NULL,
    happened_at timestamp with time zone NOT NULL,
    booked_at timestamp with time zone NOT NULL,
    operation text NOT NULL,
    hour_at timestamp with time zone NOT NULL,
    subjects bigint[] NOT NULL,
    chain smallint NOT NULL,
    batch bigint NOT NULL,
    CONSTRAINT entry_amount_is_positive_and_bounded CHECK (((amount > (0)::numeric) AND (amount < '1000000000000000000'::numeric))),
    CONSTRAINT entry_moves_between_two_accounts CHECK ((credit <> debit)),
    CONSTRAINT entry_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4))
)
PARTITION BY RANGE (happened_at);
CREATE TABLE public.entries_2026_10 (
    tenant text NOT NULL,
    operation_id uuid NOT NULL,
    step integer NOT NULL,
    line smallint NOT NULL,
    leg smallint NOT NULL,
    meter text NOT NULL,
    period_start timestamp with time zone NOT NULL,
    credit public.account NOT NULL,
    debit public.account NOT NULL,
    amount numeric(28,9) NOT NULL,
    class public.entry_class NOT NULL,
    excess boolean DEFAULT false NOT NULL,
    late boolean DEFAULT false NOT NULL,
    carried boolean DEFAULT false NOT NULL,
    degraded boolean DEFAULT false NOT NULL,
    happened_at timestamp with time zone NOT NULL,
    booked_at timestamp with time zone NOT NULL,
    operation text NOT NULL,
    hour_at timestamp with time zone NOT NULL,
    subjects bigint[] NOT NULL,
    chain smallint NOT NULL,
    batch bigint NOT NULL,
    CONSTRAINT entry_amount_is_positive_and_bounded CHECK (((amount > (0)::numeric) AND (amount < '1000000000000000000'::numeric))),
    CONSTRAINT entry_moves_between_two_accounts CHECK ((credit <> debit)),
    CONSTRAINT entry_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4))
);
CREATE TABLE public.entries_2026_11 (
    tenant text NOT NULL,
    operation_id uuid NOT NULL,
    step integer NOT NULL,
    line smallint NOT NULL,
    leg smallint NOT NULL,
    meter text NOT NULL,
    period_start timestamp with time zone NOT NULL,
    credit public.account NOT NULL,
    debit public.account NOT NULL,
    amount numeric(28,9) NOT NULL,
    class public.entry_class NOT NULL,
    excess boolean DEFAULT false NOT NULL,
    late boolean DEFAULT false NOT NULL,
    carried boolean DEFAULT false NOT NULL,
    degraded boolean DEFAULT false NOT NULL,
    happened_at timestamp with time zone NOT NULL,
    booked_at timestamp with time zone NOT NULL,
    operation text NOT NULL,
    hour_at timestamp with time zone NOT NULL,
    subjects bigint[] NOT NULL,
    chain smallint NOT NULL,
    batch bigint NOT NULL,
    CONSTRAINT entry_amount_is_positive_and_bounded CHECK (((amount > (0)::numeric) AND (amount < '1000000000000000000'::numeric))),
    CONSTRAINT entry_moves_between_two_accounts CHECK ((credit <> debit)),
    CONSTRAINT entry_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4))
);
CREATE TABLE public.entries_2026_12 (
    tenant text NOT NULL,
    operation_id uuid NOT NULL,
    step integer NOT NULL,
    line smallint NOT NULL,
    leg smallint NOT NULL,
    meter text NOT NULL,
    period_start timestamp with time zone NOT NULL,
    credit public.account NOT NULL,
    debit public.account NOT NULL,
    amount numeric(28,9) NOT NULL,
    class public.entry_class NOT NULL,
    excess boolean DEFAULT false NOT NULL,
    late boolean DEFAULT false NOT NULL,
    carried boolean DEFAULT false NOT NULL,
    degraded boolean DEFAULT false NOT NULL,
    happened_at timestamp with time zone NOT NULL,
    booked_at timestamp with time zone NOT NULL,
    operation text NOT NULL,
    hour_at timestamp with time zone NOT NULL,
    subjects bigint[] NOT NULL,
    chain smallint NOT NULL,
    batch bigint NOT NULL,
    CONSTRAINT entry_amount_is_positive_and_bounded CHECK (((amount > (0)::numeric) AND (amount < '1000000000000000000'::numeric))),
    CONSTRAINT entry_moves_between_two_accounts CHECK ((credit <> debit)),
    CONSTRAINT entry_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4))
);
CREATE TABLE public.entries_2027_01 (
    tenant text NOT NULL,
    operation_id uuid NOT NULL,
    step integer NOT NULL,
    line smallint NOT NULL,
    leg smallint NOT NULL,
    meter text NOT NULL,
    period_start timestamp with time zone NOT NULL,
    credit public.account NOT NULL,
    debit public.account NOT NULL,
    amount numeric(28,9) NOT NULL,
    class public.entry_class NOT NULL,
    excess boolean DEFAULT false NOT NULL,
    late boolean DEFAULT false NOT NULL,
    carried boolean DEFAULT false NOT NULL,
    degraded boolean DEFAULT false NOT NULL,
    happened_at timestamp with time zone NOT NULL,
    booked_at timestamp with time zone NOT NULL,
    operation text NOT NULL,
    hour_at timestamp with time zone NOT NULL,
    subjects bigint[] NOT NULL,
    chain smallint NOT NULL,
    batch bigint NOT NULL,
    CONSTRAINT entry_amount_is_positive_and_bounded CHECK (((amount > (0)::numeric) AND (amount < '1000000000000000000'::numeric))),
    CONSTRAINT entry_moves_between_two_accounts CHECK ((credit <> debit)),
    CONSTRAINT entry_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4))
);
CREATE TABLE public.epoch_ends (
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    last_sequence bigint NOT NULL,
    noticed_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.epochs (
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    run_id text NOT NULL,
    adopted_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT epoch_is_not_negative CHECK ((epoch >= 0))
);
CREATE TABLE public.gaps (
    partition smallint NOT NULL,
    after_epoch bigint NOT NULL,
    after_sequence bigint NOT NULL,
    found_epoch bigint NOT NULL,
    found_sequence bigint NOT NULL,
    noticed_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.installation (
    only_row boolean DEFAULT true NOT NULL,
    partitions smallint NOT NULL,
    secret_fingerprint bytea NOT NULL,
    installed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT installation_is_one_row CHECK (only_row),
    CONSTRAINT installation_partitions_are_1_to_256 CHECK (((partitions >= 1) AND (partitions <= 256)))
);
CREATE TABLE public.job_runs (
    job text NOT NULL,
    scheduled_for timestamp with time zone NOT NULL,
    owner text NOT NULL,
    fence bigint NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    finished_at timestamp with time zone,
    succeeded boolean,
    outcome text,
    CONSTRAINT finished_job_run_has_an_outcome CHECK ((((finished_at IS NULL) = (outcome IS NULL)) AND ((finished_at IS NULL) = (succeeded IS NULL)))),
    CONSTRAINT job_run_fence_is_positive CHECK ((fence > 0))
);
CREATE TABLE public.jobs (
    name text NOT NULL,
    next_due timestamp with time zone NOT NULL,
    rings bigint DEFAULT 0 NOT NULL,
    served bigint DEFAULT 0 NOT NULL,
    planned_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.key_changes (
    only_row boolean DEFAULT true NOT NULL,
    number bigint NOT NULL,
    CONSTRAINT key_changes_has_one_row CHECK (only_row)
);
CREATE TABLE public.key_filters (
    partition smallint NOT NULL,
    up_to bigint NOT NULL,
    keys bigint NOT NULL,
    merged_at timestamp with time zone NOT NULL,
    filter bytea NOT NULL
);
CREATE TABLE public.key_seal (
    is_the_one boolean DEFAULT true NOT NULL,
    sealed_at timestamp with time zone,
    CONSTRAINT there_is_one_seal CHECK (is_the_one)
);
CREATE TABLE public.key_stretches (
    partition smallint NOT NULL,
    number bigint NOT NULL,
    sealed_at timestamp with time zone NOT NULL,
    keys bytea NOT NULL,
    filter bytea,
    CONSTRAINT stretch_keys_are_whole CHECK (((length(keys) > 0) AND ((length(keys) % 8) = 0)))
);
CREATE TABLE public.leases (
    name text NOT NULL,
    owner text NOT NULL,
    fence bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE public.losses (
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    tenant text NOT NULL,
    reservation_id uuid NOT NULL,
    kind text NOT NULL,
    meters text[] NOT NULL,
    held numeric(28,9)[] NOT NULL,
    consumed numeric(28,9)[] NOT NULL,
    noticed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT loss_kind_is_known CHECK ((kind = ANY (ARRAY['reserve'::text, 'usage'::text, 'consume'::text, 'release'::text, 'extend'::text]))),
    CONSTRAINT loss_names_units_per_meter CHECK (((cardinality(meters) = cardinality(held)) AND (cardinality(meters) = cardinality(consumed))))
);
CREATE TABLE public.parked (
    tenant text NOT NULL,
    number bigint NOT NULL,
    partition smallint NOT NULL,
    reservation_id uuid NOT NULL,
    call text NOT NULL,
    taken_at timestamp with time zone NOT NULL,
    payload bytea NOT NULL,
    fingerprint bytea,
    state text DEFAULT 'waiting'::text NOT NULL,
    reason text,
    parked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    settled_at timestamp with time zone,
    CONSTRAINT parked_admission_has_a_fingerprint CHECK (((call = ANY (ARRAY['reserve'::text, 'usage'::text])) = (fingerprint IS NOT NULL))),
    CONSTRAINT parked_call_is_known CHECK ((call = ANY (ARRAY['reserve'::text, 'usage'::text, 'consume'::text, 'release'::text]))),
    CONSTRAINT parked_conflict_has_a_reason CHECK (((state = 'conflict'::text) = (reason IS NOT NULL))),
    CONSTRAINT parked_state_is_known CHECK ((state = ANY (ARRAY['waiting'::text, 'done'::text, 'conflict'::text])))
);
ALTER TABLE public.parked ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.parked_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.policy_history (
    kind text NOT NULL,
    id text NOT NULL,
    version bigint NOT NULL,
    policy_version bigint NOT NULL,
    definition jsonb,
    changed_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.policy_objects (
    kind text NOT NULL,
    id text NOT NULL,
    version bigint NOT NULL,
    definition jsonb NOT NULL,
    archived boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT policy_object_kind_is_known CHECK ((kind = ANY (ARRAY['meter'::text, 'operation'::text, 'limit'::text, 'plan'::text])))
);
CREATE TABLE public.policy_version (
    only_row boolean DEFAULT true NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT policy_version_is_one_row CHECK (only_row)
);
CREATE TABLE public.quarantine (
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    reservation_id uuid,
    tenant text,
    event bytea NOT NULL,
    reason text NOT NULL,
    status text DEFAULT 'open'::text NOT NULL,
    tries integer DEFAULT 1 NOT NULL,
    first_at timestamp with time zone DEFAULT now() NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT quarantine_status_is_known CHECK ((status = ANY (ARRAY['open'::text, 'resolved'::text, 'discarded'::text])))
);
CREATE TABLE public.quota_periods (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamp with time zone NOT NULL,
    period_end timestamp with time zone NOT NULL,
    decimals smallint NOT NULL,
    included numeric(28,9) NOT NULL,
    version bigint NOT NULL,
    opened_at timestamp with time zone DEFAULT now() NOT NULL,
    delivered_at timestamp with time zone,
    CONSTRAINT quota_decimals_are_0_to_6 CHECK (((decimals >= 0) AND (decimals <= 6))),
    CONSTRAINT quota_included_is_bounded CHECK (((included >= (0)::numeric) AND (included < '1000000000000000000'::numeric))),
    CONSTRAINT quota_period_ends_after_it_starts CHECK ((period_end > period_start))
);
CREATE TABLE public.reconciliations (
    tenant text NOT NULL,
    checkpoint_id uuid NOT NULL,
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    taken_at timestamp with time zone NOT NULL,
    judged_at timestamp with time zone DEFAULT now() NOT NULL,
    counters integer NOT NULL,
    differences jsonb DEFAULT '[]'::jsonb NOT NULL,
    quarantined bigint NOT NULL,
    gaps bigint NOT NULL,
    state text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    claimed_until timestamp with time zone,
    CONSTRAINT reconciliation_counters_are_not_negative CHECK ((counters >= 0)),
    CONSTRAINT reconciliation_state_is_known CHECK ((state = ANY (ARRAY['clean'::text, 'drift'::text, 'repaired'::text, 'refused'::text])))
);
CREATE TABLE public.repeats (
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    reservation_id uuid NOT NULL,
    noticed_at timestamp with time zone DEFAULT now() NOT NULL,
    tenant text,
    event bytea,
    undone_at timestamp with time zone,
    undone_sequence bigint
);
CREATE TABLE public.reservations (
    partition smallint NOT NULL,
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    step integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    uncharged bigint[],
    fingerprint bytea NOT NULL,
    keyed boolean NOT NULL,
    operation text NOT NULL,
    policy_version bigint NOT NULL,
    period_start timestamp with time zone NOT NULL,
    meters text[] NOT NULL,
    subjects bigint[] NOT NULL,
    born_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT reservation_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4)),
    CONSTRAINT reservation_state_is_known CHECK ((state = ANY (ARRAY['reserved'::text, 'consumed'::text, 'released'::text, 'expired'::text]))),
    CONSTRAINT reservation_step_is_positive CHECK ((step > 0))
)
PARTITION BY HASH (partition);
CREATE TABLE public.reservations_0 (
    partition smallint NOT NULL,
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    step integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    uncharged bigint[],
    fingerprint bytea NOT NULL,
    keyed boolean NOT NULL,
    operation text NOT NULL,
    policy_version bigint NOT NULL,
    period_start timestamp with time zone NOT NULL,
    meters text[] NOT NULL,
    subjects bigint[] NOT NULL,
    born_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT reservation_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4)),
    CONSTRAINT reservation_state_is_known CHECK ((state = ANY (ARRAY['reserved'::text, 'consumed'::text, 'released'::text, 'expired'::text]))),
    CONSTRAINT reservation_step_is_positive CHECK ((step > 0))
);
CREATE TABLE public.reservations_1 (
    partition smallint NOT NULL,
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    step integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    uncharged bigint[],
    fingerprint bytea NOT NULL,
    keyed boolean NOT NULL,
    operation text NOT NULL,
    policy_version bigint NOT NULL,
    period_start timestamp with time zone NOT NULL,
    meters text[] NOT NULL,
    subjects bigint[] NOT NULL,
    born_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT reservation_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4)),
    CONSTRAINT reservation_state_is_known CHECK ((state = ANY (ARRAY['reserved'::text, 'consumed'::text, 'released'::text, 'expired'::text]))),
    CONSTRAINT reservation_step_is_positive CHECK ((step > 0))
);
CREATE TABLE public.reservations_2 (
    partition smallint NOT NULL,
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    step integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    uncharged bigint[],
    fingerprint bytea NOT NULL,
    keyed boolean NOT NULL,
    operation text NOT NULL,
    policy_version bigint NOT NULL,
    period_start timestamp with time zone NOT NULL,
    meters text[] NOT NULL,
    subjects bigint[] NOT NULL,
    born_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT reservation_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4)),
    CONSTRAINT reservation_state_is_known CHECK ((state = ANY (ARRAY['reserved'::text, 'consumed'::text, 'released'::text, 'expired'::text]))),
    CONSTRAINT reservation_step_is_positive CHECK ((step > 0))
);
CREATE TABLE public.reservations_3 (
    partition smallint NOT NULL,
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    step integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    uncharged bigint[],
    fingerprint bytea NOT NULL,
    keyed boolean NOT NULL,
    operation text NOT NULL,
    policy_version bigint NOT NULL,
    period_start timestamp with time zone NOT NULL,
    meters text[] NOT NULL,
    subjects bigint[] NOT NULL,
    born_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT reservation_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4)),
    CONSTRAINT reservation_state_is_known CHECK ((state = ANY (ARRAY['reserved'::text, 'consumed'::text, 'released'::text, 'expired'::text]))),
    CONSTRAINT reservation_step_is_positive CHECK ((step > 0))
);
CREATE TABLE public.reservations_4 (
    partition smallint NOT NULL,
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    step integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    uncharged bigint[],
    fingerprint bytea NOT NULL,
    keyed boolean NOT NULL,
    operation text NOT NULL,
    policy_version bigint NOT NULL,
    period_start timestamp with time zone NOT NULL,
    meters text[] NOT NULL,
    subjects bigint[] NOT NULL,
    born_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT reservation_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4)),
    CONSTRAINT reservation_state_is_known CHECK ((state = ANY (ARRAY['reserved'::text, 'consumed'::text, 'released'::text, 'expired'::text]))),
    CONSTRAINT reservation_step_is_positive CHECK ((step > 0))
);
CREATE TABLE public.reservations_5 (
    partition smallint NOT NULL,
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    step integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    uncharged bigint[],
    fingerprint bytea NOT NULL,
    keyed boolean NOT NULL,
    operation text NOT NULL,
    policy_version bigint NOT NULL,
    period_start timestamp with time zone NOT NULL,
    meters text[] NOT NULL,
    subjects bigint[] NOT NULL,
    born_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT reservation_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4)),
    CONSTRAINT reservation_state_is_known CHECK ((state = ANY (ARRAY['reserved'::text, 'consumed'::text, 'released'::text, 'expired'::text]))),
    CONSTRAINT reservation_step_is_positive CHECK ((step > 0))
);
CREATE TABLE public.reservations_6 (
    partition smallint NOT NULL,
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    step integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    uncharged bigint[],
    fingerprint bytea NOT NULL,
    keyed boolean NOT NULL,
    operation text NOT NULL,
    policy_version bigint NOT NULL,
    period_start timestamp with time zone NOT NULL,
    meters text[] NOT NULL,
    subjects bigint[] NOT NULL,
    born_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT reservation_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4)),
    CONSTRAINT reservation_state_is_known CHECK ((state = ANY (ARRAY['reserved'::text, 'consumed'::text, 'released'::text, 'expired'::text]))),
    CONSTRAINT reservation_step_is_positive CHECK ((step > 0))
);
CREATE TABLE public.reservations_7 (
    partition smallint NOT NULL,
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    step integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    uncharged bigint[],
    fingerprint bytea NOT NULL,
    keyed boolean NOT NULL,
    operation text NOT NULL,
    policy_version bigint NOT NULL,
    period_start timestamp with time zone NOT NULL,
    meters text[] NOT NULL,
    subjects bigint[] NOT NULL,
    born_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT reservation_names_at_most_four_subjects CHECK ((cardinality(subjects) <= 4)),
    CONSTRAINT reservation_state_is_known CHECK ((state = ANY (ARRAY['reserved'::text, 'consumed'::text, 'released'::text, 'expired'::text]))),
    CONSTRAINT reservation_step_is_positive CHECK ((step > 0))
);
CREATE TABLE public.reservations_archive (
    partition smallint NOT NULL,
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    step integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    uncharged bigint[],
    fingerprint bytea NOT NULL,
    keyed boolean NOT NULL,
    operation text NOT NULL,
    policy_version bigint NOT NULL,
    period_start timestamp with time zone NOT NULL,
    meters text[] NOT NULL,
    subjects bigint[] NOT NULL,
    born_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    archived_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.subjects (
    tenant text NOT NULL,
    number bigint NOT NULL,
    kind text NOT NULL,
    id text NOT NULL
);
ALTER TABLE public.subjects ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.subjects_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.tenants (
    id text NOT NULL,
    partition smallint NOT NULL,
    version bigint NOT NULL,
    definition jsonb NOT NULL,
    counter_resets jsonb DEFAULT '[]'::jsonb NOT NULL,
    archived boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.usage_hourly (
    tenant text NOT NULL,
    meter text NOT NULL,
    hour_at timestamp with time zone NOT NULL,
    operation text NOT NULL,
    subject bigint NOT NULL,
    consumed numeric(28,9) NOT NULL,
    count bigint NOT NULL,
    excess numeric(28,9) NOT NULL,
    late numeric(28,9) NOT NULL,
    CONSTRAINT usage_amounts_are_bounded CHECK (((consumed < '1000000000000000000'::numeric) AND (excess < '1000000000000000000'::numeric) AND (late < '1000000000000000000'::numeric)))
);
ALTER TABLE ONLY public.entries ATTACH PARTITION public.entries_2026_10 FOR VALUES FROM ('2026-10-01 00:00:00+00') TO ('2026-11-01 00:00:00+00');
ALTER TABLE ONLY public.entries ATTACH PARTITION public.entries_2026_11 FOR VALUES FROM ('2026-11-01 00:00:00+00') TO ('2026-12-01 00:00:00+00');
ALTER TABLE ONLY public.entries ATTACH PARTITION public.entries_2026_12 FOR VALUES FROM ('2026-12-01 00:00:00+00') TO ('2027-01-01 00:00:00+00');
ALTER TABLE ONLY public.entries ATTACH PARTITION public.entries_2027_01 FOR VALUES FROM ('2027-01-01 00:00:00+00') TO ('2027-02-01 00:00:00+00');
ALTER TABLE ONLY public.reservations ATTACH PARTITION public.reservations_0 FOR VALUES WITH (modulus 8, remainder 0);
ALTER TABLE ONLY public.reservations ATTACH PARTITION public.reservations_1 FOR VALUES WITH (modulus 8, remainder 1);
ALTER TABLE ONLY public.reservations ATTACH PARTITION public.reservations_2 FOR VALUES WITH (modulus 8, remainder 2);
ALTER TABLE ONLY public.reservations ATTACH PARTITION public.reservations_3 FOR VALUES WITH (modulus 8, remainder 3);
ALTER TABLE ONLY public.reservations ATTACH PARTITION public.reservations_4 FOR VALUES WITH (modulus 8, remainder 4);
ALTER TABLE ONLY public.reservations ATTACH PARTITION public.reservations_5 FOR VALUES WITH (modulus 8, remainder 5);
ALTER TABLE ONLY public.reservations ATTACH PARTITION public.reservations_6 FOR VALUES WITH (modulus 8, remainder 6);
ALTER TABLE ONLY public.reservations ATTACH PARTITION public.reservations_7 FOR VALUES WITH (modulus 8, remainder 7);
INSERT INTO public.__diesel_schema_migrations VALUES
	('20261101100000', '2026-11-22 21:42:33.403332'),
	('20261101100100', '2026-11-22 21:42:33.438329'),
	('20261101100200', '2026-11-22 21:42:33.457264'),
	('20261101100300', '2026-11-22 21:42:33.542673'),
	('20261101100400', '2026-11-22 21:42:33.569781'),
	('20261101100500', '2026-11-22 21:42:33.59564'),
	('20261121100000', '2026-11-22 21:42:33.603617'),
	('20261121100100', '2026-11-22 21:42:33.639585'),
	('20261121100200', '2026-11-22 21:42:33.66289'),
	('20261121100210', '2026-11-22 21:42:33.673777'),
	('20261121100220', '2026-11-22 21:42:33.679499'),
	('20261121100230', '2026-11-22 21:42:33.688904'),
	('20261121100240', '2026-11-22 21:42:33.697104'),
	('20261121100260', '2026-11-22 21:42:33.703577'),
	('20261122110000', '2026-11-22 21:42:33.71166'),
	('20261122120000', '2026-11-22 21:42:33.71961'),
	('20261122140000', '2026-11-22 21:42:33.724606'),
	('20261122150000', '2026-11-22 21:42:33.775653'),
	('20261122160000', '2026-11-22 21:42:33.785602'),
	('20261122160100', '2026-11-22 21:42:33.791606'),
	('20261122170000', '2026-11-22 21:42:33.796735'),
	('20261122180000', '2026-11-22 21:42:33.799569'),
	('20261122190000', '2026-11-22 21:42:33.804755'),
	('20261122195000', '2026-11-22 21:42:33.80755'),
	('20261122195500', '2026-11-22 21:42:33.815604');
INSERT INTO public.api_keys VALUES
	('4fa59c57f6ca', 'first admin', 'admin', NULL, '\xc87766122a2fb0eef9f6c87d79b1ad6edf759455367a20cc2a3c318075ceb9fd', '2026-11-22 21:42:33.976+00', NULL, NULL, 1);
INSERT INTO public.audit_log OVERRIDING SYSTEM VALUE VALUES
	(1, '2026-11-22 21:42:33.978416+00', 'installation', 'create', 'key 4fa59c57f6ca', '{"role": "admin", "tenant": null}'),
	(2, '2026-11-22 21:42:34.054691+00', '4fa59c57f6ca', 'put', 'meter page', '{"version": 1}'),
	(3, '2026-11-22 21:42:34.144944+00', '4fa59c57f6ca', 'put', 'plan plan', '{"version": 1}'),
	(4, '2026-11-22 21:42:34.243887+00', '4fa59c57f6ca', 'put', 'tenant acme', '{"version": 1}');
INSERT INTO public.balances VALUES
	('acme', 'page', '2026-10-31 23:00:00+00', '2026-11-30 23:00:00+00', 200.000000000, 0.000000000, 0.000000000, 0.000000000, 0.000000000, 187.500000000, 7.000000000, 5.500000000, 0.000000000, 0.000000000, 0.000000000, 0.000000000, 0.000000000);
INSERT INTO public.batches VALUES
	(315, 1, 1, '\xeb9eb132f648f72a4e0bfac8b6a5894be718a2fc7c981c5ba7f1a30624c051ee', '\x0000000000000000000000000000000000000000000000000000000000000000', '2026-11-22 21:42:34.342434+00'),
	(59, 1, 9, '\xc5cc65ff9e406741ce3fba6733b28379f7fa767dbe199b90ba5d73f34e6c74d8', '\x0000000000000000000000000000000000000000000000000000000000000000', '2026-11-22 21:42:34.372503+00'),
	(59, 2, 1, '\xa198569af7d2e003f3ee0dfd442acff6c9658fac9ec7ad3733689262667b83ec', '\xc5cc65ff9e406741ce3fba6733b28379f7fa767dbe199b90ba5d73f34e6c74d8', '2026-11-22 21:42:34.409823+00'),
	(59, 3, 1, '\x6d428f0a9f41672a56f540eba1a7aae13f27d02d5b43973e0e893526f5c35468', '\xa198569af7d2e003f3ee0dfd442acff6c9658fac9ec7ad3733689262667b83ec', '2026-11-22 21:42:34.520819+00');
INSERT INTO public.booked_keys OVERRIDING SYSTEM VALUE VALUES
	(1, '\xd502e6d0caae843996e68e263b9e2bc0893b2076d2228e33b330f4f13b56d269175248ace9d08da2907a02ea3b49dbf6464b02fc4bc18ef0ab77c77b3b438131'),
	(2, '\xc9df5770df678cf5b35048b13b524be8');
INSERT INTO public.counter_generations VALUES
	('hour', '9e5d4a68ada3600890ec4d448b2fd81d', 1, 1794312000000),
	('quota/page', '04223f207dfff49111dd4b02177170f8', 1, 1794312000000),
	('user', '2183f6ecbf17ee93a1b08a83dbf61c5b', 1, 1794312000000);
INSERT INTO public.cursors VALUES
	(0, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(1, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(2, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(3, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(4, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(5, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(6, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(7, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(8, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(9, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(10, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(11, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(12, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(13, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(14, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(15, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(16, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(17, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(18, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(19, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(20, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(21, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(22, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(23, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(24, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(25, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(26, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(27, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(28, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(29, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(30, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(31, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(32, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(33, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(34, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(35, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(36, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(37, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(38, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(39, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(40, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(41, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(42, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(43, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(44, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(45, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(46, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(47, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(48, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(49, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(50, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(51, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(52, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(53, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(54, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(55, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(56, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(57, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(58, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(60, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(61, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(62, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(63, 0, 0, NULL, '2026-11-22 21:42:33.827923+00', 0),
	(59, 1, 9, '\x567a61180f3e7bcebc460444a4109123702df08a5e2d0603e2e80e582fa82bb7', '2026-11-22 21:42:34.520819+00', 0);
INSERT INTO public.entries_2026_10 VALUES
	('acme', 'bbc6cccc-afe1-8d22-9615-85ad5df161ea', 1, 0, 0, 'page', '2026-10-31 23:00:00+00', 'granted', 'available', 200.000000000, 'grant', false, false, false, false, '2026-10-31 23:00:00+00', '2026-11-22 21:42:34.342434+00', '', '2026-10-31 23:00:00+00', '{}', 315, 1);
INSERT INTO public.entries_2026_11 VALUES
	('acme', '01a1c554-5200-8ee0-928a-b5473b73bb21', 1, 0, 0, 'page', '2026-10-31 23:00:00+00', 'available', 'reserved', 5.000000000, 'usage', false, false, false, false, '2026-11-10 12:00:00+00', '2026-11-22 21:42:34.372503+00', '', '2026-11-10 12:00:00+00', '{1}', 59, 1),
	('acme', '01a1c554-5200-8ee0-928a-b5473b73bb21', 2, 0, 0, 'page', '2026-10-31 23:00:00+00', 'reserved', 'consumed', 2.000000000, 'usage', false, false, false, false, '2026-11-10 12:00:00+00', '2026-11-22 21:42:34.372503+00', '', '2026-11-10 12:00:00+00', '{1}', 59, 1),
	('acme', '175248ac-e9d0-8da2-907a-02ea3b49dbf6', 1, 0, 0, 'page', '2026-10-31 23:00:00+00', 'available', 'reserved', 6.000000000, 'usage', false, false, false, false, '2026-11-10 12:00:00+00', '2026-11-22 21:42:34.372503+00', '', '2026-11-10 12:00:00+00', '{1}', 59, 1),
	('acme', '175248ac-e9d0-8da2-907a-02ea3b49dbf6', 2, 0, 0, 'page', '2026-10-31 23:00:00+00', 'reserved', 'available', 6.000000000, 'usage', false, false, false, false, '2026-11-10 12:00:00+00', '2026-11-22 21:42:34.372503+00', '', '2026-11-10 12:00:00+00', '{1}', 59, 1),
	('acme', '464b02fc-4bc1-8ef0-ab77-c77b3b438131', 1, 0, 0, 'page', '2026-10-31 23:00:00+00', 'available', 'reserved', 7.000000000, 'usage', false, false, false, false, '2026-11-10 12:00:00+00', '2026-11-22 21:42:34.372503+00', '', '2026-11-10 12:00:00+00', '{1}', 59, 1),
	('acme', '893b2076-d222-8e33-b330-f4f13b56d269', 1, 0, 0, 'page', '2026-10-31 23:00:00+00', 'available', 'reserved', 3.000000000, 'usage', false, false, false, false, '2026-11-10 12:00:00+00', '2026-11-22 21:42:34.372503+00', '', '2026-11-10 12:00:00+00', '{1}', 59, 1),
	('acme', '893b2076-d222-8e33-b330-f4f13b56d269', 2, 0, 0, 'page', '2026-10-31 23:00:00+00', 'reserved', 'consumed', 2.500000000, 'usage', false, false, false, false, '2026-11-10 12:00:00+00', '2026-11-22 21:42:34.372503+00', '', '2026-11-10 12:00:00+00', '{1}', 59, 1),
	('acme', '893b2076-d222-8e33-b330-f4f13b56d269', 2, 0, 1, 'page', '2026-10-31 23:00:00+00', 'reserved', 'available', 0.500000000, 'usage', false, false, false, false, '2026-11-10 12:00:00+00', '2026-11-22 21:42:34.372503+00', '', '2026-11-10 12:00:00+00', '{1}', 59, 1),
	('acme', 'd502e6d0-caae-8439-96e6-8e263b9e2bc0', 1, 0, 0, 'page', '2026-10-31 23:00:00+00', 'available', 'reserved', 4.000000000, 'usage', false, false, false, false, '2026-11-10 12:00:00+00', '2026-11-22 21:42:34.372503+00', '', '2026-11-10 12:00:00+00', '{1}', 59, 1),
	('acme', 'c9df5770-df67-8cf5-b350-48b13b524be8', 1, 0, 0, 'page', '2026-10-31 23:00:00+00', 'available', 'consumed', 1.000000000, 'usage', false, false, false, false, '2026-11-10 12:00:00+00', '2026-11-22 21:42:34.409823+00', '', '2026-11-10 12:00:00+00', '{1}', 59, 2),
	('acme', '464b02fc-4bc1-8ef0-ab77-c77b3b438131', 2, 0, 0, 'page', '2026-10-31 23:00:00+00', 'reserved', 'available', 7.000000000, 'usage', false, false, false, false, '2026-11-10 12:02:00+00', '2026-11-22 21:42:34.520819+00', '', '2026-11-10 12:00:00+00', '{1}', 59, 3);
INSERT INTO public.epochs VALUES
	(0, 0, '', '2026-11-22 21:42:33.827923+00'),
	(1, 0, '', '2026-11-22 21:42:33.827923+00'),
	(2, 0, '', '2026-11-22 21:42:33.827923+00'),
	(3, 0, '', '2026-11-22 21:42:33.827923+00'),
	(4, 0, '', '2026-11-22 21:42:33.827923+00'),
	(5, 0, '', '2026-11-22 21:42:33.827923+00'),
	(6, 0, '', '2026-11-22 21:42:33.827923+00'),
	(7, 0, '', '2026-11-22 21:42:33.827923+00'),
	(8, 0, '', '2026-11-22 21:42:33.827923+00'),
	(9, 0, '', '2026-11-22 21:42:33.827923+00'),
	(10, 0, '', '2026-11-22 21:42:33.827923+00'),
	(11, 0, '', '2026-11-22 21:42:33.827923+00'),
	(12, 0, '', '2026-11-22 21:42:33.827923+00'),
	(13, 0, '', '2026-11-22 21:42:33.827923+00'),
	(14, 0, '', '2026-11-22 21:42:33.827923+00'),
	(15, 0, '', '2026-11-22 21:42:33.827923+00'),
	(16, 0, '', '2026-11-22 21:42:33.827923+00'),
	(17, 0, '', '2026-11-22 21:42:33.827923+00'),
	(18, 0, '', '2026-11-22 21:42:33.827923+00'),
	(19, 0, '', '2026-11-22 21:42:33.827923+00'),
	(20, 0, '', '2026-11-22 21:42:33.827923+00'),
	(21, 0, '', '2026-11-22 21:42:33.827923+00'),
	(22, 0, '', '2026-11-22 21:42:33.827923+00'),
	(23, 0, '', '2026-11-22 21:42:33.827923+00'),
	(24, 0, '', '2026-11-22 21:42:33.827923+00'),
	(25, 0, '', '2026-11-22 21:42:33.827923+00'),
	(26, 0, '', '2026-11-22 21:42:33.827923+00'),
	(27, 0, '', '2026-11-22 21:42:33.827923+00'),
	(28, 0, '', '2026-11-22 21:42:33.827923+00'),
	(29, 0, '', '2026-11-22 21:42:33.827923+00'),
	(30, 0, '', '2026-11-22 21:42:33.827923+00'),
	(31, 0, '', '2026-11-22 21:42:33.827923+00'),
	(32, 0, '', '2026-11-22 21:42:33.827923+00'),
	(33, 0, '', '2026-11-22 21:42:33.827923+00'),
	(34, 0, '', '2026-11-22 21:42:33.827923+00'),
	(35, 0, '', '2026-11-22 21:42:33.827923+00'),
	(36, 0, '', '2026-11-22 21:42:33.827923+00'),
	(37, 0, '', '2026-11-22 21:42:33.827923+00'),
	(38, 0, '', '2026-11-22 21:42:33.827923+00'),
	(39, 0, '', '2026-11-22 21:42:33.827923+00'),
	(40, 0, '', '2026-11-22 21:42:33.827923+00'),
	(41, 0, '', '2026-11-22 21:42:33.827923+00'),
	(42, 0, '', '2026-11-22 21:42:33.827923+00'),
	(43, 0, '', '2026-11-22 21:42:33.827923+00'),
	(44, 0, '', '2026-11-22 21:42:33.827923+00'),
	(45, 0, '', '2026-11-22 21:42:33.827923+00'),
	(46, 0, '', '2026-11-22 21:42:33.827923+00'),
	(47, 0, '', '2026-11-22 21:42:33.827923+00'),
	(48, 0, '', '2026-11-22 21:42:33.827923+00'),
	(49, 0, '', '2026-11-22 21:42:33.827923+00'),
	(50, 0, '', '2026-11-22 21:42:33.827923+00'),
	(51, 0, '', '2026-11-22 21:42:33.827923+00'),
	(52, 0, '', '2026-11-22 21:42:33.827923+00'),
	(53, 0, '', '2026-11-22 21:42:33.827923+00'),
	(54, 0, '', '2026-11-22 21:42:33.827923+00'),
	(55, 0, '', '2026-11-22 21:42:33.827923+00'),
	(56, 0, '', '2026-11-22 21:42:33.827923+00'),
	(57, 0, '', '2026-11-22 21:42:33.827923+00'),
	(58, 0, '', '2026-11-22 21:42:33.827923+00'),
	(59, 0, '', '2026-11-22 21:42:33.827923+00'),
	(60, 0, '', '2026-11-22 21:42:33.827923+00'),
	(61, 0, '', '2026-11-22 21:42:33.827923+00'),
	(62, 0, '', '2026-11-22 21:42:33.827923+00'),
	(63, 0, '', '2026-11-22 21:42:33.827923+00'),
	(0, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(1, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(2, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(3, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(4, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(5, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(6, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(7, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(8, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(9, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(10, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(11, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(12, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(13, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(14, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(15, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(16, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(17, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(18, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(19, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(20, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(21, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(22, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(23, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(24, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(25, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(26, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(27, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(28, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(29, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(30, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(31, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(32, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(33, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(34, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(35, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00');
INSERT INTO public.epochs VALUES
	(36, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(37, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(38, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(39, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(40, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(41, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(42, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(43, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(44, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(45, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(46, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(47, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(48, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(49, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(50, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(51, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(52, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(53, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(54, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(55, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(56, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(57, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(58, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(59, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(60, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(61, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(62, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00'),
	(63, 1, '5577c4753332d67ebcf7b2997093eb9bcf9709a6', '2026-11-22 21:42:33.871779+00');
INSERT INTO public.installation VALUES
	(true, 64, '\x8f6c58d2562442382dc8cb7b9eeea22fb32a29fbe8d4ac56be265bdfc3577233', '2026-11-22 21:42:33.827923+00');
INSERT INTO public.job_runs VALUES
	('keys', '2026-11-10 12:00:00+00', 'jobs/01a20535-fcdb-7481-9580-b77820e3fa7a', 1, '2026-11-22 21:42:39.972809+00', '2026-11-22 21:42:33.97281+00', '2026-11-22 21:42:33.983977+00', true, 'sealed 0 keys and merged 0 partitions'),
	('periods', '2026-11-10 12:00:00+00', 'jobs/01a20535-fcdb-7481-9580-b77820e3fa7a', 1, '2026-11-22 21:42:39.995891+00', '2026-11-22 21:42:33.995891+00', '2026-11-22 21:42:34.030445+00', true, 'opened 0 and delivered 0'),
	('restore', '2026-11-10 12:00:00+00', 'jobs/01a20535-fcdb-7481-9580-b77820e3fa7a', 1, '2026-11-22 21:42:40.036118+00', '2026-11-22 21:42:34.036119+00', '2026-11-22 21:42:34.171062+00', true, 'restored 0 tenants and 0 subjects, told 0 forgotten holds'),
	('retention', '2026-11-10 12:00:00+00', 'jobs/01a20535-fcdb-7481-9580-b77820e3fa7a', 1, '2026-11-22 21:42:40.120993+00', '2026-11-22 21:42:34.120994+00', '2026-11-22 21:42:34.238596+00', true, 'reservations archived: 0, runs dropped: 0, comparisons dropped: 0, repeats dropped: 0, leases dropped: 0, damages dropped: 0'),
	('partitions', '2026-11-10 12:00:00+00', 'jobs/01a20535-fcdb-7481-9580-b77820e3fa7a', 1, '2026-11-22 21:42:39.98433+00', '2026-11-22 21:42:33.984331+00', '2026-11-22 21:42:34.335564+00', true, 'made 3 months'),
	('restore', '2026-11-10 12:01:00+00', 'jobs/01a20535-fcdb-7481-9580-b77820e3fa7a', 1, '2026-11-22 21:42:40.456147+00', '2026-11-22 21:42:34.456148+00', '2026-11-22 21:42:34.473788+00', true, 'restored 0 tenants and 0 subjects, told 0 forgotten holds');
INSERT INTO public.jobs VALUES
	('keys', '2026-11-10 13:00:00+00', 0, 0, '2026-11-22 21:42:33.965261+00'),
	('periods', '2026-11-10 12:05:00+00', 0, 0, '2026-11-22 21:42:33.965261+00'),
	('retention', '2026-11-10 13:00:00+00', 0, 0, '2026-11-22 21:42:33.965261+00'),
	('partitions', '2026-11-10 13:00:00+00', 0, 0, '2026-11-22 21:42:33.965261+00'),
	('restore', '2026-11-10 12:03:00+00', 0, 0, '2026-11-22 21:42:33.965261+00');
INSERT INTO public.key_changes VALUES
	(true, 1);
INSERT INTO public.key_seal VALUES
	(true, '2026-11-10 12:00:00+00');
INSERT INTO public.leases VALUES
	('check/node', 'check/d0c2a1cb9e31dab37476955683cb3a2e', 1, '2026-11-22 21:42:33.918098+00'),
	('writer/p08', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845332+00'),
	('writer/p09', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845342+00'),
	('writer/p10', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845344+00'),
	('writer/p11', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845346+00'),
	('writer/p12', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845348+00'),
	('writer/p13', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.84535+00'),
	('writer/p14', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845352+00'),
	('writer/p15', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845354+00'),
	('writer/p16', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845356+00'),
	('writer/p17', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845358+00'),
	('writer/p18', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.84536+00'),
	('writer/p19', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845362+00'),
	('writer/p20', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845364+00'),
	('writer/p21', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845366+00'),
	('sweep', 'sweep/01a20535-fcda-7630-b72f-1ab05729c8e6', 1, '2026-11-22 21:43:26.300785+00'),
	('writer/p00', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845264+00'),
	('writer/p01', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845312+00'),
	('writer/p02', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845317+00'),
	('writer/p03', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.84532+00'),
	('writer/p04', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845323+00'),
	('writer/p05', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845326+00'),
	('writer/p06', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845328+00'),
	('writer/p07', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.84533+00'),
	('writer/p22', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845367+00'),
	('writer/p23', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845379+00'),
	('writer/p24', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845381+00'),
	('writer/p25', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845383+00'),
	('writer/p26', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845385+00'),
	('writer/p27', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845387+00'),
	('writer/p28', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845389+00'),
	('writer/p29', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845391+00'),
	('writer/p30', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845393+00'),
	('writer/p31', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845395+00'),
	('writer/p32', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845397+00'),
	('writer/p33', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845399+00'),
	('writer/p34', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845401+00'),
	('writer/p35', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845403+00'),
	('writer/p36', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845405+00'),
	('writer/p37', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845407+00'),
	('writer/p38', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845409+00'),
	('writer/p39', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845411+00'),
	('writer/p40', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845413+00'),
	('writer/p41', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845415+00'),
	('writer/p42', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845416+00'),
	('writer/p43', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845418+00'),
	('writer/p44', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.84542+00'),
	('writer/p45', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845422+00'),
	('writer/p46', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845424+00'),
	('writer/p47', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845426+00'),
	('writer/p48', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845428+00'),
	('writer/p49', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.84543+00'),
	('writer/p50', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845432+00'),
	('writer/p51', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845434+00'),
	('writer/p52', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845438+00'),
	('writer/p53', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.84544+00'),
	('writer/p54', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845442+00'),
	('writer/p55', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845444+00'),
	('writer/p56', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845446+00'),
	('writer/p57', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845448+00'),
	('writer/p58', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.84545+00'),
	('writer/p59', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845452+00'),
	('writer/p60', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845454+00'),
	('writer/p61', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845456+00'),
	('writer/p62', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.845458+00'),
	('writer/p63', '01a20535-fcda-7630-b72f-1aafe1c17a10', 1, '2026-11-22 21:43:25.84546+00'),
	('jobs/reconcile', 'reconcile/02050333c5aae75f0e70631c5e4018c1', 1, '2026-11-22 21:47:41.249049+00');
INSERT INTO public.policy_history VALUES
	('meter', 'page', 1, 1, '{"id": "page", "unit": "page", "on_late": "charge", "archived": false, "decimals": 1, "on_excess": "record", "ttl_seconds": 60, "without_limit": "config", "max_life_seconds": 86400, "late_within_seconds": 604800}', '2026-11-22 21:42:34.054691+00'),
	('plan', 'plan', 1, 2, '{"id": "plan", "limits": [{"id": "hour", "kind": "hard", "class": "quota", "meter": "page", "scope": "tenant", "window": "hour", "capacity": "50", "algorithm": "calendar", "near_percent": 80, "on_gate_failure": "deny"}, {"id": "user", "kind": "hard", "class": "quota", "meter": "page", "scope": "subject", "window": "day", "capacity": "30", "algorithm": "calendar", "near_percent": 80, "subject_kind": "user", "on_gate_failure": "deny"}], "quotas": [{"mode": "hard", "meter": "page", "included": "200"}], "archived": false}', '2026-11-22 21:42:34.144944+00'),
	('tenant', 'acme', 1, 3, '{"id": "acme", "plan": "plan", "limits": [], "archived": false, "subjects": [], "overrides": [], "time_zone": "Europe/Berlin", "anchor_day": 1}', '2026-11-22 21:42:34.243887+00');
INSERT INTO public.policy_objects VALUES
	('meter', 'page', 1, '{"id": "page", "unit": "page", "on_late": "charge", "archived": false, "decimals": 1, "on_excess": "record", "ttl_seconds": 60, "without_limit": "config", "max_life_seconds": 86400, "late_within_seconds": 604800}', false, '2026-11-22 21:42:34.054691+00', '2026-11-22 21:42:34.054691+00'),
	('plan', 'plan', 1, '{"id": "plan", "limits": [{"id": "hour", "kind": "hard", "class": "quota", "meter": "page", "scope": "tenant", "window": "hour", "capacity": "50", "algorithm": "calendar", "near_percent": 80, "on_gate_failure": "deny"}, {"id": "user", "kind": "hard", "class": "quota", "meter": "page", "scope": "subject", "window": "day", "capacity": "30", "algorithm": "calendar", "near_percent": 80, "subject_kind": "user", "on_gate_failure": "deny"}], "quotas": [{"mode": "hard", "meter": "page", "included": "200"}], "archived": false}', false, '2026-11-22 21:42:34.144944+00', '2026-11-22 21:42:34.144944+00');
INSERT INTO public.policy_version VALUES
	(true, 3);
INSERT INTO public.quota_periods VALUES
	('acme', 'page', '2026-10-31 23:00:00+00', '2026-11-30 23:00:00+00', 1, 200.000000000, 1793487600, '2026-11-22 21:42:34.342434+00', NULL);
INSERT INTO public.reservations_0 VALUES
	(59, 'd502e6d0-caae-8439-96e6-8e263b9e2bc0', 'acme', 'reserved', 1, 1, 0, '\x01010100010000000100000000000000002fc2c5a1010000005254c5a101000000ae7acaa10100000000000000000000280000000000000000000000000000009450a47746fc9a8d2b8a1296201c004022000461636d6504706167650100803a0900013d4344334a69797671336b463403006d34596357795875005254c5a10100000100016b6a70713330394380358ac2a10100000100005f65444e4261575680f93094a10100000100010104757365720361646100020000000000000080f93094a101000080c1af2ea2010000005254c5a10100000000', NULL, '\x9450a47746fc9a8d2b8a1296201c0040', true, '', 2, '2026-10-31 23:00:00+00', '{page}', '{1}', '2026-11-10 12:00:00+00', '2026-11-10 14:00:00+00', NULL),
	(59, '01a1c554-5200-8ee0-928a-b5473b73bb21', 'acme', 'reserved', 2, 1, 2, '\x01010100020000000100000000000000002fc2c5a1010000005254c5a101000000ae7acaa1010000020000000000000032000000000000001400000000000000e4e4e416be6ee2421791f348201c004022000461636d6504706167650100803a0900013d4344334a69797671336b463403006d34596357795875005254c5a10100000100016b6a70713330394380358ac2a10100000100005f65444e4261575680f93094a10100000100010004757365720361646100020000000000000080f93094a101000080c1af2ea2010000005254c5a10100000000', NULL, '\xe4e4e416be6ee2421791f348201c0040', false, '', 2, '2026-10-31 23:00:00+00', '{page}', '{1}', '2026-11-10 12:00:00+00', '2026-11-10 14:00:00+00', NULL),
	(59, '893b2076-d222-8e33-b330-f4f13b56d269', 'acme', 'consumed', 2, 1, 4, '\x01020100020000000100000000000000603c55c5a1010000005254c5a101000000ae7acaa101000004000000000000001e000000000000001900000000000000353055fdf3afd6279f1bf3713c00008022000461636d6504706167650100803a0900013d4344334a69797671336b463403006d34596357795875005254c5a10100000100016b6a70713330394380358ac2a10100000100005f65444e4261575680f93094a10100000100010104757365720361646100020000000000000080f93094a101000080c1af2ea2010000005254c5a10100000000', NULL, '\x353055fdf3afd6279f1bf3713c000080', true, '', 2, '2026-10-31 23:00:00+00', '{page}', '{1}', '2026-11-10 12:00:00+00', '2026-11-10 12:01:00+00', '2026-11-10 12:00:00+00'),
	(59, '175248ac-e9d0-8da2-907a-02ea3b49dbf6', 'acme', 'released', 2, 1, 6, '\x01030100020000000100000000000000603c55c5a1010000005254c5a101000000ae7acaa101000006000000000000003c000000000000000000000000000000ef8bb0e082a0396147520c123c00008022000461636d6504706167650100803a0900013d4344334a69797671336b463403006d34596357795875005254c5a10100000100016b6a70713330394380358ac2a10100000100005f65444e4261575680f93094a10100000100010104757365720361646100020000000000000080f93094a101000080c1af2ea2010000005254c5a10100000000', NULL, '\xef8bb0e082a0396147520c123c000080', true, '', 2, '2026-10-31 23:00:00+00', '{page}', '{1}', '2026-11-10 12:00:00+00', '2026-11-10 12:01:00+00', '2026-11-10 12:00:00+00'),
	(59, 'c9df5770-df67-8cf5-b350-48b13b524be8', 'acme', 'consumed', 1, 1, 8, '\x01020100010000000100000000000000005254c5a1010000005254c5a1010000005254c5a1010000080000000000000000000000000000000a00000000000000ede4c34ebfb1ead21d60de680000008022000461636d6504706167650100803a0900013d4344334a69797671336b463403006d34596357795875005254c5a10100000100016b6a70713330394380358ac2a10100000100005f65444e4261575680f93094a10100000100010104757365720361646100020000000000000080f93094a101000080c1af2ea2010000005254c5a10100000000', NULL, '\xede4c34ebfb1ead21d60de6800000080', true, '', 2, '2026-10-31 23:00:00+00', '{page}', '{1}', '2026-11-10 12:00:00+00', '2026-11-10 12:00:00+00', '2026-11-10 12:00:00+00'),
	(59, '464b02fc-4bc1-8ef0-ab77-c77b3b438131', 'acme', 'expired', 2, 1, 9, '\x01040100020000000100000000000000603c55c5a1010000005254c5a101000000ae7acaa1010000090000000000000046000000000000000000000000000000b2af6a9e925832decaa82a093c0000c022000461636d6504706167650100803a0900013d4344334a69797671336b463403006d34596357795875005254c5a10100000100016b6a70713330394380358ac2a10100000100005f65444e4261575680f93094a10100000100010104757365720361646100020000000000000080f93094a101000080c1af2ea2010000005254c5a10100000000', NULL, '\xb2af6a9e925832decaa82a093c0000c0', true, '', 2, '2026-10-31 23:00:00+00', '{page}', '{1}', '2026-11-10 12:00:00+00', '2026-11-10 12:01:00+00', '2026-11-10 12:02:00+00');
INSERT INTO public.subjects OVERRIDING SYSTEM VALUE VALUES
	('acme', 1, 'user', 'ada');
INSERT INTO public.tenants VALUES
	('acme', 59, 1, '{"id": "acme", "plan": "plan", "limits": [], "archived": false, "subjects": [], "overrides": [], "time_zone": "Europe/Berlin", "anchor_day": 1}', '[]', false, '2026-11-22 21:42:34.243887+00', '2026-11-22 21:42:34.243887+00');
INSERT INTO public.usage_hourly VALUES
	('acme', 'page', '2026-11-10 12:00:00+00', '', 0, 5.500000000, 3, 0.000000000, 0.000000000),
	('acme', 'page', '2026-11-10 12:00:00+00', '', 1, 5.500000000, 3, 0.000000000, 0.000000000);
SELECT pg_catalog.setval('public.audit_log_number_seq', 4, true);
SELECT pg_catalog.setval('public.booked_keys_number_seq', 2, true);
SELECT pg_catalog.setval('public.parked_number_seq', 1, false);
SELECT pg_catalog.setval('public.subjects_number_seq', 1, true);
ALTER TABLE ONLY public.__diesel_schema_migrations
    ADD CONSTRAINT __diesel_schema_migrations_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.balances
    ADD CONSTRAINT balances_pkey PRIMARY KEY (tenant, meter, period_start);
ALTER TABLE ONLY public.batches
    ADD CONSTRAINT batches_pkey PRIMARY KEY (chain, number);
ALTER TABLE ONLY public.booked_keys
    ADD CONSTRAINT booked_keys_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.calendars
    ADD CONSTRAINT calendars_pkey PRIMARY KEY (tenant, from_at);
ALTER TABLE ONLY public.counter_generations
    ADD CONSTRAINT counter_generations_pkey PRIMARY KEY (limit_id, shape);
ALTER TABLE ONLY public.cursors
    ADD CONSTRAINT cursors_pkey PRIMARY KEY (partition);
ALTER TABLE ONLY public.damages
    ADD CONSTRAINT damages_pkey PRIMARY KEY (work, item);
ALTER TABLE ONLY public.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (tenant, operation_id, step, line, leg, happened_at);
ALTER TABLE ONLY public.entries_2026_10
    ADD CONSTRAINT entries_2026_10_pkey PRIMARY KEY (tenant, operation_id, step, line, leg, happened_at);
ALTER TABLE ONLY public.entries_2026_11
    ADD CONSTRAINT entries_2026_11_pkey PRIMARY KEY (tenant, operation_id, step, line, leg, happened_at);
ALTER TABLE ONLY public.entries_2026_12
    ADD CONSTRAINT entries_2026_12_pkey PRIMARY KEY (tenant, operation_id, step, line, leg, happened_at);
ALTER TABLE ONLY public.entries_2027_01
    ADD CONSTRAINT entries_2027_01_pkey PRIMARY KEY (tenant, operation_id, step, line, leg, happened_at);
ALTER TABLE ONLY public.epoch_ends
    ADD CONSTRAINT epoch_ends_pkey PRIMARY KEY (partition, epoch);
ALTER TABLE ONLY public.epochs
    ADD CONSTRAINT epochs_pkey PRIMARY KEY (partition, epoch);
ALTER TABLE ONLY public.gaps
    ADD CONSTRAINT gaps_pkey PRIMARY KEY (partition, found_epoch, found_sequence);
ALTER TABLE ONLY public.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.job_runs
    ADD CONSTRAINT job_runs_pkey PRIMARY KEY (job, scheduled_for);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.key_changes
    ADD CONSTRAINT key_changes_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.key_filters
    ADD CONSTRAINT key_filters_pkey PRIMARY KEY (partition);
ALTER TABLE ONLY public.key_seal
    ADD CONSTRAINT key_seal_pkey PRIMARY KEY (is_the_one);
ALTER TABLE ONLY public.key_stretches
    ADD CONSTRAINT key_stretches_pkey PRIMARY KEY (partition, number);
ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.losses
    ADD CONSTRAINT losses_pkey PRIMARY KEY (tenant, partition, epoch, sequence);
ALTER TABLE ONLY public.parked
    ADD CONSTRAINT parked_pkey PRIMARY KEY (tenant, number);
ALTER TABLE ONLY public.policy_history
    ADD CONSTRAINT policy_history_pkey PRIMARY KEY (kind, id, version);
ALTER TABLE ONLY public.policy_objects
    ADD CONSTRAINT policy_objects_pkey PRIMARY KEY (kind, id);
ALTER TABLE ONLY public.policy_version
    ADD CONSTRAINT policy_version_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.quarantine
    ADD CONSTRAINT quarantine_pkey PRIMARY KEY (partition, epoch, sequence);
ALTER TABLE ONLY public.quota_periods
    ADD CONSTRAINT quota_periods_pkey PRIMARY KEY (tenant, meter, period_start);
ALTER TABLE ONLY public.reconciliations
    ADD CONSTRAINT reconciliations_pkey PRIMARY KEY (tenant, checkpoint_id);
ALTER TABLE ONLY public.repeats
    ADD CONSTRAINT repeats_pkey PRIMARY KEY (partition, epoch, sequence);
ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_pkey PRIMARY KEY (partition, id, tenant);
ALTER TABLE ONLY public.reservations_0
    ADD CONSTRAINT reservations_0_pkey PRIMARY KEY (partition, id, tenant);
ALTER TABLE ONLY public.reservations_1
    ADD CONSTRAINT reservations_1_pkey PRIMARY KEY (partition, id, tenant);
ALTER TABLE ONLY public.reservations_2
    ADD CONSTRAINT reservations_2_pkey PRIMARY KEY (partition, id, tenant);
ALTER TABLE ONLY public.reservations_3
    ADD CONSTRAINT reservations_3_pkey PRIMARY KEY (partition, id, tenant);
ALTER TABLE ONLY public.reservations_4
    ADD CONSTRAINT reservations_4_pkey PRIMARY KEY (partition, id, tenant);
ALTER TABLE ONLY public.reservations_5
    ADD CONSTRAINT reservations_5_pkey PRIMARY KEY (partition, id, tenant);
ALTER TABLE ONLY public.reservations_6
    ADD CONSTRAINT reservations_6_pkey PRIMARY KEY (partition, id, tenant);
ALTER TABLE ONLY public.reservations_7
    ADD CONSTRAINT reservations_7_pkey PRIMARY KEY (partition, id, tenant);
ALTER TABLE ONLY public.reservations_archive
    ADD CONSTRAINT reservations_archive_pkey PRIMARY KEY (partition, id, tenant, born_at);
ALTER TABLE ONLY public.subjects
    ADD CONSTRAINT subject_is_named_once UNIQUE (tenant, kind, id);
ALTER TABLE ONLY public.subjects
    ADD CONSTRAINT subjects_pkey PRIMARY KEY (tenant, number);
ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.usage_hourly
    ADD CONSTRAINT usage_hourly_pkey PRIMARY KEY (tenant, meter, hour_at, operation, subject);
CREATE UNIQUE INDEX api_keys_by_change ON public.api_keys USING btree (change);
CREATE INDEX api_keys_newest_first ON public.api_keys USING btree (created_at DESC, id DESC);
CREATE INDEX balances_by_meter ON public.balances USING btree (meter);
CREATE INDEX damages_by_last ON public.damages USING btree (last_at);
CREATE INDEX entries_newest_first ON ONLY public.entries USING btree (tenant, happened_at DESC);
CREATE INDEX entries_2026_10_tenant_happened_at_idx ON public.entries_2026_10 USING btree (tenant, happened_at DESC);
CREATE INDEX entries_2026_11_tenant_happened_at_idx ON public.entries_2026_11 USING btree (tenant, happened_at DESC);
CREATE INDEX entries_2026_12_tenant_happened_at_idx ON public.entries_2026_12 USING btree (tenant, happened_at DESC);
CREATE INDEX entries_2027_01_tenant_happened_at_idx ON public.entries_2027_01 USING btree (tenant, happened_at DESC);
CREATE UNIQUE INDEX job_runs_are_one_at_a_time ON public.job_runs USING btree (job) WHERE (finished_at IS NULL);
CREATE UNIQUE INDEX parked_admission_is_unique ON public.parked USING btree (tenant, reservation_id) WHERE ((call = ANY (ARRAY['reserve'::text, 'usage'::text])) AND (state <> 'conflict'::text));
CREATE INDEX parked_admissions_newest_first ON public.parked USING btree (tenant, taken_at DESC, reservation_id DESC) WHERE ((state = 'waiting'::text) AND (call = ANY (ARRAY['reserve'::text, 'usage'::text])));
CREATE INDEX parked_by_reservation ON public.parked USING btree (reservation_id, number);
CREATE INDEX parked_done_by_age ON public.parked USING btree (settled_at) WHERE (state = 'done'::text);
CREATE INDEX parked_in_conflict ON public.parked USING btree (number) WHERE (state = 'conflict'::text);
CREATE INDEX parked_waiting_in_order ON public.parked USING btree (tenant, number) WHERE (state = 'waiting'::text);
CREATE INDEX policy_history_by_policy_version ON public.policy_history USING btree (policy_version);
CREATE INDEX policy_history_of_shared_objects ON public.policy_history USING btree (policy_version) WHERE (kind <> 'tenant'::text);
CREATE INDEX quarantine_open_by_reservation ON public.quarantine USING btree (reservation_id) WHERE (status = 'open'::text);
CREATE INDEX quarantine_open_by_tenant ON public.quarantine USING btree (tenant) WHERE (status = 'open'::text);
CREATE INDEX quarantine_open_in_order ON public.quarantine USING btree (partition, epoch, sequence) WHERE (status = 'open'::text);
CREATE INDEX quota_periods_by_end ON public.quota_periods USING btree (period_end);
CREATE INDEX reconciliations_newest_first ON public.reconciliations USING btree (judged_at DESC, checkpoint_id DESC);
CREATE INDEX reconciliations_settled ON public.reconciliations USING btree (judged_at) WHERE (state = ANY (ARRAY['repaired'::text, 'refused'::text]));
CREATE INDEX reconciliations_to_repair ON public.reconciliations USING btree (judged_at) WHERE (state = 'drift'::text);
CREATE INDEX repeats_of_tenant ON public.repeats USING btree (tenant, epoch, sequence);
CREATE INDEX repeats_to_undo ON public.repeats USING btree (partition, epoch, sequence) WHERE (undone_at IS NULL);
CREATE INDEX reservations_open_by_subject ON ONLY public.reservations USING gin (subjects) WITH (gin_pending_list_limit='256') WHERE (state = 'reserved'::text);
CREATE INDEX reservations_0_subjects_idx ON public.reservations_0 USING gin (subjects) WITH (gin_pending_list_limit='256') WHERE (state = 'reserved'::text);
CREATE INDEX reservations_newest_first ON ONLY public.reservations USING btree (tenant, born_at DESC, id DESC);
CREATE INDEX reservations_0_tenant_born_at_id_idx ON public.reservations_0 USING btree (tenant, born_at DESC, id DESC);
CREATE INDEX reservations_open_by_tenant ON ONLY public.reservations USING btree (tenant, expires_at) WHERE (state = 'reserved'::text);
CREATE INDEX reservations_0_tenant_expires_at_idx ON public.reservations_0 USING btree (tenant, expires_at) WHERE (state = 'reserved'::text);
CREATE INDEX reservations_1_subjects_idx ON public.reservations_1 USING gin (subjects) WITH (gin_pending_list_limit='256') WHERE (state = 'reserved'::text);
CREATE INDEX reservations_1_tenant_born_at_id_idx ON public.reservations_1 USING btree (tenant, born_at DESC, id DESC);
CREATE INDEX reservations_1_tenant_expires_at_idx ON public.reservations_1 USING btree (tenant, expires_at) WHERE (state = 'reserved'::text);
CREATE INDEX reservations_2_subjects_idx ON public.reservations_2 USING gin (subjects) WITH (gin_pending_list_limit='256') WHERE (state = 'reserved'::text);
CREATE INDEX reservations_2_tenant_born_at_id_idx ON public.reservations_2 USING btree (tenant, born_at DESC, id DESC);
CREATE INDEX reservations_2_tenant_expires_at_idx ON public.reservations_2 USING btree (tenant, expires_at) WHERE (state = 'reserved'::text);
CREATE INDEX reservations_3_subjects_idx ON public.reservations_3 USING gin (subjects) WITH (gin_pending_list_limit='256') WHERE (state = 'reserved'::text);
CREATE INDEX reservations_3_tenant_born_at_id_idx ON public.reservations_3 USING btree (tenant, born_at DESC, id DESC);
CREATE INDEX reservations_3_tenant_expires_at_idx ON public.reservations_3 USING btree (tenant, expires_at) WHERE (state = 'reserved'::text);
CREATE INDEX reservations_4_subjects_idx ON public.reservations_4 USING gin (subjects) WITH (gin_pending_list_limit='256') WHERE (state = 'reserved'::text);
CREATE INDEX reservations_4_tenant_born_at_id_idx ON public.reservations_4 USING btree (tenant, born_at DESC, id DESC);
CREATE INDEX reservations_4_tenant_expires_at_idx ON public.reservations_4 USING btree (tenant, expires_at) WHERE (state = 'reserved'::text);
CREATE INDEX reservations_5_subjects_idx ON public.reservations_5 USING gin (subjects) WITH (gin_pending_list_limit='256') WHERE (state = 'reserved'::text);
CREATE INDEX reservations_5_tenant_born_at_id_idx ON public.reservations_5 USING btree (tenant, born_at DESC, id DESC);
CREATE INDEX reservations_5_tenant_expires_at_idx ON public.reservations_5 USING btree (tenant, expires_at) WHERE (state = 'reserved'::text);
CREATE INDEX reservations_6_subjects_idx ON public.reservations_6 USING gin (subjects) WITH (gin_pending_list_limit='256') WHERE (state = 'reserved'::text);
CREATE INDEX reservations_6_tenant_born_at_id_idx ON public.reservations_6 USING btree (tenant, born_at DESC, id DESC);
CREATE INDEX reservations_6_tenant_expires_at_idx ON public.reservations_6 USING btree (tenant, expires_at) WHERE (state = 'reserved'::text);
CREATE INDEX reservations_7_subjects_idx ON public.reservations_7 USING gin (subjects) WITH (gin_pending_list_limit='256') WHERE (state = 'reserved'::text);
CREATE INDEX reservations_7_tenant_born_at_id_idx ON public.reservations_7 USING btree (tenant, born_at DESC, id DESC);
CREATE INDEX reservations_7_tenant_expires_at_idx ON public.reservations_7 USING btree (tenant, expires_at) WHERE (state = 'reserved'::text);
CREATE INDEX reservations_archive_newest_first ON public.reservations_archive USING btree (tenant, born_at DESC, id DESC);
CREATE INDEX tenants_newest_first ON public.tenants USING btree (created_at DESC, id DESC);
CREATE INDEX usage_hourly_of_all_tenants ON public.usage_hourly USING btree (hour_at) WHERE (subject = 0);
ALTER INDEX public.entries_pkey ATTACH PARTITION public.entries_2026_10_pkey;
ALTER INDEX public.entries_newest_first ATTACH PARTITION public.entries_2026_10_tenant_happened_at_idx;
ALTER INDEX public.entries_pkey ATTACH PARTITION public.entries_2026_11_pkey;
ALTER INDEX public.entries_newest_first ATTACH PARTITION public.entries_2026_11_tenant_happened_at_idx;
ALTER INDEX public.entries_pkey ATTACH PARTITION public.entries_2026_12_pkey;
ALTER INDEX public.entries_newest_first ATTACH PARTITION public.entries_2026_12_tenant_happened_at_idx;
ALTER INDEX public.entries_pkey ATTACH PARTITION public.entries_2027_01_pkey;
ALTER INDEX public.entries_newest_first ATTACH PARTITION public.entries_2027_01_tenant_happened_at_idx;
ALTER INDEX public.reservations_pkey ATTACH PARTITION public.reservations_0_pkey;
ALTER INDEX public.reservations_open_by_subject ATTACH PARTITION public.reservations_0_subjects_idx;
ALTER INDEX public.reservations_newest_first ATTACH PARTITION public.reservations_0_tenant_born_at_id_idx;
ALTER INDEX public.reservations_open_by_tenant ATTACH PARTITION public.reservations_0_tenant_expires_at_idx;
ALTER INDEX public.reservations_pkey ATTACH PARTITION public.reservations_1_pkey;
ALTER INDEX public.reservations_open_by_subject ATTACH PARTITION public.reservations_1_subjects_idx;
ALTER INDEX public.reservations_newest_first ATTACH PARTITION public.reservations_1_tenant_born_at_id_idx;
ALTER INDEX public.reservations_open_by_tenant ATTACH PARTITION public.reservations_1_tenant_expires_at_idx;
ALTER INDEX public.reservations_pkey ATTACH PARTITION public.reservations_2_pkey;
ALTER INDEX public.reservations_open_by_subject ATTACH PARTITION public.reservations_2_subjects_idx;
ALTER INDEX public.reservations_newest_first ATTACH PARTITION public.reservations_2_tenant_born_at_id_idx;
ALTER INDEX public.reservations_open_by_tenant ATTACH PARTITION public.reservations_2_tenant_expires_at_idx;
ALTER INDEX public.reservations_pkey ATTACH PARTITION public.reservations_3_pkey;
ALTER INDEX public.reservations_open_by_subject ATTACH PARTITION public.reservations_3_subjects_idx;
ALTER INDEX public.reservations_newest_first ATTACH PARTITION public.reservations_3_tenant_born_at_id_idx;
ALTER INDEX public.reservations_open_by_tenant ATTACH PARTITION public.reservations_3_tenant_expires_at_idx;
ALTER INDEX public.reservations_pkey ATTACH PARTITION public.reservations_4_pkey;
ALTER INDEX public.reservations_open_by_subject ATTACH PARTITION public.reservations_4_subjects_idx;
ALTER INDEX public.reservations_newest_first ATTACH PARTITION public.reservations_4_tenant_born_at_id_idx;
ALTER INDEX public.reservations_open_by_tenant ATTACH PARTITION public.reservations_4_tenant_expires_at_idx;
ALTER INDEX public.reservations_pkey ATTACH PARTITION public.reservations_5_pkey;
ALTER INDEX public.reservations_open_by_subject ATTACH PARTITION public.reservations_5_subjects_idx;
ALTER INDEX public.reservations_newest_first ATTACH PARTITION public.reservations_5_tenant_born_at_id_idx;
ALTER INDEX public.reservations_open_by_tenant ATTACH PARTITION public.reservations_5_tenant_expires_at_idx;
ALTER INDEX public.reservations_pkey ATTACH PARTITION public.reservations_6_pkey;
ALTER INDEX public.reservations_open_by_subject ATTACH PARTITION public.reservations_6_subjects_idx;
ALTER INDEX public.reservations_newest_first ATTACH PARTITION public.reservations_6_tenant_born_at_id_idx;
ALTER INDEX public.reservations_open_by_tenant ATTACH PARTITION public.reservations_6_tenant_expires_at_idx;
ALTER INDEX public.reservations_pkey ATTACH PARTITION public.reservations_7_pkey;
ALTER INDEX public.reservations_open_by_subject ATTACH PARTITION public.reservations_7_subjects_idx;
ALTER INDEX public.reservations_newest_first ATTACH PARTITION public.reservations_7_tenant_born_at_id_idx;
ALTER INDEX public.reservations_open_by_tenant ATTACH PARTITION public.reservations_7_tenant_expires_at_idx;
CREATE TRIGGER batches_are_never_edited BEFORE DELETE OR UPDATE ON public.batches FOR EACH ROW EXECUTE FUNCTION public.refuse_change();
CREATE TRIGGER batches_are_never_truncated BEFORE TRUNCATE ON public.batches FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();
CREATE TRIGGER entries_are_never_edited BEFORE DELETE OR UPDATE ON public.entries FOR EACH ROW EXECUTE FUNCTION public.refuse_change();
CREATE TRIGGER entries_are_never_truncated BEFORE TRUNCATE ON public.entries FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();
CREATE TRIGGER entries_are_never_truncated BEFORE TRUNCATE ON public.entries_2026_10 FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();
CREATE TRIGGER entries_are_never_truncated BEFORE TRUNCATE ON public.entries_2026_11 FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();
CREATE TRIGGER entries_are_never_truncated BEFORE TRUNCATE ON public.entries_2026_12 FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();
CREATE TRIGGER entries_are_never_truncated BEFORE TRUNCATE ON public.entries_2027_01 FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();
CREATE TRIGGER key_changes_are_numbered BEFORE INSERT OR UPDATE ON public.api_keys FOR EACH ROW EXECUTE FUNCTION public.number_key_change();
CREATE TRIGGER keys_are_never_deleted BEFORE DELETE ON public.api_keys FOR EACH ROW EXECUTE FUNCTION public.refuse_key_removal();
CREATE TRIGGER keys_are_never_truncated BEFORE TRUNCATE ON public.api_keys FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_key_removal();
GRANT USAGE ON SCHEMA public TO tollgate_writer;
GRANT USAGE ON SCHEMA public TO tollgate_service;
REVOKE ALL ON FUNCTION public.ensure_entries_month(month date) FROM PUBLIC;
GRANT ALL ON FUNCTION public.ensure_entries_month(month date) TO tollgate_writer;
GRANT ALL ON FUNCTION public.ensure_entries_month(month date) TO tollgate_service;
GRANT SELECT ON TABLE public.__diesel_schema_migrations TO tollgate_service;
GRANT SELECT,INSERT,UPDATE ON TABLE public.api_keys TO tollgate_service;
GRANT SELECT,INSERT ON TABLE public.audit_log TO tollgate_service;
GRANT SELECT,INSERT,UPDATE ON TABLE public.balances TO tollgate_writer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.balances TO tollgate_service;
GRANT SELECT,INSERT ON TABLE public.batches TO tollgate_writer;
GRANT SELECT,INSERT ON TABLE public.batches TO tollgate_service;
GRANT SELECT,INSERT ON TABLE public.booked_keys TO tollgate_writer;
GRANT SELECT,INSERT,DELETE ON TABLE public.booked_keys TO tollgate_service;
GRANT SELECT,INSERT,DELETE ON TABLE public.calendars TO tollgate_service;
GRANT SELECT,INSERT,UPDATE ON TABLE public.counter_generations TO tollgate_service;
GRANT SELECT,INSERT,UPDATE ON TABLE public.cursors TO tollgate_writer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.cursors TO tollgate_service;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.damages TO tollgate_service;
GRANT SELECT,INSERT ON TABLE public.entries TO tollgate_writer;
GRANT SELECT,INSERT ON TABLE public.entries TO tollgate_service;
GRANT SELECT,INSERT ON TABLE public.epoch_ends TO tollgate_writer;
GRANT SELECT,INSERT ON TABLE public.epoch_ends TO tollgate_service;
GRANT SELECT ON TABLE public.epochs TO tollgate_writer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.epochs TO tollgate_service;
GRANT SELECT,INSERT,UPDATE ON TABLE public.gaps TO tollgate_writer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.gaps TO tollgate_service;
GRANT SELECT ON TABLE public.installation TO tollgate_writer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.installation TO tollgate_service;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.job_runs TO tollgate_service;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.jobs TO tollgate_service;
GRANT SELECT,UPDATE ON TABLE public.key_changes TO tollgate_service;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.key_filters TO tollgate_service;
GRANT SELECT,UPDATE ON TABLE public.key_seal TO tollgate_service;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.key_stretches TO tollgate_service;
GRANT SELECT,INSERT,UPDATE ON TABLE public.leases TO tollgate_writer;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.leases TO tollgate_service;
GRANT SELECT ON TABLE public.losses TO tollgate_writer;
GRANT SELECT,INSERT ON TABLE public.losses TO tollgate_service;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.parked TO tollgate_service;
GRANT SELECT,INSERT ON TABLE public.policy_history TO tollgate_service;
GRANT SELECT ON TABLE public.policy_history TO tollgate_writer;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.policy_objects TO tollgate_service;
GRANT SELECT,INSERT,UPDATE ON TABLE public.policy_version TO tollgate_service;
GRANT SELECT,INSERT,UPDATE ON TABLE public.quarantine TO tollgate_writer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.quarantine TO tollgate_service;
GRANT SELECT,INSERT,UPDATE ON TABLE public.quota_periods TO tollgate_service;
GRANT SELECT ON TABLE public.quota_periods TO tollgate_writer;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.reconciliations TO tollgate_writer;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.reconciliations TO tollgate_service;
GRANT SELECT,INSERT,UPDATE ON TABLE public.repeats TO tollgate_writer;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.repeats TO tollgate_service;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.reservations TO tollgate_writer;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.reservations TO tollgate_service;
GRANT SELECT,INSERT ON TABLE public.reservations_archive TO tollgate_service;
GRANT SELECT,INSERT ON TABLE public.reservations_archive TO tollgate_writer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.subjects TO tollgate_writer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.subjects TO tollgate_service;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.tenants TO tollgate_service;
GRANT SELECT ON TABLE public.tenants TO tollgate_writer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.usage_hourly TO tollgate_writer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.usage_hourly TO tollgate_service;
