//! The answers of repeated calls and of repeated reads: the first answer, with the current status and limits.

use serde_json::{Value, json};

use crate::support::app::*;

/// A service with limits on a tenant, on its users and a quota; `acme` has a reservation of five.
async fn with_a_reservation() -> (TestApp, Answered) {
    with_a_reservation_in(spawn_app().await).await
}

async fn with_a_reservation_in(app: TestApp) -> (TestApp, Answered) {
    let limits = json!([
        { "id": "day", "meter": "page", "window": "day", "capacity": "100" },
        { "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "month", "capacity": "60" }
    ]);
    app.with_plan(limits, json!([quota_of("90")])).await;
    app.define("operations/scan", json!({ "costs": [{ "meter": "page", "base": "5" }] })).await;
    let held = app.post_keyed(RESERVATIONS, "job", job()).await.expect(201);
    (app, held)
}

fn job() -> Value {
    json!({ "tenant": "acme", "subject": "ada", "operation": "scan", "attributes": {}, "metadata": { "job": "1" } })
}

/// A body without its sign of a repeat.
fn said(answer: &Answered) -> Value {
    let mut body = answer.body.clone();
    body["replayed"] = json!(null);
    body
}

/// The names of the limits in the headers, with the remaining units of each.
fn left(answer: &Answered) -> Vec<String> {
    let all = answer.header("ratelimit").split(", ").map(|one| one.split(";t=").next().unwrap().to_owned());
    all.collect()
}

#[tokio::test]
async fn a_repeated_consume_or_release_says_all_that_the_first_said() {
    for (verb, body) in [
        ("consume", json!({ "amount": "2" })),
        ("consume", json!({ "amount": "2", "final": false })),
        ("release", json!({ "incurred": "1" })),
    ] {
        let (app, held) = with_a_reservation().await;
        let path = format!("/v1/reservations/{}/{verb}", held.text("/id"));
        let first = app.post(&path, body.clone()).await.expect(200);
        app.drained().await;
        // A busy ledger is not waited for long, and then a repeat says less.
        let again =
            until(|| app.post(&path, body.clone()), |answer| said(answer) == said(&first)).await.expect(200);
        assert_eq!((&first.body["replayed"], &again.body["replayed"]), (&json!(false), &json!(true)));
        assert_eq!(said(&again), said(&first));
        assert_eq!(left(&again), left(&first));
        assert_eq!(left(&again).len(), 3, "{again:?}");
        let named = (&again.body["operation"], &again.body["subjects"], &again.body["metadata"]);
        assert_eq!(named, (&json!("scan"), &json!({ "user": "ada" }), &json!({ "job": "1" })));
        app.finish().await;
    }
}

#[tokio::test]
async fn a_repeat_shows_the_limits_of_now_and_names_the_first_decision() {
    let (app, held) = with_a_reservation().await;
    let path = reservation(held.text("/id"), "consume");
    let first = app.post(&path, json!({ "amount": "2" })).await.expect(200);
    let usage = pages("7").by("ada");
    let used = app.post_keyed(USAGE, "more", usage.clone()).await.expect(201);
    app.drained().await;
    let repeat = || app.post(&path, json!({ "amount": "2" }));
    let again = until(repeat, |answer| answer.body["limits"][0].is_object()).await.expect(200);
    assert_eq!((again.text("/limits/0/consumed"), first.text("/limits/0/consumed")), ("9", "2"));
    assert_eq!(again.body["decision_id"], first.body["decision_id"]);
    let reserved = app.post_keyed(RESERVATIONS, "job", job()).await.expect(200);
    assert_eq!(
        (reserved.text("/status"), &reserved.body["decision_id"]),
        ("consumed", &held.body["decision_id"])
    );
    assert_eq!(reserved.body["created_at"], held.body["created_at"]);
    assert_ne!(first.body["decision_id"], held.body["decision_id"]);
    let repeat = || app.post_keyed(USAGE, "more", usage.clone());
    let used_again = until(repeat, |answer| said(answer) == said(&used)).await.expect(200);
    assert_eq!(said(&used_again), said(&used));
    app.finish().await;
}

#[tokio::test]
async fn every_read_of_a_reservation_says_the_same_with_its_times() {
    let (app, held) = with_a_reservation().await;
    let path = format!("/v1/reservations/{}", held.text("/id"));
    let open = app.get(&path).await.expect(200);
    assert_eq!(open.body, app.get(&path).await.body);
    assert_eq!((&open.body["created_at"], open.body.get("resolved_at")), (&held.body["created_at"], None));
    assert_eq!(open.body["decision_id"], held.body["decision_id"]);
    let consumed = app.post(&format!("{path}/consume"), json!({ "amount": "2" })).await.expect(200);
    app.drained().await;
    let read = until(|| app.get(&path), |answer| answer.body["resolved_at"].is_string()).await.expect(200);
    until(|| app.get(&path), |answer| answer.body == read.body).await;
    let listed = app.get("/v1/tenants/acme/reservations").await.expect(200);
    for answer in [&read.body, &listed.body["data"][0]] {
        for field in ["created_at", "resolved_at", "decision_id"] {
            assert!(answer[field].is_string(), "{field}: {answer}");
            assert_eq!(answer[field], consumed.body[field], "{field}");
        }
    }
    let instant = |field: &str| consumed.text(field).parse::<jiff::Timestamp>().unwrap();
    assert!(instant("/created_at") <= instant("/resolved_at"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_postgres_is_frozen_a_repeat_is_answered_with_what_the_gate_has() {
    let options = an_app().on_own_postgres();
    let (app, held) = with_a_reservation_in(options.start().await).await;
    let path = reservation(held.text("/id"), "consume");
    app.post(&path, json!({ "amount": "2" })).await.expect(200);
    app.drained().await;
    let frozen = app.database.freeze();
    let began = std::time::Instant::now();
    let again = app.post(&path, json!({ "amount": "2" })).await.expect(200);
    assert!(began.elapsed() < std::time::Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!((again.text("/lines/0/consumed"), &again.body["replayed"]), ("2", &json!(true)), "{again:?}");
    drop(frozen);
    app.finish().await;
}
