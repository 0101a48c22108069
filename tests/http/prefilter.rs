//! The prefilter: refuses without asking Redis where what is consumed alone fills a window, and answers as the gate
//! would.

use serde_json::{Value, json};
use tollgate::app::{App, Role};

use crate::support::app::*;
use crate::support::caller::Caller;
use crate::support::wait::wait_for;

const CHECK: &str = "/v1/ratelimit/check";

async fn started() -> TestApp {
    an_app().at("2026-03-10T12:34:56.789Z").with("http.retry_jitter_percent", 0).start().await
}

/// The same instance without the filter.
async fn unfiltered(app: &TestApp) -> (App, Caller) {
    let settings = [("gate.prefilter", "false"), ("http.retry_jitter_percent", "0")];
    let plain =
        app.another_with(&[Role::Http], &settings.map(|(name, value)| (name, value.to_owned()))).await;
    let caller = app.caller().at(plain.url());
    (plain, caller)
}

/// How many calls this instance has refused by itself.
fn hits(app: &TestApp, call: &str) -> u64 {
    let name = format!("tollgate_prefilter_hits_total{{call=\"{call}\"}} ");
    let text = app.app().operations.metrics_text();
    text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

/// An answer without what is every answer's own.
fn said(answer: &Answered) -> (u16, Value, Vec<(String, String)>) {
    let mut body = answer.body.clone();
    let own = ["decision_id", "request_id"];
    own.iter().for_each(|field| drop(body.as_object_mut().unwrap().remove(*field)));
    if let Some(results) = body.get_mut("results").and_then(Value::as_array_mut) {
        results.iter_mut().for_each(|one| drop(one.as_object_mut().unwrap().remove("decision_id")));
    }
    let names = ["date", "x-request-id"];
    let headers = answer.headers.iter().filter(|(name, _)| !names.contains(&name.as_str()));
    let text = |value: &reqwest::header::HeaderValue| value.to_str().unwrap().to_owned();
    let mut headers: Vec<_> = headers.map(|(name, value)| (name.to_string(), text(value))).collect();
    headers.sort();
    (answer.status, body, headers)
}

/// Asks until the filter has refused this, and compares its answer with that of the gate.
async fn is_answered_alike(app: &TestApp, plain: &Caller, path: &str, body: &Value) {
    let call = if path == CHECK { "check" } else { "reserve" };
    let filtered = wait_for("the filter refuses it", std::time::Duration::from_secs(20), async || {
        let before = hits(app, call);
        let answer = app.post(path, body.clone()).await;
        (hits(app, call) > before).then_some(answer)
    })
    .await;
    assert_eq!(said(&filtered), said(&plain.post(path, body.clone()).await), "{path} {body}");
}

/// So many calls that the filter must not answer.
async fn is_asked_of_the_gate(app: &TestApp, plain: &Caller, path: &str, body: &Value) {
    let before = [hits(app, "check"), hits(app, "reserve")];
    for _ in 0..3 {
        let answer = app.post(path, body.clone()).await;
        assert_eq!(said(&answer), said(&plain.post(path, body.clone()).await), "{path} {body}");
    }
    assert_eq!([hits(app, "check"), hits(app, "reserve")], before, "{path} {body}");
}

async fn with_operations(app: &TestApp, meter: Value, limits: Value) {
    app.define("meters/call", meter).await;
    for (operation, base) in [("one", "1"), ("many", "9")] {
        let costs = json!({ "costs": [{ "meter": "call", "base": base }] });
        app.define(&format!("operations/{operation}"), costs).await;
    }
    app.define("plans/plan", json!({ "limits": limits })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
}

fn light() -> Value {
    json!({ "unit": "call", "booked": false })
}

fn of(operation: &str) -> Value {
    json!({ "tenant": "acme", "operation": operation, "subject": "ada" })
}

#[rstest::rstest]
#[case::calendar(json!({ "window": "hour", "class": "rate" }))]
#[case::fixed_window(json!({ "algorithm": "fixed_window", "window_seconds": 600 }))]
#[case::aligned(json!({ "algorithm": "fixed_window", "window_seconds": 600, "aligned": true, "message": "wait" }))]
#[case::of_a_subject(json!({ "window": "day", "class": "rate", "scope": "subject", "subject_kind": "user" }))]
#[tokio::test]
async fn a_full_window_is_answered_as_the_gate_would(#[case] limit: Value) {
    let app = started().await;
    let limit = limit.with("id", "limit").with("meter", "call").with("capacity", "3");
    with_operations(&app, light(), json!([limit])).await;
    let (plain, gate) = unfiltered(&app).await;
    for _ in 0..3 {
        assert_eq!(app.post(CHECK, of("one")).await.expect(200).body["allowed"], json!(true));
    }
    is_answered_alike(&app, &gate, CHECK, &of("one")).await;
    is_answered_alike(&app, &gate, CHECK, &of("many")).await;
    let checks = json!({ "checks": [of("one"), of("many"), of("one")] });
    is_answered_alike(&app, &gate, CHECK, &checks).await;
    is_asked_of_the_gate(&app, &gate, CHECK, &checks.with("atomic", true)).await;
    is_asked_of_the_gate(&app, &gate, CHECK, &of("one").with("peek", true)).await;
    plain.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn a_window_that_is_not_full_and_limits_that_remember_or_go_together_are_asked_of_the_gate() {
    let minutes = |id: &str, more: Value| {
        let mut limit = json!({
            "id": id, "meter": "call", "algorithm": "fixed_window", "window_seconds": 600, "capacity": "3"
        });
        more.as_object().unwrap().iter().for_each(|(field, value)| limit[field] = value.clone());
        limit
    };
    let punishment = json!({ "memory_seconds": 60, "warn_at": 100, "ban_at": 1000, "ban_seconds": 1, "max_ban_seconds": 1 });
    let all = minutes("all", json!({ "scope": "global" }));
    for (limits, shared) in [
        (json!([minutes("limit", json!({ "capacity": "5" }))]), None),
        (json!([minutes("a", json!({})), minutes("b", json!({ "capacity": "4" }))]), None),
        (json!([minutes("limit", json!({ "algorithm": "sliding_counter" }))]), None),
        (json!([minutes("limit", json!({ "on_gate_failure": "local" }))]), None),
        (json!([minutes("limit", json!({ "load_scaled": true }))]), None),
        (json!([minutes("limit", json!({}))]), Some(all)),
    ] {
        let app = started().await;
        with_operations(&app, light(), limits).await;
        if let Some(all) = shared {
            app.define("limits/all", all).await;
        }
        let (plain, gate) = unfiltered(&app).await;
        for _ in 0..3 {
            app.post(CHECK, of("one")).await.expect(200);
        }
        is_asked_of_the_gate(&app, &gate, CHECK, &of("many")).await;
        plain.stop().await;
        app.finish().await;
    }
    let app = started().await;
    with_operations(&app, light(), json!([minutes("limit", json!({ "punishment": punishment }))])).await;
    for _ in 0..6 {
        app.post(CHECK, of("one")).await.expect(200);
    }
    assert_eq!(hits(&app, "check"), 0, "the gate counts each violation");
    app.finish().await;
}

#[tokio::test]
async fn a_reserve_without_a_key_is_refused_where_all_is_consumed_and_nothing_is_held() {
    let app = started().await;
    app.with_plan(json!([day_of("5")]), json!([])).await;
    let (plain, gate) = unfiltered(&app).await;
    let held = app.held(pages("2").lasting(3600)).await;
    app.use_pages("used", 3).await.expect(201);
    is_asked_of_the_gate(&app, &gate, RESERVATIONS, &pages("1")).await;
    app.consume(&held, "2").await.expect(200);
    is_answered_alike(&app, &gate, RESERVATIONS, &pages("1")).await;
    is_asked_of_the_gate(&app, &gate, RESERVATIONS, &pages("1").with("mode", "best_effort")).await;
    is_asked_of_the_gate(&app, &gate, RESERVATIONS, &pages("1").with("dry_run", true)).await;
    let before = hits(&app, "reserve");
    app.post_keyed(RESERVATIONS, "keyed", pages("1")).await.expect(429);
    assert_eq!(hits(&app, "reserve"), before, "it might be a repeat");
    app.define("plans/plan", json!({ "limits": [day_of("6")] })).await;
    app.post(RESERVATIONS, pages("1")).await.expect(201);
    plain.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn what_it_knows_is_a_second_old_at_most() {
    let app = started().await;
    let limit = json!({ "id": "limit", "meter": "call", "window": "hour", "class": "rate", "capacity": "1" });
    with_operations(&app, light(), json!([limit])).await;
    let (plain, gate) = unfiltered(&app).await;
    app.post(CHECK, of("one")).await.expect(200);
    is_answered_alike(&app, &gate, CHECK, &of("one")).await;
    app.redis.flush().await;
    let began = std::time::Instant::now();
    wait_for("the gate is asked again", std::time::Duration::from_secs(20), async || {
        let answer = app.post(CHECK, of("one")).await;
        (answer.status == 200 && answer.body["allowed"] == json!(true)).then_some(())
    })
    .await;
    assert!(began.elapsed() < std::time::Duration::from_secs(10));
    app.move_clock("2026-03-10T12:59:50Z").await;
    is_answered_alike(&app, &gate, CHECK, &of("one")).await;
    app.move_clock("2026-03-10T12:59:59.999Z").await;
    is_asked_of_the_gate(&app, &gate, CHECK, &of("one")).await;
    app.move_clock("2026-03-10T13:00:00Z").await;
    assert_eq!(app.post(CHECK, of("one")).await.expect(200).body["allowed"], json!(true), "a new window");
    plain.stop().await;
    app.finish().await;
}
