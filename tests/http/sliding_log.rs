//! Limits by a log of all that was admitted, on a clock that the test moves.

use serde_json::{Value, json};

use crate::support::app::*;

fn log() -> Value {
    json!({ "id": "log", "meter": "page", "algorithm": "sliding_log", "window_seconds": 60, "capacity": "10" })
}

async fn by_the_log() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:05Z").start().await;
    app.with_plan(json!([log()]), json!([])).await;
    app
}

#[tokio::test]
async fn a_log_frees_what_was_used_to_the_millisecond() {
    let app = by_the_log().await;
    let held = app.post(RESERVATIONS, pages(6).lasting(3600)).await.expect(201);
    let shown = json!({
        "id": "log", "algorithm": "sliding_log", "window_seconds": 60, "class": "rate", "capacity": "10", "consumed": "0",
        "reserved": "6", "remaining": "4", "resets_at": "2026-03-10T12:01:05Z",
    });
    for (field, value) in shown.as_object().unwrap() {
        assert_eq!(held.body["limits"][0][field], *value, "{field}: {held:?}");
    }
    assert_eq!(held.header("ratelimit-policy"), "\"log\";q=10;w=60");
    app.consume(held.text("/id"), "6").await.expect(200);
    app.move_clock("2026-03-10T12:00:45Z").await;
    app.use_pages("second", 4).await.expect(201);
    let refused = app.post(RESERVATIONS, pages(1)).await.expect(429);
    assert_eq!((refused.text("/code"), refused.header("retry-after")), ("rate_limited", "20"));
    assert_eq!(refused.text("/refused_by/0/cause"), "consumed");
    app.move_clock("2026-03-10T12:01:04.999Z").await;
    app.post(RESERVATIONS, pages(1)).await.expect(429);
    app.move_clock("2026-03-10T12:01:05Z").await;
    let next = app.post(RESERVATIONS, pages(6)).await.expect(201);
    let released = app.release(next.text("/id")).await.expect(200);
    assert_eq!(released.text("/limits/0/remaining"), "6");
    app.post(RESERVATIONS, pages(11)).await.expect(402);
    app.finish().await;
}

#[tokio::test]
async fn a_full_log_refuses_though_its_units_are_not_used_up() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([log().with("entries_max", 2)]), json!([])).await;
    app.use_pages("first", 1).await.expect(201);
    app.move_clock("2026-03-10T12:00:30Z").await;
    app.held(pages(1).lasting(3600)).await;
    let refused = app.post(RESERVATIONS, pages(1)).await.expect(429);
    assert_eq!((refused.text("/refused_by/0/cause"), refused.header("retry-after")), ("consumed", "30"));
    assert_eq!(refused.text("/refused_by/0/remaining"), "0");
    app.move_clock("2026-03-10T12:01:00Z").await;
    app.use_pages("third", 1).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn a_log_is_refused_where_its_fields_do_not_fit() {
    let app = by_the_log().await;
    for (field, value, pointer, told) in [
        ("class", json!("quota"), "/class", "must be rate"),
        ("sub_windows", json!(6), "/sub_windows", "takes no `sub_windows`"),
        ("window_seconds", Value::Null, "/window_seconds", "missing field `window_seconds`"),
        ("entries_max", json!(0), "/entries_max", "1 to 10000"),
        ("entries_max", json!(10_001), "/entries_max", "1 to 10000"),
    ] {
        let refused = app.put("/v1/admin/limits/log", log().with(field, value)).await.expect(422);
        assert_eq!(refused.text("/errors/0/pointer"), pointer, "{refused:?}");
        assert!(refused.text("/errors/0/message").contains(told), "{refused:?}");
    }
    app.finish().await;
}
