//! Comparisons while callers work: no difference is found but those that are there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::domain::checkpoint::ReconciliationState::{Clean, Drift};
use tollgate::domain::ids::TenantId;

use super::{BEFORE_THE_TURN_MS, all, app_with, before_the_turn, metric, tamper, usage};
use crate::support::app::*;
use crate::support::wait::wait_for;

/// Callers that work until they are stopped.
pub(in crate::faults) struct Traffic {
    stop: Arc<AtomicBool>,
    next: Arc<AtomicU64>,
    callers: Vec<tokio::task::JoinHandle<()>>,
}

impl Traffic {
    /// So many callers, each without a pause.
    pub(in crate::faults) fn flow(app: &Arc<TestApp>, callers: u64, tenants: u64) -> Self {
        Self::paced(app, callers, tenants, Duration::ZERO)
    }

    /// So many callers, each with this pause between its calls.
    pub(in crate::faults) fn paced(app: &Arc<TestApp>, callers: u64, tenants: u64, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let next = Arc::new(AtomicU64::new(0));
        let call = |_| {
            let (app, stop, next) = (app.clone(), stop.clone(), next.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    one_call(&app, number, &format!("tenant-{}", number % tenants)).await;
                    tokio::time::sleep(pause).await;
                }
            })
        };
        let callers = (0..callers).map(call).collect();
        Self { stop, next, callers }
    }

    /// How often a caller has begun.
    pub(in crate::faults) fn calls(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    pub(in crate::faults) async fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        for caller in self.callers {
            caller.await.unwrap();
        }
    }
}

/// One of every sort of thing that a caller does; a 503 of a busy machine is passed over.
async fn one_call(app: &TestApp, number: u64, tenant: &str) {
    let body = pages("5").of(tenant).by(format!("user-{}", number % 3)).lasting(2);
    if number % 7 == 6 {
        app.post_keyed(USAGE, &format!("usage-{number}"), body).await;
        return;
    }
    let body =
        if number % 14 == 1 { json!({ "tenant": tenant, "meter": "token", "amount": "1" }) } else { body };
    let reserved = app.post_keyed(RESERVATIONS, &format!("job-{number}"), body).await;
    let Some(id) = reserved.body["id"].as_str() else { return };
    let say = async |verb: &str, body: Value| {
        app.post(&format!("/v1/reservations/{id}/{verb}"), body).await;
    };
    match number % 7 {
        0 => say("consume", json!({ "amount": "3" })).await,
        1 => say("consume", json!({ "amount": "9" })).await,
        2 => {
            say("consume", json!({ "amount": "2", "final": false })).await;
            say("consume", json!({ "amount": "4" })).await;
        }
        3 => say("release", json!({})).await,
        4 => say("consume", json!({ "amount": "1", "final": false })).await,
        _ => say("extend", json!({ "ttl_seconds": 4 })).await,
    }
}

pub(in crate::faults) async fn with_tenants(app: &TestApp, tenants: u64) {
    for number in 0..tenants {
        app.define(&format!("tenants/tenant-{number}"), json!({ "plan": "plan" })).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_full_load_and_over_the_turn_of_an_hour_no_comparison_finds_a_difference() {
    const TENANTS: u64 = 10;
    let app = app_with(before_the_turn()).await;
    with_tenants(&app, TENANTS).await;
    app.move_clock("2026-02-01T00:59:40Z").await;
    let app = Arc::new(app);
    let traffic = Traffic::flow(&app, 32, TENANTS);
    let operations = app.app().operations.clone();
    let mut taken = 0;
    let started = std::time::Instant::now();
    while taken < 150 || (taken < 1500 && started.elapsed() < Duration::from_secs(8)) {
        for number in 0..TENANTS {
            let tenant = TenantId::parse(&format!("tenant-{number}")).unwrap();
            // A busy machine may answer late; the next checkpoint comes soon.
            taken += u64::from(matches!(operations.reconcile.take_checkpoint(&tenant).await, Ok(Some(_))));
        }
        app.clock.advance_to(app.clock.now_ms() + 2_000).unwrap();
    }
    traffic.end().await;
    app.drained().await;
    let rows = all(&app).await;
    assert!(rows.iter().all(|row| row.state == Clean), "{rows:#?}");
    assert!(metric(&app, "tollgate_checkpoints_total{result=\"clean\"}").await >= taken);
    for kind in ["consumed_more", "consumed_less", "reserved_more", "reserved_less"] {
        assert_eq!(metric(&app, &format!("tollgate_drift_total{{kind=\"{kind}\"}}")).await, 0);
    }
    assert!(app.clock.now_ms() > BEFORE_THE_TURN_MS + 5_400_000, "the hour has turned");
    Arc::into_inner(app).unwrap().finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_is_clean_under_traffic_and_names_a_drift() {
    const TENANTS: u64 = 4;
    let app = app_with(before_the_turn()).await;
    with_tenants(&app, TENANTS).await;
    usage(&app, "a", 20).await;
    let app = Arc::new(app);
    let traffic = Traffic::flow(&app, 4, TENANTS);
    let operations = app.app().operations.clone();
    let check = wait_for("all tenants are warm", Duration::from_secs(30), async || {
        let check = operations.reconcile.verify_gate().await.unwrap();
        assert_eq!(check.faults, Vec::<String>::new());
        (check.cold_tenants == 0).then_some(check)
    })
    .await;
    assert!(check.counters >= 3 * TENANTS && check.skipped.is_none(), "{check:?}");
    tamper(&app, "tg1:*:state:acme", 7).await;
    let check = operations.reconcile.verify_gate().await.unwrap();
    assert_eq!(check.faults.len(), 1, "{check:?}");
    assert!(check.faults[0].contains("acme"), "{check:?}");
    traffic.end().await;
    wait_for("the drift is repaired", Duration::from_secs(30), async || {
        all(&app).await.iter().all(|row| row.state != Drift).then_some(())
    })
    .await;
    Arc::into_inner(app).unwrap().finish().await;
}
