//! What a call, the writer or a look of each second asks of the ledger goes by an index and reads a few rows, however
//! many there are.

mod elsewhere;
mod plans;
mod rows;
mod versions;

use std::collections::BTreeSet;
use std::fs;

use tollgate::domain::adjustment::AdjustmentId;
use tollgate::domain::amount::Decimals;
use tollgate::domain::chain::Chain;
use tollgate::domain::counted_meter::CountedMeter;
use tollgate::domain::ids::{Epoch, IdempotencyKey, LimitId, OutboxId, ReservationId, TenantId};
use tollgate::domain::money::Currency;
use tollgate::domain::period::Window;
use tollgate::domain::period::{Calendar, Calendars};
use tollgate::domain::reservation::ReservationState;
use tollgate::domain::statement::RevenueGroup;
use tollgate::domain::upgrade::UpgradeId;
use tollgate::domain::usage::{Consumer, Granularity};
use tollgate::domain::webhook::{DeliveryState, WebhookId};
use tollgate::ledger::decisions::DecisionCursor;
use tollgate::ledger::{
    AdjustmentFilter, AuditFilter, AwaitedEvent, ClosedCursor, ClosedFilter, CounterAsk, DeliveryFilter,
    EntryFilter, EntryPlace, ExpiredCursor, ExpiredFilter, Ledger, LedgerError, NoticeFilter, OwnList,
    QuotaNotice, QuotaPeriod, ReconciliationFilter, ReservationFilter, RestoreAsk, RevenueFilter,
    TenantCursor, TopQuery, UpgradeFilter, UsageQuery, ViolationFilter,
};
use uuid::Uuid;

use self::elsewhere::ELSEWHERE;
use self::plans::{LOGGING, Plans};
use super::events::{
    HOUR_MS, PERIOD_END_MS, PERIOD_START_MS, Work, at, including, meter, partition, tenant, units, user,
};
use super::{as_owner, options};
use crate::support::services::TestDatabase;
use crate::writer::apply::book;

const DAY_MS: i64 = 86_400_000;
/// When the first decision of the large table was made: 2026-03-09T00:00:00Z.
const DECISIONS_FROM_MS: i64 = 1_773_014_400_000;

/// A ledger on a server of its own that logs how it carries out what it is asked, with large tables; an open hold of
/// one of them.
async fn filled() -> (TestDatabase, Ledger, Plans, Work) {
    let settings = LOGGING.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let of_its_own = move || TestDatabase::of_its_own_with(settings.to_vec());
    let (database, log) = tokio::task::spawn_blocking(of_its_own).await.unwrap();
    Ledger::migrate(&database.url).await.unwrap();
    let acme = tenant("acme");
    as_owner(&database, &format!("SET auto_explain.log_min_duration = -1; {}", rows::fill(partition(&acme))))
        .await
        .unwrap();
    let ledger = Ledger::connect(options(&database)).await.unwrap();
    ledger.install(super::events::PARTITIONS, [7; 32]).await.unwrap();
    for row in ledger.epochs().await.unwrap() {
        ledger.raise_epochs(&[(row.partition, row.epoch, row.epoch)], "node-1").await.unwrap();
    }
    let found = "SELECT relname AS name FROM pg_class WHERE reltuples >= 10000 AND relkind IN ('r', 'i')";
    let large: BTreeSet<_> = super::rows(&database, found).await.into_iter().collect();
    assert!(large.contains("usage_hourly") && large.contains("subject_is_named_once"), "{large:?}");
    let plans = Plans::new(log, large);
    let open = Work::new(&acme, "open", &[("ocr.page", 600)]).named(&[user("anna")]);
    (database, ledger, plans, open)
}

/// What a restore, a read of a quota and a comparison ask.
async fn restores(ledger: &Ledger, plans: &mut Plans, open: &Work) {
    let acme = tenant("acme");
    let decimals = Decimals::new(2).unwrap();
    let hour = |subject: Option<&str>| CounterAsk {
        meters: vec![CountedMeter { meter: meter("ocr.page"), decimals, factor: 1 }],
        subject: subject.map(user),
        operations: None,
        window_start_ms: HOUR_MS,
        window_end_ms: HOUR_MS + 3_600_000,
    };
    let ask = RestoreAsk {
        counters: vec![hour(None)],
        quotas: vec![(meter("ocr.page"), decimals, PERIOD_START_MS)],
        with_open: true,
        latest_since_ms: HOUR_MS - DAY_MS,
        subjects_max: Some(10),
        ..RestoreAsk::default()
    };
    let told = plans.of("read_tenant", ledger.read_tenant(partition(&acme), &acme, &ask)).await;
    assert_eq!((told.open.len(), told.latest_at_ms, told.subjects), (1, Some(HOUR_MS), None));
    let of_anna = RestoreAsk {
        counters: vec![hour(Some("anna"))],
        quotas: Vec::new(),
        open_of: Some(vec![user("anna")]),
        subjects_max: None,
        ..ask
    };
    let told = plans.of("read_tenant", ledger.read_tenant(partition(&acme), &acme, &of_anna)).await;
    assert_eq!(told.open.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [open.id]);
    assert_eq!(told.counters, [units(0)]);
    let of_ben = RestoreAsk { open_of: Some(vec![user("ben")]), ..of_anna };
    assert_eq!(plans.of("read_tenant", ledger.read_tenant(partition(&acme), &acme, &of_ben)).await.open, []);
    let period = QuotaPeriod {
        decimals,
        period_ms: (PERIOD_START_MS, PERIOD_END_MS),
        terms: including(1),
        tenant_version: 1,
    };
    plans.of("open_quota_period", ledger.open_quota_period(&acme, &meter("ocr.page"), &period)).await;
    let kinds = [user("anna").kind];
    plans.of("active_subjects", ledger.active_subjects(&acme, &kinds, HOUR_MS, 0, 64)).await;
    plans.of("claim_drifts", ledger.claim_drifts(10, std::time::Duration::from_secs(1))).await;
    plans.of("reconciliation", ledger.reconciliation(&acme, Uuid::nil(), OutboxId::default())).await;
    plans.of("count_quarantined_of", ledger.count_quarantined_of(partition(&acme), &acme)).await;
    plans.of("repeats_to_undo", ledger.repeats_to_undo(None, 100)).await;
    plans.of("epoch_ends", ledger.epoch_ends(partition(&acme))).await;
    plans.of("quota_capacity", ledger.quota_capacity(&acme, &meter("ocr.page"), PERIOD_START_MS)).await;
    let periods = vec![(acme.clone(), meter("ocr.page"), PERIOD_START_MS)];
    plans.of("quota_capacities", ledger.quota_capacities(periods)).await;
    plans.of("grants_to_begin", ledger.grants_to_begin(Some(&acme), HOUR_MS, None, 50)).await;
    plans.of("partitions_to_cut", ledger.partitions_to_cut(Some(&acme), HOUR_MS)).await;
    let month = Window { start_ms: PERIOD_START_MS, end_ms: PERIOD_END_MS };
    let page = meter("ocr.page");
    plans.of("is_use_being_taken_back", ledger.is_use_being_taken_back(&acme, &page, month)).await;
    plans.of("unwound_quotas", ledger.unwound_quotas(Some(&acme), None, 50)).await;
    plans.of("grants_to_settle", ledger.grants_to_settle(Some(&acme), None, 50)).await;
    plans.of("lowered_to_settle", ledger.lowered_to_settle(Some(&acme), None, 50)).await;
    plans.of("voided_grants", ledger.voided_grants(Some(&acme), None, 50)).await;
    plans.of("periods_to_follow", ledger.periods_to_follow(Some(&acme), HOUR_MS, None, 50)).await;
    plans.of("ending_periods", ledger.ending_periods(HOUR_MS, HOUR_MS + DAY_MS, None, 100)).await;
}

/// What a job asks after a loss of memory and for what has ended, a page at a time: all open holds are such.
async fn sweeps(ledger: &Ledger, plans: &mut Plans) {
    // All were born before this instant, and none was resolved.
    assert_eq!(plans.of("archive_reservations", ledger.archive_reservations(HOUR_MS, HOUR_MS, 50)).await, 0);
    let here = partition(&tenant("acme"));
    let epochs: Vec<_> =
        ledger.epochs().await.unwrap().iter().map(|row| (row.partition, row.epoch, row.epoch)).collect();
    ledger.raise_epochs(&epochs, "node-2").await.unwrap();
    let mut after = None;
    for _ in 0..2 {
        let page = plans
            .of("holders_of_older_epochs", ledger.holders_of_older_epochs(&[here], after.as_ref(), 50))
            .await;
        assert_eq!(page.len(), 50);
        after = page.last().map(|last| last.tenant.clone());
    }
    // All but a thousand periods have ended and are closed.
    assert_eq!(plans.of("count_periods_to_close", ledger.count_periods_to_close(HOUR_MS)).await, 1_000);
    let ended = plans.of("periods_to_close", ledger.periods_to_close(HOUR_MS, None, 50)).await;
    assert_eq!(ended.len(), 50);
    plans.of("periods_to_close", ledger.periods_to_close(HOUR_MS, ended.last(), 50)).await;
    let mut after = None;
    for _ in 0..2 {
        let asked = ledger.overdue_holds(HOUR_MS + 365 * DAY_MS, after.as_ref(), 50);
        let page = plans.of("overdue_holds", asked).await;
        assert_eq!(page.len(), 50);
        after = page.last().cloned();
    }
    let none_waits = async {
        let found = ledger.quarantined_at(here, at("1-2000")).await;
        assert!(matches!(found, Err(LedgerError::Conflict(_))), "{found:?}");
        Ok(())
    };
    plans.of("quarantined_at", none_waits).await;
}

/// What the ledger has of one reservation or key, and what waits.
async fn looks(ledger: &Ledger, plans: &mut Plans, id: ReservationId) {
    let acme = tenant("acme");
    assert!(plans.of("reservation", ledger.reservation(id)).await.is_some());
    plans.of("booked_reservations", ledger.booked_reservations(id.partition(), &[id])).await;
    plans.of("archived_reservation", ledger.archived_reservation(id)).await;
    plans.of("known_reservation", ledger.known_reservation(id)).await;
    plans.of("known_together", ledger.known_together(id)).await;
    plans.of("conflict_standing", ledger.conflict_standing(id)).await;
    plans.of("unbooked_admission", ledger.unbooked_admission(id)).await;
    plans.of("park", async { Ok(ledger.park(id, |_, _| (None, ())).await?) }).await;
    plans.of("waiting_tenant", ledger.waiting_tenant(id)).await;
    plans.of("waiting_calls", ledger.waiting_calls(&acme, None, Some(Epoch(1)), &[], 10)).await;
    plans.of("waiting_calls", ledger.waiting_calls(&acme, Some(id), Some(Epoch(1)), &[id], 10)).await;
    plans.of("note_delivered_calls", ledger.note_delivered_calls(&acme, Epoch(1), vec![1])).await;
    plans.of("delivered_calls", ledger.delivered_calls(&acme, Epoch(1), 10)).await;
    plans.of("settle_parked", ledger.settle_parked(&acme, vec![1])).await;
    plans.of("parked_tenants", ledger.parked_tenants(None, 10)).await;
    plans.of("parked_conflicts", ledger.parked_conflicts(10)).await;
    plans.of("count_parked", ledger.count_parked()).await;
    plans.of("count_quarantined", ledger.count_quarantined()).await;
    let event = AwaitedEvent { reservation: id, step: 1, event: at("1-0") };
    plans.of("are_booked", ledger.are_booked(&[event])).await;
    plans.of("cursor", ledger.cursor(id.partition())).await;
    plans.of("cursor_row", ledger.cursor_row(id.partition())).await;
    plans.of("cursors", ledger.cursors()).await;
    plans.of("epochs", ledger.epochs()).await;
    plans.of("chain_heads", ledger.chain_heads()).await;
    plans.of("batches_at", ledger.batches_at(&[(Chain::Outbox(id.partition()), 77)])).await;
    plans.of("key_filters", ledger.key_filters()).await;
    plans.of("read_key_filters", ledger.read_key_filters(&[])).await;
    plans.of("keys_changed_after", ledger.keys_changed_after(29_990, 100)).await;
    plans.of("damages", ledger.damages()).await;
    plans.of("gaps", ledger.gaps(10)).await;
    plans.of("lost_units", ledger.lost_units()).await;
    let none = IdempotencyKey::parse("none").unwrap();
    plans.of("adjustment", ledger.adjustment(AdjustmentId::of(&acme, &none))).await;
    plans.of("is_operation", ledger.is_operation(&acme, Uuid::nil())).await;
    assert!(!plans.of("is_correction_known", ledger.is_correction_known(Uuid::nil())).await);
    let of_acme = AdjustmentFilter { tenant: Some(acme.clone()), ..AdjustmentFilter::default() };
    for filter in [AdjustmentFilter::default(), of_acme] {
        plans.of("list_adjustments", ledger.list_adjustments(&filter, None, 50)).await;
    }
    let upgrade = UpgradeId::of(&acme, &none);
    plans.of("pushed_loads", ledger.pushed_loads()).await;
    plans.of("estimates_learned_at", ledger.estimates_learned_at()).await;
    plans.of("learned_estimates", ledger.learned_estimates(None)).await;
    plans.of("grants_left", ledger.grants_left(&acme, HOUR_MS, 100)).await;
    plans.of("voidable_grants", ledger.voidable_grants(&acme, &meter("ocr.page"), HOUR_MS)).await;
    plans.of("rolled_with_grants", ledger.rolled_with_grants(&acme, HOUR_MS)).await;
    plans.of("plans_to_come", ledger.plans_to_come(std::slice::from_ref(&acme))).await;
    for filter in [UpgradeFilter::default(), UpgradeFilter { tenant: Some(acme), ..UpgradeFilter::default() }]
    {
        plans.of("list_upgrades", ledger.list_upgrades(&filter, None, 50)).await;
    }
    plans.of("upgrade", ledger.upgrade(upgrade)).await;
}

/// The policy that holds for a tenant.
async fn policy(ledger: &Ledger, plans: &mut Plans) {
    let (acme, other) = (tenant("acme"), tenant("tenant-77"));
    assert!(plans.of("read_tenant_definition", ledger.read_tenant_definition(&other)).await.is_some());
    assert_eq!(plans.of("read_tenants", ledger.read_tenants(vec![other, acme.clone()])).await.len(), 2);
    plans.of("read_policy", ledger.read_policy()).await;
    plans.of("policy_version", ledger.policy_version()).await;
    plans.of("policy_versions", ledger.policy_versions()).await;
    let operation = "ocr.submit".parse().unwrap();
    plans.of("operation_at_version", ledger.operation_at_version(&operation, 3)).await;
    assert!(plans.of("has_booked", ledger.has_booked(&acme)).await);
    // What is used is found at once: the whole is asked of what is not.
    assert!(!plans.of("has_booked", ledger.has_booked(&tenant("unused"))).await);
    assert!(!plans.of("is_meter_booked", ledger.is_meter_booked(&meter("unused"))).await);
}

/// What is asked about decisions.
async fn decisions(ledger: &Ledger, plans: &mut Plans, acme: &TenantId) {
    plans.of("decision", ledger.decision(Uuid::nil())).await;
    let end_ms = DECISIONS_FROM_MS + 2 * DAY_MS;
    for after in [None, Some(acme)] {
        let next = ledger.next_tenant_with_decisions(after, DECISIONS_FROM_MS, end_ms);
        plans.of("next_tenant_with_decisions", next).await;
    }
    for at_ms in [None, Some(DECISIONS_FROM_MS + DAY_MS)] {
        let after = at_ms.map(|at_ms| DecisionCursor { at_ms, number: 0, id: Uuid::nil() });
        plans.of("decisions_of", ledger.decisions_of(acme, after, end_ms, 50)).await;
    }
}

/// Lists, each from its beginning and from somewhere.
async fn lists(ledger: &Ledger, plans: &mut Plans, id: ReservationId) {
    let acme = tenant("acme");
    let mut place = None;
    for _ in 0..3 {
        let page = plans.of("list_tenants", ledger.list_tenants(place.as_ref(), 50)).await;
        place =
            page.last().map(|last| TenantCursor { created_at_us: last.created_at_us, id: last.id.clone() });
        assert_eq!(page.len(), 50);
    }
    for (after, of) in [(None, None), (Some("acme"), Some(meter("ocr.page")))] {
        plans.of("tenants_with_prices", ledger.tenants_with_prices(after, of.as_ref(), 50)).await;
    }
    let day = LimitId::parse("day").unwrap();
    for (after, list) in [
        (None, OwnList::Overrides(None)),
        (Some("acme"), OwnList::Overrides(Some(&day))),
        (None, OwnList::Bans),
        (Some("acme"), OwnList::Bans),
    ] {
        plans.of("tenants_with_own", ledger.tenants_with_own(list, after, 50)).await;
    }
    let filters = [
        ReservationFilter::default(),
        ReservationFilter { state: Some(ReservationState::Consumed), ..ReservationFilter::default() },
        ReservationFilter { meter: Some(meter("ocr.page")), ..ReservationFilter::default() },
    ];
    for filter in filters {
        let first = plans.of("reservations_of", ledger.reservations_of(&acme, &filter, None, 50)).await;
        let place = first.last().map(|last| last.place);
        plans.of("reservations_of", ledger.reservations_of(&acme, &filter, place, 50)).await;
    }
    let of_period = EntryFilter { from_ms: Some(PERIOD_START_MS), ..EntryFilter::default() };
    let of_one = EntryFilter { reservation: Some(id), ..EntryFilter::default() };
    for filter in [EntryFilter::default(), of_period.clone(), of_one] {
        plans.of("entries_of", ledger.entries_of(&acme, &filter, None, 50)).await;
    }
    plans.of("booked_by_now", ledger.booked_by_now()).await;
    for filter in [EntryFilter::default(), of_period] {
        let first = plans.of("entries", ledger.entries(None, &filter, None, 50)).await;
        let last = first.last().map(|last| EntryPlace { tenant: acme.clone(), at: last.place() });
        plans.of("entries", ledger.entries(None, &filter, last.as_ref(), 50)).await;
    }
    for tenant in [None, Some(&acme)] {
        let first = plans.of("list_grants", ledger.list_grants(tenant, None, 50)).await;
        let place = first.last().map(|last| (last.created_at_ms, last.id));
        assert_eq!(first.len(), 50);
        plans.of("list_grants", ledger.list_grants(tenant, place, 50)).await;
        plans.of("grant", ledger.grant(first[0].id)).await;
    }
    for key in [None, Some("key-77")] {
        plans.of("list_keys", ledger.list_keys(key, 50)).await;
    }
    for all in [false, true] {
        plans.of("quarantined", ledger.quarantined(all, None, 50)).await;
        plans.of("quarantined", ledger.quarantined(all, Some((partition(&acme), at("1-2000"))), 50)).await;
    }
    let by_somebody = AuditFilter { actor: Some("somebody".into()), ..AuditFilter::default() };
    plans.of("audit", ledger.audit(&by_somebody, None, 50)).await;
    let of_kind = AuditFilter { kind: Some("tenant".into()), ..AuditFilter::default() };
    plans.of("audit", ledger.audit(&of_kind, None, 50)).await;
    let of_object = AuditFilter { id: Some("tenant-7".into()), ..of_kind };
    plans.of("audit", ledger.audit(&of_object, None, 50)).await;
    plans.of("reconciliations", ledger.reconciliations(&ReconciliationFilter::default(), None, 50)).await;
}

/// What the list of violations asks.
async fn violations(ledger: &Ledger, plans: &mut Plans) {
    let of_one = ViolationFilter { tenant: Some(tenant("tenant-7")), ..ViolationFilter::default() };
    for filter in [ViolationFilter::default(), of_one] {
        let first = plans.of("violations", ledger.violations(&filter, None, 50)).await;
        assert_eq!(first.len(), 50);
        let last = first.last().map(|last| {
            let (kind, hash) = last.subject.clone().unwrap_or_default();
            (last.minute_ms, last.tenant.to_string(), last.limit.to_string(), kind, hash)
        });
        plans.of("violations", ledger.violations(&filter, last.as_ref(), 50)).await;
    }
}

/// What is asked about webhooks and their deliveries.
async fn webhooks(ledger: &Ledger, plans: &mut Plans) {
    let first = plans.of("list_webhooks", ledger.list_webhooks(None, 50)).await;
    let last = first.last().map(|last| last.as_ref().unwrap()).map(|last| (last.created_at_ms, last.id));
    plans.of("list_webhooks", ledger.list_webhooks(last, 50)).await;
    let id = WebhookId::from_uuid(Uuid::from_u128(1));
    plans.of("webhook", ledger.webhook(id)).await;
    for state in [None, Some(DeliveryState::Waiting), Some(DeliveryState::Failed)] {
        let filter = DeliveryFilter { webhook: id, state };
        let first = plans.of("list_deliveries", ledger.list_deliveries(filter, None, 50)).await;
        assert_eq!(first.len(), if state == Some(DeliveryState::Failed) { 0 } else { 50 });
        let last = first.last().map(|last| (last.created_at_ms, last.id));
        plans.of("list_deliveries", ledger.list_deliveries(filter, last, 50)).await;
    }
    assert_eq!(plans.of("due_webhooks", ledger.due_webhooks(HOUR_MS)).await.len(), 1);
    let lease = std::time::Duration::from_secs(60);
    assert!(plans.of("claim_delivery", ledger.claim_delivery(id, HOUR_MS, lease)).await.is_some());
}

async fn notices(ledger: &Ledger, plans: &mut Plans) {
    let of_one = NoticeFilter { tenant: tenant("tenant-7"), meter: None, is_resolved: None };
    let first = plans.of("quota_notices", ledger.quota_notices(&of_one, None, 50)).await;
    let place = |last: &QuotaNotice| (last.raised_at, last.meter.clone(), last.percent, last.period_start);
    let last = first.last().map(place);
    assert_eq!(first.len(), 50);
    plans.of("quota_notices", ledger.quota_notices(&of_one, last.as_ref(), 50)).await;
}

/// What reports read of balances and usage, over all tenants and of one.
async fn reports(ledger: &Ledger, plans: &mut Plans) {
    let acme = tenant("acme");
    plans.of("balances_of", ledger.balances_of(&acme, HOUR_MS)).await;
    let calendars = Calendars::of(Vec::new(), Calendar::default());
    plans.of("period_use", ledger.period_use(partition(&acme), &acme, &calendars, PERIOD_START_MS)).await;
    for corrects in [None, Some(7)] {
        plans.of("statements", ledger.statements(&acme, corrects, Some(900), 50)).await;
    }
    plans.of("statement", ledger.statement(&acme, 7)).await;
    let euro = Currency::parse("EUR").unwrap();
    plans.of("notes_with", ledger.notes_with(&acme, 7, HOUR_MS, euro)).await;
    let groups = vec![RevenueGroup::Period, RevenueGroup::Tenant, RevenueGroup::Plan, RevenueGroup::Meter];
    let of_a_month = (None, Some(PERIOD_START_MS), Some(PERIOD_END_MS));
    for (tenant, from_ms, to_ms) in [(Some(acme.clone()), None, None), of_a_month] {
        let filter = RevenueFilter { tenant, from_ms, to_ms, group_by: groups.clone() };
        plans.of("revenue", ledger.revenue(&filter, None, 50)).await;
    }
    let a_few_hours = UsageQuery {
        tenant: Some(acme.clone()),
        meter: Some(meter("ocr.page")),
        subject: None,
        from_ms: HOUR_MS - 5 * 3_600_000,
        to_ms: HOUR_MS,
        granularity: Some(Granularity::Hour),
        zones: vec![(0, "UTC".into())],
        group_by: Vec::new(),
        after: None,
        limit: 100,
    };
    for filter in [
        ExpiredFilter::default(),
        ExpiredFilter { tenant: Some(tenant("tenant-7")), ..ExpiredFilter::default() },
    ] {
        let first = plans.of("expired_holds", ledger.expired_holds(&filter, None, 50)).await;
        let last = first
            .last()
            .and_then(|last| Some(ExpiredCursor { expired_at_ms: last.resolved_at_ms?, id: last.id }));
        assert_eq!(first.len(), 50);
        plans.of("expired_holds", ledger.expired_holds(&filter, last, 50)).await;
    }
    let of_one = ClosedFilter { tenant: Some(tenant("tenant-7")), ..ClosedFilter::default() };
    for (filter, most) in [(ClosedFilter::default(), 50), (of_one, 1)] {
        let first = plans.of("closed_periods", ledger.closed_periods(&filter, None, 50)).await;
        assert_eq!(first.len(), most);
        let last = first.last().map(|last| ClosedCursor {
            ended_at_ms: last.balance.period_ms.1,
            tenant: last.tenant.clone(),
            meter: last.balance.meter.clone(),
        });
        plans.of("closed_periods", ledger.closed_periods(&filter, last.as_ref(), 50)).await;
    }
    notices(ledger, plans).await;
    violations(ledger, plans).await;
    webhooks(ledger, plans).await;
    for (tenant, by) in [(None, Consumer::Tenant), (a_few_hours.tenant.clone(), Consumer::Subject)] {
        let top = TopQuery {
            meter: meter("ocr.page"),
            tenant,
            by,
            from_ms: a_few_hours.from_ms,
            to_ms: a_few_hours.to_ms,
            after: None,
            limit: 100,
        };
        plans.of("top_usage", ledger.top_usage(&top)).await;
    }
    plans.of("usage", ledger.usage(&a_few_hours)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_waited_for_goes_by_an_index_and_reads_a_few_rows_of_a_million() {
    let (_database, ledger, mut plans, open) = filled().await;
    plans.of("booking", book(&ledger, &tenant("acme"), "1-0", vec![open.reserve()])).await;
    restores(&ledger, &mut plans, &open).await;
    looks(&ledger, &mut plans, open.id).await;
    policy(&ledger, &mut plans).await;
    lists(&ledger, &mut plans, open.id).await;
    reports(&ledger, &mut plans).await;
    decisions(&ledger, &mut plans, &tenant("acme")).await;
    sweeps(&ledger, &mut plans).await;
    assert!(plans.faults.is_empty(), "{}", plans.faults.join("\n"));
    assert_eq!(
        functions_of_the_ledger(),
        named(&plans.walked),
        "each is walked here, or nobody waits for it"
    );
}

/// Those walked, and those that are elsewhere.
fn named(walked: &BTreeSet<&'static str>) -> BTreeSet<String> {
    let elsewhere = ELSEWHERE.iter().flat_map(|(_, names)| names.iter());
    let walked = walked.iter().filter(|name| **name != "booking");
    elsewhere.chain(walked).map(|name| (*name).to_owned()).collect()
}

fn functions_of_the_ledger() -> BTreeSet<String> {
    let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ledger");
    let folders = [ledger.to_owned(), format!("{ledger}/adjustments"), format!("{ledger}/cuts")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = files.map(|file| file.unwrap().path()).filter(|path| path.is_file());
    let sources: Vec<_> = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    let lines = sources.iter().flat_map(|source| source.lines());
    let named = lines.filter_map(|line| line.strip_prefix("    pub async fn ")?.split(['(', '<']).next());
    named.map(str::to_owned).collect()
}
