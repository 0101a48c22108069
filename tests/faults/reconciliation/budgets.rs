//! Budgets of class quota are compared and repaired as limits of single meters are.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::domain::checkpoint::ReconciliationState::{Clean, Repaired};
use tollgate::domain::ids::TenantId;

use super::{Traffic, all, before_the_turn, compared, hash_of, metric, tamper, with_tenants};
use crate::support::app::*;

/// A budget of six decimals, in which a page counts 100 and a token three of its smallest units.
fn budget(id: &str, window: &str) -> Value {
    json!({ "id": id, "meters": { "page": "100", "token": "0.000003" }, "decimals": 6, "window": window,
            "capacity": "1000000000", "class": "quota" })
}

/// A tenant with a budget of its own and one for each user, from the windows' starts on.
async fn with_budgets() -> TestApp {
    let app = before_the_turn().start().await;
    for (meter, decimals) in [("page", 2), ("token", 0)] {
        let definition = json!({ "unit": meter, "decimals": decimals, "without_limit": "unlimited" });
        app.define(&format!("meters/{meter}"), definition).await;
    }
    let of_user = budget("user", "hour").with("scope", "subject").with("subject_kind", "user");
    app.define("plans/plan", json!({ "limits": [budget("budget", "day"), of_user] })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    app.move_clock("2026-02-01T00:10:00Z").await;
    app
}

fn work(pages: &str, tokens: &str) -> Value {
    json!({ "tenant": "acme", "subject": "ada",
            "lines": [{ "meter": "page", "amount": pages }, { "meter": "token", "amount": tokens }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_was_changed_by_hand_is_named_by_verify_and_repaired_by_a_checkpoint() {
    let app = with_budgets().await;
    app.post_keyed(USAGE, "used", work("1.5", "1000")).await.expect(201);
    let held = app.held(work("0.5", "500").lasting(3_600)).await;
    app.drained().await;
    let clean = compared(&app, true).await;
    assert_eq!((clean.state, clean.counters), (Clean, 2), "{clean:?}");
    let of_ada = format!("user of user {}", hash_of(&app, "ada"));
    for (pattern, id, name) in
        [("tg1:*:state:acme", "budget", "budget"), ("tg1:*:state:acme:*", "user", of_ada.as_str())]
    {
        tamper(&app, pattern, 7).await;
        let check = app.app().operations.reconcile.verify_gate().await.unwrap();
        let figures = "the gate has consumed 150.003007 and reserved 50.0015, the ledger 150.003 and 50.0015";
        assert_eq!(check.faults, [format!("tenant acme {name}: {figures}")]);
        let drift = compared(&app, true).await;
        assert_eq!((drift.state, drift.differences.len()), (Repaired, 1), "{drift:?}");
        let difference = &drift.differences[0];
        assert_eq!((difference.counter.name.as_str(), difference.delta()), (id, (-7, 0)));
        assert_eq!(compared(&app, true).await.state, Clean);
    }
    let rows = app.get("/v1/reports/reconciliation?state=repaired&tenant=acme").await.expect(200);
    for (at, limit) in ["user", "budget"].into_iter().enumerate() {
        let field = |name: &str| rows.text(&format!("/data/{at}/differences/0/{name}")).to_owned();
        let named = ["limit", "meter", "gate/consumed", "ledger/consumed"].map(field);
        assert_eq!(named, [limit, "page", "150.003007", "150.003"], "a budget names its first meter");
    }
    app.release(&held).await.expect(200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_traffic_no_comparison_of_a_budget_finds_a_difference() {
    const TENANTS: u64 = 4;
    let app = with_budgets().await;
    with_tenants(&app, TENANTS).await;
    app.move_clock("2026-02-01T00:59:40Z").await;
    let app = Arc::new(app);
    let traffic = Traffic::flow(&app, 8, TENANTS);
    let operations = app.app().operations.clone();
    let (mut taken, started) = (0, std::time::Instant::now());
    while taken < 60 {
        assert!(started.elapsed() < Duration::from_secs(120), "{taken} checkpoints were taken");
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
    Arc::into_inner(app).unwrap().finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_restored_after_a_loss_of_memory_inside_its_first_window_is_compared_at_once() {
    let app = with_budgets().await;
    let held = app.held(work("0.5", "500").lasting(3_600)).await;
    app.post_keyed(USAGE, "used", work("1.5", "1000")).await.expect(201);
    let heavier = budget("budget", "day").with("meters", json!({ "page": "100", "token": "0.00001" }));
    app.define("plans/plan", json!({ "limits": [heavier] })).await;
    app.move_clock("2026-02-01T00:15:00Z").await;
    app.drained().await;
    app.redis.flush().await;
    app.post_until_answered(USAGE, "after", work("1", "1")).await.expect(201);
    let judged = compared(&app, true).await;
    assert_eq!((judged.state, judged.counters), (Clean, 1), "{judged:?}");
    // The hold does not name it, and moves it.
    app.release(&held).await.expect(200);
    assert_eq!(compared(&app, true).await.state, Clean);
    app.finish().await;
}
