// @generated automatically by Diesel CLI.

pub mod sql_types {
    #[derive(diesel::sql_types::SqlType)]
    #[diesel(postgres_type(name = "account"))]
    pub struct Account;

    #[derive(diesel::sql_types::SqlType)]
    #[diesel(postgres_type(name = "entry_class"))]
    pub struct EntryClass;
}

diesel::table! {
    adjustment_grants (tenant, adjustment, place) {
        tenant -> Text,
        adjustment -> Uuid,
        place -> Int2,
        grant_id -> Uuid,
        is_voided -> Bool,
    }
}

diesel::table! {
    adjustments (tenant, id) {
        tenant -> Text,
        id -> Uuid,
        meter -> Nullable<Text>,
        effect -> Text,
        amount -> Numeric,
        happened_at -> Timestamptz,
        corrects -> Nullable<Uuid>,
        reason -> Text,
        reference -> Text,
        state -> Text,
        posted_at -> Timestamptz,
        posted_by -> Text,
        decided_at -> Nullable<Timestamptz>,
        decided_by -> Nullable<Text>,
        booked_at -> Nullable<Timestamptz>,
        booked_amount -> Nullable<Numeric>,
        period_start -> Nullable<Timestamptz>,
        booked_in -> Nullable<Timestamptz>,
        currency -> Nullable<Text>,
        statement -> Nullable<Int8>,
        gate_period -> Nullable<Timestamptz>,
        gate_operation -> Nullable<Uuid>,
        carried_hold -> Nullable<Uuid>,
        of_held -> Numeric,
    }
}

diesel::table! {
    api_keys (id) {
        id -> Text,
        name -> Text,
        role -> Text,
        tenant -> Nullable<Text>,
        hash -> Bytea,
        created_at -> Timestamptz,
        expires_at -> Nullable<Timestamptz>,
        revoked_at -> Nullable<Timestamptz>,
        change -> Int8,
    }
}

diesel::table! {
    audit_log (number) {
        number -> Int8,
        at -> Timestamptz,
        actor -> Text,
        action -> Text,
        object -> Text,
        detail -> Jsonb,
    }
}

diesel::table! {
    balances (tenant, meter, period_start) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        period_end -> Timestamptz,
        granted -> Numeric,
        rolled_in -> Numeric,
        carried_in -> Numeric,
        overage -> Numeric,
        adjusted -> Numeric,
        available -> Numeric,
        reserved -> Numeric,
        consumed -> Numeric,
        lapsed -> Numeric,
        voided -> Numeric,
        rolled_out -> Numeric,
        carried_out -> Numeric,
        repaid -> Numeric,
        reserved_beside_gate -> Numeric,
        consumed_beside_gate -> Numeric,
        consumed_of_carried -> Numeric,
        is_closed -> Bool,
    }
}

diesel::table! {
    batches (chain, number) {
        chain -> Int2,
        number -> Int8,
        rows -> Int4,
        hash -> Bytea,
        previous -> Bytea,
        booked_at -> Timestamptz,
    }
}

diesel::table! {
    billed_periods (tenant, period_end) {
        tenant -> Text,
        period_end -> Timestamptz,
        period_start -> Timestamptz,
        last_number -> Nullable<Int8>,
    }
}

diesel::table! {
    billing (tenant) {
        tenant -> Text,
        billed_until -> Timestamptz,
        begun_at -> Nullable<Timestamptz>,
        next_end -> Timestamptz,
    }
}

diesel::table! {
    booked_keys (number) {
        number -> Int8,
        ids -> Bytea,
    }
}

diesel::table! {
    calendars (tenant, from_at) {
        tenant -> Text,
        from_at -> Timestamptz,
        zone -> Text,
        anchor_day -> Int2,
        first_period_end -> Timestamptz,
    }
}

diesel::table! {
    carried_holds (tenant, meter, period_start) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        next_start -> Timestamptz,
        held -> Numeric,
        charged -> Numeric,
        held_after -> Numeric,
        held_of_included -> Numeric,
        unused -> Numeric,
        max_rollover -> Numeric,
        returned -> Numeric,
        min_rollover -> Numeric,
        has_parts -> Bool,
        rolls_until -> Nullable<Timestamptz>,
        rolls_periods_left -> Nullable<Int2>,
    }
}

diesel::table! {
    carried_returns (partition, epoch, sequence, line) {
        partition -> Int2,
        epoch -> Int8,
        sequence -> Int8,
        line -> Int2,
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        period_end -> Timestamptz,
        amount -> Numeric,
        reservation_id -> Uuid,
        step -> Int8,
        happened_at -> Timestamptz,
        operation -> Text,
        hour_at -> Timestamptz,
        subjects -> Array<Nullable<Int8>>,
    }
}

diesel::table! {
    continued_grants (tenant, meter, period_start, grant_id) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        grant_id -> Uuid,
        amount -> Numeric,
        rolled -> Numeric,
    }
}

diesel::table! {
    continued_returns (tenant, meter, period_start, grant_id, epoch, sequence) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        grant_id -> Uuid,
        epoch -> Int8,
        sequence -> Int8,
        amount -> Numeric,
    }
}

diesel::table! {
    corrections (tenant, booked_in, meter, period_start) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        booked_in -> Timestamptz,
        consumed -> Numeric,
        adjusted -> Numeric,
        of_held -> Numeric,
    }
}

diesel::table! {
    counter_generations (limit_id, shape) {
        limit_id -> Text,
        shape -> Text,
        generation -> Int8,
        since_ms -> Int8,
    }
}

diesel::table! {
    cursors (partition) {
        partition -> Int2,
        epoch -> Int8,
        sequence -> Int8,
        event_hash -> Nullable<Bytea>,
        booked_at -> Timestamptz,
        given_up -> Int8,
        erasures -> Int8,
        passed_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    cuts (tenant, grant_id, is_end) {
        tenant -> Text,
        grant_id -> Uuid,
        is_end -> Bool,
        meter -> Text,
        period_start -> Timestamptz,
        epoch -> Int8,
        sequence -> Int8,
        consumed -> Numeric,
        is_settled -> Bool,
        consumed_of_carried -> Numeric,
        held -> Numeric,
        is_at_instant -> Bool,
    }
}

diesel::table! {
    damages (work, item) {
        work -> Text,
        item -> Text,
        reason -> Text,
        times -> Int8,
        first_at -> Timestamptz,
        last_at -> Timestamptz,
    }
}

diesel::table! {
    decisions (id, tenant, at) {
        tenant -> Text,
        id -> Uuid,
        at -> Timestamptz,
        call -> Text,
        operation -> Nullable<Text>,
        outcome -> Text,
        dry_run -> Bool,
        degraded -> Bool,
        policy_version -> Int8,
        subjects -> Jsonb,
        lines -> Jsonb,
        limits -> Jsonb,
        number -> Int8,
        reservation -> Nullable<Uuid>,
        state -> Nullable<Text>,
        expires_at -> Nullable<Timestamptz>,
        code -> Nullable<Text>,
    }
}

diesel::table! {
    destructive_calls (key_id) {
        key_id -> Text,
        since -> Timestamptz,
        calls -> Int8,
    }
}

diesel::table! {
    due_cuts (tenant, grant_id, is_end) {
        partition -> Int2,
        tenant -> Text,
        grant_id -> Uuid,
        is_end -> Bool,
        meter -> Text,
        period_start -> Timestamptz,
        due_at -> Timestamptz,
        epoch -> Int8,
        sequence -> Int8,
    }
}

diesel::table! {
    use diesel::sql_types::*;
    use super::sql_types::Account;
    use super::sql_types::EntryClass;

    entries (tenant, happened_at, operation_id, step, line, leg) {
        tenant -> Text,
        operation_id -> Uuid,
        step -> Int4,
        line -> Int2,
        leg -> Int2,
        meter -> Text,
        period_start -> Timestamptz,
        credit -> Account,
        debit -> Account,
        amount -> Numeric,
        class -> EntryClass,
        excess -> Bool,
        late -> Bool,
        carried -> Bool,
        degraded -> Bool,
        happened_at -> Timestamptz,
        booked_at -> Timestamptz,
        operation -> Text,
        hour_at -> Timestamptz,
        subjects -> Array<Nullable<Int8>>,
        chain -> Int2,
        batch -> Int8,
        corrected -> Bool,
    }
}

diesel::table! {
    epoch_ends (partition, epoch) {
        partition -> Int2,
        epoch -> Int8,
        last_sequence -> Int8,
        noticed_at -> Timestamptz,
    }
}

diesel::table! {
    epochs (partition, epoch) {
        partition -> Int2,
        epoch -> Int8,
        run_id -> Text,
        adopted_at -> Timestamptz,
    }
}

diesel::table! {
    estimate_marks (tenant) {
        tenant -> Text,
        learned -> Array<Nullable<Text>>,
        resolved_at -> Timestamptz,
        epoch -> Int8,
        sequence -> Int8,
    }
}

diesel::table! {
    gaps (partition, found_epoch, found_sequence) {
        partition -> Int2,
        after_epoch -> Int8,
        after_sequence -> Int8,
        found_epoch -> Int8,
        found_sequence -> Int8,
        noticed_at -> Timestamptz,
    }
}

diesel::table! {
    grant_advances (tenant, meter, period_start, grant_id) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        grant_id -> Uuid,
        amount -> Numeric,
    }
}

diesel::table! {
    grant_burns (tenant, grant_id, period_start) {
        tenant -> Text,
        grant_id -> Uuid,
        period_start -> Timestamptz,
        amount -> Numeric,
        recognised -> Numeric,
        forfeited -> Numeric,
    }
}

diesel::table! {
    grant_sales (tenant, grant_id) {
        tenant -> Text,
        grant_id -> Uuid,
        meter -> Text,
        amount -> Numeric,
        price -> Numeric,
        currency -> Text,
        sold_at -> Timestamptz,
        period_start -> Timestamptz,
        period_end -> Timestamptz,
        statement -> Nullable<Int8>,
        is_over -> Bool,
        refunded -> Nullable<Numeric>,
        refunded_at -> Nullable<Timestamptz>,
        note -> Nullable<Int8>,
    }
}

diesel::table! {
    grants (tenant, id) {
        tenant -> Text,
        id -> Uuid,
        meter -> Text,
        decimals -> Int2,
        amount -> Numeric,
        kind -> Text,
        priority -> Int2,
        effective_at -> Timestamptz,
        expires_at -> Timestamptz,
        reason -> Text,
        fingerprint -> Bytea,
        created_at -> Timestamptz,
        created_by -> Text,
        period_start -> Nullable<Timestamptz>,
        voided_at -> Nullable<Timestamptz>,
        settled_at -> Nullable<Timestamptz>,
        settled_amount -> Nullable<Numeric>,
        recurrence -> Text,
        repeats -> Nullable<Uuid>,
        paid_amount -> Nullable<Numeric>,
        currency -> Nullable<Text>,
        goes_on -> Bool,
        max_rollover -> Nullable<Numeric>,
        min_rollover -> Numeric,
    }
}

diesel::table! {
    held_parts (tenant, meter, period_start, place) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        place -> Int4,
        held -> Numeric,
        fate -> Text,
        ends_at -> Nullable<Timestamptz>,
        periods_left -> Nullable<Int2>,
        grant_id -> Nullable<Uuid>,
        max_rollover -> Nullable<Numeric>,
        min_rollover -> Numeric,
        unused -> Numeric,
    }
}

diesel::table! {
    installation (only_row) {
        only_row -> Bool,
        partitions -> Int2,
        secret_fingerprint -> Bytea,
        installed_at -> Timestamptz,
    }
}

diesel::table! {
    job_runs (job, scheduled_for) {
        job -> Text,
        scheduled_for -> Timestamptz,
        owner -> Text,
        fence -> Int8,
        lease_until -> Timestamptz,
        started_at -> Timestamptz,
        finished_at -> Nullable<Timestamptz>,
        succeeded -> Nullable<Bool>,
        outcome -> Nullable<Text>,
        dry_run -> Bool,
        done -> Nullable<Int8>,
        total -> Nullable<Int8>,
    }
}

diesel::table! {
    jobs (name) {
        name -> Text,
        next_due -> Timestamptz,
        rings -> Int8,
        served -> Int8,
        planned_at -> Timestamptz,
        asked_as_of -> Nullable<Timestamptz>,
        asked_dry_run -> Bool,
    }
}

diesel::table! {
    key_changes (only_row) {
        only_row -> Bool,
        number -> Int8,
    }
}

diesel::table! {
    key_filters (partition) {
        partition -> Int2,
        up_to -> Int8,
        keys -> Int8,
        merged_at -> Timestamptz,
        filter -> Bytea,
    }
}

diesel::table! {
    key_seal (is_the_one) {
        is_the_one -> Bool,
        sealed_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    key_stretches (partition, number) {
        partition -> Int2,
        number -> Int8,
        sealed_at -> Timestamptz,
        keys -> Bytea,
        filter -> Nullable<Bytea>,
    }
}

diesel::table! {
    leases (name) {
        name -> Text,
        owner -> Text,
        fence -> Int8,
        expires_at -> Timestamptz,
    }
}

diesel::table! {
    losses (tenant, partition, epoch, sequence) {
        partition -> Int2,
        epoch -> Int8,
        sequence -> Int8,
        tenant -> Text,
        reservation_id -> Uuid,
        kind -> Text,
        meters -> Array<Nullable<Text>>,
        held -> Array<Nullable<Numeric>>,
        consumed -> Array<Nullable<Numeric>>,
        noticed_at -> Timestamptz,
    }
}

diesel::table! {
    opening_balances (tenant, meter, period_start, opening) {
        opening -> Int8,
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        available -> Numeric,
        reserved -> Numeric,
        consumed -> Numeric,
        reserved_beside_gate -> Numeric,
        consumed_beside_gate -> Numeric,
        consumed_of_carried -> Numeric,
    }
}

diesel::table! {
    opening_chains (chain, opening) {
        opening -> Int8,
        chain -> Int2,
        number -> Int8,
        hash -> Bytea,
        kept_rows -> Int8,
        kept_hash -> Bytea,
    }
}

diesel::table! {
    opening_operations (tenant, operation_id, line, opening) {
        opening -> Int8,
        tenant -> Text,
        operation_id -> Uuid,
        line -> Int2,
        reserved -> Numeric,
        consumed -> Numeric,
    }
}

diesel::table! {
    opening_usage (tenant, meter, hour_at, operation, subject, opening) {
        opening -> Int8,
        tenant -> Text,
        meter -> Text,
        hour_at -> Timestamptz,
        operation -> Text,
        subject -> Int8,
        consumed -> Numeric,
        count -> Int8,
        excess -> Numeric,
        late -> Numeric,
    }
}

diesel::table! {
    openings (number) {
        number -> Int8,
        month -> Date,
        file -> Text,
        file_sha256 -> Text,
        entries -> Int8,
        kept -> Int8,
        hash -> Bytea,
        opened_at -> Timestamptz,
    }
}

diesel::table! {
    parked (tenant, number) {
        tenant -> Text,
        number -> Int8,
        partition -> Int2,
        reservation_id -> Uuid,
        call -> Text,
        taken_at -> Timestamptz,
        payload -> Bytea,
        fingerprint -> Nullable<Bytea>,
        state -> Text,
        reason -> Nullable<Text>,
        parked_at -> Timestamptz,
        settled_at -> Nullable<Timestamptz>,
        delivered_in -> Nullable<Int8>,
    }
}

diesel::table! {
    period_closures (tenant, meter, period_start) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        period_end -> Timestamptz,
        closed_at -> Timestamptz,
        lapsed -> Numeric,
        overage -> Numeric,
        booked_at -> Timestamptz,
        rolled -> Numeric,
        is_final -> Bool,
        paid_by_next -> Numeric,
        added -> Numeric,
    }
}

diesel::table! {
    plan_changes (tenant, id) {
        tenant -> Text,
        id -> Uuid,
        plan -> Text,
        plan_from -> Nullable<Text>,
        changed_at -> Timestamptz,
        changed_by -> Text,
        applied_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    policy_history (kind, id, version) {
        kind -> Text,
        id -> Text,
        version -> Int8,
        policy_version -> Int8,
        definition -> Nullable<Jsonb>,
        changed_at -> Timestamptz,
        effective_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    policy_objects (kind, id) {
        kind -> Text,
        id -> Text,
        version -> Int8,
        definition -> Jsonb,
        archived -> Bool,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    policy_version (only_row) {
        only_row -> Bool,
        version -> Int8,
    }
}

diesel::table! {
    pushed_loads (name) {
        name -> Text,
        factor_thousandths -> Int2,
        ends_at -> Timestamptz,
    }
}

diesel::table! {
    quarantine (partition, epoch, sequence) {
        partition -> Int2,
        epoch -> Int8,
        sequence -> Int8,
        reservation_id -> Nullable<Uuid>,
        tenant -> Nullable<Text>,
        event -> Bytea,
        reason -> Text,
        status -> Text,
        tries -> Int4,
        first_at -> Timestamptz,
        last_at -> Timestamptz,
    }
}

diesel::table! {
    quota_changes (tenant, id) {
        tenant -> Text,
        id -> Uuid,
        meter -> Text,
        period_start -> Timestamptz,
        amount -> Numeric,
        changed -> Nullable<Numeric>,
        asked_at -> Timestamptz,
    }
}

diesel::table! {
    quota_notices (tenant, meter, period_start, percent) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        period_end -> Timestamptz,
        percent -> Int2,
        consumed -> Numeric,
        allowance -> Numeric,
        runs_out_at -> Nullable<Timestamptz>,
        raised_at -> Timestamptz,
        resolved_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    quota_periods (tenant, meter, period_start) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        period_end -> Timestamptz,
        decimals -> Int2,
        included -> Numeric,
        version -> Int8,
        opened_at -> Timestamptz,
        delivered_at -> Nullable<Timestamptz>,
        max_rollover -> Numeric,
        overdraft -> Numeric,
        notices_percent -> Array<Nullable<Int2>>,
        preserve_overage -> Bool,
        min_rollover -> Numeric,
        rollover_periods -> Int2,
        reroll -> Bool,
        followed_version -> Nullable<Int8>,
        notices_ended -> Bool,
    }
}

diesel::table! {
    reconciliations (tenant, checkpoint_id) {
        tenant -> Text,
        checkpoint_id -> Uuid,
        partition -> Int2,
        epoch -> Int8,
        sequence -> Int8,
        taken_at -> Timestamptz,
        judged_at -> Timestamptz,
        counters -> Int4,
        differences -> Jsonb,
        quarantined -> Int8,
        gaps -> Int8,
        state -> Text,
        detail -> Text,
        claimed_until -> Nullable<Timestamptz>,
        parked -> Int8,
    }
}

diesel::table! {
    repeats (partition, epoch, sequence) {
        partition -> Int2,
        epoch -> Int8,
        sequence -> Int8,
        reservation_id -> Uuid,
        noticed_at -> Timestamptz,
        tenant -> Nullable<Text>,
        event -> Nullable<Bytea>,
        undone_at -> Nullable<Timestamptz>,
        undone_sequence -> Nullable<Int8>,
    }
}

diesel::table! {
    reservations (partition, id, tenant) {
        partition -> Int2,
        id -> Uuid,
        tenant -> Text,
        state -> Text,
        step -> Int4,
        epoch -> Int8,
        sequence -> Int8,
        record -> Bytea,
        uncharged -> Nullable<Array<Nullable<Int8>>>,
        fingerprint -> Bytea,
        keyed -> Bool,
        operation -> Text,
        policy_version -> Int8,
        period_start -> Timestamptz,
        meters -> Array<Nullable<Text>>,
        subjects -> Array<Nullable<Int8>>,
        born_at -> Timestamptz,
        expires_at -> Timestamptz,
        resolved_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    reservations_archive (partition, id, tenant, born_at) {
        partition -> Int2,
        id -> Uuid,
        tenant -> Text,
        state -> Text,
        step -> Int4,
        epoch -> Int8,
        sequence -> Int8,
        record -> Bytea,
        uncharged -> Nullable<Array<Nullable<Int8>>>,
        fingerprint -> Bytea,
        keyed -> Bool,
        operation -> Text,
        policy_version -> Int8,
        period_start -> Timestamptz,
        meters -> Array<Nullable<Text>>,
        subjects -> Array<Nullable<Int8>>,
        born_at -> Timestamptz,
        expires_at -> Timestamptz,
        resolved_at -> Nullable<Timestamptz>,
        archived_at -> Timestamptz,
    }
}

diesel::table! {
    rolled_amounts (tenant, meter, period_start, ends_at) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        ends_at -> Timestamptz,
        periods_left -> Int2,
        amount -> Numeric,
        rolled -> Numeric,
    }
}

diesel::table! {
    rolled_returns (tenant, meter, period_start, ends_at, epoch, sequence) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        ends_at -> Timestamptz,
        epoch -> Int8,
        sequence -> Int8,
        amount -> Numeric,
    }
}

diesel::table! {
    statements (tenant, number) {
        tenant -> Text,
        number -> Int8,
        corrects -> Nullable<Int8>,
        period_start -> Timestamptz,
        period_end -> Timestamptz,
        currency -> Text,
        total -> Numeric,
        issued_at -> Timestamptz,
        operation_id -> Uuid,
        document -> Text,
        hash -> Bytea,
        booked_at -> Timestamptz,
        billed_in -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    subjects (tenant, number) {
        tenant -> Text,
        number -> Int8,
        kind -> Text,
        id -> Text,
    }
}

diesel::table! {
    supplier_bills (id) {
        id -> Uuid,
        attempt -> Int4,
        state -> Text,
        tenant -> Nullable<Text>,
        terms -> Jsonb,
        fingerprint -> Bytea,
        body_hash -> Nullable<Bytea>,
        row_count -> Int8,
        summary -> Nullable<Jsonb>,
        failure -> Nullable<Text>,
        compared_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
        created_by -> Text,
        finished_at -> Nullable<Timestamptz>,
        alive_until -> Timestamptz,
    }
}

diesel::table! {
    supplier_matches (bill, outcome, number) {
        bill -> Uuid,
        outcome -> Text,
        number -> Int8,
        tenant -> Nullable<Text>,
        reference -> Text,
        amount_here -> Numeric,
        amount_there -> Numeric,
        uses -> Int8,
        rows_there -> Int8,
        at_here -> Nullable<Timestamptz>,
        at_there -> Nullable<Timestamptz>,
        reservations -> Array<Nullable<Uuid>>,
        lines -> Array<Nullable<Int8>>,
    }
}

diesel::table! {
    tenant_currencies (tenant, from_at) {
        tenant -> Text,
        from_at -> Timestamptz,
        currency -> Nullable<Text>,
    }
}

diesel::table! {
    tenants (id) {
        id -> Text,
        partition -> Int2,
        version -> Int8,
        definition -> Jsonb,
        counter_resets -> Jsonb,
        archived -> Bool,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    untold_capacities (tenant, meter) {
        tenant -> Text,
        meter -> Text,
        version -> Int8,
    }
}

diesel::table! {
    unwindings (tenant, operation_id, meter) {
        tenant -> Text,
        operation_id -> Uuid,
        meter -> Text,
        period_start -> Timestamptz,
        epoch -> Int8,
        sequence -> Int8,
        amount -> Numeric,
        consumed -> Numeric,
        is_settled -> Bool,
    }
}

diesel::table! {
    upgrade_requests (tenant, id) {
        tenant -> Text,
        id -> Uuid,
        plan -> Text,
        reason -> Text,
        state -> Text,
        requested_at -> Timestamptz,
        requested_by -> Text,
        decided_at -> Nullable<Timestamptz>,
        decided_by -> Nullable<Text>,
        effective_at -> Nullable<Timestamptz>,
        applied_at -> Nullable<Timestamptz>,
        raises_only -> Bool,
    }
}

diesel::table! {
    usage_estimates (tenant, operation, meter) {
        tenant -> Text,
        operation -> Text,
        meter -> Text,
        buckets -> Array<Nullable<Int2>>,
        counts -> Array<Nullable<Int4>>,
        held -> Array<Nullable<Int8>>,
        used -> Array<Nullable<Int8>>,
        learned_at -> Timestamptz,
    }
}

diesel::table! {
    usage_hourly (tenant, meter, hour_at, operation, subject) {
        tenant -> Text,
        meter -> Text,
        hour_at -> Timestamptz,
        operation -> Text,
        subject -> Int8,
        consumed -> Numeric,
        count -> Int8,
        excess -> Numeric,
        late -> Numeric,
        corrections -> Numeric,
    }
}

diesel::table! {
    violations (id) {
        id -> Uuid,
        minute -> Timestamptz,
        tenant -> Text,
        limit_id -> Text,
        subject_kind -> Text,
        subject_hash -> Text,
        counted -> Int8,
        bans -> Int8,
        under_ban -> Int8,
    }
}

diesel::table! {
    webhook_deliveries (tenant, meter, period_start, percent, event, webhook) {
        tenant -> Text,
        meter -> Text,
        period_start -> Timestamptz,
        percent -> Int2,
        event -> Text,
        webhook -> Uuid,
        id -> Uuid,
        created_at -> Timestamptz,
        state -> Text,
        attempts -> Int4,
        next_attempt_at -> Nullable<Timestamptz>,
        retried_until -> Nullable<Timestamptz>,
        last_attempt_at -> Nullable<Timestamptz>,
        last_status -> Nullable<Int2>,
        last_error -> Nullable<Text>,
        claim -> Int8,
        claimed_until -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    webhooks (id) {
        id -> Uuid,
        url -> Text,
        events -> Array<Nullable<Text>>,
        tenant -> Nullable<Text>,
        created_at -> Timestamptz,
        created_by -> Text,
    }
}

diesel::joinable!(webhook_deliveries -> webhooks (webhook));

diesel::allow_tables_to_appear_in_same_query!(webhook_deliveries, webhooks,);
