//! Repeats: the same key with the same request is answered as the first time, after any change of policy.

use serde_json::{Value, json};

use crate::support::app::*;

async fn with_costs_and_day_of(app: &TestApp, capacity: &str) {
    app.with_day_of(capacity).await;
    let costs = json!([{ "meter": "page", "weights": { "pages": "1" }, "factors": { "fast": "2" } }]);
    app.define("operations/submit", json!({ "costs": costs })).await;
}

fn meter(more: Value) -> Value {
    let mut meter = json!({ "unit": "page", "without_limit": "unlimited" });
    meter.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    meter
}

fn submit(attributes: Value) -> Value {
    json!({ "tenant": "acme", "operation": "submit", "attributes": attributes })
}

/// The call as an item of a batch.
async fn in_batch(app: &TestApp, call: &str, key: &str, body: &Value) -> Value {
    let items = json!({ "items": [{ "call": call, "idempotency_key": key, "body": body }] });
    let answer = app.post("/v1/batch", items).await.expect(200);
    answer.body["results"][0].clone()
}

#[track_caller]
fn is_replay_of(first: &Answered, again: &Answered) {
    assert_eq!((again.status, &again.body["replayed"]), (200, &json!(true)), "{again:?}");
    for field in ["id", "status", "expires_at", "lines"] {
        assert_eq!(again.body[field], first.body[field], "{field}: {again:?}\nafter {first:?}");
    }
    assert_eq!(again.header("idempotency-replayed"), "true");
}

#[tokio::test]
async fn a_repeat_is_answered_before_policy_is_asked() {
    let app = spawn_app().await;
    let calls = [
        (RESERVATIONS, "reserve", pages("2")),
        (RESERVATIONS, "reserve", submit(json!({ "pages": 3, "fast": true }))),
        (USAGE, "usage", submit(json!({ "pages": 1 }))),
        (USAGE, "usage", pages("1").with("operation", "submit")),
        (RESERVATIONS, "reserve", pages("200").with("mode", "best_effort")),
    ];
    let archived = json!({ "archived": true });
    let costs = |weights: Value| json!({ "costs": [{ "meter": "page", "weights": weights }] });
    let changes = [
        ("meters/page", meter(archived.clone()), "422"),
        ("meters/page", meter(json!({ "ttl_seconds": 1, "max_life_seconds": 1 })), "any"),
        ("operations/submit", costs(json!({ "pages": "1" })).with("archived", true), "any"),
        ("operations/submit", costs(json!({ "sheets": "1" })), "any"),
        ("tenants/acme", json!({ "plan": "plan" }).with("archived", true), "422"),
        ("plans/plan", json!({ "limits": [] }), "402"),
    ];
    for (number, (object, definition, new)) in changes.iter().enumerate() {
        with_costs_and_day_of(&app, "100").await;
        let mut firsts = Vec::new();
        for (at, (path, _, body)) in calls.iter().enumerate() {
            let key = format!("{number}-{at}");
            // Its life is named: the change of the meter forbids so long a one.
            let body =
                if *path == RESERVATIONS { body.clone().with("ttl_seconds", 40) } else { body.clone() };
            firsts.push((app.post_keyed(path, &key, body.clone()).await.expect(201), key, body));
        }
        if *new == "402" {
            app.define("meters/page", meter(json!({ "without_limit": "deny" }))).await;
        }
        app.define(object, definition.clone()).await;
        for ((first, key, body), (path, call, _)) in firsts.iter().zip(&calls) {
            is_replay_of(first, &app.post_keyed(path, key, body.clone()).await);
            let item = in_batch(&app, call, key, body).await;
            assert_eq!((&item["status"], &item["body"]["id"]), (&json!(200), &first.body["id"]), "{item}");
            let other = body.clone().with("payload_fingerprint", "other");
            app.post_keyed(path, key, other.clone()).await.is_problem(422, "idempotency_key_reused");
            let fresh = app.post_keyed(path, &format!("{key}-new"), other).await;
            if let Ok(status) = new.parse::<u16>() {
                assert_eq!(fresh.status, status, "what is new is judged by policy: {fresh:?}");
            }
            // The hold is released, so that the next change finds room.
            if *path == RESERVATIONS {
                let release = reservation(first.text("/id"), "release");
                app.post(&release, json!({})).await.expect(200);
            }
        }
    }
    app.finish().await;
}

#[tokio::test]
async fn a_repeat_says_what_was_asked_for_only_where_it_is_known_for_certain() {
    let app = spawn_app().await;
    with_costs_and_day_of(&app, "20").await;
    let best = |body: Value| body.with("mode", "best_effort");
    let operation = best(submit(json!({ "pages": 15, "fast": true })));
    let first = app.post_keyed(RESERVATIONS, "operation", operation.clone()).await.expect(201);
    assert_eq!(first.body["lines"], json!([{ "meter": "page", "amount": "20", "requested": "30" }]));
    let costs = json!([{ "meter": "page", "weights": { "pages": "1" }, "factors": { "fast": "3" } }]);
    app.define("operations/submit", json!({ "costs": costs })).await;
    let again = app.post_keyed(RESERVATIONS, "operation", operation).await.expect(200);
    assert_eq!(again.body["lines"], json!([{ "meter": "page", "amount": "20" }]), "{again:?}");
    app.release(first.text("/id")).await.expect(200);
    let named = best(pages("30"));
    let first = app.post_keyed(RESERVATIONS, "named", named.clone()).await.expect(201);
    is_replay_of(&first, &app.post_keyed(RESERVATIONS, "named", named).await);
    assert_eq!(first.body["lines"], json!([{ "meter": "page", "amount": "20", "requested": "30" }]));
    app.finish().await;
}

#[tokio::test]
async fn a_default_makes_the_same_request_named_or_left_out_even_after_policy_changes_it() {
    let app = spawn_app().await;
    with_costs_and_day_of(&app, "1000").await;
    let ttl = |seconds: u32| pages("1").with("ttl_seconds", seconds);
    let long = ttl(60).with("mode", "all_or_nothing").with("dry_run", false);
    let left_out = app.post_keyed(RESERVATIONS, "left out", pages("1")).await.expect(201);
    is_replay_of(&left_out, &app.post_keyed(RESERVATIONS, "left out", long.clone()).await);
    let named = app.post_keyed(RESERVATIONS, "named", long.clone()).await.expect(201);
    is_replay_of(&named, &app.post_keyed(RESERVATIONS, "named", pages("1")).await);
    let other = app.post_keyed(RESERVATIONS, "other", ttl(30)).await.expect(201);
    let attributes = app.post_keyed(USAGE, "u", submit(json!({ "pages": 3 }))).await.expect(201);
    let said = submit(json!({ "pages": 3, "fast": false }));
    is_replay_of(&attributes, &app.post_keyed(USAGE, "u", said).await);
    app.define("meters/page", meter(json!({ "ttl_seconds": 30 }))).await;
    for (first, key) in [(&left_out, "left out"), (&named, "named")] {
        for same in [pages("1"), ttl(60), long.clone()] {
            is_replay_of(first, &app.post_keyed(RESERVATIONS, key, same).await);
        }
        app.post_keyed(RESERVATIONS, key, ttl(30)).await.is_problem(422, "idempotency_key_reused");
    }
    is_replay_of(&other, &app.post_keyed(RESERVATIONS, "other", ttl(30)).await);
    let default_of_now = app.post_keyed(RESERVATIONS, "other", pages("1")).await;
    default_of_now.is_problem(422, "idempotency_key_reused");
    app.finish().await;
}

#[tokio::test]
async fn a_key_used_for_another_request_names_the_first_reservation() {
    let app = spawn_app().await;
    with_costs_and_day_of(&app, "100").await;
    for (path, key) in [(RESERVATIONS, "r"), (USAGE, "u")] {
        let first = app.post_keyed(path, key, pages("2")).await.expect(201);
        let reused = app.post_keyed(path, key, pages("3")).await;
        reused.is_problem(422, "idempotency_key_reused");
        assert_eq!(reused.text("/reservation/id"), first.text("/id"), "{reused:?}");
        assert_eq!(reused.text("/reservation/status"), first.text("/status"), "{reused:?}");
        assert!(reused.text("/detail").contains(first.text("/id")), "{reused:?}");
    }
    app.finish().await;
}

#[tokio::test]
async fn a_larger_total_than_a_capped_one_is_another_request() {
    let app = spawn_app().await;
    with_costs_and_day_of(&app, "10").await;
    app.define("meters/page", meter(json!({ "on_excess": "cap" }))).await;
    let other = app.post(RESERVATIONS, pages("3")).await.expect(201);
    let id = app.hold("5").await;
    let consume = async |amount: &str, is_final: bool| {
        app.resolve(&id, "consume", json!({ "amount": amount, "final": is_final })).await
    };
    let line = |answer: &Answered| {
        let uncharged = answer.text("/lines/0/uncharged").to_owned();
        (answer.text("/lines/0/consumed").to_owned(), uncharged, answer.body["replayed"] == true)
    };
    let is =
        |consumed: &str, uncharged: &str, replayed| (consumed.to_owned(), uncharged.to_owned(), replayed);
    // Five are held, two are left beside three others.
    assert_eq!(line(&consume("9", false).await.expect(200)), is("7", "2", false));
    assert_eq!(line(&consume("9", false).await.expect(200)), is("7", "2", true));
    assert_eq!(line(&consume("12", false).await.expect(200)), is("7", "5", false), "nothing is left for it");
    app.release(other.text("/id")).await.expect(200);
    assert_eq!(
        line(&consume("12", false).await.expect(200)),
        is("7", "5", true),
        "the same is answered as before"
    );
    assert_eq!(line(&consume("13", false).await.expect(200)), is("10", "3", false), "there is room again");
    assert_eq!(line(&consume("14", true).await.expect(200)), is("10", "4", false));
    assert_eq!(line(&consume("14", true).await.expect(200)), is("10", "4", true));
    let more = consume("15", true).await;
    more.is_problem(409, "already_resolved");
    assert_eq!(more.text("/reservation/lines/0/uncharged"), "4", "{more:?}");
    consume("12", true).await.is_problem(409, "already_resolved");
    app.finish().await;
}
