//! Every tenant compared every second through a turn of the month, while the books change too: grants, voids,
//! corrections, and holds that are carried over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tollgate::domain::checkpoint::ReconciliationState::Clean;
use tollgate::domain::ids::TenantId;

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
/// How far apart finance's changes are.
const PACE: Duration = Duration::from_millis(20);
/// How many seconds the clock goes on by itself after each jump, at least.
const BETWEEN: usize = 20;

/// A tenant for each number, with quotas that roll over, from the tenth of January on.
async fn in_january(tenants: u64) -> TestApp {
    let app = an_app()
        .with("reconciliation.interval_seconds", 0)
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
        let tenant = format!("tenant-{}", number % tenants);
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
                app.post(&format!("{GRANTS}/{}/void", granted.remove(0)), Value::Null).await;
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

/// Takes a checkpoint of each tenant every second, while the clock goes on. Returns how many were taken.
async fn compare(app: &TestApp, tenants: &[TenantId], seconds: usize) -> usize {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut taken = 0;
    for second in 0..seconds {
        tick.tick().await;
        let checkpoints = tenants.iter().map(|tenant| app.app().operations.reconcile.take_checkpoint(tenant));
        // A busy machine may answer late; the next second comes soon.
        taken += join_all(checkpoints).await.iter().filter(|taken| matches!(taken, Ok(Some(_)))).count();
        match second {
            BETWEEN => app.move_clock(BEFORE_THE_CLOSE).await,
            _ => app.clock.advance_to(app.clock.now_ms() + 3_000).unwrap(),
        }
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn compared_every_second_through_a_turn_of_the_month_no_tenant_differs_whatever_finance_does() {
    let (count, seconds, callers) = sized((50, 600, 32), (50, 60, 2));
    let app = Arc::new(in_january(count).await);
    let tenants: Vec<_> =
        (0..count).map(|number| TenantId::parse(&format!("tenant-{number}")).unwrap()).collect();
    let traffic = Traffic::flow(&app, callers, count);
    let stop = Arc::new(AtomicBool::new(false));
    let office = tokio::spawn(office(app.clone(), count, stop.clone()));
    let taken = compare(&app, &tenants, seconds).await;
    stop.store(true, Ordering::SeqCst);
    let (done, calls) = (office.await.unwrap(), traffic.calls());
    traffic.end().await;
    app.drained_within(Duration::from_secs(300)).await;
    let closed = format!(
        "SELECT count(*) = {count} AS all FROM period_closures WHERE meter = 'page' AND tenant LIKE 'tenant-%'"
    );
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    wait_for("January is closed", Duration::from_secs(300), async || {
        // A run leaves partitions whose writer lags to the next one, which comes when the clock goes on.
        tick.tick().await;
        app.clock.advance_to(app.clock.now_ms() + 30_000).unwrap();
        (rows(&app.database, &closed).await == ["true"]).then_some(())
    })
    .await;
    eprintln!("{taken} checkpoints, {calls} calls and {done} changes of the books");
    assert!(taken >= tenants.len() * seconds / 2, "{taken} were taken");
    let differing: Vec<_> = all(&app).await.into_iter().filter(|row| row.state != Clean).collect();
    assert!(differing.is_empty(), "{differing:#?}");
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
