//! Limits by a window that slides in steps, on a clock that moves only when it is set.

use serde_json::{Value, json};

use crate::support::app::*;

fn sliding() -> Value {
    json!({
        "id": "sliding", "meter": "page", "algorithm": "sliding_counter", "window_seconds": 60, "sub_windows": 6, "capacity": "10"
    })
}

async fn by_a_sliding_window() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:05Z").start().await;
    app.with_plan(json!([sliding()]), json!([])).await;
    app
}

#[tokio::test]
async fn a_sliding_counter_frees_what_was_used_a_step_after_its_window() {
    let app = by_a_sliding_window().await;
    let held = app.post(RESERVATIONS, pages(6).lasting(3600)).await.expect(201);
    let shown = json!({
        "id": "sliding", "algorithm": "sliding_counter", "window_seconds": 60, "class": "rate", "capacity": "10", "consumed": "0",
        "reserved": "6", "remaining": "4", "resets_at": "2026-03-10T12:01:10Z",
    });
    for (field, value) in shown.as_object().unwrap() {
        assert_eq!(held.body["limits"][0][field], *value, "{field}: {held:?}");
    }
    app.consume(held.text("/id"), "6").await.expect(200);
    app.move_clock("2026-03-10T12:00:45Z").await;
    app.use_pages("second", 4).await.expect(201);
    let refused = app.post(RESERVATIONS, pages(1)).await.expect(429);
    assert_eq!((refused.text("/code"), refused.header("retry-after")), ("rate_limited", "25"));
    app.move_clock("2026-03-10T12:01:09.999Z").await;
    app.post(RESERVATIONS, pages(1)).await.expect(429);
    app.move_clock("2026-03-10T12:01:10Z").await;
    let next = app.post(RESERVATIONS, pages(6)).await.expect(201);
    let released = app.release(next.text("/id")).await.expect(200);
    assert_eq!(
        (released.text("/limits/0/remaining"), released.text("/limits/0/resets_at")),
        ("6", "2026-03-10T12:01:50Z")
    );
    app.post(RESERVATIONS, pages(11)).await.expect(402);
    app.finish().await;
}

#[tokio::test]
async fn a_sliding_counter_that_counts_nothing_is_shown_all_the_same() {
    let app = by_a_sliding_window().await;
    let held = app.hold(3).await;
    let released = app.release(&held).await.expect(200);
    assert_eq!(
        (released.text("/limits/0/remaining"), released.text("/limits/0/resets_at")),
        ("10", "2026-03-10T12:00:05Z")
    );
    app.finish().await;
}

#[tokio::test]
async fn after_a_loss_of_memory_a_sliding_counter_is_empty_and_what_it_held_returns_nothing() {
    let app = by_a_sliding_window().await;
    let held = app.post(RESERVATIONS, pages(10).lasting(3600)).await.expect(201);
    app.drained().await;
    app.redis.flush().await;
    app.move_clock("2026-03-10T12:00:06Z").await;
    app.post_until_answered(RESERVATIONS, "again", pages(10).lasting(3600)).await.expect(201);
    app.release(held.text("/id")).await.expect(200);
    app.post(RESERVATIONS, pages(1)).await.expect(429);
    app.finish().await;
}

#[tokio::test]
async fn a_sliding_counter_is_refused_where_its_fields_do_not_fit() {
    let app = by_a_sliding_window().await;
    for (field, value, pointer, told) in [
        ("class", json!("quota"), "/class", "must be rate"),
        ("aligned", json!(true), "/aligned", "takes no `aligned`"),
        ("window_seconds", Value::Null, "/window_seconds", "missing field `window_seconds`"),
        ("sub_windows", json!(1), "/sub_windows", "must be 2 to 60"),
        ("sub_windows", json!(61), "/sub_windows", "must be 2 to 60"),
        ("sub_windows", json!(7), "/sub_windows", "must divide the window into whole milliseconds"),
    ] {
        let refused = app.put("/v1/admin/limits/sliding", sliding().with(field, value)).await.expect(422);
        assert_eq!(refused.text("/errors/0/pointer"), pointer, "{refused:?}");
        assert!(refused.text("/errors/0/message").contains(told), "{refused:?}");
    }
    let defined = app.define("limits/sliding", sliding().with("sub_windows", Value::Null)).await;
    assert_eq!(defined.body["sub_windows"], json!(10));
    app.finish().await;
}
