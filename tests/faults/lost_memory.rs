//! Redis emptied under a running service.

use std::time::Duration;

use serde_json::json;

use crate::support::app::{TestApp, spawn_app};
use crate::support::wait::wait_for;

async fn flush(app: &TestApp) {
    let client = redis::Client::open(app.redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap();
}

async fn with_limits(app: &TestApp) {
    let limits = json!([
        { "id": "day", "meter": "page", "window": "day", "capacity": "100" },
        { "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day", "capacity": "60" }
    ]);
    app.with_plan(limits, json!([{ "meter": "page", "included": "90" }])).await;
}

fn reserve(amount: u32) -> serde_json::Value {
    json!({ "tenant": "acme", "subject": "ada", "meter": "page", "amount": amount.to_string(), "ttl_seconds": 3600 })
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_quota_answers_are_right_again_and_limits_hold() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let job = app.post_keyed("/v1/reservations", "job-1", reserve(20)).await;
    let id = job.body["id"].as_str().unwrap().to_owned();
    app.post(&format!("/v1/reservations/{id}/consume"), json!({ "amount": "15" })).await;
    let held = app.post_keyed("/v1/reservations", "job-2", reserve(30)).await;
    app.drained().await;
    let before = app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await.body;

    flush(&app).await;

    let after = app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await.body;
    assert_eq!(after["limits"], before["limits"]);
    assert_eq!(after["quotas"], before["quotas"]);
    let too_much = app.post("/v1/reservations", reserve(20)).await;
    assert_eq!(too_much.status, 429, "{too_much:?}");
    assert_eq!(too_much.body["refused_by"][0]["id"], "user");
    let fits = app.post("/v1/reservations", reserve(15)).await;
    assert_eq!(fits.status, 201, "{fits:?}");
    let id = held.body["id"].as_str().unwrap();
    let consumed = app.post(&format!("/v1/reservations/{id}/consume"), json!({})).await;
    assert_eq!(consumed.body["lines"][0]["consumed"], "30", "{consumed:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_a_repeat_of_keyed_work_is_still_the_same_reservation() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let first = app.post_keyed("/v1/reservations", "job-1", reserve(20)).await;
    assert_eq!(first.status, 201, "{first:?}");
    let id = first.body["id"].as_str().unwrap().to_owned();
    app.post(&format!("/v1/reservations/{id}/consume"), json!({ "amount": "15" })).await;
    let open = app.post_keyed("/v1/reservations", "job-2", reserve(10)).await;
    app.drained().await;
    flush(&app).await;
    for _ in 0..2 {
        let again = app.post_keyed("/v1/reservations", "job-1", reserve(20)).await;
        assert_eq!((again.status, again.body["status"].as_str()), (200, Some("consumed")), "{again:?}");
        assert_eq!(again.body["id"], first.body["id"]);
        let repeat = app.post(&format!("/v1/reservations/{id}/consume"), json!({ "amount": "15" })).await;
        assert_eq!((repeat.status, repeat.body["replayed"].as_bool()), (200, Some(true)), "{repeat:?}");
        let still_open = app.post_keyed("/v1/reservations", "job-2", reserve(10)).await;
        assert_eq!((still_open.status, still_open.body["status"].as_str()), (200, Some("reserved")));
        assert_eq!(still_open.body["id"], open.body["id"]);
    }
    let quota = app.get("/v1/tenants/acme/quota").await.body;
    assert_eq!(quota["quotas"][0]["consumed"], "15");
    assert_eq!(quota["quotas"][0]["reserved"], "10");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_service_on_a_restarted_redis_goes_on_where_it_was() {
    let mut app = spawn_app().await;
    with_limits(&app).await;
    app.post_keyed("/v1/reservations", "job-1", reserve(20)).await;
    app.drained().await;
    app.redis.restart().unwrap();
    app.restart().await;
    let again = app.post_keyed("/v1/reservations", "job-1", reserve(20)).await;
    assert_eq!((again.status, again.body["replayed"].as_bool()), (200, Some(true)), "{again:?}");
    let id = again.body["id"].as_str().unwrap();
    let released = app.post(&format!("/v1/reservations/{id}/release"), json!({})).await;
    assert_eq!(released.status, 200, "{released:?}");
    let quota = app.get("/v1/tenants/acme/quota").await.body;
    assert_eq!(quota["limits"][0]["reserved"], "0");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_a_hold_that_names_a_subject_expires_although_nobody_asks_for_the_subject() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let hold =
        json!({ "tenant": "acme", "subject": "ada", "meter": "page", "amount": "7", "ttl_seconds": 1 });
    app.post("/v1/reservations", hold).await;
    app.drained().await;
    flush(&app).await;
    let reserved = async || {
        let quota = app.get("/v1/tenants/acme/quota").await.body;
        quota["quotas"][0]["reserved"].as_str().map(str::to_owned)
    };
    wait_for("the hold has expired", Duration::from_secs(30), async || {
        (reserved().await.as_deref() == Some("0")).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_that_lost_the_event_booked_last_gets_a_new_epoch_and_goes_on() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let usage = |key: &str| {
        let body = json!({ "tenant": "acme", "meter": "page", "amount": "1", "ack": "ledger" });
        let key = key.to_owned();
        let app = &app;
        async move { app.post_keyed("/v1/usage", &key, body).await }
    };
    assert_eq!(usage("first").await.status, 201);
    let client = redis::Client::open(app.redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("tg1:*:outbox").query_async(&mut connection).await.unwrap();
    let last: redis::streams::StreamRangeReply = redis::cmd("XREVRANGE")
        .arg(&keys[0])
        .arg(&["+", "-", "COUNT", "1"])
        .query_async(&mut connection)
        .await
        .unwrap();
    redis::cmd("XDEL").arg(&keys[0]).arg(&last.ids[0].id).exec_async(&mut connection).await.unwrap();
    wait_for("calls are booked again", Duration::from_secs(30), async || {
        (usage("second").await.status < 300).then_some(())
    })
    .await;
    let third = usage("third").await;
    assert_eq!(third.status, 201, "{third:?}");
    app.finish().await;
}
