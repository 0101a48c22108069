//! What happens when a quota is used up: refusal, measurement, or an overdraft.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tollgate::ledger::Manner;

use crate::ledger::rows;
use crate::support::app::*;

const CLOSURES: &str = "SELECT lapsed::float8 AS l, overage::float8 AS o FROM period_closures";

/// A tenant whose plan includes so many pages a month in this mode, in UTC, where no job runs by itself.
async fn with(quota: Value) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota])).await;
    app
}

/// Fields of the quota's line.
async fn figures(app: &TestApp, fields: &[&str]) -> String {
    let quota = app.quota().await;
    fields.iter().map(|field| quota.text(&format!("/quotas/0/{field}"))).collect::<Vec<_>>().join(" ")
}

async fn close(app: &TestApp) -> Vec<String> {
    app.move_clock("2026-04-01T12:00:00Z").await;
    app.drained().await;
    let closed =
        app.app().operations.periods.close(Manner::default(), Duration::from_secs(3600)).await.unwrap();
    assert_eq!(closed.closed, 1);
    rows(&app.database, CLOSURES).await
}

fn warnings(answer: &Answered) -> Vec<&str> {
    answer.body["warnings"].as_array().unwrap().iter().map(|one| one["code"].as_str().unwrap()).collect()
}

const FIELDS: &[&str] = &["mode", "granted", "consumed", "overage", "overdraft", "remaining"];

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_quota_refuses_nothing_and_measures_what_is_used_beyond_it() {
    let app = with(quota_of("10").with("mode", "soft")).await;
    let within = app.post(RESERVATIONS, pages("4")).await.expect(201);
    assert_eq!(warnings(&within), [""; 0]);
    app.resolve(within.text("/id"), "consume", json!({})).await.expect(200);
    let beyond = app.post(RESERVATIONS, pages("21")).await.expect(201);
    assert_eq!(warnings(&beyond), ["overage"], "{beyond:?}");
    app.resolve(beyond.text("/id"), "consume", json!({})).await.expect(200);
    assert_eq!(figures(&app, FIELDS).await, "soft 10 25 15 0 0");
    app.drained().await;
    app.redis.flush().await;
    app.use_pages("after", "1").await.expect(201);
    assert_eq!(figures(&app, FIELDS).await, "soft 10 26 16 0 0");
    assert_eq!(close(&app).await, ["0 16"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_quota_cuts_no_consumption_to_what_is_left() {
    let app = with(quota_of("10").with("mode", "soft")).await;
    app.define("meters/page", json!({ "unit": "page", "on_excess": "cap" })).await;
    let held = app.hold("4").await;
    let consumed = app.consume(&held, "30").await.expect(200);
    assert_eq!(consumed.text("/lines/0/consumed"), "30", "{consumed:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_does_not_help_where_a_prepaid_balance_is_used_up_and_a_grant_does() {
    let app = with(quota_of("0").with("mode", "prepaid")).await;
    let grant = |key: &'static str| {
        let body = json!({
            "tenant": "acme", "meter": "page", "amount": "10", "kind": "promotional",
            "expires_at": "2026-04-01T00:00:00Z"
        });
        app.post_keyed("/v1/admin/grants", key, body)
    };
    let exhausted = async || {
        let refused = app.post(RESERVATIONS, pages("4")).await;
        refused.is_problem(402, "balance_exhausted");
        assert!(!refused.headers.contains_key("retry-after"), "{refused:?}");
        assert_eq!(refused.body["refused_by"][0]["retry_after_ms"], Value::Null, "{refused:?}");
    };
    exhausted().await;
    grant("first").await.expect(201);
    let held = app.hold("7").await;
    let waits = app.post(RESERVATIONS, pages("4")).await;
    waits.is_problem(429, "quota_exceeded");
    assert_eq!(waits.body["refused_by"][0]["cause"], "reserved", "what is held may come back: {waits:?}");
    app.consume(&held, "7").await.expect(200);
    exhausted().await;
    grant("second").await.expect(201);
    app.hold("4").await;
    assert_eq!(figures(&app, FIELDS).await, "prepaid 20 7 0 0 9");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_reasons_that_no_wait_cures_the_spent_balance_comes_first() {
    let app = with(quota_of("0").with("mode", "prepaid")).await;
    app.with_plan(json!([day_of("10")]), json!([quota_of("0").with("mode", "prepaid")])).await;
    let refused = app.post(RESERVATIONS, pages("20")).await;
    refused.is_problem(402, "balance_exhausted");
    assert_eq!(refused.body["refused_by"].as_array().unwrap().len(), 2, "{refused:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_with_an_overdraft_goes_below_zero_so_far_and_no_further() {
    let app = with(quota_of("10").with("mode", "overdraft").with("overdraft", "5")).await;
    app.use_pages("most", "12").await.expect(201);
    assert_eq!(figures(&app, FIELDS).await, "overdraft 10 12 2 5 3");
    app.post(RESERVATIONS, pages("4")).await.is_problem(402, "balance_exhausted");
    app.drained().await;
    app.redis.flush().await;
    app.post(RESERVATIONS, pages("4")).await.is_problem(402, "balance_exhausted");
    app.use_pages("rest", "3").await.expect(201);
    app.post(RESERVATIONS, pages("1")).await.is_problem(402, "balance_exhausted");
    assert_eq!(figures(&app, FIELDS).await, "overdraft 10 15 5 5 0");
    assert_eq!(close(&app).await, ["0 5"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_mode_measures_from_the_next_period_on() {
    let app = with(quota_of("10")).await;
    app.use_pages("all", "10").await.expect(201);
    app.with_plan(json!([]), json!([quota_of("10").with("mode", "soft")])).await;
    app.post(RESERVATIONS, pages("1")).await.is_problem(429, "quota_exceeded");
    assert_eq!(figures(&app, FIELDS).await, "soft 10 10 0 0 0");
    app.move_clock("2026-04-01T12:00:00Z").await;
    app.use_pages("next", "12").await.expect(201);
    assert_eq!(figures(&app, FIELDS).await, "soft 10 12 2 0 0");
    app.with_plan(json!([]), json!([quota_of("10")])).await;
    app.use_pages("still", "1").await.expect(201);
    app.finish().await;
}

#[rstest]
#[case::for_another_mode(quota_of("10").with("overdraft", "5"), "/quotas/0/overdraft")]
#[case::finer_than_the_meter(quota_of("10").with("mode", "overdraft").with("overdraft", "0.5"), "/quotas/0/overdraft")]
#[case::more_than_is_measured(quota_of("5000000000000000").with("mode", "soft"), "/quotas/0/included")]
#[case::no_mode(quota_of("10").with("mode", "weak"), "/quotas/0/mode")]
#[tokio::test]
async fn a_quota_that_cannot_be_is_refused_with_its_field(#[case] quota: Value, #[case] pointer: &str) {
    let app = with(quota_of("10")).await;
    let answer = app.put("/v1/admin/plans/plan", json!({ "id": "plan", "quotas": [quota] })).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), [pointer]);
    app.finish().await;
}
