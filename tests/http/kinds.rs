//! What a limit does when it is reached, to whom it applies and when.

use serde_json::{Value, json};

use crate::support::app::*;

/// The limit `day` of ten pages, of class rate, of this kind.
fn day_kind(kind: &str) -> Value {
    day_of("10").with("kind", kind).with("class", "rate")
}

/// Code and limit of every warning.
fn warnings(answer: &Answered) -> Vec<(&str, &str)> {
    let all = answer.body["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|one| (one["code"].as_str().unwrap(), one["limit"].as_str().unwrap_or_default())).collect()
}

async fn put_override(app: &TestApp, fields: Value) {
    let mut body = json!({ "tenant": "acme", "level": "emergency", "limit": "day", "reason": "storm" });
    fields.as_object().unwrap().iter().for_each(|(field, value)| body[field] = value.clone());
    app.define("overrides/storm", body).await;
}

#[tokio::test]
async fn a_soft_limit_counts_and_warns_and_never_refuses() {
    let app = spawn_app().await;
    let month = json!({ "id": "month", "meter": "page", "window": "month", "capacity": "40" });
    app.with_plan(json!([day_of("10").with("kind", "soft"), month]), json!([])).await;
    let near = app.use_pages("a", 8).await.expect(201);
    assert_eq!(warnings(&near), [("near_limit", "day")]);
    let tried = app.post(RESERVATIONS, pages(3).with("dry_run", true)).await.expect(200);
    assert_eq!((&tried.body["allowed"], warnings(&tried)), (&json!(true), vec![("over_limit", "day")]));
    let over = app.use_pages("b", 12).await.expect(201);
    assert_eq!(warnings(&over), [("over_limit", "day")]);
    let shown = ["/kind", "/capacity", "/consumed", "/remaining"]
        .map(|field| over.text(&format!("/limits/0{field}")));
    assert_eq!(shown, ["soft", "10", "20", "0"]);
    let refused = app.post(RESERVATIONS, pages(21)).await;
    refused.is_problem(429, "quota_exceeded");
    assert_eq!(refused.body["refused_by"].as_array().unwrap().len(), 1, "{refused:?}");
    assert_eq!(refused.text("/refused_by/0/id"), "month");
    let best = pages(30).with("mode", "best_effort");
    let cut = app.post(RESERVATIONS, best).await.expect(201);
    assert_eq!(cut.text("/lines/0/amount"), "20", "the hard one cuts it, the soft one does not");
    let consumed = app.consume(cut.text("/id"), "20").await.expect(200);
    assert_eq!(warnings(&consumed), [("over_limit", "day"), ("near_limit", "month")]);
    app.finish().await;
}

#[tokio::test]
async fn a_soft_limit_cuts_no_consume_that_is_charged_at_most_what_is_left() {
    let app = spawn_app().await;
    app.with_plan(json!([day_kind("soft")]), json!([])).await;
    app.define("meters/page", json!({ "unit": "page", "on_excess": "cap", "without_limit": "unlimited" }))
        .await;
    let held = app.hold("9").await;
    let consumed = app.consume(&held, "15").await.expect(200);
    assert_eq!(consumed.text("/lines/0/consumed"), "15", "{consumed:?}");
    app.finish().await;
}

/// The metric of work that a shadow limit `day` would have refused.
async fn counted_in_shadow(app: &TestApp) -> u64 {
    let answer = app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap();
    let text = answer.text().await.unwrap();
    let line =
        text.lines().find(|line| line.starts_with("tollgate_limits_shadow_refused_total{limit=\"day\"}"));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_shadow_limit_counts_what_it_would_let_through_and_tells_what_it_would_refuse() {
    let app = spawn_app().await;
    let month = json!({ "id": "month", "meter": "page", "window": "month", "capacity": "60" });
    app.with_plan(json!([day_kind("shadow"), month]), json!([])).await;
    assert_eq!(warnings(&app.use_pages("a", 6).await.expect(201)), []);
    let tried = app.post(RESERVATIONS, pages(5).with("dry_run", true)).await.expect(200);
    assert_eq!(warnings(&tried), [("shadow_refused", "day")]);
    let over = app.use_pages("b", 5).await.expect(201);
    assert_eq!(warnings(&over), [("shadow_refused", "day")]);
    let shown =
        ["/kind", "/consumed", "/remaining"].map(|field| over.text(&format!("/limits/0{field}")).to_owned());
    assert_eq!(shown, ["shadow", "6", "4"]);
    assert!(!over.header("ratelimit").contains("day"), "callers do not heed what only watches");
    assert_eq!(warnings(&app.use_pages("b", 5).await.expect(200)), [], "as at any repeat of a reserve");
    let best = app.post(RESERVATIONS, pages(20).with("mode", "best_effort")).await.expect(201);
    assert_eq!((best.text("/lines/0/amount"), warnings(&best)), ("20", vec![("shadow_refused", "day")]));
    let consumed = app.consume(best.text("/id"), "25").await.expect(200);
    assert_eq!(consumed.body["limits"].as_array().unwrap().len(), 1, "it is not counted there: {consumed:?}");
    let refused = app.use_pages("c", 30).await;
    refused.is_problem(429, "quota_exceeded");
    assert_eq!(refused.body["refused_by"].as_array().unwrap().len(), 1, "{refused:?}");
    assert_eq!(counted_in_shadow(&app).await, 2, "neither a dry run, nor a repeat, nor what others refuse");
    put_override(&app, json!({ "kind": "hard" })).await;
    app.use_pages("d", 5).await.is_problem(429, "rate_limited");
    let hard = app.use_pages("e", 4).await.expect(201);
    assert_eq!((hard.text("/limits/0/kind"), hard.text("/limits/0/consumed")), ("hard", "10"));
    app.finish().await;
}

#[tokio::test]
async fn a_meter_that_only_a_shadow_limit_watches_has_no_limit() {
    let app = spawn_app().await;
    app.with_plan(json!([day_kind("shadow")]), json!([])).await;
    app.use_pages("a", 1).await.expect(201);
    app.define("meters/page", json!({ "unit": "page", "without_limit": "deny" })).await;
    app.use_pages("b", 1).await.is_problem(402, "exceeds_plan");
    app.finish().await;
}

#[tokio::test]
async fn a_limit_that_is_held_against_the_books_is_never_in_shadow() {
    let app = spawn_app().await;
    app.with_plan(json!([day_of("10")]), json!([])).await;
    let of_quota = json!({ "meter": "page", "window": "day", "capacity": "1", "kind": "shadow" });
    let override_of_day = json!({ "tenant": "acme", "level": "tenant", "limit": "day", "kind": "shadow" });
    for (path, body) in [("limits/other", of_quota), ("overrides/o", override_of_day)] {
        let answer = app.put(&format!("/v1/admin/{path}"), body).await;
        answer.is_problem(422, "validation_failed");
        assert!(answer.text("/errors/0/pointer").ends_with("/kind"), "{answer:?}");
    }
    app.finish().await;
}

#[tokio::test]
async fn a_check_under_a_shadow_limit_is_allowed_and_warns() {
    let app = spawn_app().await;
    app.with_plan(json!([day_kind("shadow")]), json!([])).await;
    app.define("meters/page", json!({ "unit": "page", "booked": false, "without_limit": "unlimited" })).await;
    app.define("operations/scan", json!({ "costs": [{ "meter": "page", "base": "6" }] })).await;
    let check = json!({ "tenant": "acme", "operation": "scan" });
    let first = app.post("/v1/ratelimit/check", check.clone()).await.expect(200);
    assert_eq!((&first.body["allowed"], warnings(&first)), (&json!(true), vec![]));
    for counts in [0, 1] {
        let again = check.clone().with("peek", counts == 0);
        let over = app.post("/v1/ratelimit/check", again).await.expect(200);
        assert_eq!((&over.body["allowed"], warnings(&over)), (&json!(true), vec![("shadow_refused", "day")]));
        assert_eq!(over.text("/limits/0/consumed"), "6");
        assert_eq!(over.body.get("remaining"), None, "it bounds nothing");
        assert_eq!(counted_in_shadow(&app).await, counts);
    }
    app.finish().await;
}

#[tokio::test]
async fn a_limit_goes_on_counting_from_kind_to_kind_and_anew_after_off() {
    let app = spawn_app().await;
    app.with_plan(json!([day_kind("hard")]), json!([])).await;
    app.use_pages("a", 8).await.expect(201);
    app.use_pages("b", 3).await.is_problem(429, "rate_limited");
    put_override(&app, json!({ "kind": "soft" })).await;
    let over = app.use_pages("b", 3).await.expect(201);
    let shown = ["/kind", "/level", "/consumed"].map(|field| over.text(&format!("/limits/0{field}")));
    assert_eq!(shown, ["soft", "emergency", "11"]);
    put_override(&app, json!({ "kind": "hard", "capacity": "12" })).await;
    let hard = app.use_pages("c", 1).await.expect(201);
    let shown = ["/kind", "/capacity", "/consumed"].map(|field| hard.text(&format!("/limits/0{field}")));
    assert_eq!(shown, ["hard", "12", "12"]);
    put_override(&app, json!({ "kind": "off" })).await;
    let unasked = app.use_pages("d", 30).await.expect(201);
    assert_eq!(unasked.body["limits"], json!([]), "{unasked:?}");
    app.delete("/v1/admin/overrides/storm?tenant=acme").await.expect(204);
    let anew = app.use_pages("e", 2).await.expect(201);
    assert_eq!(anew.text("/limits/0/consumed"), "2");
    app.finish().await;
}

#[tokio::test]
async fn an_override_says_a_capacity_a_factor_or_a_kind() {
    let app = spawn_app().await;
    app.with_day_of("10").await;
    let body = |fields: Value| {
        let mut body = json!({ "tenant": "acme", "level": "tenant", "limit": "day" });
        fields.as_object().unwrap().iter().for_each(|(field, value)| body[field] = value.clone());
        body
    };
    for wrong in [json!({}), json!({ "capacity": "5", "factor": "2" }), json!({ "kind": "harder" })] {
        let answer = app.put("/v1/admin/overrides/o", body(wrong)).await;
        answer.is_problem(422, "validation_failed");
    }
    app.define("overrides/o", body(json!({ "kind": "soft", "factor": "0.5" }))).await;
    let over = app.use_pages("a", 6).await.expect(201);
    assert_eq!((over.text("/limits/0/capacity"), over.text("/limits/0/kind")), ("5", "soft"));
    app.finish().await;
}

#[tokio::test]
async fn a_limit_holds_between_its_dates_and_says_its_message() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    let between = day_kind("hard")
        .with("from", "2026-03-10T13:00:00Z")
        .with("until", "2026-03-10T14:00:00Z")
        .with("message", "the bulk hour is over");
    app.with_plan(json!([between]), json!([])).await;
    app.use_pages("before", 30).await.expect(201);
    app.move_clock("2026-03-10T12:59:59.999Z").await;
    app.use_pages("just before", 30).await.expect(201);
    app.move_clock("2026-03-10T13:00:00Z").await;
    app.use_pages("within", 10).await.expect(201);
    app.move_clock("2026-03-10T13:59:59.999Z").await;
    let refused = app.use_pages("still within", 1).await.expect(429);
    assert_eq!(refused.text("/refused_by/0/message"), "the bulk hour is over");
    app.move_clock("2026-03-10T14:00:00Z").await;
    let after = app.use_pages("still within", 1).await.expect(201);
    assert_eq!(after.body["limits"], json!([]));
    app.finish().await;
}

#[tokio::test]
async fn a_scheduled_limit_of_a_nearer_level_goes_on_counting_when_it_takes_over_and_when_it_ends() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_day_of("10").await;
    let hour = day_of("5").with("from", "2026-03-10T13:00:00Z").with("until", "2026-03-10T14:00:00Z");
    app.define("tenants/acme", json!({ "plan": "plan", "limits": [hour] })).await;
    let shown = async |key: &str, amount: i64| {
        let used = app.use_pages(key, amount).await.expect(201);
        ["/level", "/capacity", "/consumed"].map(|field| used.text(&format!("/limits/0{field}")).to_owned())
    };
    assert_eq!(shown("before", 4).await, ["plan", "10", "4"]);
    app.move_clock("2026-03-10T13:00:00Z").await;
    app.use_pages("too much", 2).await.is_problem(429, "quota_exceeded");
    assert_eq!(shown("within", 1).await, ["tenant", "5", "5"]);
    app.use_pages("more", 1).await.is_problem(429, "quota_exceeded");
    app.move_clock("2026-03-10T14:00:00Z").await;
    assert_eq!(shown("after", 5).await, ["plan", "10", "10"]);
    app.use_pages("more", 1).await.is_problem(429, "quota_exceeded");
    app.finish().await;
}

#[tokio::test]
async fn a_limit_applies_to_the_share_it_is_rolled_out_to() {
    let app = spawn_app().await;
    let user_day = |percent: u32| {
        json!([{ "id": "user-day", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day",
                 "class": "rate", "capacity": "1", "rollout_percent": percent }])
    };
    let by = |n: u32| pages(2).by(format!("user-{n}")).with("dry_run", true);
    let refused = async || {
        let mut refused = Vec::new();
        for n in 0..40 {
            let tried = app.post(RESERVATIONS, by(n)).await.expect(200);
            let is_refused = tried.body["allowed"] == false;
            assert_eq!(tried.body["limits"].as_array().unwrap().len(), usize::from(is_refused));
            refused.extend(is_refused.then_some(n));
        }
        refused
    };
    app.with_plan(user_day(30), json!([])).await;
    let some = refused().await;
    assert!((1..40).contains(&some.len()), "{some:?}");
    app.define("plans/plan", json!({ "limits": user_day(60) })).await;
    let more = refused().await;
    assert!(more.len() > some.len() && some.iter().all(|n| more.contains(n)), "{some:?} and then {more:?}");
    app.define("plans/plan", json!({ "limits": user_day(100) })).await;
    assert_eq!(refused().await.len(), 40);
    app.define("plans/plan", json!({ "limits": user_day(0) })).await;
    assert_eq!(refused().await.len(), 0);
    let of_quota = json!({ "meter": "page", "window": "day", "capacity": "1", "rollout_percent": 50 });
    let answer = app.put("/v1/admin/limits/day", of_quota).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.text("/errors/0/pointer"), "/rollout_percent");
    app.finish().await;
}
