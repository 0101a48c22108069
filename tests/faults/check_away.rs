//! Checks while the gate is away, or has lost its memory: each limit's own policy answers, and the ledger is never
//! asked.

use serde_json::{Value, json};

use super::gate_away::impatient;
use crate::support::app::*;
use crate::support::wait::wait_for;

const CHECK: &str = "/v1/ratelimit/check";

async fn with_minutes(app: &TestApp) {
    app.define("meters/call", json!({ "unit": "call", "booked": false })).await;
    app.define("meters/open", json!({ "unit": "call", "booked": false })).await;
    for meter in ["call", "open"] {
        app.define(&format!("operations/{meter}"), json!({ "costs": [{ "meter": meter, "base": "1" }] }))
            .await;
    }
    let limit = |meter: &str, on_gate_failure: &str| {
        json!({
            "id": meter, "meter": meter, "algorithm": "fixed_window", "window_seconds": 86_400, "capacity": "3",
            "on_gate_failure": on_gate_failure
        })
    };
    app.define("plans/plan", json!({ "limits": [limit("call", "deny"), limit("open", "allow")] })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
}

fn of(operation: &str) -> Value {
    json!({ "tenant": "acme", "operation": operation })
}

#[tokio::test]
async fn while_the_gate_is_away_each_limits_policy_answers_a_check() {
    let app = impatient().start().await;
    with_minutes(&app).await;
    app.post(CHECK, of("open")).await.expect(200);
    let frozen = app.redis.freeze();
    app.post(CHECK, of("call")).await.is_problem(503, "gate_unavailable");
    let allowed = app.post(CHECK, of("open")).await.expect(200);
    assert_eq!(
        (allowed.body["allowed"].as_bool(), allowed.body["degraded"].as_bool()),
        (Some(true), Some(true))
    );
    app.post(CHECK, of("open").with("peek", true)).await.is_problem(503, "gate_unavailable");
    drop(frozen);
    let counted = wait_for("the gate answers", super::gate_away::PATIENCE, async || {
        let look = app.post(CHECK, of("open").with("peek", true)).await;
        (look.status == 200).then(|| look.text("/remaining").to_owned())
    })
    .await;
    assert!(["2", "1"].contains(&counted.as_str()), "what was allowed meanwhile is not counted: {counted}");
    app.finish().await;
}

#[tokio::test]
async fn while_the_gate_is_away_each_limits_policy_answers_for_what_is_held_without_the_ledger() {
    let app = impatient().start().await;
    with_minutes(&app).await;
    let held = app.held(of("open").lasting(3600)).await;
    let frozen = app.redis.freeze();
    app.post(RESERVATIONS, of("call")).await.is_problem(503, "gate_unavailable");
    let through = app.post(RESERVATIONS, of("open")).await.expect(201);
    assert_eq!((through.text("/status"), through.body["degraded"].as_bool()), ("reserved", Some(true)));
    app.post_keyed(USAGE, "used", of("open")).await.expect(201);
    app.post(RESERVATIONS, of("open").with("dry_run", true)).await.is_problem(503, "gate_unavailable");
    app.consume(&held, "1").await.is_problem(503, "gate_unavailable");
    app.read(&held).await.is_problem(503, "gate_unavailable");
    drop(frozen);
    let consumed = wait_for("the gate answers", super::gate_away::PATIENCE, async || {
        let consumed = app.consume(&held, "1").await;
        (consumed.status == 200).then_some(consumed)
    })
    .await;
    assert_eq!(consumed.text("/status"), "consumed");
    app.consume(through.text("/id"), "1").await.expect(404);
    app.finish().await;
}

#[tokio::test]
async fn while_the_gate_is_away_checks_together_are_all_allowed_or_none() {
    let app = impatient().start().await;
    with_minutes(&app).await;
    app.define("meters/denied", json!({ "unit": "call", "booked": false, "without_limit": "deny" })).await;
    app.define("operations/denied", json!({ "costs": [{ "meter": "denied", "base": "1" }] })).await;
    app.post(CHECK, of("open")).await.expect(200);
    let frozen = app.redis.freeze();
    let checks = json!({ "checks": [of("open"), of("denied")], "atomic": true });
    let together = app.post(CHECK, checks.clone()).await.expect(200);
    let allowed = |answer: &Answered| [0, 1].map(|at| answer.body["results"][at]["allowed"].clone());
    assert_eq!(allowed(&together), [json!(false), json!(false)], "{together:?}");
    let apart = app.post(CHECK, checks.with("atomic", false)).await.expect(200);
    assert_eq!(allowed(&apart), [json!(true), json!(false)], "{apart:?}");
    drop(frozen);
    app.finish().await;
}

#[tokio::test]
async fn where_lost_memory_cannot_be_checked_each_limits_policy_answers_too() {
    let app = impatient().start().await;
    with_minutes(&app).await;
    app.post(CHECK, of("open")).await.expect(200);
    app.database.close().await;
    app.redis.flush().await;
    app.post(CHECK, of("call")).await.is_problem(503, "gate_unavailable");
    let allowed = app.post(CHECK, of("open")).await.expect(200);
    assert_eq!((&allowed.body["allowed"], &allowed.body["degraded"]), (&json!(true), &json!(true)));
    let held = app.post(RESERVATIONS, of("open").lasting(60)).await.expect(201);
    assert_eq!(held.body["degraded"], true);
    app.database.open().await;
    wait_for("the memory is checked", super::gate_away::PATIENCE, async || {
        let answer = app.post(CHECK, of("call")).await;
        (answer.status == 200 && answer.body["allowed"] == true).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test]
async fn after_a_loss_of_memory_light_counters_begin_anew() {
    let app = impatient().start().await;
    with_minutes(&app).await;
    for _ in 0..3 {
        assert_eq!(app.post(CHECK, of("call")).await.expect(200).body["allowed"], true);
    }
    assert_eq!(app.post(CHECK, of("call")).await.expect(200).body["allowed"], false);
    app.redis.flush().await;
    let after = wait_for("the memory is checked", super::gate_away::PATIENCE, async || {
        let answer = app.post(CHECK, of("call")).await;
        // For a second it may still be known as full.
        (answer.status == 200 && answer.body["allowed"] == true).then_some(answer)
    })
    .await;
    assert_eq!(after.text("/remaining"), "2");
    app.finish().await;
}

#[tokio::test]
async fn while_the_gate_is_away_work_on_booked_meters_and_others_is_parked_and_booked_as_far_as_it_goes() {
    let app = impatient().start().await;
    with_minutes(&app).await;
    app.define("meters/page", json!({ "unit": "page", "without_limit": "unlimited" })).await;
    let line = |meter: &str, amount: &str| json!({ "meter": meter, "amount": amount });
    let mixed = |calls: &str| json!({ "tenant": "acme", "lines": [line("page", "2"), line("open", calls)] });
    let held = app.held(mixed("1").lasting(3600)).await;
    app.drained().await;
    let denied = json!({ "tenant": "acme", "lines": [line("page", "2"), line("call", "1")] });
    let frozen = app.redis.freeze();
    app.post_keyed(USAGE, "denied", denied).await.is_problem(503, "gate_unavailable");
    let used = app.post_keyed(USAGE, "used", mixed("2")).await.expect(201);
    assert_eq!((used.text("/ack"), used.body["degraded"].as_bool()), ("ledger", Some(true)));
    let totals = json!({ "lines": [line("page", "1"), line("open", "1")] });
    app.resolve(&held, "consume", totals.clone()).await.expect(200);
    drop(frozen);
    super::gate_away::replayed(&app).await;
    let again = app.post_keyed(USAGE, "used", mixed("2")).await.expect(200);
    assert_eq!((again.text("/id"), again.text("/lines/1/consumed")), (used.text("/id"), "2"));
    assert_eq!(app.resolve(&held, "consume", totals).await.expect(200).body["replayed"], true);
    let look = app.post(CHECK, of("open").with("peek", true)).await.expect(200);
    assert_eq!(look.text("/remaining"), "2", "only what was held before is counted: {look:?}");
    app.drained().await;
    let usage = app.get("/v1/tenants/acme/usage").await.expect(200);
    let booked = usage.body["data"].as_array().unwrap();
    assert_eq!((booked.len(), usage.text("/data/0/consumed")), (1, "3"), "{usage:?}");
    app.finish().await;
}
