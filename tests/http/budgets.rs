//! Budgets: one limit over several meters, each by its weight.

use serde_json::{Value, json};

use crate::support::app::*;

/// A budget of ten over pages and tokens, of which ten weigh as much as two pages.
fn budget() -> Value {
    json!({ "id": "budget", "meters": { "page": "1", "token": "0.2" }, "decimals": 1, "window": "day",
            "capacity": "10" })
}

fn both(pages: &str, tokens: &str) -> Value {
    json!({ "tenant": "acme",
            "lines": [{ "meter": "page", "amount": pages }, { "meter": "token", "amount": tokens }] })
}

fn shown(answer: &Answered, fields: [&str; 3]) -> Value {
    json!(fields.map(|field| answer.body["limits"][0][field].clone()))
}

#[tokio::test]
async fn a_budget_counts_its_meters_together_by_their_weights() {
    let app = spawn_app().await;
    app.with_plan(json!([budget()]), json!([])).await;
    let held = app.post(RESERVATIONS, both("4", "10")).await.expect(201);
    assert_eq!(held.body["limits"].as_array().unwrap().len(), 1, "{held:?}");
    assert_eq!(
        shown(&held, ["meters", "reserved", "remaining"]),
        json!([{ "page": "1", "token": "0.2" }, "6", "4"])
    );
    assert_eq!(held.body["limits"][0].get("meter"), None);
    let refused = app.post(RESERVATIONS, both("2", "11")).await;
    refused.is_problem(429, "rate_limited");
    assert_eq!(
        (refused.text("/refused_by/0/needed"), refused.text("/refused_by/0/shortfall")),
        ("4.2", "0.2")
    );
    app.post(RESERVATIONS, both("20", "1")).await.is_problem(402, "exceeds_plan");
    let lines = json!({ "lines": [{ "meter": "page", "amount": "1" }, { "meter": "token", "amount": "5" }] });
    let consumed = app.resolve(held.text("/id"), "consume", lines).await.expect(200);
    assert_eq!(shown(&consumed, ["consumed", "reserved", "remaining"]), json!(["2", "0", "8"]));
    let tokens = json!({ "tenant": "acme", "meter": "token", "amount": "40" });
    let used = app.post_keyed(USAGE, "tokens", tokens).await.expect(201);
    assert_eq!(shown(&used, ["consumed", "remaining", "class"]), json!(["10", "0", "rate"]));
    app.use_pages("pages", 1).await.is_problem(429, "rate_limited");
    app.finish().await;
}

#[tokio::test]
async fn a_best_effort_under_a_budget_gets_what_fits_line_by_line() {
    let app = spawn_app().await;
    app.with_plan(json!([budget()]), json!([])).await;
    let best = both("9", "100").with("mode", "best_effort");
    let cut = app.post(RESERVATIONS, best).await.expect(201);
    assert_eq!((cut.text("/lines/0/amount"), cut.text("/lines/1/amount")), ("9", "5"));
    app.finish().await;
}

#[tokio::test]
async fn changed_weights_are_another_counter() {
    let app = spawn_app().await;
    app.with_plan(json!([budget()]), json!([])).await;
    app.use_pages("a", 9).await.expect(201);
    let changed = budget().with("meters", json!({ "page": "2", "token": "0.2" }));
    app.define("plans/plan", json!({ "limits": [changed] })).await;
    let anew = app.use_pages("b", 3).await.expect(201);
    assert_eq!(shown(&anew, ["consumed", "remaining", "capacity"]), json!(["6", "4", "10"]));
    app.finish().await;
}

#[tokio::test]
async fn a_budget_that_cannot_be_counted_exactly_names_its_meter() {
    let app = spawn_app().await;
    app.with_plan(json!([]), json!([])).await;
    app.define("meters/call", json!({ "unit": "call", "booked": false })).await;
    let wrong = [
        ("/meters/token", budget().with("decimals", 0)),
        ("/meters/token", budget().with("meters", json!({ "page": "1", "token": "0" }))),
        ("/meters/nothing", budget().with("meters", json!({ "nothing": "1" }))),
        ("/meters/page", budget().with("meters", json!({ "call": "1", "page": "1" }))),
        ("/capacity", budget().with("capacity", "1.25")),
        ("/class", budget().with("class", "quota")),
    ];
    for (pointer, limit) in wrong {
        let answer = app.put("/v1/admin/limits/budget", limit.clone()).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.text("/errors/0/pointer"), pointer, "{limit}");
    }
    for (limit, pointer) in [
        (budget().with("meter", "page"), "/meter"),
        (budget().with("meters", json!({})), "/meters"),
        (day_of("1").with("decimals", 1), "/decimals"),
    ] {
        let answer = app.put("/v1/admin/limits/other", limit.with("id", "other")).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), [pointer], "{answer:?}");
    }
    app.define("limits/budget", budget()).await;
    let read = app.get("/v1/admin/limits/budget").await.expect(200);
    assert_eq!((&read.body["meters"], &read.body["decimals"]), (&budget()["meters"], &json!(1)), "{read:?}");
    app.finish().await;
}

/// What it has consumed of this limit, as the answer says.
fn consumed_of(answer: &Answered, id: &str) -> Value {
    let limits = answer.body["limits"].as_array().unwrap();
    limits.iter().find(|limit| limit["id"] == id).unwrap()["consumed"].clone()
}

/// A month's budget over pages and tokens of so many decimals, of which so much is used.
async fn with_month(decimals: u8, budget: Value, used: &str) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    for meter in ["page", "token"] {
        let definition = json!({ "unit": meter, "decimals": decimals, "without_limit": "unlimited" });
        app.define(&format!("meters/{meter}"), definition).await;
    }
    let budget = budget.with("id", "budget").with("window", "month");
    app.define("plans/plan", json!({ "limits": [budget] })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    app.use_pages("used", used).await.expect(201);
    app.drained().await;
    app
}

fn finer_than_its_meters() -> Value {
    json!({ "meters": { "page": "0.000003", "token": "0.000015" }, "decimals": 6, "capacity": "1000" })
}

fn coarser_than_its_meters() -> Value {
    json!({ "meters": { "page": "100", "token": "100" }, "decimals": 0, "capacity": "10000" })
}

#[rstest::rstest]
#[case::finer_than_its_meters(0, finer_than_its_meters(), "20000000")]
#[case::coarser_than_its_meters(2, coarser_than_its_meters(), "0.05")]
#[tokio::test]
async fn after_a_loss_of_memory_a_budget_begins_at_zero_whatever_its_units(
    #[case] decimals: u8,
    #[case] budget: Value,
    #[case] used: &str,
) {
    let app = with_month(decimals, budget, used).await;
    app.redis.flush().await;
    let held = app.post(RESERVATIONS, pages(1)).await.expect(201);
    assert_eq!(consumed_of(&held, "budget"), "0");
    app.finish().await;
}

#[tokio::test]
async fn a_limit_of_class_quota_that_is_added_inside_its_window_leaves_a_budget_as_it_was() {
    let app = with_month(2, coarser_than_its_meters(), "0.05").await;
    let budget = coarser_than_its_meters().with("id", "budget").with("window", "month");
    app.define("plans/plan", json!({ "limits": [budget, day_of("100")] })).await;
    let used = app.use_pages("more", "0.01").await.expect(201);
    assert_eq!((consumed_of(&used, "budget"), consumed_of(&used, "day")), (json!("6"), json!("0.06")));
    app.finish().await;
}

#[tokio::test]
async fn what_open_reservations_hold_in_the_current_window_of_a_budget_counts_on_after_a_loss_of_memory() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([budget().with("window", "hour")]), json!([])).await;
    let mut held = Vec::new();
    for hour in 12..18 {
        app.move_clock(&format!("2026-03-10T{hour}:30:00Z")).await;
        held.push(app.held(pages(3).lasting(86_400)).await);
    }
    app.drained().await;
    app.redis.flush().await;
    app.post(RESERVATIONS, pages(8)).await.is_problem(429, "rate_limited");
    app.hold(7).await;
    let consumed = app.consume(&held[5], "3").await.expect(200);
    assert_eq!(shown(&consumed, ["consumed", "reserved", "remaining"]), json!(["3", "7", "0"]));
    app.consume(&held[0], "3").await.expect(200);
    app.finish().await;
}
