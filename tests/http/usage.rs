//! `/v1/usage`: reserve and consume in one.

use serde_json::{Value, json};

use super::with_policy;
use crate::support::app::*;

#[tokio::test]
async fn usage_needs_a_key_and_happens_once() {
    let app = with_policy().await;
    app.post(USAGE, pages("2")).await.is_problem(400, "idempotency_key_required");
    let first = app.use_pages("page-7", "2").await;
    let again = app.use_pages("page-7", "2").await;
    assert_eq!((first.status, again.status), (201, 200), "{first:?}");
    assert_eq!(first.body["status"], "consumed");
    assert_eq!(first.body["lines"][0]["consumed"], "2");
    assert_eq!(again.body["id"], first.body["id"]);
    assert_eq!(again.body["limits"][0]["consumed"], "2");
    app.post_keyed(USAGE, "page-7", pages("3")).await.is_problem(422, "idempotency_key_reused");
    app.finish().await;
}

#[tokio::test]
async fn usage_is_refused_like_a_reserve() {
    let app = with_policy().await;
    assert_eq!(app.use_pages("a", "99").await.status, 201);
    let refused = app.use_pages("b", "2").await;
    refused.is_problem(429, "quota_exceeded");
    assert_eq!(refused.body["refused_by"][0]["cause"], "consumed");
    assert_eq!(app.use_pages("b", "1").await.status, 201);
    app.finish().await;
}

#[tokio::test]
async fn usage_acknowledged_by_the_ledger_is_in_the_books() {
    let app = with_policy().await;
    let mut body = pages("2");
    body["ack"] = json!("ledger");
    let recorded = app.post_keyed(USAGE, "page-7", body).await;
    assert_eq!((recorded.status, &recorded.body["ack"]), (201, &json!("ledger")), "{recorded:?}");
    let entries = app.get("/v1/tenants/acme/entries").await;
    assert_eq!(entries.body["data"][0]["operation_id"], recorded.body["id"], "{entries:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_dry_run_of_usage_decides_as_usage_and_not_as_a_reserve() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    let slots = json!({
        "id": "slots", "meter": "page", "algorithm": "concurrency", "counts": "reservations", "capacity": "1"
    });
    app.with_plan(json!([slots, day_of("5")]), json!([])).await;
    let costs = json!([{ "meter": "page", "weights": { "pages": "1" }, "max": "9", "estimate": "learned" }]);
    app.define("operations/submit", json!({ "costs": costs })).await;
    app.hold(1).await;
    app.post(RESERVATIONS, pages(1)).await.is_problem(429, "rate_limited");
    let dry = async |body: Value| app.post_keyed(USAGE, "used", body.with("dry_run", true)).await;
    let allowed = dry(pages(4)).await.expect(200);
    assert_eq!(allowed.body["allowed"], true, "usage takes no slot: {allowed:?}");
    let refused = dry(pages(5)).await.expect(200);
    assert_eq!((&refused.body["allowed"], refused.text("/code")), (&json!(false), "quota_exceeded"));
    let decision = app.get(&format!("/v1/decisions/{}", refused.text("/decision_id"))).await.expect(200);
    assert_eq!((decision.text("/call"), &decision.body["dry_run"]), ("usage", &json!(true)));
    let submit = json!({ "tenant": "acme", "operation": "submit" });
    for answer in [dry(submit.clone()).await, app.post_keyed(USAGE, "used", submit).await] {
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), ["/attributes"], "what was used is said and never estimated");
    }
    app.use_pages("used", 4).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn usage_has_no_ttl() {
    let app = with_policy().await;
    let mut body = pages("2");
    body["ttl_seconds"] = json!(60);
    let answer = app.post_keyed(USAGE, "k", body).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/ttl_seconds"]);
    app.finish().await;
}

#[tokio::test]
async fn totals_of_today_and_of_this_month_are_cut_in_the_tenants_zone() {
    let app = an_app().at("2026-03-10T22:30:00Z").without_jobs().start().await;
    app.without_limits().await;
    let in_berlin = json!({ "plan": "plan", "time_zone": "Europe/Berlin", "anchor_day": 15 });
    app.define("tenants/acme", in_berlin).await;
    let total = async |span: &str| {
        app.drained().await;
        let rows = app.get(&format!("/v1/tenants/acme/usage?span={span}")).await.expect(200).body;
        rows["data"].as_array().unwrap().first().map(|row| row["consumed"].as_str().unwrap().to_owned())
    };
    app.use_pages("on the tenth", 3).await.expect(201);
    assert_eq!(total("today").await.as_deref(), Some("3"));
    app.move_clock("2026-03-10T23:30:00Z").await;
    assert_eq!((total("today").await, total("month").await.as_deref()), (None, Some("3")));
    app.use_pages("on the eleventh", 4).await.expect(201);
    assert_eq!((total("today").await.as_deref(), total("month").await.as_deref()), (Some("4"), Some("7")));
    let both = app.get("/v1/tenants/acme/usage?span=today&from=2026-03-01T00:00:00Z").await;
    both.is_problem(400, "invalid_request");
    assert_eq!(both.pointers(), ["/span"]);
    app.finish().await;
}
