//! Anonymous subjects: a fixed number of slots counts them, and the books name none.

use std::time::Duration;

use redis::AsyncCommands;
use serde_json::{Value, json};

use super::ratelimit::{CHECK, minute, of, with_limits};
use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

fn per_anonymous(id: &str, meter: &str, capacity: &str) -> Value {
    minute(capacity)
        .with("id", id)
        .with("meter", meter)
        .with("scope", "subject")
        .with("subject_kind", "anonymous")
        .with("class", "rate")
}

fn by_anonymous(body: Value, id: &str) -> Value {
    body.with("subjects", json!({ "anonymous": id }))
}

async fn with_slots(slots: u32, limits: Value) -> TestApp {
    let app = an_app().with("gate.anonymous_slots", slots).at("2026-03-10T12:00:00Z").start().await;
    with_limits(&app, limits).await;
    app
}

async fn keys(app: &TestApp, pattern: &str) -> Vec<String> {
    app.redis.connection().await.keys(pattern).await.unwrap()
}

#[tokio::test]
async fn any_number_of_anonymous_subjects_is_counted_in_the_slots_that_there_are() {
    let app = with_slots(4, json!([per_anonymous("ip", "call", "1000")])).await;
    for number in 0..100 {
        let check = by_anonymous(of("read"), &format!("192.0.2.{number}"));
        let answer = app.post(CHECK, check).await.expect(200);
        assert_eq!(answer.body["limits"][0]["shared"], true, "{answer:?}");
    }
    assert_eq!(keys(&app, "tg1:*:light:acme:*").await.len(), 4);
    let status = app.get("/v1/ratelimit/status/192.0.2.1?tenant=acme&kind=anonymous").await.expect(200);
    assert_eq!(status.body["limits"][0]["shared"], true, "{status:?}");
    let consumed: u32 = status.text("/limits/0/consumed").parse().unwrap();
    assert!((1..100).contains(&consumed), "{status:?}");
    app.finish().await;
}

#[tokio::test]
async fn anonymous_subjects_in_one_slot_share_its_limit_and_other_subjects_share_nothing() {
    let per_user = per_anonymous("user", "call", "2").with("subject_kind", "user");
    let app = with_slots(1, json!([per_anonymous("ip", "call", "2"), per_user])).await;
    for (id, allowed) in [("a", true), ("b", true), ("c", false)] {
        let answer = app.post(CHECK, by_anonymous(of("read"), id)).await.expect(200);
        assert_eq!(answer.body["allowed"], allowed, "{id}: {answer:?}");
        let answer = app.post(CHECK, of("read").by(id)).await.expect(200);
        assert_eq!(answer.body["allowed"], true, "{id}: {answer:?}");
        assert_eq!(answer.body["limits"][0].get("shared"), None);
    }
    app.finish().await;
}

#[tokio::test]
async fn a_release_of_an_anonymous_subject_gives_back_to_its_slot_and_its_repeat_gives_nothing() {
    let app = with_slots(1, json!([per_anonymous("ip", "page", "5")])).await;
    let held = app.held(by_anonymous(pages(4), "a")).await;
    app.post(RESERVATIONS, by_anonymous(pages(2), "b")).await.is_problem(429, "rate_limited");
    app.release(&held).await.expect(200);
    app.release(&held).await.expect(200);
    let held = app.post_keyed(RESERVATIONS, "k", by_anonymous(pages(5), "b")).await.expect(201);
    let repeated = app.post_keyed(RESERVATIONS, "k", by_anonymous(pages(5), "b")).await.expect(200);
    assert_eq!(held.text("/id"), repeated.text("/id"));
    app.post_keyed(RESERVATIONS, "k", by_anonymous(pages(5), "c"))
        .await
        .is_problem(422, "idempotency_key_reused");
    app.consume(held.text("/id"), "5").await.expect(200);
    app.finish().await;
}

#[tokio::test]
async fn the_books_name_no_anonymous_subject_beside_those_that_they_name() {
    let app = with_slots(8, json!([per_anonymous("ip", "page", "100")])).await;
    let subjects = json!({ "anonymous": "192.0.2.1", "user": "ada" });
    let held = app.held(pages(4).with("subjects", subjects.clone())).await;
    app.consume(&held, "3").await.expect(200);
    app.post_keyed(USAGE, "u", by_anonymous(pages(2), "192.0.2.2")).await.expect(201);
    app.drained().await;
    assert_eq!(rows(&app.database, "SELECT kind || ' ' || id FROM subjects").await, ["user ada"]);
    let by_subject = "SELECT trunc(consumed)::text FROM usage_hourly ORDER BY subject";
    assert_eq!(rows(&app.database, by_subject).await, ["5", "3"]);
    assert_eq!(app.read(&held).await.expect(200).body["subjects"], subjects);
    let named = app.get("/v1/tenants/acme/reservations?subject=ada&kind=user").await.expect(200);
    assert_eq!(named.body["data"].as_array().unwrap().len(), 1, "{named:?}");
    let path = "/v1/tenants/acme/reservations?subject=192.0.2.1&kind=anonymous";
    app.get(path).await.is_problem(400, "invalid_request");
    app.finish().await;
}

fn by_the_day() -> Value {
    json!({ "id": "ip", "meter": "page", "scope": "subject", "subject_kind": "anonymous", "class": "rate",
            "window": "day", "capacity": "5" })
}

#[rstest::rstest]
#[case::fixed_window(per_anonymous("ip", "page", "5"))]
#[case::calendar(by_the_day())]
#[tokio::test]
async fn after_a_loss_of_memory_anonymous_subjects_begin_anew_and_what_they_held_gives_nothing_back(
    #[case] limit: Value,
) {
    let app = with_slots(1, json!([limit])).await;
    let held = app.held(by_anonymous(pages(4), "a")).await;
    app.drained().await;
    app.redis.flush().await;
    app.move_clock("2026-03-10T12:00:01Z").await;
    let again = app.held(by_anonymous(pages(5), "b")).await;
    app.release(&held).await.expect(200);
    app.post(RESERVATIONS, by_anonymous(pages(1), "c")).await.is_problem(429, "rate_limited");
    app.consume(&again, "5").await.expect(200);
    app.finish().await;
}

#[tokio::test]
async fn what_an_anonymous_subject_held_before_a_loss_of_memory_still_ends_although_its_slot_has_begun_anew()
{
    let app = with_slots(1, json!([by_the_day()])).await;
    let used = app.held(by_anonymous(pages(2), "a").lasting(3_600)).await;
    let expires = app.held(by_anonymous(pages(2), "b").lasting(60)).await;
    app.drained().await;
    app.redis.flush().await;
    app.move_clock("2026-03-10T12:00:01Z").await;
    let again = app.held(by_anonymous(pages(1), "c").lasting(3_600)).await;
    app.consume(&used, "2").await.expect(200);
    app.move_clock("2026-03-10T12:02:00Z").await;
    wait_for("the other one expires", Duration::from_secs(20), async || {
        (app.read(&expires).await.text("/status") == "expired").then_some(())
    })
    .await;
    app.consume(&again, "1").await.expect(200);
    app.post(RESERVATIONS, by_anonymous(pages(5), "d")).await.is_problem(429, "rate_limited");
    app.held(by_anonymous(pages(4), "d")).await;
    app.finish().await;
}
