//! The guard against the same submission twice: whom it compares, what it answers, and which policy it accepts.

use redis::AsyncCommands;
use serde_json::{Value, json};

use crate::support::app::*;

fn scan(within: Value) -> Value {
    json!({ "costs": [{ "meter": "page", "weights": { "pages": "1" } }], "duplicate_within_seconds": within })
}

/// Three pages of this payload.
fn sent(payload: &str) -> Value {
    json!({
        "tenant": "acme", "subject": "ada", "operation": "scan", "attributes": { "pages": 3 },
        "payload_fingerprint": payload, "ttl_seconds": 3600
    })
}

/// An operation `scan` whose payloads are guarded for five seconds, and a limit of 1,000 pages a day.
async fn guarded() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([day_of("1000")]), json!([])).await;
    app.define("operations/scan", scan(json!(5))).await;
    app
}

#[tokio::test]
async fn the_same_payload_again_is_409_with_the_first_reservation_until_the_time_is_over() {
    let app = guarded().await;
    let first = app.post_keyed(RESERVATIONS, "one", sent("a")).await.expect(201);
    app.move_clock("2026-03-10T12:00:04.999Z").await;
    let again = app.post_keyed(RESERVATIONS, "two", sent("a")).await.expect(409);
    assert_eq!(
        (again.text("/code"), again.text("/reservation/id")),
        ("duplicate_submission", first.text("/id"))
    );
    assert!(again.text("/detail").contains(first.text("/id")), "{again:?}");
    assert_eq!(again.body.get("retry_after_ms"), None, "no wait helps: it is done already");
    assert_eq!(app.quota().await.text("/limits/0/reserved"), "3");
    app.post_keyed(RESERVATIONS, "one", sent("a")).await.expect(200);
    let dry = app.post(RESERVATIONS, sent("a").with("dry_run", true)).await.expect(409);
    assert_eq!(dry.text("/code"), "duplicate_submission");
    let mut usage = sent("a");
    usage.as_object_mut().unwrap().remove("ttl_seconds");
    app.post_keyed(USAGE, "used", usage).await.expect(409);
    app.move_clock("2026-03-10T12:00:05Z").await;
    app.post_keyed(RESERVATIONS, "two", sent("a")).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn other_payloads_other_subjects_and_calls_that_tell_none_are_no_duplicates() {
    let app = guarded().await;
    app.define("operations/print", scan(json!(5))).await;
    app.post(RESERVATIONS, sent("a")).await.expect(201);
    app.post(RESERVATIONS, sent("b")).await.expect(201);
    app.post(RESERVATIONS, sent("a").with("subject", "ben")).await.expect(201);
    app.post(RESERVATIONS, sent("a").with("operation", "print")).await.expect(201);
    app.post(RESERVATIONS, pages(1).with("payload_fingerprint", "a")).await.expect(201);
    let mut untold = sent("a");
    untold.as_object_mut().unwrap().remove("payload_fingerprint");
    for _ in 0..2 {
        app.post(RESERVATIONS, untold.clone()).await.expect(201);
    }
    let nobody = json!({ "tenant": "acme", "operation": "scan", "attributes": { "pages": 1 }, "payload_fingerprint": "a" });
    app.post(RESERVATIONS, nobody.clone()).await.expect(201);
    app.post(RESERVATIONS, nobody).await.expect(409);
    app.finish().await;
}

#[tokio::test]
async fn a_submission_that_was_released_may_come_again_and_one_that_was_consumed_is_shown_as_such() {
    let app = guarded().await;
    let released = app.held(sent("a")).await;
    app.release(&released).await.expect(200);
    let second = app.held(sent("a")).await;
    app.consume(&second, "2").await.expect(200);
    let again = app.post(RESERVATIONS, sent("a")).await.expect(409);
    assert_eq!(
        (again.text("/reservation/id"), again.text("/reservation/status")),
        (second.as_str(), "consumed")
    );
    app.drained().await;
    let booked = app.post(RESERVATIONS, sent("a")).await.expect(409);
    assert_eq!(booked.text("/reservation/lines/0/consumed"), "2");
    app.finish().await;
}

/// Takes records from the gate, as happens when their tombstones have served their time.
async fn forget(app: &TestApp, ids: &[&str]) {
    let mut gate = app.redis.connection().await;
    for id in ids {
        let keys: Vec<String> = gate.keys(format!("tg1:*:rsv:{}", id.replace('-', ""))).await.unwrap();
        assert_eq!(keys.len(), 1, "{id}");
        let _: () = gate.del(keys).await.unwrap();
    }
}

#[tokio::test]
async fn a_submission_that_was_released_may_come_again_also_once_the_gate_has_forgotten_it() {
    let app = guarded().await;
    let [released, used] = [app.held(sent("a")).await, app.held(sent("b")).await];
    app.release(&released).await.expect(200);
    app.consume(&used, "3").await.expect(200);
    app.drained().await;
    forget(&app, &[&released, &used]).await;
    app.post(RESERVATIONS, sent("a").with("dry_run", true)).await.expect(200);
    let second = app.held(sent("a")).await;
    let again = app.post(RESERVATIONS, sent("a")).await.expect(409);
    assert_eq!(again.text("/reservation/id"), second, "the second holds it now");
    let done = app.post(RESERVATIONS, sent("b")).await.expect(409);
    assert_eq!((done.text("/reservation/id"), done.text("/reservation/status")), (used.as_str(), "consumed"));
    app.finish().await;
}

#[tokio::test]
async fn of_two_items_of_a_batch_with_one_payload_the_second_is_a_duplicate() {
    let app = guarded().await;
    let item = |key: &str| json!({ "call": "reserve", "idempotency_key": key, "body": sent("a") });
    let answer = app.post("/v1/batch", json!({ "items": [item("one"), item("two")] })).await.expect(200);
    let mut statuses: Vec<_> =
        answer.body["results"].as_array().unwrap().iter().map(|item| item["status"].as_u64()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [Some(201), Some(409)], "{answer:?}");
    app.finish().await;
}

#[tokio::test]
async fn after_a_loss_of_memory_the_guard_has_forgotten_and_one_out_of_bounds_is_refused() {
    let app = guarded().await;
    app.post(RESERVATIONS, sent("a")).await.expect(201);
    app.drained().await;
    app.redis.flush().await;
    app.move_clock("2026-03-10T12:00:01Z").await;
    app.post_until_answered(RESERVATIONS, "again", sent("a")).await.expect(201);
    for wrong in [json!(0), json!(86_401)] {
        let refused = app.put("/v1/admin/operations/scan", scan(wrong)).await.expect(422);
        assert_eq!(refused.pointers(), ["/duplicate_within_seconds"], "{refused:?}");
    }
    app.define("operations/scan", scan(json!(86_400))).await;
    app.define("operations/scan", scan(Value::Null)).await;
    app.post(RESERVATIONS, sent("a")).await.expect(201);
    app.finish().await;
}
