//! Limits by a bucket that refills, on a clock that moves only when it is set.

use serde_json::{Value, json};

use crate::support::app::*;

fn bucket() -> Value {
    json!({
        "id": "bucket", "meter": "page", "algorithm": "token_bucket", "refill": "2", "per_seconds": 60, "capacity": "10"
    })
}

async fn by_the_bucket() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([bucket()]), json!([])).await;
    app
}

#[tokio::test]
async fn a_bucket_allows_a_burst_and_then_what_it_refills() {
    let app = by_the_bucket().await;
    let held = app.post(RESERVATIONS, pages(6).lasting(3600)).await.expect(201);
    let shown = json!({
        "id": "bucket", "algorithm": "token_bucket", "refill": "2", "per_seconds": 60, "class": "rate", "capacity": "10",
        "consumed": "6", "reserved": "6", "remaining": "4", "resets_at": "2026-03-10T12:03:00Z",
    });
    for (field, value) in shown.as_object().unwrap() {
        assert_eq!(held.body["limits"][0][field], *value, "{field}: {held:?}");
    }
    assert_eq!(
        (held.header("ratelimit"), held.header("ratelimit-policy")),
        ("\"bucket\";r=4;t=180", "\"bucket\";q=10;w=300")
    );
    let refused = app.post(RESERVATIONS, pages(5)).await.expect(429);
    assert_eq!((refused.text("/code"), refused.header("retry-after")), ("rate_limited", "30"));
    assert_eq!(refused.text("/refused_by/0/cause"), "consumed", "what is held is taken as what is used");
    app.move_clock("2026-03-10T12:00:29.999Z").await;
    app.post(RESERVATIONS, pages(5)).await.expect(429);
    app.move_clock("2026-03-10T12:00:30Z").await;
    let last = app.post(RESERVATIONS, pages(5).lasting(3600)).await.expect(201);
    let released = app.release(last.text("/id")).await.expect(200);
    assert_eq!((released.text("/limits/0/consumed"), released.text("/limits/0/remaining")), ("5", "5"));
    let consumed = app.consume(held.text("/id"), "1").await.expect(200);
    assert_eq!(
        (consumed.text("/limits/0/consumed"), consumed.text("/limits/0/remaining")),
        ("0", "10"),
        "one was refilled"
    );
    app.post(RESERVATIONS, pages(11)).await.expect(402);
    app.finish().await;
}

#[tokio::test]
async fn what_is_held_over_and_over_brings_no_second_burst() {
    let app = by_the_bucket().await;
    let first = app.post(RESERVATIONS, pages(10).lasting(3600)).await.expect(201);
    app.move_clock("2026-03-10T12:05:00Z").await;
    let second = app.post(RESERVATIONS, pages(10).lasting(3600)).await.expect(201);
    app.release(first.text("/id")).await.expect(200);
    app.post(RESERVATIONS, pages(1)).await.expect(429);
    app.release(second.text("/id")).await.expect(200);
    app.post(RESERVATIONS, pages(10)).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn after_a_loss_of_memory_a_bucket_is_full_and_what_it_held_returns_nothing() {
    let app = by_the_bucket().await;
    let held = app.post(RESERVATIONS, pages(10).lasting(3600)).await.expect(201);
    app.drained().await;
    app.redis.flush().await;
    app.move_clock("2026-03-10T12:00:10Z").await;
    app.post_until_answered(RESERVATIONS, "again", pages(10).lasting(3600)).await.expect(201);
    app.release(held.text("/id")).await.expect(200);
    app.post(RESERVATIONS, pages(1)).await.expect(429);
    app.finish().await;
}

#[tokio::test]
async fn another_refill_or_capacity_goes_on_with_the_same_level() {
    let app = by_the_bucket().await;
    app.use_pages("first", 10).await.expect(201);
    let larger = bucket().with("capacity", "12").with("refill", "4");
    app.define("plans/plan", json!({ "limits": [larger] })).await;
    app.use_pages("second", 2).await.expect(201);
    app.use_pages("third", 1).await.expect(429);
    app.move_clock("2026-03-10T12:00:15Z").await;
    app.use_pages("fourth", 1).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn a_bucket_is_refused_where_its_fields_do_not_fit() {
    let app = by_the_bucket().await;
    for (field, value, pointer, told) in [
        ("class", json!("quota"), "/class", "must be rate"),
        ("window", json!("hour"), "/window", "takes no `window`"),
        ("refill", Value::Null, "/refill", "missing field `refill`"),
        ("per_seconds", Value::Null, "/per_seconds", "missing field `per_seconds`"),
        ("per_seconds", json!(0), "/per_seconds", "1 to 31622400"),
        ("refill", json!("0"), "/refill", "more than 0"),
        ("refill", json!("0.5"), "/refill", "more decimals"),
        ("refill", json!("150000000000"), "/refill", "too large for `per_seconds`"),
        ("capacity", json!("8999999999999998"), "/refill", "with `capacity`"),
        ("capacity", json!("10512002"), "/refill", "within ten years"),
    ] {
        let refused = app.put("/v1/admin/limits/bucket", bucket().with(field, value)).await.expect(422);
        assert_eq!(refused.text("/errors/0/pointer"), pointer, "{refused:?}");
        assert!(refused.text("/errors/0/message").contains(told), "{refused:?}");
    }
    let raised = json!([{ "id": "raise", "level": "tenant", "limit": "bucket", "capacity": "10512002" }]);
    let refused =
        app.put("/v1/admin/tenants/acme", json!({ "plan": "plan", "overrides": raised })).await.expect(422);
    assert_eq!(refused.text("/errors/0/pointer"), "/overrides/0/capacity", "{refused:?}");
    app.finish().await;
}

#[tokio::test]
async fn beside_a_bucket_a_day_refuses_without_taking_from_it() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([bucket(), day_of("4")]), json!([])).await;
    app.use_pages("first", 3).await.expect(201);
    app.use_pages("second", 2).await.expect(429);
    let last = app.use_pages("third", 1).await.expect(201);
    let shown = |id: &str| {
        last.body["limits"].as_array().unwrap().iter().find(|limit| limit["id"] == id).unwrap().clone()
    };
    assert_eq!((&shown("bucket")["remaining"], &shown("day")["remaining"]), (&json!("6"), &json!("0")));
    app.finish().await;
}
