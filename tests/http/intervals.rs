//! The least time between two calls of an operation: whom it holds apart, what it answers, and which policy it accepts.

use serde_json::{Value, json};

use super::events::{event, outcomes, send};
use super::ratelimit::{CHECK, minute, of, started};
use crate::support::app::*;

fn scan(every: Value) -> Value {
    json!({ "costs": [{ "meter": "page", "weights": { "pages": "1" } }], "min_interval_seconds": every })
}

fn scan_of(count: u32) -> Value {
    json!({ "tenant": "acme", "operation": "scan", "attributes": { "pages": count } })
}

fn scan_by(user: &str) -> Value {
    scan_of(3).with("subject", user)
}

/// An operation `scan`, called every five seconds at most, and a limit of 1,000 pages a day.
async fn every_five_seconds() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([day_of("1000")]), json!([])).await;
    app.define("operations/scan", scan(json!(5))).await;
    app
}

#[tokio::test]
async fn a_call_too_soon_after_the_last_one_is_refused_until_the_interval_is_over() {
    let app = every_five_seconds().await;
    let first = app.post_keyed(RESERVATIONS, "first", scan_by("ada")).await.expect(201);
    let shown = json!({
        "id": "interval:scan", "algorithm": "interval", "scope": "subject", "window_seconds": 5, "class": "rate",
        "kind": "hard", "capacity": "1", "consumed": "1", "reserved": "0", "remaining": "0",
        "resets_at": "2026-03-10T12:00:05Z",
    });
    for (field, value) in shown.as_object().unwrap() {
        assert_eq!(first.body["limits"][1][field], *value, "{field}: {first:?}");
    }
    assert_eq!(first.body["warnings"], json!([]), "it is no limit that comes near");
    app.move_clock("2026-03-10T12:00:03.500Z").await;
    let refused = app.post(RESERVATIONS, scan_by("ada")).await.expect(429);
    assert_eq!((refused.text("/code"), refused.header("retry-after")), ("rate_limited", "2"));
    assert_eq!(
        (&refused.body["retry_after_ms"], refused.text("/refused_by/0/cause")),
        (&json!(1_500), "interval")
    );
    assert_eq!(refused.text("/refused_by/0/id"), "interval:scan");
    assert_eq!((refused.text("/refused_by/0/needed"), refused.text("/refused_by/0/shortfall")), ("1", "1"));
    assert!(refused.text("/detail").contains("one call"), "{refused:?}");
    assert_eq!(app.quota().await.text("/limits/0/reserved"), "3", "a refused call takes nothing");
    // A repeat is no call, and the end of a call shortens nothing.
    app.post_keyed(RESERVATIONS, "first", scan_by("ada")).await.expect(200);
    app.resolve(first.text("/id"), "release", json!({})).await.expect(200);
    app.post_keyed(USAGE, "soon", scan_by("ada")).await.expect(429);
    app.move_clock("2026-03-10T12:00:05Z").await;
    app.post_keyed(USAGE, "second", scan_by("ada")).await.expect(201);
    app.post(RESERVATIONS, scan_by("ada")).await.expect(429);
    app.finish().await;
}

#[tokio::test]
async fn each_subject_waits_for_itself_and_calls_without_one_for_each_other() {
    let app = every_five_seconds().await;
    app.post(RESERVATIONS, scan_by("ada")).await.expect(201);
    app.post(RESERVATIONS, scan_by("ben")).await.expect(201);
    app.post(RESERVATIONS, scan_of(1)).await.expect(201);
    let refused = app.post(RESERVATIONS, scan_of(1)).await.expect(429);
    assert_eq!(refused.text("/refused_by/0/scope"), "tenant");
    let both = scan_of(1).with("subjects", json!({ "user": "eve", "ip": "192.0.2.7" }));
    app.post(RESERVATIONS, both).await.expect(201);
    let one = scan_of(1).with("subjects", json!({ "user": "joe", "ip": "192.0.2.7" }));
    let refused = app.post(RESERVATIONS, one).await.expect(429);
    assert_eq!(refused.body["refused_by"][0]["subject"], json!({ "kind": "ip", "id": "192.0.2.7" }));
    // What names no operation, or another one, is no call of it.
    app.post(RESERVATIONS, pages(1).with("subject", "ada")).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn a_dry_run_finds_the_interval_and_leaves_it_and_a_best_effort_gets_nothing_within_it() {
    let app = every_five_seconds().await;
    let dry = scan_by("ada").with("dry_run", true);
    for _ in 0..2 {
        let looked = app.post(RESERVATIONS, dry.clone()).await.expect(200);
        assert_eq!(looked.body["allowed"], json!(true), "{looked:?}");
    }
    app.post(RESERVATIONS, scan_by("ada")).await.expect(201);
    let looked = app.post(RESERVATIONS, dry).await.expect(200);
    assert_eq!((&looked.body["allowed"], looked.text("/refused_by/0/cause")), (&json!(false), "interval"));
    let refused = app.post(RESERVATIONS, scan_by("ada").with("mode", "best_effort")).await.expect(429);
    assert_eq!((refused.text("/refused_by/0/cause"), refused.header("retry-after")), ("interval", "5"));
    app.finish().await;
}

#[tokio::test]
async fn a_change_of_the_length_counts_from_the_same_last_call_and_without_one_nobody_waits() {
    let app = every_five_seconds().await;
    app.post(RESERVATIONS, scan_by("ada")).await.expect(201);
    app.define("operations/scan", scan(json!(9))).await;
    assert_eq!(app.post(RESERVATIONS, scan_by("ada")).await.expect(429).header("retry-after"), "9");
    app.define("operations/scan", scan(Value::Null)).await;
    app.post(RESERVATIONS, scan_by("ada")).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn a_check_of_what_is_not_booked_waits_too() {
    let app = started(json!([minute("100")])).await;
    let costs = json!([{ "meter": "call", "base": "1" }]);
    app.define("operations/slow", json!({ "costs": costs, "min_interval_seconds": 5 })).await;
    assert_eq!(app.post(CHECK, of("slow")).await.expect(200).body["allowed"], json!(true));
    let refused = app.post(CHECK, of("slow")).await.expect(200);
    assert_eq!((&refused.body["allowed"], &refused.body["retry_after_seconds"]), (&json!(false), &json!(5)));
    let together = json!({ "checks": [of("slow"), of("slow")], "atomic": true });
    app.move_clock("2026-03-10T13:00:00Z").await;
    let refused = app.post(CHECK, together).await.expect(200);
    assert_eq!(
        refused.body["allowed"],
        json!(false),
        "two calls at once are never an interval apart: {refused:?}"
    );
    assert_eq!(
        app.post(CHECK, of("slow")).await.expect(200).body["allowed"],
        json!(true),
        "nothing was counted"
    );
    app.finish().await;
}

#[tokio::test]
async fn an_event_after_the_fact_neither_waits_nor_keeps_anybody_waiting() {
    let app = every_five_seconds().await;
    let scanned = |id: &str| {
        let data = json!({ "tenant": "acme", "subject": "ada", "attributes": { "pages": 1 } });
        event(id, 1, None).with("type", "scan").with("data", data)
    };
    assert_eq!(outcomes(&send(&app, &scanned("one")).await), [("accepted", "")]);
    app.post(RESERVATIONS, scan_by("ada")).await.expect(201);
    assert_eq!(outcomes(&send(&app, &scanned("two")).await), [("accepted", "")]);
    app.finish().await;
}

#[tokio::test]
async fn an_interval_out_of_bounds_is_refused_and_no_limit_has_one() {
    let app = every_five_seconds().await;
    for (wrong, told) in [
        (json!(0), "must be 1 to 86400 seconds"),
        (json!(86_401), "must be 1 to 86400 seconds"),
        (json!(-1), "invalid value"),
        (json!(1.5), "invalid type"),
    ] {
        let refused = app.put("/v1/admin/operations/scan", scan(wrong)).await.expect(422);
        assert_eq!(refused.pointers(), ["/min_interval_seconds"], "{refused:?}");
        assert!(refused.text("/errors/0/message").contains(told), "{refused:?}");
    }
    app.put("/v1/admin/operations/scan", scan(json!(86_400))).await.expect(200);
    let shown = app.get("/v1/admin/operations/scan").await.expect(200);
    assert_eq!(shown.body["min_interval_seconds"], json!(86_400));
    let limit = json!({ "id": "x", "meter": "page", "algorithm": "interval", "capacity": "1" });
    let refused = app.put("/v1/admin/limits/x", limit).await.expect(422);
    assert!(refused.text("/errors/0/message").contains("min_interval_seconds"), "{refused:?}");
    app.finish().await;
}
