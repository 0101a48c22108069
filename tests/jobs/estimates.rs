//! Learned estimates: what a reserve holds where nothing says how much its work is.

use serde_json::{Value, json};
use std::time::Duration;

use crate::http::corrections::follow;
use crate::support::app::*;
use crate::support::wait::wait_for;

const ESTIMATES: &str = "/v1/tenants/acme/estimates";

/// An operation of tokens at most a thousand, learned unless an attribute says how many.
fn chat() -> Value {
    json!({ "costs": [{
        "meter": "token", "weights": { "tokens": "1" }, "factors": { "fast": "2" }, "max": "1000", "estimate": "learned"
    }] })
}

/// Tenants `acme` and `other`, the operation `chat`, at noon, where no job runs by itself.
async fn with_chat() -> TestApp {
    let app = an_app().at("2026-03-01T12:00:00Z").without_jobs().start().await;
    app.without_limits().await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    app.define("operations/chat", chat()).await;
    app
}

/// A chat of which nothing says how long it is.
fn a_chat() -> Value {
    json!({ "tenant": "acme", "operation": "chat" })
}

fn tokens(amount: impl ToString) -> Value {
    json!({ "tenant": "acme", "operation": "chat", "lines": [{ "meter": "token", "amount": amount.to_string() }] })
}

/// Reserves a chat as it is, and uses so many tokens. Returns what was held.
async fn worked(app: &TestApp, body: Value, used: impl ToString) -> String {
    let held = app.post(RESERVATIONS, body).await.expect(201);
    app.consume(held.text("/id"), &used.to_string()).await.expect(200);
    held.text("/lines/0/amount").to_owned()
}

/// Learns from what is booked. Returns how much work was counted.
async fn learn(app: &TestApp) -> u64 {
    app.drained().await;
    let counted = app.app().operations.estimates.learn().await.unwrap();
    if counted > 0 {
        wait_for("the instance has read it", Duration::from_secs(10), async || {
            let learned_at = app.app().ledger.estimates_learned_at().await.unwrap();
            (app.app().operations.estimates.as_of() == learned_at).then_some(())
        })
        .await;
    }
    counted
}

async fn estimate(app: &TestApp) -> Value {
    let list = app.get(ESTIMATES).await.expect(200).body;
    assert_eq!(list["data"].as_array().unwrap().len(), 1, "{list}");
    list["data"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_without_attributes_covers_what_most_of_the_tenants_work_used() {
    let app = with_chat().await;
    let unknown = app.post(RESERVATIONS, a_chat()).await.expect(201).body;
    assert_eq!(
        (&unknown["estimated"], &unknown["lines"][0]["amount"]),
        (&json!(true), &json!("1000")),
        "{unknown}"
    );
    assert_eq!(unknown["lines"][0]["estimate"], json!({ "percentile": "0.95", "source": "max", "count": 0 }));
    for used in 1..=40 {
        worked(&app, tokens(100), used).await;
    }
    assert_eq!(learn(&app).await, 40);
    let known = app.post(RESERVATIONS, a_chat()).await.expect(201).body;
    assert_eq!((&known["estimated"], &known["lines"][0]["amount"]), (&json!(true), &json!("38")), "{known}");
    assert_eq!(
        known["lines"][0]["estimate"],
        json!({ "percentile": "0.95", "source": "tenant", "count": 40 })
    );
    let elsewhere = app.post(RESERVATIONS, a_chat().of("other")).await.expect(201).body;
    assert_eq!(
        (&elsewhere["lines"][0]["amount"], &elsewhere["lines"][0]["estimate"]["source"]),
        (&json!("38"), &json!("all_tenants"))
    );
    let median = chat().with("costs", json!([chat()["costs"][0].clone().with("estimate_percentile", "0.5")]));
    app.define("operations/chat", median).await;
    assert_eq!(
        estimate(&app).await,
        json!({
            "operation": "chat", "meter": "token", "amount": "20", "percentile": "0.5", "source": "tenant", "count": 40
        })
    );
    worked(&app, tokens(100).of("other"), 7).await;
    assert_eq!(learn(&app).await, 1);
    let own = app.post(RESERVATIONS, a_chat().of("other")).await.expect(201).body;
    assert_eq!(
        (&own["lines"][0]["amount"], &own["lines"][0]["estimate"]["source"]),
        (&json!("7"), &json!("tenant"))
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_estimate_that_changed_makes_a_repeat_no_other_request() {
    let app = with_chat().await;
    let first = app.post_keyed(RESERVATIONS, "one", a_chat()).await.expect(201).body;
    let ended = app.post_keyed(RESERVATIONS, "ended", a_chat()).await.expect(201);
    app.consume(ended.text("/id"), "10").await.expect(200);
    let best =
        app.post_keyed(RESERVATIONS, "best", a_chat().with("mode", "best_effort")).await.expect(201).body;
    assert_eq!(best["lines"][0]["requested"], "1000");
    let in_batch = json!({ "items": [{ "call": "reserve", "idempotency_key": "batch", "body": a_chat() }] });
    let batch = app.post("/v1/batch", in_batch.clone()).await.expect(200).body;
    assert_eq!(learn(&app).await, 1);
    assert_eq!(app.post(RESERVATIONS, a_chat()).await.expect(201).text("/lines/0/amount"), "10");
    let again = app.post_keyed(RESERVATIONS, "one", a_chat()).await.expect(200).body;
    assert_eq!((&again["id"], &again["lines"][0]["amount"]), (&first["id"], &json!("1000")), "{again}");
    assert_eq!((&again["replayed"], &again["estimated"]), (&json!(true), &json!(true)), "{again}");
    let again = app.post_keyed(RESERVATIONS, "ended", a_chat()).await.expect(200).body;
    assert_eq!((&again["status"], &again["estimated"]), (&json!("consumed"), &json!(true)), "{again}");
    let again =
        app.post_keyed(RESERVATIONS, "best", a_chat().with("mode", "best_effort")).await.expect(200).body;
    assert_eq!(
        again["lines"],
        json!([{ "meter": "token", "amount": "1000" }]),
        "what was asked for then is not known"
    );
    let again = app.post("/v1/batch", in_batch).await.expect(200).body;
    let ids = [&batch, &again].map(|answer| answer["results"][0]["body"]["id"].clone());
    assert_eq!((again["results"][0]["status"].as_i64(), &ids[0]), (Some(200), &ids[1]), "{again}");
    let other = a_chat().with("attributes", json!({ "tokens": 1000 }));
    app.post_keyed(RESERVATIONS, "one", other).await.is_problem(422, "idempotency_key_reused");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attribute_that_bounds_the_work_holds_what_the_formula_says() {
    let app = with_chat().await;
    worked(&app, tokens(100), 30).await;
    assert_eq!(learn(&app).await, 1);
    let with = |attributes: Value| a_chat().with("attributes", attributes);
    let bounded = app.post(RESERVATIONS, with(json!({ "tokens": 200, "fast": true }))).await.expect(201).body;
    assert_eq!(
        (&bounded["lines"][0]["amount"], bounded.get("estimated")),
        (&json!("400"), None),
        "{bounded}"
    );
    let open = app.post(RESERVATIONS, with(json!({ "fast": true }))).await.expect(201).body;
    assert_eq!(open["lines"][0]["amount"], "30", "what is learned knows no factors");
    app.post(RESERVATIONS, with(json!({ "fast": 1 }))).await.is_problem(422, "validation_failed");
    let dry = app.post(RESERVATIONS, a_chat().with("dry_run", true)).await.expect(200).body;
    assert_eq!((&dry["lines"][0]["amount"], &dry["estimated"]), (&json!("30"), &json!(true)), "{dry}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_used_is_said_and_never_estimated() {
    let app = with_chat().await;
    worked(&app, tokens(100), 30).await;
    assert_eq!(learn(&app).await, 1);
    let refused = app.post_keyed(USAGE, "unsaid", a_chat()).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), ["/attributes"]);
    app.post_keyed(USAGE, "said", a_chat().with("attributes", json!({ "tokens": 12 }))).await.expect(201);
    let check = app.post("/v1/ratelimit/check", a_chat()).await;
    check.is_problem(422, "validation_failed");
    let id = app.held(a_chat()).await;
    let unsaid = app.resolve(&id, "consume", json!({ "attributes": { "fast": true } })).await;
    unsaid.is_problem(422, "validation_failed");
    let said = app.resolve(&id, "consume", json!({ "attributes": { "tokens": 20, "fast": true } })).await;
    assert_eq!(said.expect(200).text("/lines/0/consumed"), "40");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_work_is_learned_once_however_often_and_by_how_many_it_is_learned() {
    let app = with_chat().await;
    for used in [10, 20, 30] {
        worked(&app, tokens(100), used).await;
    }
    app.release(&app.held(a_chat()).await).await.expect(200);
    app.held(a_chat()).await;
    app.post(RESERVATIONS, json!({ "tenant": "acme", "meter": "token", "amount": "5" })).await.expect(201);
    app.drained().await;
    let runs = (0..3).map(|_| app.app().operations.estimates.learn());
    let counted: u64 = futures::future::join_all(runs).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(counted, 3, "what is held, was released or names no operation is not learned from");
    assert_eq!(learn(&app).await, 0);
    // At the same instant of the test clock, and under another cost that has been there all along.
    worked(&app, tokens(100), 40).await;
    let both = json!({ "costs": [
        chat()["costs"][0],
        { "meter": "page", "base": "1", "max": "9", "estimate": "learned" }
    ] });
    app.define("operations/chat", both).await;
    let two = json!([{ "meter": "token", "amount": "70" }, { "meter": "page", "amount": "3" }]);
    let id = app.held(tokens(1).with("lines", two)).await;
    app.resolve(&id, "consume", json!({})).await.expect(200);
    assert_eq!(learn(&app).await, 2);
    let list = app.get(&format!("{ESTIMATES}?limit=1")).await.expect(200).body;
    let row = |row: &Value| format!("{} {} of {}", row["meter"], row["amount"], row["count"]);
    assert_eq!(row(&list["data"][0]), "\"page\" \"3\" of 1");
    let rest =
        app.get(&format!("{ESTIMATES}?limit=1&cursor={}", list["next_cursor"].as_str().unwrap())).await;
    assert_eq!(row(&rest.body["data"][0]), "\"token\" \"70\" of 5");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_finance_corrects_is_no_work_to_learn_from() {
    let app = with_chat().await;
    let held = app.post(RESERVATIONS, a_chat()).await.expect(201);
    app.consume(held.text("/id"), "300").await.expect(200);
    app.drained().await;
    let less = json!({
        "tenant": "acme", "meter": "token", "effect": "usage", "amount": "-250", "happened_at": "2026-03-01T12:00:00Z",
        "reason": "counted wrongly", "corrects": held.text("/id")
    });
    app.post_keyed("/v1/adjustments", "less", less).await.expect(201);
    follow(&app).await;
    assert_eq!(learn(&app).await, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cost_that_is_learned_from_now_on_is_learned_from_what_was_done_before() {
    let app = with_chat().await;
    let fixed = json!({ "costs": [{ "meter": "token", "weights": { "tokens": "1" } }] });
    app.define("operations/chat", fixed).await;
    worked(&app, a_chat().with("attributes", json!({ "tokens": 90 })), 60).await;
    assert_eq!(learn(&app).await, 0, "nothing is learned of an operation that is not estimated");
    app.get(ESTIMATES).await.expect(200);
    app.define("operations/chat", chat()).await;
    app.define("operations/other", chat()).await;
    assert_eq!(learn(&app).await, 1);
    worked(&app, a_chat().with("operation", "other"), 5).await;
    assert_eq!(learn(&app).await, 1);
    assert_eq!(app.get(ESTIMATES).await.expect(200).body["data"][0]["count"], 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_far_off_the_latest_estimates_were_is_told() {
    let app = with_chat().await;
    for used in [90, 100] {
        worked(&app, tokens(100), used).await;
    }
    assert_eq!(learn(&app).await, 2);
    for used in [25, 50, 75, 130] {
        assert_eq!(worked(&app, a_chat(), used).await, "100");
    }
    assert_eq!(learn(&app).await, 4);
    let latest = json!({
        "count": 4, "exceeded": 1, "unused": "150", "excess": "30", "median_used_percent": 50, "p90_used_percent": 130
    });
    let listed = estimate(&app).await;
    assert_eq!((&listed["latest"], &listed["count"]), (&latest, &json!(6)), "{listed}");
    let held = app.post(RESERVATIONS, a_chat()).await.expect(201).body;
    assert_eq!(held["lines"][0]["estimate"]["latest"], latest, "{held}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_estimated_hold_expires_and_is_charged_late_like_any_other() {
    let app = an_app().at("2026-03-01T12:00:00Z").start().await;
    app.without_limits().await;
    app.define("operations/chat", chat()).await;
    worked(&app, tokens(100), 20).await;
    // The job may have been first.
    learn(&app).await;
    wait_for("it is learned", Duration::from_secs(10), async || {
        (estimate(&app).await["amount"] == "20").then_some(())
    })
    .await;
    let id = app.held(a_chat().lasting(10)).await;
    app.move_clock("2026-03-01T12:05:00Z").await;
    wait_for("it has expired", Duration::from_secs(20), async || {
        (app.read(&id).await.body["status"] == "expired").then_some(())
    })
    .await;
    let late = app.consume(&id, "25").await.expect(200).body;
    assert_eq!((&late["late"], &late["lines"][0]["consumed"]), (&json!(true), &json!("25")), "{late}");
    learn(&app).await;
    wait_for("the late one is learned", Duration::from_secs(10), async || {
        (estimate(&app).await["latest"]["exceeded"] == 1).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cap_left_uncharged_is_learned_too() {
    let app = with_chat().await;
    app.define("meters/token", json!({ "unit": "token", "on_excess": "cap", "without_limit": "unlimited" }))
        .await;
    app.define("plans/plan", json!({ "quotas": [{ "meter": "token", "included": "50" }] })).await;
    let held = app.held(tokens(20)).await;
    let capped = app.consume(&held, "80").await.expect(200).body;
    assert_eq!(capped["lines"][0]["uncharged"], "30", "{capped}");
    assert_eq!(learn(&app).await, 1);
    assert_eq!(estimate(&app).await["amount"], "80", "or it would stay too low for ever");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_instance_knows_what_is_learned_within_a_second_and_after_a_start() {
    let mut app = with_chat().await;
    let other = app.another_instance().await;
    let there = app.caller().at(other.url());
    worked(&app, tokens(100), 20).await;
    app.drained().await;
    app.app().operations.estimates.learn().await.unwrap();
    wait_for("the other instance holds what is learned", Duration::from_secs(5), async || {
        let dry = there.post(RESERVATIONS, a_chat().with("dry_run", true)).await.expect(200);
        (dry.text("/lines/0/amount") == "20").then_some(())
    })
    .await;
    other.stop().await;
    app.restart().await;
    assert_eq!(app.post(RESERVATIONS, a_chat()).await.expect(201).text("/lines/0/amount"), "20");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_read_their_own_estimates_and_the_job_can_be_asked_for() {
    let app = an_app().start().await;
    app.without_limits().await;
    app.define("operations/chat", chat()).await;
    worked(&app, tokens(100), 20).await;
    app.drained().await;
    app.post("/v1/admin/jobs/estimates/runs", json!({})).await.expect(202);
    let own = app.make_key("tenant", Some("acme")).await;
    wait_for("the job has learned it", Duration::from_secs(30), async || {
        let list = own.get(ESTIMATES).await.expect(200).body;
        (list["data"][0]["source"] == "tenant").then_some(())
    })
    .await;
    own.get("/v1/tenants/other/estimates").await.is_problem(403, "forbidden");
    app.get("/v1/tenants/nobody/estimates").await.is_problem(404, "not_found");
    app.get(&format!("{ESTIMATES}?of=me")).await.is_problem(400, "invalid_request");
    app.finish().await;
}
