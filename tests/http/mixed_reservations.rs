//! Reservations and usage of booked meters and of others together: the gate holds and counts all lines at once, the
//! event has them all, and the books take the booked ones alone.

use std::time::Duration;

use serde_json::{Value, json};

use super::events::{ACCEPTED, DUPLICATE, outcomes, send};
use super::light_reservations::{both, calls, counted, slots};
use super::ratelimit::{CHECK, minute, of, per_ip, started, with_limits};
use crate::support::app::*;
use crate::support::wait::wait_for;

fn lines(pages: u32, calls: u32) -> Value {
    json!([
        { "meter": "page", "amount": pages.to_string() },
        { "meter": "call", "amount": calls.to_string() }
    ])
}

/// So many pages, which are booked, and calls, which are not.
fn mixed(pages: u32, calls: u32) -> Value {
    json!({ "tenant": "acme", "lines": lines(pages, calls) })
}

/// A field of both lines of an answer.
fn of_lines(answer: &Answered, field: &str) -> [String; 2] {
    [0, 1].map(|line| answer.text(&format!("/lines/{line}/{field}")).to_owned())
}

fn two(pages: &str, calls: &str) -> [String; 2] {
    [pages.to_owned(), calls.to_owned()]
}

/// What is booked, meter by meter.
async fn booked(app: &TestApp) -> Vec<(String, String)> {
    app.drained().await;
    let usage = app.get("/v1/tenants/acme/usage").await.expect(200);
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    let all = usage.body["data"].as_array().unwrap().iter();
    all.map(|line| (text(line, "meter"), text(line, "consumed"))).collect()
}

fn only_pages(consumed: &str) -> Vec<(String, String)> {
    vec![("page".to_owned(), consumed.to_owned())]
}

#[tokio::test]
async fn lines_of_both_kinds_are_held_and_consumed_together_and_the_books_take_the_booked_ones() {
    let app = started(json!([minute("10"), slots()])).await;
    let held = app.post_keyed(RESERVATIONS, "job", mixed(2, 6).lasting(30)).await.expect(201);
    let id = held.text("/id").to_owned();
    assert_eq!(of_lines(&held, "amount"), two("2", "6"));
    let refused = app.post(RESERVATIONS, calls(5)).await.expect(429);
    assert_eq!(refused.text("/refused_by/0/id"), "minute", "a light reservation has the same counter");
    let refused = app.post_keyed(RESERVATIONS, "more", mixed(1, 5)).await.expect(429);
    assert_eq!(refused.text("/refused_by/0/id"), "minute");
    let again = app.post_keyed(RESERVATIONS, "job", mixed(2, 6).lasting(30)).await.expect(200);
    assert_eq!((again.text("/id"), &again.body["replayed"]), (id.as_str(), &json!(true)));
    app.post_keyed(RESERVATIONS, "job", mixed(2, 7)).await.is_problem(422, "idempotency_key_reused");
    let part = json!({ "lines": lines(1, 2), "final": false });
    app.resolve(&id, "consume", part).await.expect(200);
    assert_eq!(counted(&app).await, both("2", "4"));
    app.resolve(&id, "extend", json!({ "ttl_seconds": 45 })).await.expect(200);
    for replayed in [false, true] {
        let consumed = app.resolve(&id, "consume", json!({ "lines": lines(2, 3) })).await.expect(200);
        assert_eq!((consumed.text("/status"), &consumed.body["replayed"]), ("consumed", &json!(replayed)));
        assert_eq!(counted(&app).await, both("3", "0"));
    }
    let other = app.held(mixed(1, 7)).await;
    app.release(&other).await.expect(200);
    assert_eq!(counted(&app).await, both("3", "0"));
    assert_eq!(booked(&app).await, only_pages("2"));
    let read = app.read(&id).await.expect(200);
    assert_eq!(of_lines(&read, "consumed"), two("2", "3"));
    let listed = app.get("/v1/tenants/acme/reservations?meter=call").await.expect(200);
    assert_eq!(listed.body["data"].as_array().unwrap().len(), 2, "{listed:?}");
    let entries = app.get("/v1/tenants/acme/entries").await.expect(200);
    let of_call = |entry: &Value| entry["meter"] != "page";
    assert!(!entries.body["data"].as_array().unwrap().iter().any(of_call), "{entries:?}");
    app.finish().await;
}

#[tokio::test]
async fn every_call_takes_work_that_costs_both_kinds_of_meters() {
    let app = started(json!([minute("10"), per_ip("9")])).await;
    let from = |body: Value| body.with("subjects", json!({ "ip": "192.0.2.1" }));
    let used = app.post_keyed(USAGE, "u", from(of("mixed")).with("ack", "ledger")).await.expect(201);
    assert_eq!(of_lines(&used, "consumed"), two("1", "1"));
    assert_eq!(app.post_keyed(USAGE, "u", from(of("mixed"))).await.expect(200).body["replayed"], true);
    let dry = app.post(RESERVATIONS, from(mixed(1, 10)).with("dry_run", true)).await.expect(200);
    assert_eq!(dry.body["allowed"], false);
    let some = from(mixed(5, 20)).with("mode", "best_effort");
    let some = app.post_keyed(RESERVATIONS, "some", some).await.expect(201);
    assert_eq!(of_lines(&some, "amount"), two("5", "8"), "what the subject's limit has left");
    app.release(some.text("/id")).await.expect(200);
    app.post(CHECK, of("mixed")).await.is_problem(400, "idempotency_key_required");
    for replayed in [None, Some(true)] {
        let checked = app.post_keyed(CHECK, "c", of("mixed")).await.expect(200);
        assert_eq!((&checked.body["allowed"], checked.body["replayed"].as_bool()), (&json!(true), replayed));
    }
    let item = json!({ "call": "reserve", "idempotency_key": "b", "body": mixed(1, 1) });
    let batch = app.post("/v1/batch", json!({ "items": [item] })).await.expect(200);
    assert_eq!(batch.body["results"][0]["status"], 201, "{batch:?}");
    assert_eq!(counted(&app).await, both("2", "1"));
    assert_eq!(booked(&app).await, only_pages("2"));
    app.finish().await;
}

#[tokio::test]
async fn when_the_hold_expires_both_kinds_of_counters_get_their_units_back() {
    let app = started(json!([minute("100"), slots(), day_of("5")])).await;
    let held = app.held(mixed(5, 1).lasting(60)).await;
    app.held(calls(1).lasting(3600)).await;
    app.post(RESERVATIONS, calls(1)).await.expect(429);
    app.move_clock("2026-03-10T12:01:30Z").await;
    wait_for("the hold expires", Duration::from_secs(20), async || {
        (app.read(&held).await.expect(200).text("/status") == "expired").then_some(())
    })
    .await;
    app.release(&app.held(mixed(5, 1)).await).await.expect(200);
    let late = app.resolve(&held, "consume", json!({ "lines": lines(4, 3) })).await.expect(200);
    assert_eq!((late.text("/status"), &late.body["late"]), ("consumed", &json!(true)));
    assert_eq!(booked(&app).await, only_pages("4"));
    app.finish().await;
}

#[tokio::test]
async fn after_a_loss_of_memory_the_lines_are_as_they_were_and_what_was_not_booked_counts_nowhere() {
    let app = spawn_app().await;
    with_limits(&app, json!([minute("100").with("window_seconds", 86_400), slots()])).await;
    let done = app.post_keyed(RESERVATIONS, "done", mixed(3, 2)).await.expect(201).text("/id").to_owned();
    app.resolve(&done, "consume", json!({ "lines": lines(3, 2) })).await.expect(200);
    let open = app.post_keyed(RESERVATIONS, "open", mixed(5, 4).lasting(3600)).await.expect(201);
    app.drained().await;
    app.redis.flush().await;
    let again = app.post_keyed(RESERVATIONS, "open", mixed(5, 4).lasting(3600)).await.expect(200);
    assert_eq!((again.text("/id"), of_lines(&again, "amount")), (open.text("/id"), two("5", "4")));
    let again = app.post_keyed(RESERVATIONS, "done", mixed(3, 2)).await.expect(200);
    assert_eq!((again.text("/status"), of_lines(&again, "amount")), ("consumed", two("3", "2")));
    let read = app.read(&done).await.expect(200);
    assert_eq!(of_lines(&read, "consumed"), two("3", "2"));
    assert_eq!(counted(&app).await, both("0", "0"));
    for _ in 0..2 {
        app.held(calls(1).lasting(3600)).await;
    }
    let consumed =
        app.resolve(open.text("/id"), "consume", json!({ "lines": lines(4, 3) })).await.expect(200);
    assert_eq!(of_lines(&consumed, "consumed"), two("4", "3"));
    assert_eq!(counted(&app).await, both("0", "2"));
    app.post(RESERVATIONS, calls(1)).await.expect(429);
    assert_eq!(booked(&app).await, only_pages("7"));
    app.finish().await;
}

#[tokio::test]
async fn a_tenant_s_state_that_is_deleted_is_restored_beside_the_light_holds_of_its_reservations() {
    let app = started(json!([slots()])).await;
    let [first, second] =
        [app.held(mixed(2, 1).lasting(600)).await, app.held(mixed(1, 1).lasting(600)).await];
    app.drained().await;
    let mut gate = app.redis.connection().await;
    let state: Vec<String> = redis::cmd("KEYS").arg("tg1:*:state:acme").query_async(&mut gate).await.unwrap();
    let () = redis::cmd("DEL").arg(state).query_async(&mut gate).await.unwrap();
    app.post(RESERVATIONS, mixed(1, 1)).await.expect(429);
    app.resolve(&first, "consume", json!({ "lines": lines(2, 1) })).await.expect(200);
    app.release(&second).await.expect(200);
    for _ in 0..2 {
        app.held(mixed(1, 1)).await;
    }
    app.post(RESERVATIONS, mixed(1, 1)).await.expect(429);
    assert_eq!(booked(&app).await, only_pages("2"));
    app.finish().await;
}

#[tokio::test]
async fn a_quota_of_a_meter_that_has_become_booked_counts_no_hold_from_before() {
    let app = started(json!([])).await;
    let before = app.held(mixed(2, 6).lasting(600)).await;
    app.drained().await;
    app.define("meters/call", json!({ "unit": "call", "booked": true, "without_limit": "unlimited" })).await;
    let quota = quota_of("10").with("meter", "call");
    app.define("plans/plan", json!({ "quotas": [quota] })).await;
    let after = app.held(calls(10)).await;
    app.resolve(&before, "consume", json!({ "lines": lines(2, 5) })).await.expect(200);
    app.release(&after).await.expect(200);
    app.held(calls(10)).await;
    assert_eq!(booked(&app).await, only_pages("2"));
    app.finish().await;
}

#[tokio::test]
async fn a_line_stays_what_its_meter_was_when_it_was_held() {
    let app = started(json!([minute("10")])).await;
    let before = app.held(mixed(2, 6)).await;
    let call = json!({ "unit": "call", "booked": true, "without_limit": "unlimited" });
    app.define("meters/call", call).await;
    let after = app.held(mixed(1, 4)).await;
    app.resolve(&before, "consume", json!({ "lines": lines(2, 5) })).await.expect(200);
    assert_eq!(booked(&app).await, only_pages("2"));
    app.resolve(&after, "consume", json!({ "lines": lines(1, 4) })).await.expect(200);
    let mut all = booked(&app).await;
    all.sort();
    assert_eq!(all, [("call".to_owned(), "4".to_owned()), ("page".to_owned(), "3".to_owned())]);
    app.finish().await;
}

#[tokio::test]
async fn an_event_of_both_kinds_is_booked_as_far_as_its_meters_are() {
    let app = started(json!([minute("10")])).await;
    let event = |id: &str, data: Value| json!({ "specversion": "1.0", "id": id, "source": "/it", "type": "tollgate.usage", "data": data });
    for expected in [ACCEPTED, DUPLICATE] {
        let sent = send(&app.caller(), &event("1", mixed(3, 4))).await;
        assert_eq!(outcomes(&sent), [expected]);
    }
    let rejected = send(&app.caller(), &event("2", calls(1))).await;
    assert_eq!(outcomes(&rejected), [("rejected", "validation_failed")]);
    assert_eq!(booked(&app).await, only_pages("3"));
    assert_eq!(counted(&app).await, both("0", "0"), "no limit of what is not booked counts past work");
    app.finish().await;
}
