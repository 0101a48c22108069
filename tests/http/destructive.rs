//! Calls that destroy something: each key may make so many in a minute, and refused ones are audited.

use serde_json::{Value, json};
use tollgate::app::Role;

use crate::ledger::as_owner;
use crate::support::app::*;

const AUDIT: &str = "/v1/admin/audit?action=refuse&object_kind=destructive_call";
const NO_METER: &str = "/v1/admin/meters/missing";

/// An instance where each key may destroy three times a minute.
async fn with_three_a_minute() -> TestApp {
    an_app().with("admin.destructive_calls_per_minute", 3).start().await
}

async fn refusals(app: &TestApp) -> Vec<Value> {
    app.get(AUDIT).await.expect(200).body["data"].as_array().unwrap().clone()
}

/// Uses up the minute of a key: what is not there counts as what is.
async fn use_up(caller: &Caller) {
    for _ in 0..3 {
        caller.delete(NO_METER).await.is_problem(404, "not_found");
    }
}

#[tokio::test]
async fn a_key_that_destroys_too_often_waits_and_the_audit_log_has_one_line_of_it() {
    let app = with_three_a_minute().await;
    app.put("/v1/admin/meters/page", json!({ "unit": "page", "decimals": 0 })).await.expect(201);
    let (hasty, by_hasty) = app.make_named_key("admin").await;
    use_up(&hasty).await;
    for _ in 0..5 {
        let refused = hasty.delete("/v1/admin/meters/page").await;
        refused.is_problem(429, "rate_limited");
        let wait: u64 = refused.header("retry-after").parse().unwrap();
        assert!((1..=60).contains(&wait), "{refused:?}");
    }
    assert_eq!(app.get("/v1/admin/meters/page").await.status, 200, "a refused call changes nothing");
    let refusals = refusals(&app).await;
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert_eq!(refusals[0]["actor"], by_hasty.as_str());
    assert_eq!(
        refusals[0]["detail"],
        json!({ "call": "DELETE /v1/admin/meters/page", "calls_per_minute": 3 })
    );
    assert_eq!(app.delete("/v1/admin/meters/page").await.status, 204, "another key has a minute of its own");
    app.finish().await;
}

#[tokio::test]
async fn a_minute_later_the_key_may_destroy_again_and_a_new_refusal_is_a_new_line() {
    let app = with_three_a_minute().await;
    let (hasty, by_hasty) = app.make_named_key("admin").await;
    use_up(&hasty).await;
    hasty.delete(NO_METER).await.is_problem(429, "rate_limited");
    let a_minute_later = format!(
        "UPDATE destructive_calls SET since = since - interval '1 minute' WHERE key_id = '{by_hasty}'"
    );
    as_owner(&app.database, &a_minute_later).await.unwrap();
    use_up(&hasty).await;
    hasty.delete(NO_METER).await.is_problem(429, "rate_limited");
    assert_eq!(refusals(&app).await.len(), 2);
    app.finish().await;
}

#[tokio::test]
async fn instances_count_together_and_every_call_that_destroys_counts() {
    let app = with_three_a_minute().await;
    let second =
        app.another_with(&[Role::Http], &[("admin.destructive_calls_per_minute", "3".to_owned())]).await;
    let there = app.caller().at(second.url());
    let prune = |dry_run: bool| json!({ "policy": {}, "prune": ["limits"], "dry_run": dry_run });
    app.post("/v1/admin/policy", prune(true)).await.expect(200);
    app.post("/v1/admin/policy", json!({ "policy": {} })).await.expect(200);
    app.post("/v1/admin/policy", prune(false)).await.expect(200);
    there.delete("/v1/admin/keys/missing").await.is_problem(404, "not_found");
    let grant = "/v1/admin/grants/00000000-0000-0000-0000-000000000001/void";
    app.post(grant, json!({})).await.is_problem(404, "not_found");
    there.post("/v1/admin/policy", prune(false)).await.is_problem(429, "rate_limited");
    app.delete("/v1/admin/bans/b?tenant=acme").await.is_problem(429, "rate_limited");
    app.post("/v1/admin/policy", prune(true)).await.expect(200);
    app.put("/v1/admin/meters/page", json!({ "unit": "page", "decimals": 0 })).await.expect(201);
    assert_eq!(refusals(&app).await.len(), 1);
    second.stop().await;
    app.finish().await;
}
