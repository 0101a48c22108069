//! Limits by windows of one length, on a test clock.

use serde_json::{Value, json};

use crate::support::app::*;

fn minute(aligned: bool) -> Value {
    json!({
        "id": "minute", "meter": "page", "algorithm": "fixed_window", "window_seconds": 60, "aligned": aligned, "capacity": "10"
    })
}

async fn by_the_minute(aligned: bool) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:20Z").start().await;
    app.with_plan(json!([minute(aligned)]), json!([])).await;
    app
}

#[tokio::test]
async fn a_fixed_window_begins_with_the_first_use_and_is_over_after_its_length() {
    let app = by_the_minute(false).await;
    let held = app.post(RESERVATIONS, pages(6).lasting(3600)).await.expect(201);
    let shown = json!({
        "id": "minute", "algorithm": "fixed_window", "window_seconds": 60, "class": "rate", "capacity": "10", "reserved": "6",
        "remaining": "4", "resets_at": "2026-03-10T12:01:20Z",
    });
    for (field, value) in shown.as_object().unwrap() {
        assert_eq!(held.body["limits"][0][field], *value, "{field}: {held:?}");
    }
    assert_eq!(held.body["limits"][0]["window"], Value::Null, "no calendar cuts it");
    let refused = app.post(RESERVATIONS, pages(5)).await.expect(429);
    assert_eq!((refused.text("/code"), refused.header("retry-after")), ("rate_limited", "60"));
    app.move_clock("2026-03-10T12:01:00Z").await;
    app.post(RESERVATIONS, pages(4).lasting(3600)).await.expect(201);
    let refused = app.post(RESERVATIONS, pages(1)).await.expect(429);
    assert_eq!(refused.header("retry-after"), "20");
    app.move_clock("2026-03-10T12:01:20Z").await;
    let next = app.post(RESERVATIONS, pages(10)).await.expect(201);
    assert_eq!(next.text("/limits/0/resets_at"), "2026-03-10T12:02:20Z");
    // What was held in a window that is over returns nothing to the current one.
    app.post(&reservation(held.text("/id"), "release"), json!({})).await.expect(200);
    app.post(RESERVATIONS, pages(1)).await.expect(429);
    app.post(&reservation(next.text("/id"), "release"), json!({})).await.expect(200);
    app.post(RESERVATIONS, pages(10)).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn aligned_windows_begin_at_multiples_of_their_length() {
    let app = by_the_minute(true).await;
    let held = app.use_pages("first", 10).await.expect(201);
    assert_eq!(held.text("/limits/0/resets_at"), "2026-03-10T12:01:00Z");
    assert_eq!(app.use_pages("second", 1).await.expect(429).header("retry-after"), "40");
    app.move_clock("2026-03-10T12:01:00Z").await;
    app.use_pages("third", 10).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn after_a_loss_of_memory_a_fixed_window_is_empty_and_what_it_held_returns_nothing() {
    let app = by_the_minute(false).await;
    let held = app.post(RESERVATIONS, pages(10).lasting(3600)).await.expect(201);
    app.drained().await;
    app.redis.flush().await;
    app.move_clock("2026-03-10T12:00:30Z").await;
    app.post_until_answered(RESERVATIONS, "again", pages(10)).await.expect(201);
    app.post(&reservation(held.text("/id"), "release"), json!({})).await.expect(200);
    app.post(RESERVATIONS, pages(1)).await.expect(429);
    app.finish().await;
}

#[tokio::test]
async fn a_fixed_window_is_refused_where_its_fields_do_not_fit() {
    let app = by_the_minute(false).await;
    for (field, value, pointer, told) in [
        ("class", json!("quota"), "/class", "must be rate"),
        ("window", json!("hour"), "/window", "takes no `window`"),
        ("window_seconds", json!(0), "/window_seconds", "1 to 31622400"),
        ("window_seconds", Value::Null, "/window_seconds", "missing field `window_seconds`"),
    ] {
        let refused = app.put("/v1/admin/limits/minute", minute(false).with(field, value)).await.expect(422);
        assert_eq!(refused.text("/errors/0/pointer"), pointer, "{refused:?}");
        assert!(refused.text("/errors/0/message").contains(told), "{refused:?}");
    }
    app.finish().await;
}

#[tokio::test]
async fn beside_a_fixed_window_a_day_still_says_when_it_ends() {
    let app = an_app().at("2026-03-10T12:00:20Z").start().await;
    app.with_plan(json!([day_of("20"), minute(false)]), json!([])).await;
    let id = app.hold(6).await;
    let part = app.resolve(&id, "consume", json!({ "amount": "2", "final": false })).await.expect(200);
    let ends = |answer: &Answered, limit: &str| {
        let limits = answer.body["limits"].as_array().unwrap();
        limits.iter().find(|shown| shown["id"] == limit).map(|shown| shown["resets_at"].clone())
    };
    assert_eq!(ends(&part, "day"), Some(json!("2026-03-11T00:00:00Z")));
    assert_eq!(ends(&part, "minute"), Some(json!("2026-03-10T12:01:20Z")));
    app.move_clock("2026-03-10T12:01:20Z").await;
    let part = app.resolve(&id, "consume", json!({ "amount": "3", "final": false })).await.expect(200);
    assert_eq!(ends(&part, "minute"), None, "its window is over");
    app.consume(&id, "6").await.expect(200);
    app.finish().await;
}
