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
async fn after_a_loss_of_memory_a_budget_without_a_class_begins_at_zero_whatever_its_units(
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

#[tokio::test]
async fn a_budget_is_of_class_quota_where_the_books_have_all_that_it_counts_and_only_where_it_says_so() {
    let app = spawn_app().await;
    app.with_plan(json!([]), json!([])).await;
    app.define("meters/call", json!({ "unit": "call", "booked": false })).await;
    let quota = || budget().with("class", "quota");
    let per_minute = json!({ "id": "budget", "meters": { "page": "1" }, "algorithm": "fixed_window",
                             "window_seconds": 60, "capacity": "10", "class": "quota" });
    let anonymous = quota().with("scope", "subject").with("subject_kind", "anonymous");
    for (pointer, limit) in [
        ("/class", per_minute),
        ("/class", quota().with("meters", json!({ "call": "1" }))),
        ("/class", quota().with("scope", "global")),
        ("/class", anonymous),
        ("/kind", quota().with("kind", "shadow")),
        ("/rollout_percent", quota().with("rollout_percent", 50)),
        ("/load_scaled", quota().with("load_scaled", true)),
        ("/on_gate_failure", quota().with("on_gate_failure", "local")),
    ] {
        let answer = app.put("/v1/admin/limits/budget", limit.clone()).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), [pointer], "{limit}: {answer:?}");
    }
    for (limit, class) in [(budget(), "rate"), (quota(), "quota")] {
        app.define("limits/budget", limit).await;
        assert_eq!(app.get("/v1/admin/limits/budget").await.expect(200).text("/class"), class);
    }
    app.finish().await;
}

/// Work of ada: pages (of two decimals), tokens (of none) and images (of three), as far as there are any.
fn of_three(pages: &str, tokens: &str, images: &str) -> Value {
    let amounts = [("page", pages), ("token", tokens), ("image", images)];
    let given = amounts.iter().filter(|(_, amount)| *amount != "0");
    let lines: Vec<_> = given.map(|(meter, amount)| json!({ "meter": meter, "amount": amount })).collect();
    json!({ "tenant": "acme", "subject": "ada", "lines": lines })
}

/// A month's budget of class quota over meters of different decimals: a page counts 100, a token 0.000003.
fn of_quota() -> Value {
    json!({ "id": "budget", "meters": { "page": "100", "token": "0.000003", "image": "0.25" }, "decimals": 6,
            "window": "month", "capacity": "1000", "class": "quota" })
}

/// The same for each user.
fn of_user() -> Value {
    of_quota().with("id", "user").with("scope", "subject").with("subject_kind", "user")
}

/// An instance with these meters and a plan with these limits, in the middle of a month.
async fn with_three(limits: Value) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    for (meter, decimals) in [("page", 2), ("token", 0), ("image", 3)] {
        let definition = json!({ "unit": meter, "decimals": decimals, "without_limit": "unlimited" });
        app.define(&format!("meters/{meter}"), definition).await;
    }
    app.define("plans/plan", json!({ "limits": limits })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    app
}

/// Consumed and reserved of each limit that ada falls under, by its id.
async fn counted(app: &TestApp) -> Vec<(String, String, String)> {
    let quota = app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await.expect(200);
    let figure = |limit: &Value, field: &str| limit[field].as_str().unwrap().to_owned();
    let limits = quota.body["limits"].as_array().unwrap();
    limits
        .iter()
        .map(|limit| (figure(limit, "id"), figure(limit, "consumed"), figure(limit, "reserved")))
        .collect()
}

/// So much of each of these limits.
fn of_each(limits: &[&str], consumed: &str, reserved: &str) -> Vec<(String, String, String)> {
    let one = |id: &&str| ((*id).to_owned(), consumed.to_owned(), reserved.to_owned());
    limits.iter().map(one).collect()
}

/// Whether work would be admitted.
async fn fits(app: &TestApp, work: Value) -> bool {
    app.post(RESERVATIONS, work.with("dry_run", true)).await.expect(200).body["allowed"] == true
}

/// Uses 128.501 of the budget, and holds 256.1, of which 100 are consumed. The reservation's id.
async fn used_and_held(app: &TestApp) -> String {
    app.post_keyed(USAGE, "used", of_three("1.25", "1000000", "2.004")).await.expect(201);
    let held = app.held(of_three("2.5", "2000000", "0.4").lasting(3_600)).await;
    let part = json!({ "lines": [{ "meter": "page", "amount": "1" }], "final": false });
    app.resolve(&held, "consume", part).await.expect(200);
    held
}

#[rstest::rstest]
#[case::of_the_tenant(json!([of_quota()]), &["budget"])]
#[case::of_a_subject(json!([of_user()]), &["user"])]
#[case::of_both(json!([of_quota(), of_user()]), &["budget", "user"])]
#[tokio::test(flavor = "multi_thread")]
async fn after_a_loss_of_memory_a_budget_of_class_quota_is_as_it_was_to_its_smallest_unit(
    #[case] limits: Value,
    #[case] ids: &[&str],
) {
    let app = with_three(limits).await;
    let held = used_and_held(&app).await;
    app.drained().await;
    for is_restored in [false, true] {
        if is_restored {
            app.redis.flush().await;
        }
        assert_eq!(counted(&app).await, of_each(ids, "228.501", "156.1"), "restored: {is_restored}");
        // There is room for 615.399.
        assert!(fits(&app, of_three("6.15", "133000", "0")).await, "restored: {is_restored}");
        assert!(!fits(&app, of_three("6.15", "133001", "0")).await, "restored: {is_restored}");
    }
    let refused = app.post(RESERVATIONS, of_three("6.15", "133001", "0")).await;
    refused.is_problem(429, "quota_exceeded");
    assert_eq!(
        (refused.text("/refused_by/0/needed"), refused.text("/refused_by/0/shortfall")),
        ("615.399003", "0.000003")
    );
    // The image is consumed as it was held.
    let rest =
        json!({ "lines": [{ "meter": "page", "amount": "2.5" }, { "meter": "token", "amount": "1000000" }] });
    app.resolve(&held, "consume", rest).await.expect(200);
    assert_eq!(counted(&app).await, of_each(ids, "381.601", "0"));
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(counted(&app).await, of_each(ids, "381.601", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_of_class_quota_that_begins_inside_its_window_counts_what_is_booked_and_what_is_open() {
    let app = with_three(json!([])).await;
    let held = used_and_held(&app).await;
    app.define("plans/plan", json!({ "limits": [of_quota(), of_user()] })).await;
    let both = ["budget", "user"];
    let made = app.post_keyed(USAGE, "more", of_three("0.01", "1", "0.004")).await.expect(201);
    assert_eq!(
        (consumed_of(&made, "budget"), consumed_of(&made, "user")),
        (json!("229.502003"), json!("229.502003"))
    );
    assert_eq!(counted(&app).await, of_each(&both, "229.502003", "156.1"));
    let more = json!({ "lines": [{ "meter": "token", "amount": "1000000" }], "final": false });
    app.resolve(&held, "consume", more).await.expect(200);
    assert_eq!(counted(&app).await, of_each(&both, "232.502003", "153.1"), "it moves what it does not name");
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(counted(&app).await, of_each(&both, "232.502003", "153.1"));
    app.release(&held).await.expect(200);
    assert_eq!(counted(&app).await, of_each(&both, "232.502003", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_weights_make_a_budget_of_class_quota_another_counter_of_the_same_books() {
    let app = with_three(json!([of_quota()])).await;
    let held = used_and_held(&app).await;
    let lighter = json!({ "page": "10", "token": "0.000003" });
    for (change, figures) in [
        // 2.25 pages and a million tokens are consumed; 1.5 pages and two million tokens are held.
        (of_quota().with("meters", lighter), ("25.5", "21")),
        (of_quota().with("class", "rate"), ("0", "0")),
        (of_quota(), ("228.501", "156.1")),
    ] {
        app.define("plans/plan", json!({ "limits": [change.clone()] })).await;
        let (consumed, reserved) = figures;
        assert_eq!(counted(&app).await, of_each(&["budget"], consumed, reserved), "{change}");
        app.drained().await;
        app.check_books().await;
    }
    app.release(&held).await.expect(200);
    app.finish().await;
}
