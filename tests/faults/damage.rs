//! One thing among many is damaged: it is passed over, reported and tried again, and everything else goes on.

use std::time::Duration;

use redis::AsyncCommands;
use serde_json::{Value, json};
use tollgate::domain::checkpoint::ReconciliationState::Clean;
use tollgate::domain::ids::TenantId;
use tollgate::jobs::{ReconcileOptions, reconcile_tenants};
use tollgate::ledger::ReconciliationFilter;
use tollgate::writer::discard;

use super::gate_away;
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const PATIENCE: Duration = Duration::from_secs(60);
const NOON: &str = "2026-03-10T12:00:00Z";
const AFTER_EXPIRY: &str = "2026-03-10T12:02:00Z";
const TENANTS: [&str; 4] = ["acme", "beta", "gamma", "delta"];

async fn at_noon(options: AppOptions) -> TestApp {
    let app = options.at(NOON).start().await;
    with_tenants(&app).await;
    app
}

/// Each with a limit and a quota.
async fn with_tenants(app: &TestApp) {
    app.with_plan(json!([day_of("1000")]), json!([quota_of("900")])).await;
    for tenant in &TENANTS[1..] {
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
    }
}

async fn hold(app: &TestApp, tenant: &str) -> String {
    app.held(pages("5").of(tenant).lasting(60)).await
}

/// The only key of this pattern.
async fn key(app: &TestApp, pattern: &str) -> String {
    let mut keys: Vec<String> = app.redis.connection().await.keys(pattern).await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.remove(0)
}

async fn record_key(app: &TestApp, id: &str) -> String {
    key(app, &format!("tg1:*:rsv:{}", id.replace('-', ""))).await
}

/// A key that every script about the tenant fails at.
async fn with_torn_state(app: &TestApp, tenant: &str) {
    let state = key(app, &format!("tg1:*:state:{tenant}")).await;
    let mut redis = app.redis.connection().await;
    let _: () = redis.del(&state).await.unwrap();
    let _: () = redis.set(&state, "torn").await.unwrap();
}

async fn alarms(app: &TestApp) -> u64 {
    let text = app.app().operations.metrics_text();
    let line =
        text.lines().find(|line| line.starts_with("tollgate_alarms_total{alarm=\"damage\"}")).unwrap_or("0");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

async fn reserved(app: &TestApp, tenant: &str) -> Value {
    app.get(&format!("/v1/tenants/{tenant}/quota")).await.body["quotas"][0]["reserved"].clone()
}

/// Waits until nothing is held of these tenants.
async fn expired(app: &TestApp, tenants: &[&str]) {
    for tenant in tenants {
        wait_for("its holds expire", PATIENCE, async || (reserved(app, tenant).await == "0").then_some(()))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_stops_no_expiry_is_reported_and_expires_once_it_is_mended() {
    let app = at_noon(an_app().with("gate.partitions", "1")).await;
    let torn = hold(&app, "acme").await;
    for tenant in ["acme", "beta", "gamma"] {
        hold(&app, tenant).await;
    }
    let place = record_key(&app, &torn).await;
    let mut redis = app.redis.connection().await;
    let whole: Vec<u8> = redis.get(&place).await.unwrap();
    let _: () = redis.set(&place, "torn").await.unwrap();
    app.move_clock(AFTER_EXPIRY).await;
    expired(&app, &["beta", "gamma"]).await;
    wait_for("the rest of the tenant expires", PATIENCE, async || {
        (reserved(&app, "acme").await == "5").then_some(())
    })
    .await;
    wait_for("an alarm says so", PATIENCE, async || (alarms(&app).await > 0).then_some(())).await;
    wait_for("it is on record for status", PATIENCE, async || {
        let damages = app.app().ledger.damages().await.unwrap();
        damages.iter().any(|damage| damage.item.contains(&torn)).then_some(())
    })
    .await;
    let _: () = redis.set(&place, whole).await.unwrap();
    app.move_clock("2026-03-10T12:10:00Z").await;
    expired(&app, &["acme"]).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_state_is_damaged_does_not_stop_expiry_and_next_periods_of_others() {
    let app = at_noon(an_app().without_jobs()).await;
    for tenant in TENANTS {
        hold(&app, tenant).await;
    }
    with_torn_state(&app, "acme").await;
    app.move_clock(AFTER_EXPIRY).await;
    let operations = &app.app().operations;
    let mut expired = 0;
    for partition in operations.partitions() {
        expired += operations.calls.expire_due(partition).await.unwrap().expired;
    }
    assert_eq!(expired, 3);
    app.move_clock("2026-03-31T21:00:00Z").await;
    let ahead = app.app().operations.memory.open_next_periods().await.unwrap();
    assert_eq!((ahead.opened, ahead.delivered), (4, 3));
    assert!(alarms(&app).await > 0);
    let again = app.app().operations.memory.open_next_periods().await.unwrap();
    assert_eq!((again.opened, again.delivered), (0, 0));
    app.leave_unbalanced("what was damaged stays so");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_loss_a_tenant_that_cannot_be_restored_does_not_make_others_wait() {
    let app = spawn_app().await;
    with_tenants(&app).await;
    for tenant in TENANTS {
        app.post(RESERVATIONS, pages("5").of(tenant).lasting(5)).await.expect(201);
    }
    app.drained().await;
    let state = key(&app, "tg1:*:state:acme").await;
    let mut redis = app.redis.connection().await;
    // At once, so that no restore comes between.
    let mut lost = redis::pipe();
    lost.atomic().cmd("FLUSHALL").cmd("SET").arg(&state).arg("torn");
    lost.exec_async(&mut redis).await.unwrap();
    let expires_in_the_books = async |tenant: &str| {
        wait_for("the hold expires in the books", PATIENCE, async || {
            let listed = app.get(&format!("/v1/tenants/{tenant}/reservations?status=expired")).await.body;
            (listed["data"].as_array()?.len() == 1).then_some(())
        })
        .await;
    };
    for tenant in &TENANTS[1..] {
        expires_in_the_books(tenant).await;
    }
    wait_for("an alarm says so", PATIENCE, async || (alarms(&app).await > 0).then_some(())).await;
    let _: () = redis.del(&state).await.unwrap();
    expires_in_the_books(TENANTS[0]).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_cannot_be_taken_back_keeps_no_other_counted_twice() {
    // In one partition: the row that fails then comes before all others.
    let app = at_noon(an_app().with("gate.partitions", "1")).await;
    let usage = async |tenant: &str| {
        app.post_keyed(USAGE, "job", pages("7").of(tenant)).await.expect(201);
    };
    for tenant in ["acme", "beta", "gamma"] {
        usage(tenant).await;
    }
    app.drained().await;
    // The oldest row is one that the gate will never take back.
    let torn = "INSERT INTO repeats (partition, epoch, sequence, reservation_id, tenant, event) \
                SELECT partition, 0, 0, id, tenant, 'torn' FROM reservations WHERE tenant = 'acme'";
    as_owner(&app.database, torn).await.unwrap();
    let damaged = "UPDATE reservations SET record = 'torn' WHERE tenant = 'acme'";
    as_owner(&app.database, damaged).await.unwrap();
    let mut redis = app.redis.connection().await;
    for tenant in ["beta", "gamma"] {
        let keys: Vec<String> = redis.keys("tg1:*:rsv:*").await.unwrap();
        let _: () = redis.del(keys).await.unwrap();
        usage(tenant).await;
        wait_for("the units are given back", PATIENCE, async || {
            let quota = app.get(&format!("/v1/tenants/{tenant}/quota")).await.body;
            (quota["quotas"][0]["consumed"] == "7").then_some(())
        })
        .await;
    }
    wait_for("an alarm says so", PATIENCE, async || (alarms(&app).await > 0).then_some(())).await;
    app.leave_unbalanced("what was damaged stays so");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_does_not_read_holds_up_its_own_events_alone() {
    let app = at_noon(an_app().with("gate.partitions", "1")).await;
    let torn = hold(&app, "acme").await;
    let whole = hold(&app, "beta").await;
    app.drained().await;
    let damage = format!("UPDATE reservations SET record = 'torn' WHERE id = '{torn}'");
    as_owner(&app.database, &damage).await.unwrap();
    for id in [&torn, &whole] {
        app.consume(id, "3").await.expect(200);
    }
    wait_for("the other is booked", PATIENCE, async || {
        let listed = app.get("/v1/tenants/beta/reservations?status=consumed").await.body;
        (listed["data"].as_array()?.len() == 1).then_some(())
    })
    .await;
    let waiting = rows(&app.database, "SELECT reason FROM quarantine WHERE status = 'open'").await;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    app.leave_unbalanced("what was damaged stays so");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_loss_an_undecodable_open_hold_does_not_stop_the_restore_of_its_tenant() {
    let app = at_noon(an_app()).await;
    let limits = json!([{ "id": "own", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day", "capacity": "50" }]);
    app.define("tenants/acme", json!({ "plan": "plan", "limits": limits })).await;
    let of_ada = pages("5").by("ada").lasting(3600);
    let torn = app.held(of_ada.clone()).await;
    let whole = app.held(of_ada.clone()).await;
    app.resolve(&torn, "consume", json!({ "amount": "2", "final": false })).await.expect(200);
    app.drained().await;
    let damage = format!("UPDATE reservations SET record = 'torn' WHERE id = '{torn}'");
    as_owner(&app.database, &damage).await.unwrap();
    app.redis.flush().await;
    let read = async || {
        let read = app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await.expect(200).body;
        assert_eq!(read["source"], "gate", "{read}");
        let figures = |of: &Value| {
            (of["consumed"].as_str().unwrap().to_owned(), of["reserved"].as_str().unwrap().to_owned())
        };
        vec![figures(&read["limits"][0]), figures(&read["limits"][1]), figures(&read["quotas"][0])]
    };
    let all = |consumed: &str, reserved: &str| vec![(consumed.to_owned(), reserved.to_owned()); 3];
    assert_eq!(read().await, all("2", "8"), "what it holds in the books stays held");
    app.consume(&whole, "3").await.expect(200);
    app.post(RESERVATIONS, of_ada).await.expect(201);
    assert_eq!(read().await, all("5", "8"));
    assert!(alarms(&app).await > 0);
    let damages = app.app().ledger.damages().await.unwrap();
    assert!(damages.iter().any(|damage| damage.item.contains(&torn)), "{damages:?}");
    app.leave_unbalanced("what was damaged stays so");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_call_that_the_gate_fails_at_keeps_no_other_from_it() {
    let app = gate_away::impatient().start().await;
    gate_away::limited(&app, "allow", json!([])).await;
    let (torn, whole) = (gate_away::hold(&app, "5").await, gate_away::hold(&app, "5").await);
    app.drained().await;
    let mut redis = app.redis.connection().await;
    let _: () = redis.set(record_key(&app, &torn).await, "torn").await.unwrap();
    let frozen = app.redis.freeze();
    for id in [&torn, &whole] {
        app.consume(id, "3").await.expect(200);
    }
    drop(frozen);
    gate_away::replayed(&app).await;
    assert_eq!(app.app().ledger.count_parked().await.unwrap().conflicts, 1);
    assert_eq!(gate_away::counted(&app).await, gate_away::both("3", "5"));
    app.leave_unbalanced("what was damaged stays so");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_call_of_a_reservation_with_an_event_in_quarantine_holds_up_no_other_call_of_its_tenant() {
    let app = gate_away::impatient().start().await;
    gate_away::limited(&app, "allow", json!([])).await;
    let (stuck, free) = (gate_away::hold(&app, "5").await, gate_away::hold(&app, "5").await);
    app.drained().await;
    let waits = format!(
        "INSERT INTO quarantine (partition, epoch, sequence, reservation_id, tenant, event, reason) \
         SELECT partition, 0, 0, id, tenant, 'torn', 'a test' FROM reservations WHERE id = '{stuck}'"
    );
    as_owner(&app.database, &waits).await.unwrap();
    let mut redis = app.redis.connection().await;
    let _: () = redis.del(record_key(&app, &stuck).await).await.unwrap();
    let frozen = app.redis.freeze();
    for id in [&stuck, &free] {
        let parked = app.consume(id, "3").await;
        assert_eq!(gate_away::said(&parked), (200, "consumed", false, true), "{parked:?}");
    }
    drop(frozen);
    let new = || app.post(RESERVATIONS, gate_away::long("1"));
    let is_served = |answer: &Answered| gate_away::said(answer) == (201, "reserved", false, false);
    wait_for("the gate serves the tenant", PATIENCE, async || is_served(&new().await).then_some(())).await;
    for _ in 0..5 {
        let served = new().await;
        assert!(is_served(&served), "{served:?}");
    }
    let waiting = async || app.app().ledger.count_parked().await.unwrap().waiting;
    wait_for("the other is told", PATIENCE, async || (waiting().await == 1).then_some(())).await;
    assert_eq!(gate_away::counted(&app).await[0], "3");
    let read = app.read(&free).await.expect(200);
    assert_eq!(read.text("/status"), "consumed");
    assert!(alarms(&app).await > 0);
    let damages = app.app().ledger.damages().await.unwrap();
    assert!(damages.iter().any(|damage| damage.item.contains(&stuck)), "{damages:?}");

    let again = async || app.consume(&stuck, "3").await;
    again().await.is_problem(503, "gate_unavailable");
    let ledger = &app.app().ledger;
    for event in ledger.quarantined(false, None, 10).await.unwrap() {
        discard(ledger, event.partition, event.outbox_id, "anna", "a test").await.unwrap();
    }
    assert_eq!(gate_away::said(&again().await), (200, "consumed", true, true));
    gate_away::replayed(&app).await;
    assert_eq!(gate_away::counted(&app).await[0], "6");
    assert_eq!(ledger.count_parked().await.unwrap().conflicts, 0);
    app.leave_unbalanced("an event was discarded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_state_does_not_read_keeps_no_other_from_being_compared() {
    let app = at_noon(an_app().without_jobs()).await;
    app.move_clock("2026-03-11T00:10:00Z").await;
    for tenant in TENANTS {
        hold(&app, tenant).await;
    }
    // The newest tenant is compared first.
    let (torn, others) = TENANTS.split_last().unwrap();
    with_torn_state(&app, torn).await;
    let compared = async {
        for tenant in others {
            let clean = ReconciliationFilter {
                tenant: TenantId::parse(tenant).ok(),
                state: Some(Clean),
                ..Default::default()
            };
            wait_for("it is compared", PATIENCE, async || {
                let judged = app.app().ledger.reconciliations(&clean, None, 1).await.unwrap();
                (!judged.is_empty()).then_some(())
            })
            .await;
        }
        wait_for("it is on record for status", PATIENCE, async || {
            let damages = app.app().ledger.damages().await.unwrap();
            damages.iter().any(|damage| damage.item.contains(torn)).then_some(())
        })
        .await;
    };
    let often = ReconcileOptions { interval: Duration::from_secs(1), pause_min: Duration::from_millis(1) };
    reconcile_tenants(app.app().operations.clone(), app.app().ledger.clone(), often, compared).await;
    assert!(alarms(&app).await > 0);
    app.leave_unbalanced("what was damaged stays so");
}
