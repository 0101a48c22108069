//! The state table of reservations, line by line, on a test clock.

use std::time::Duration;

use serde_json::json;

use crate::support::app::*;
use crate::support::wait::wait_for;

const NOON: &str = "2026-03-10T12:00:00Z";
const AFTER_EXPIRY: &str = "2026-03-10T12:02:00Z";
const AFTER_LATENESS: &str = "2026-03-10T14:00:00Z";

/// A service at noon whose meter `page` charges late consumes for an hour and whose meter `strict` takes none.
async fn at_noon() -> TestApp {
    let app = an_app().at(NOON).start().await;
    app.with_plan(json!([day_of("100")]), json!([quota_of("90")])).await;
    app.define("meters/page", json!({ "unit": "page", "late_within_seconds": 3600 })).await;
    app.define("meters/strict", json!({ "unit": "page", "without_limit": "unlimited", "on_late": "reject" }))
        .await;
    app
}

async fn held(app: &TestApp, meter: &str, amount: &str) -> String {
    let body = json!({ "tenant": "acme", "meter": meter, "amount": amount, "ttl_seconds": 60 });
    app.held(body).await
}

/// A reservation of five that has expired unresolved.
async fn expired(app: &TestApp, meter: &str) -> String {
    let id = held(app, meter, "5").await;
    app.move_clock(AFTER_EXPIRY).await;
    wait_for("the hold expires", Duration::from_secs(20), async || {
        let now = app.read(&id).await.expect(200);
        (now.text("/status") == "expired").then_some(())
    })
    .await;
    id
}

/// What the day's limit and the quota show: consumed and reserved of each.
async fn counted(app: &TestApp) -> [(String, String); 2] {
    let quota = app.quota().await;
    ["/limits/0", "/quotas/0"].map(|place| {
        let read = |field: &str| quota.text(&format!("{place}/{field}")).to_owned();
        (read("consumed"), read("reserved"))
    })
}

#[track_caller]
fn both(consumed: &str, reserved: &str) -> [(String, String); 2] {
    let one = (consumed.to_owned(), reserved.to_owned());
    [one.clone(), one]
}

/// A refusal to change a resolved reservation carries it.
#[track_caller]
fn carries(answer: &Answered, status: u16, code: &str, state: &str) {
    answer.is_problem(status, code);
    assert_eq!(answer.text("/reservation/status"), state, "{answer:?}");
}

#[tokio::test]
async fn an_open_reservation_is_consumed_released_or_extended() {
    let app = at_noon().await;
    for (verb, body, status) in [
        ("consume", json!({ "amount": "2" }), "consumed"),
        ("consume", json!({ "amount": "2", "final": false }), "reserved"),
        ("release", json!({}), "released"),
        ("extend", json!({ "ttl_seconds": 120 }), "reserved"),
    ] {
        let id = held(&app, "page", "5").await;
        let answer = app.resolve(&id, verb, body).await.expect(200);
        assert_eq!(answer.text("/status"), status, "{answer:?}");
        assert_eq!(answer.body["late"], false);
        let read = app.read(&id).await.expect(200);
        assert_eq!(read.text("/status"), status);
    }
    // 2 consumed; 2 of 5 consumed and 3 still held; nothing; 5 held.
    assert_eq!(counted(&app).await, both("4", "8"));
    app.finish().await;
}

#[tokio::test]
async fn a_consumed_reservation_repeats_its_total_and_rejects_any_other_call() {
    let app = at_noon().await;
    let id = held(&app, "page", "5").await;
    app.resolve(&id, "consume", json!({ "amount": "3" })).await.expect(200);
    let again = app.resolve(&id, "consume", json!({ "amount": "3" })).await.expect(200);
    assert_eq!((again.header("idempotency-replayed"), again.text("/status")), ("true", "consumed"));
    for (verb, body) in [
        ("consume", json!({ "amount": "4" })),
        ("consume", json!({ "amount": "2" })),
        ("consume", json!({})),
        ("release", json!({})),
        ("release", json!({ "incurred": "3" })),
        ("extend", json!({})),
    ] {
        carries(&app.resolve(&id, verb, body).await, 409, "already_resolved", "consumed");
    }
    assert_eq!(counted(&app).await, both("3", "0"));
    app.finish().await;
}

#[tokio::test]
async fn a_released_reservation_repeats_its_release_and_rejects_any_other_call() {
    let app = at_noon().await;
    let id = held(&app, "page", "5").await;
    app.resolve(&id, "release", json!({ "reason": "cancelled" })).await.expect(200);
    let again = app.resolve(&id, "release", json!({})).await.expect(200);
    assert_eq!((again.header("idempotency-replayed"), again.text("/status")), ("true", "released"));
    for verb in ["consume", "extend"] {
        carries(&app.resolve(&id, verb, json!({})).await, 409, "already_resolved", "released");
    }
    assert_eq!(counted(&app).await, both("0", "0"));
    app.finish().await;
}

#[tokio::test]
async fn a_released_reservation_rejects_a_release_with_another_incurred_amount() {
    let app = at_noon().await;
    for (first, other) in
        [(json!({}), "2"), (json!({ "incurred": "1" }), "2"), (json!({ "incurred": "2" }), "1")]
    {
        let id = held(&app, "page", "5").await;
        app.resolve(&id, "release", first.clone()).await.expect(200);
        let otherwise = app.resolve(&id, "release", json!({ "incurred": other })).await;
        carries(&otherwise, 409, "already_resolved", "released");
        let again = app.resolve(&id, "release", first).await.expect(200);
        assert_eq!(again.body["replayed"], true, "{again:?}");
    }
    assert_eq!(counted(&app).await, both("3", "0"));
    app.finish().await;
}

#[tokio::test]
async fn an_expired_reservation_is_consumed_late_and_charged_once() {
    let app = at_noon().await;
    let id = expired(&app, "page").await;
    assert_eq!(counted(&app).await, both("0", "0"));
    // A consume without amounts means the held amount.
    let late = app.resolve(&id, "consume", json!({})).await.expect(200);
    assert_eq!((late.text("/status"), late.text("/lines/0/consumed")), ("consumed", "5"), "{late:?}");
    assert_eq!((&late.body["late"], &late.body["final"]), (&json!(true), &json!(true)));
    let again = app.resolve(&id, "consume", json!({ "amount": "5" })).await.expect(200);
    assert_eq!((&again.body["replayed"], &again.body["late"]), (&json!(true), &json!(true)));
    carries(
        &app.resolve(&id, "consume", json!({ "amount": "6" })).await,
        409,
        "already_resolved",
        "consumed",
    );
    assert_eq!(counted(&app).await, both("5", "0"));
    app.finish().await;
}

#[tokio::test]
async fn an_expired_reservation_takes_larger_totals_until_a_final_one_closes_it() {
    let app = at_noon().await;
    let id = expired(&app, "page").await;
    let part =
        async |total: &str| app.resolve(&id, "consume", json!({ "amount": total, "final": false })).await;
    for (total, is_repeat) in [("2", false), ("2", true), ("7", false)] {
        let late = part(total).await.expect(200);
        assert_eq!((late.text("/status"), late.text("/lines/0/consumed")), ("expired", total), "{late:?}");
        assert_eq!((&late.body["late"], &late.body["final"]), (&json!(true), &json!(false)));
        assert_eq!(late.body["replayed"], is_repeat);
        assert_eq!(counted(&app).await, both(total, "0"));
    }
    part("6").await.is_problem(422, "amount_decreased");
    let released = app.resolve(&id, "release", json!({})).await.expect(200);
    assert_eq!((released.text("/status"), released.text("/lines/0/consumed")), ("expired", "7"));
    carries(&app.resolve(&id, "extend", json!({})).await, 410, "reservation_expired", "expired");
    let closed = app.resolve(&id, "consume", json!({ "amount": "9" })).await.expect(200);
    assert_eq!((closed.text("/status"), &closed.body["final"]), ("consumed", &json!(true)), "{closed:?}");
    for (body, status) in [(json!({ "amount": "9" }), 200), (json!({ "amount": "10" }), 409)] {
        assert_eq!(app.resolve(&id, "consume", body).await.status, status);
    }
    assert_eq!(counted(&app).await, both("9", "0"));
    app.finish().await;
}

#[tokio::test]
async fn a_late_part_takes_no_larger_total_once_it_is_too_late() {
    let app = at_noon().await;
    let id = expired(&app, "page").await;
    let part = json!({ "amount": "2", "final": false });
    app.resolve(&id, "consume", part.clone()).await.expect(200);
    app.move_clock(AFTER_LATENESS).await;
    let again = app.resolve(&id, "consume", part).await.expect(200);
    assert_eq!((&again.body["replayed"], again.text("/status")), (&json!(true), "expired"), "{again:?}");
    for body in [json!({ "amount": "3", "final": false }), json!({ "amount": "3" })] {
        carries(&app.resolve(&id, "consume", body).await, 410, "reservation_expired", "expired");
    }
    assert_eq!(counted(&app).await, both("2", "0"));
    app.finish().await;
}

#[tokio::test]
async fn an_expired_reservation_is_gone_if_the_meter_takes_no_late_consume() {
    let app = at_noon().await;
    let id = expired(&app, "strict").await;
    for (verb, body) in [
        ("consume", json!({})),
        ("consume", json!({ "amount": "1" })),
        ("release", json!({ "incurred": "1" })),
    ] {
        carries(&app.resolve(&id, verb, body).await, 410, "reservation_expired", "expired");
    }
    app.finish().await;
}

#[tokio::test]
async fn an_expired_reservation_is_gone_once_it_is_too_late() {
    let app = at_noon().await;
    let id = expired(&app, "page").await;
    app.move_clock(AFTER_LATENESS).await;
    for (verb, body) in [("consume", json!({})), ("release", json!({ "incurred": "1" }))] {
        carries(&app.resolve(&id, verb, body).await, 410, "reservation_expired", "expired");
    }
    assert_eq!(counted(&app).await, both("0", "0"));
    app.finish().await;
}

#[tokio::test]
async fn releasing_an_expired_reservation_changes_nothing_unless_something_was_incurred() {
    let app = at_noon().await;
    let id = expired(&app, "page").await;
    let released = app.resolve(&id, "release", json!({})).await.expect(200);
    assert_eq!((released.text("/status"), &released.body["late"]), ("expired", &json!(false)));
    assert_eq!(counted(&app).await, both("0", "0"));
    let incurred = app.resolve(&id, "release", json!({ "incurred": "2" })).await.expect(200);
    assert_eq!(
        (incurred.text("/status"), &incurred.body["late"]),
        ("consumed", &json!(true)),
        "{incurred:?}"
    );
    assert_eq!(counted(&app).await, both("2", "0"));
    app.finish().await;
}

#[tokio::test]
async fn an_expired_reservation_is_not_extended() {
    let app = at_noon().await;
    let id = expired(&app, "page").await;
    carries(&app.resolve(&id, "extend", json!({})).await, 410, "reservation_expired", "expired");
    app.finish().await;
}

#[tokio::test]
async fn a_reservation_is_kept_by_extending_it_in_time_but_not_beyond_its_life() {
    let app = at_noon().await;
    app.define(
        "meters/strict",
        json!({ "unit": "page", "without_limit": "unlimited", "on_late": "reject", "max_life_seconds": 90 }),
    )
    .await;
    let id = held(&app, "strict", "5").await;
    let extended = app.resolve(&id, "extend", json!({ "ttl_seconds": 600 })).await.expect(200);
    assert_eq!(extended.text("/expires_at"), "2026-03-10T12:01:30Z");
    let again = app.resolve(&id, "extend", json!({ "ttl_seconds": 600 })).await.expect(200);
    assert_eq!(again.text("/expires_at"), "2026-03-10T12:01:30Z");
    app.finish().await;
}
