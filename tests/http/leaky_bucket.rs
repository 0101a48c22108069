//! Limits by a queue that drains, on a clock that the test moves.

use serde_json::{Value, json};

use crate::support::app::*;

fn queue() -> Value {
    json!({
        "id": "queue", "meter": "page", "algorithm": "leaky_bucket", "drain": "2", "per_seconds": 60, "max_wait_seconds": 120,
        "capacity": "10",
    })
}

async fn by_the_queue() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([queue()]), json!([])).await;
    app
}

#[tokio::test]
async fn a_queue_says_when_work_may_start_and_refuses_who_would_wait_for_too_long() {
    let app = by_the_queue().await;
    let first = app.post(RESERVATIONS, pages(3).lasting(3600)).await.expect(201);
    let shown = json!({
        "id": "queue", "algorithm": "leaky_bucket", "drain": "2", "per_seconds": 60, "class": "rate", "capacity": "10",
        "consumed": "3", "reserved": "3", "remaining": "7", "resets_at": "2026-03-10T12:01:30Z",
    });
    for (field, value) in shown.as_object().unwrap() {
        assert_eq!(first.body["limits"][0][field], *value, "{field}: {first:?}");
    }
    assert_eq!(first.body["start_after_ms"], Value::Null);
    assert_eq!(first.header("ratelimit-policy"), "\"queue\";q=10;w=300");
    let second = app.post(RESERVATIONS, pages(2).lasting(3600)).await.expect(201);
    assert_eq!(second.body["start_after_ms"], 90_000);
    app.release(second.text("/id")).await.expect(200);
    let refused = app.post(RESERVATIONS, pages(1)).await.expect(429);
    assert_eq!((refused.text("/code"), refused.header("retry-after")), ("rate_limited", "30"));
    assert_eq!(refused.text("/refused_by/0/cause"), "consumed");
    app.move_clock("2026-03-10T12:00:29.999Z").await;
    app.post(RESERVATIONS, pages(1)).await.expect(429);
    app.move_clock("2026-03-10T12:00:30Z").await;
    let dry = app.post(RESERVATIONS, pages(1).with("dry_run", true)).await.expect(200);
    assert_eq!(dry.body["start_after_ms"], 120_000);
    assert_eq!(app.post(RESERVATIONS, pages(1)).await.expect(201).body["start_after_ms"], 120_000);
    app.post(RESERVATIONS, pages(11)).await.expect(402);
    app.finish().await;
}

#[tokio::test]
async fn a_repeat_is_told_the_same_start_also_after_a_loss_of_memory() {
    let app = by_the_queue().await;
    app.held(pages(3).lasting(3600)).await;
    let body = pages(1).lasting(3600);
    let first = app.post_keyed(RESERVATIONS, "queued", body.clone()).await.expect(201);
    assert_eq!(first.body["start_after_ms"], 90_000);
    app.move_clock("2026-03-10T12:00:40Z").await;
    let again = app.post_keyed(RESERVATIONS, "queued", body.clone()).await.expect(200);
    assert_eq!(
        (&again.body["start_after_ms"], &again.body["created_at"]),
        (&json!(90_000), &first.body["created_at"])
    );
    app.drained().await;
    app.redis.flush().await;
    let told = app.post_until_answered(RESERVATIONS, "queued", body).await.expect(200);
    assert_eq!(told.body["start_after_ms"], 90_000);
    app.finish().await;
}

#[tokio::test]
async fn a_queue_is_refused_where_its_fields_do_not_fit() {
    let app = by_the_queue().await;
    for (field, value, pointer, told) in [
        ("class", json!("quota"), "/class", "must be rate"),
        ("refill", json!("1"), "/refill", "takes no `refill`"),
        ("drain", Value::Null, "/drain", "missing field `drain`"),
        ("max_wait_seconds", json!(0), "/max_wait_seconds", "1 to 31622400"),
        ("drain", json!("0"), "/drain", "more than 0"),
        ("capacity", json!("10512002"), "/drain", "within ten years"),
    ] {
        let refused = app.put("/v1/admin/limits/queue", queue().with(field, value)).await.expect(422);
        assert_eq!(refused.text("/errors/0/pointer"), pointer, "{refused:?}");
        assert!(refused.text("/errors/0/message").contains(told), "{refused:?}");
    }
    let scaled = json!([{ "id": "raise", "level": "tenant", "limit": "queue", "factor": "1051201" }]);
    let refused =
        app.put("/v1/admin/tenants/acme", json!({ "plan": "plan", "overrides": scaled })).await.expect(422);
    assert_eq!(refused.text("/errors/0/pointer"), "/overrides/0/factor", "{refused:?}");
    let both = json!([
        { "id": "raise", "level": "tenant", "limit": "queue", "factor": "1000000" },
        { "id": "double", "level": "emergency", "limit": "queue", "factor": "2" },
    ]);
    app.define("tenants/acme", json!({ "plan": "plan", "overrides": both })).await;
    let held = app.post(RESERVATIONS, pages(1)).await.expect(201);
    assert_eq!(held.text("/limits/0/capacity"), "10512000", "ten years of it");
    app.finish().await;
}
