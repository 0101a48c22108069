//! Reservations and usage of meters that are not booked: the gate alone holds and counts them.

use std::time::Duration;

use serde_json::{Value, json};

use super::ratelimit::{CHECK, minute, of, started, with_limits};
use crate::support::app::*;
use crate::support::wait::wait_for;

pub(super) fn calls(amount: u32) -> Value {
    json!({ "tenant": "acme", "meter": "call", "amount": amount.to_string() })
}

pub(super) fn slots() -> Value {
    json!({ "id": "slots", "meter": "call", "algorithm": "concurrency", "counts": "reservations", "capacity": "2" })
}

/// Consumed and reserved units of the minute.
pub(super) async fn counted(app: &TestApp) -> (String, String) {
    let quota = app.quota().await;
    let limits = quota.body["limits"].as_array().unwrap().clone();
    let minute = limits.into_iter().find(|limit| limit["id"] == "minute").unwrap();
    let text = |field: &str| minute[field].as_str().unwrap().to_owned();
    (text("consumed"), text("reserved"))
}

pub(super) fn both(consumed: &str, reserved: &str) -> (String, String) {
    (consumed.to_owned(), reserved.to_owned())
}

#[tokio::test]
async fn what_is_not_booked_is_held_consumed_and_released_without_a_word_to_the_ledger() {
    let app = started(json!([minute("10")])).await;
    let held = app.post_keyed(RESERVATIONS, "job", calls(6).lasting(30)).await.expect(201);
    let id = held.text("/id").to_owned();
    let shown = ["status", "degraded", "replayed"].map(|field| held.body[field].clone());
    assert_eq!(json!(shown), json!(["reserved", false, false]));
    assert_eq!(held.text("/limits/0/reserved"), "6");
    let refused = app.post(RESERVATIONS, calls(5)).await.expect(429);
    assert_eq!((refused.text("/code"), refused.text("/refused_by/0/cause")), ("rate_limited", "reserved"));
    assert_eq!(app.post(CHECK, of("read").with("cost", 5)).await.expect(200).body["allowed"], false);
    let again = app.post_keyed(RESERVATIONS, "job", calls(6).lasting(30)).await.expect(200);
    assert_eq!((again.text("/id"), &again.body["replayed"]), (id.as_str(), &json!(true)));
    app.post_keyed(RESERVATIONS, "job", calls(7)).await.is_problem(422, "idempotency_key_reused");
    let part = app.resolve(&id, "consume", json!({ "amount": "2", "final": false })).await.expect(200);
    assert_eq!((part.text("/status"), part.text("/limits/0/consumed")), ("reserved", "2"));
    assert_eq!(counted(&app).await, both("2", "4"));
    app.resolve(&id, "extend", json!({ "ttl_seconds": 45 })).await.expect(200);
    for replayed in [false, true] {
        let consumed = app.consume(&id, "3").await.expect(200);
        assert_eq!((consumed.text("/status"), &consumed.body["replayed"]), ("consumed", &json!(replayed)));
        assert_eq!(counted(&app).await, both("3", "0"));
    }
    app.release(&id).await.is_problem(409, "already_resolved");
    let other = app.held(calls(7)).await;
    for replayed in [false, true] {
        let released = app.release(&other).await.expect(200);
        assert_eq!((released.text("/status"), &released.body["replayed"]), ("released", &json!(replayed)));
    }
    assert_eq!(counted(&app).await, both("3", "0"));
    let read = app.read(&id).await.expect(200);
    assert_eq!((read.text("/status"), read.text("/lines/0/consumed")), ("consumed", "3"));
    let again = app.post_keyed(RESERVATIONS, "job", calls(6).lasting(30)).await.expect(200);
    assert_eq!((again.text("/id"), again.text("/status")), (id.as_str(), "consumed"));
    app.drained().await;
    let booked = app.get("/v1/tenants/acme/usage").await.expect(200);
    assert_eq!(booked.body["data"], json!([]), "{booked:?}");
    let listed = app.get("/v1/tenants/acme/reservations").await.expect(200);
    assert_eq!(listed.body["data"], json!([]), "{listed:?}");
    app.finish().await;
}

#[tokio::test]
async fn slots_of_what_is_not_booked_come_back_at_consume_release_and_expiry() {
    let app = started(json!([minute("100"), slots()])).await;
    let first = app.held(calls(5).lasting(60)).await;
    let second = app.held(calls(1).lasting(60)).await;
    let refused = app.post(RESERVATIONS, calls(1)).await.expect(429);
    assert_eq!(refused.text("/refused_by/0/id"), "slots");
    app.resolve(&first, "consume", json!({ "amount": "4", "final": false })).await.expect(200);
    app.post(RESERVATIONS, calls(1)).await.expect(429);
    app.consume(&first, "5").await.expect(200);
    let third = app.held(calls(1).lasting(60)).await;
    app.release(&second).await.expect(200);
    app.held(calls(1).lasting(3600)).await;
    app.post(RESERVATIONS, calls(1)).await.expect(429);
    app.move_clock("2026-03-10T12:01:30Z").await;
    wait_for("the hold expires", Duration::from_secs(20), async || {
        let now = app.read(&third).await.expect(200);
        (now.text("/status") == "expired").then_some(())
    })
    .await;
    app.held(calls(1)).await;
    app.post(RESERVATIONS, calls(1)).await.expect(429);
    let late = app.consume(&third, "1").await.expect(200);
    assert_eq!((late.text("/status"), &late.body["late"]), ("consumed", &json!(true)));
    app.post(RESERVATIONS, calls(1)).await.expect(429);
    app.finish().await;
}

#[tokio::test]
async fn usage_of_what_is_not_booked_is_counted_once_for_its_key() {
    let app = started(json!([minute("5")])).await;
    for (status, replayed) in [(201, false), (200, true)] {
        let used = app.post_keyed(USAGE, "k", calls(3)).await.expect(status);
        assert_eq!((used.text("/status"), &used.body["replayed"]), ("consumed", &json!(replayed)));
        assert_eq!(counted(&app).await, both("3", "0"));
    }
    let refused = app.post_keyed(USAGE, "other", calls(3)).await.expect(429);
    assert_eq!(refused.text("/refused_by/0/cause"), "consumed");
    let dry = app.post(RESERVATIONS, calls(2).with("dry_run", true)).await.expect(200);
    assert_eq!(dry.body["allowed"], true);
    let dry = app.post(RESERVATIONS, calls(3).with("dry_run", true)).await.expect(200);
    assert_eq!(dry.body["allowed"], false);
    assert_eq!(counted(&app).await, both("3", "0"));
    app.finish().await;
}

#[tokio::test]
async fn nobody_waits_for_the_ledger_to_book_what_is_not_booked() {
    let app = started(json!([minute("5")])).await;
    let ledger = |body: Value| body.with("ack", "ledger");
    let used = app.post_keyed(USAGE, "k", ledger(calls(1))).await.expect(422);
    assert_eq!(used.pointers(), ["/ack"]);
    let held = app.hold_calls().await;
    let refused = app.resolve(&held, "consume", ledger(json!({ "amount": "1" }))).await.expect(422);
    assert_eq!(refused.pointers(), ["/ack"]);
    assert_eq!(counted(&app).await, both("0", "1"), "nothing was counted");
    app.release(&held).await.expect(200);
    app.finish().await;
}

impl TestApp {
    /// Holds one call; the reservation's id.
    async fn hold_calls(&self) -> String {
        self.held(calls(1)).await
    }
}

#[tokio::test]
async fn a_batch_takes_calls_of_both_kinds_of_meters() {
    let app = started(json!([minute("5")])).await;
    let item =
        |call: &str, key: &str, body: Value| json!({ "call": call, "idempotency_key": key, "body": body });
    let items = [
        item("reserve", "light", calls(2)),
        item("reserve", "booked", pages(2)),
        item("usage", "used", calls(2)),
        item("reserve", "too-much", calls(2)),
    ];
    let answer = app.post("/v1/batch", json!({ "items": items })).await.expect(200);
    let statuses: Vec<_> =
        answer.body["results"].as_array().unwrap().iter().map(|result| result["status"].clone()).collect();
    let mut light = [&statuses[0], &statuses[2], &statuses[3]].map(|status| status.as_i64().unwrap());
    light.sort_unstable();
    assert_eq!((light, &statuses[1]), ([201, 201, 429], &json!(201)), "{answer:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_limit_over_all_tenants_counts_what_is_held_and_gets_back_what_is_released() {
    let app = started(json!([minute("100")])).await;
    let all = minute("5").with("id", "all").with("scope", "global").with("window_seconds", 3600);
    app.define("limits/all", all).await;
    let held = app.held(calls(4)).await;
    let refused = app.post(RESERVATIONS, calls(2)).await.expect(429);
    assert_eq!(refused.text("/refused_by/0/id"), "all");
    assert_eq!(counted(&app).await, both("0", "4"), "what was refused there holds nothing here");
    app.release(&held).await.expect(200);
    let held = app.held(calls(5)).await;
    app.consume(&held, "5").await.expect(200);
    app.finish().await;
}

#[tokio::test]
async fn after_a_loss_of_memory_a_reservation_of_what_is_not_booked_is_not_found() {
    let app = spawn_app().await;
    with_limits(&app, json!([minute("100"), slots()])).await;
    let held = app.held(calls(5)).await;
    app.redis.flush().await;
    wait_for("the memory is checked", Duration::from_secs(60), async || {
        (app.consume(&held, "5").await.status == 404).then_some(())
    })
    .await;
    for verb in ["consume", "release", "extend"] {
        app.resolve(&held, verb, json!({})).await.expect(404);
    }
    app.read(&held).await.expect(404);
    assert_eq!(counted(&app).await, both("0", "0"));
    app.finish().await;
}
