//! Every tenant compared every second through a turn of the month, while the books change too: grants, voids,
//! corrections, and holds that are carried over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use tokio::time::MissedTickBehavior;
use tollgate::domain::checkpoint::ReconciliationState::Clean;
use tollgate::domain::ids::{OutboxId, Partition, TenantId};
use tollgate::ledger::Reconciliation;
use uuid::Uuid;

use super::sized;
use crate::faults::reconciliation::{Traffic, all, with_tenants};
use crate::http::adjustments::ADJUSTMENTS;
use crate::http::events::{event, send};
use crate::jobs::continued_grants::GRANTS;
use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

const BEGINS: &str = "2026-01-31T23:59:30Z";
/// A minute before the grace of January is over.
const BEFORE_THE_CLOSE: &str = "2026-02-01T00:59:00Z";
const CLOSES_MS: i64 = 1_769_907_600_000;
/// How far apart finance's changes are.
const PACE: Duration = Duration::from_millis(20);
/// How long the clock goes on by itself before the second jump.
const BETWEEN: Duration = Duration::from_secs(15);
/// How much longer January may take to be closed.
const LATER_AT_MOST: Duration = Duration::from_secs(300);
/// The tenants for which it is closed.
const CLOSED: &str =
    "SELECT count(*) AS all FROM period_closures WHERE meter = 'page' AND tenant LIKE 'tenant-%'";

/// A tenant for each number, with quotas that roll over, from the tenth of January on.
async fn in_january(tenants: u64) -> TestApp {
    let app = an_app()
        .with("reconciliation.interval_seconds", 0)
        .with("ledger.restore_wait_ms", 9_000)
        .with("http.workers", "2")
        .at("2026-01-10T12:00:00Z");
    let app = app.start().await;
    let limits =
        json!([{ "id": "day", "meter": "page", "window": "day", "capacity": "1000000", "class": "quota" }]);
    app.with_plan(limits, json!([quota_of("1000").with("mode", "soft").with("max_rollover", "500")])).await;
    with_tenants(&app, tenants).await;
    for number in 0..tenants {
        let body = pages("5").of(format!("tenant-{number}")).by("user-0");
        app.post_keyed(USAGE, &format!("first-{number}"), body).await.expect(201);
    }
    app.move_clock(BEGINS).await;
    app
}

/// What finance and senders of events do, one thing of each kind after the other, until it is stopped.
async fn office(app: Arc<TestApp>, tenants: u64, stop: Arc<AtomicBool>) -> u64 {
    let (mut number, mut granted) = (0, Vec::new());
    while !stop.load(Ordering::SeqCst) {
        let tenant = format!("tenant-{}", number / 5 % tenants);
        let key = format!("office-{number}");
        match number % 5 {
            0 => {
                let ends = if number % 2 == 0 { "2026-12-01T00:00:00Z" } else { "2026-02-01T00:59:30Z" };
                let grant = json!({
                    "tenant": tenant, "meter": "page", "amount": "50", "kind": "promotional", "priority": 1,
                    "expires_at": ends, "reason": "a gift"
                });
                let made = app.post_keyed(GRANTS, &key, grant).await;
                granted.extend(made.body["id"].as_str().map(str::to_owned));
            }
            1 if granted.len() > 1 => {
                app.post(&format!("{GRANTS}/{}/void", granted.remove(0)), json!({})).await;
            }
            2 => {
                let correction = json!({
                    "tenant": tenant, "meter": "page", "effect": "usage", "amount": "1",
                    "happened_at": "2026-01-12T10:00:00Z", "reason": "counted too low"
                });
                app.post_keyed(ADJUSTMENTS, &key, correction).await;
            }
            3 => {
                let held = pages("3").of(tenant.as_str()).by("user-1").lasting(7_200);
                app.post_keyed(RESERVATIONS, &key, held).await;
            }
            _ => {
                let mut late = event(&key, 2, Some("2026-01-31T20:00:00Z"));
                late["data"]["tenant"] = json!(tenant);
                send(&app.caller(), &late).await;
            }
        }
        number += 1;
        tokio::time::sleep(PACE).await;
    }
    number
}

/// What was compared.
#[derive(Default)]
struct Compared {
    /// How often all tenants were.
    rounds: usize,
    taken: usize,
    /// When January was found to be closed for all tenants (unix ms), by their clock.
    closed_at_ms: Option<i64>,
    /// The checkpoints of each tenant that were taken later.
    since: BTreeMap<TenantId, BTreeSet<Uuid>>,
}

impl Compared {
    /// Takes a checkpoint of each tenant. Returns their places.
    async fn take(&mut self, app: &TestApp, tenants: &[TenantId]) -> Vec<(Partition, OutboxId)> {
        let checkpoints = tenants.iter().map(|tenant| app.app().operations.reconcile.take_checkpoint(tenant));
        let mut places = Vec::new();
        // A busy machine may answer late; the next second comes soon.
        for taken in join_all(checkpoints).await.into_iter().filter_map(|taken| taken.ok().flatten()) {
            places.push((app.app().gate.partition_of(&taken.tenant), taken.place));
            if self.closed_at_ms.is_some() {
                self.since.entry(taken.tenant).or_default().insert(taken.id);
            }
        }
        self.rounds += 1;
        self.taken += places.len();
        places
    }

    /// Whether each tenant has had so many since January was closed.
    fn has_since(&self, tenants: &[TenantId], count: usize) -> bool {
        tenants.iter().all(|tenant| self.since.get(tenant).is_some_and(|since| since.len() >= count))
    }
}

/// Waits until these checkpoints are judged.
async fn judged(app: &TestApp, places: &[(Partition, OutboxId)]) {
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    wait_for("the checkpoints are judged", Duration::from_secs(120), async || {
        tick.tick().await;
        let cursors = app.app().ledger.cursors().await.ok()?;
        let is_settled = |(partition, place): &(Partition, OutboxId)| {
            cursors.iter().any(|cursor| cursor.partition == *partition && cursor.settles(*place))
        };
        places.iter().all(is_settled).then_some(())
    })
    .await;
}

/// Takes a checkpoint of each tenant every second, while the clock goes on: for so long, and until each tenant has had
/// `after` of them since January is closed, and has called `after` times.
async fn compare(
    app: &TestApp,
    tenants: &[TenantId],
    traffic: &Traffic,
    (time, after): (Duration, usize),
) -> Compared {
    let (mut tick, began) = (tokio::time::interval(Duration::from_secs(1)), Instant::now());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut compared, mut calls_enough) = (Compared::default(), u64::MAX);
    let (mut has_jumped, mut went_on) = (false, began);
    while began.elapsed() < time + LATER_AT_MOST {
        tick.tick().await;
        if compared.closed_at_ms.is_none() && rows(&app.database, CLOSED).await == [tenants.len().to_string()]
        {
            compared.closed_at_ms = Some(app.clock.now_ms());
            eprintln!("January is closed after {:.0?}", began.elapsed());
            calls_enough = traffic.calls() + u64::try_from(tenants.len() * after).unwrap();
        }
        let places = compared.take(app, tenants).await;
        if sized(false, true) {
            // A busy machine that takes more of them than it judges would close nothing, which is after them.
            judged(app, &places).await;
        }
        let goes_on = traffic.calls() >= calls_enough && compared.has_since(tenants, after);
        if goes_on && began.elapsed() >= time {
            return compared;
        }
        let passed_ms = i64::try_from(went_on.elapsed().as_millis()).unwrap();
        went_on = Instant::now();
        if !has_jumped && began.elapsed() >= BETWEEN {
            has_jumped = true;
            app.move_clock(BEFORE_THE_CLOSE).await;
            continue;
        }
        // A run leaves partitions whose writer lags to the next one, which comes when the clock goes on.
        let is_due = app.clock.now_ms() >= CLOSES_MS && compared.closed_at_ms.is_none();
        let pace = if is_due { 30 } else { 3 };
        app.clock.advance_to(app.clock.now_ms() + pace * passed_ms).unwrap();
    }
    panic!("January is not closed, or nothing goes on after it: {:?}", compared.closed_at_ms);
}

/// Each tenant's last comparison is of a checkpoint that was taken after January was closed, and each went on calling.
async fn check_afterwards(app: &TestApp, tenants: &[TenantId], compared: &Compared) {
    let found = all(app).await;
    let differing: Vec<_> = found.iter().filter(|row| row.state != Clean).collect();
    assert!(differing.is_empty(), "{differing:#?}");
    for tenant in tenants {
        let is_since =
            |row: &&Reconciliation| row.tenant == *tenant && compared.since[tenant].contains(&row.checkpoint);
        assert!(found.iter().any(|row| is_since(&row)), "{tenant} was compared before the close only");
    }
    let closed_at = compared.closed_at_ms.unwrap() / 1_000 + 1;
    let called = format!(
        "SELECT count(DISTINCT tenant) AS all FROM entries WHERE credit = 'available' AND debit = 'reserved' \
            AND tenant LIKE 'tenant-%' AND happened_at > to_timestamp({closed_at})"
    );
    assert_eq!(rows(&app.database, &called).await, [tenants.len().to_string()], "tenants called later");
}

#[tokio::test(flavor = "multi_thread")]
async fn compared_every_second_through_a_turn_of_the_month_no_tenant_differs_whatever_finance_does() {
    let (count, seconds, after, callers) = sized((50, 600, 10, 32), (50, 60, 5, 4));
    // Calls without a pause would leave a busy machine no time to book, and nothing is closed that is not booked.
    let pause = sized(Duration::ZERO, Duration::from_millis(50));
    let app = Arc::new(in_january(count).await);
    let tenants: Vec<_> =
        (0..count).map(|number| TenantId::parse(&format!("tenant-{number}")).unwrap()).collect();
    let traffic = Traffic::paced(&app, callers, count, pause);
    let stop = Arc::new(AtomicBool::new(false));
    let office = tokio::spawn(office(app.clone(), count, stop.clone()));
    let compared = compare(&app, &tenants, &traffic, (Duration::from_secs(seconds), after)).await;
    stop.store(true, Ordering::SeqCst);
    let (done, calls) = (office.await.unwrap(), traffic.calls());
    traffic.end().await;
    app.drained_within(Duration::from_secs(300)).await;
    let Compared { taken, rounds, .. } = compared;
    eprintln!("{taken} checkpoints in {rounds} rounds, {calls} calls and {done} changes of the books");
    assert!(taken >= tenants.len() * rounds / 2, "{taken} were taken in {rounds} rounds");
    check_afterwards(&app, &tenants, &compared).await;
    for (what, query) in [
        ("holds were carried over", "SELECT count(*) > 0 AS found FROM balances WHERE carried_in > 0"),
        ("units rolled over", "SELECT count(*) > 0 AS found FROM balances WHERE rolled_in > 0"),
        ("grants were voided", "SELECT count(*) > 0 AS found FROM grants WHERE voided_at IS NOT NULL"),
        ("corrections were booked", "SELECT count(*) > 0 AS found FROM corrections"),
    ] {
        assert_eq!(rows(&app.database, query).await, ["true"], "{what}");
    }
    Arc::into_inner(app).expect("all who called have ended").finish().await;
}
