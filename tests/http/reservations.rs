//! `/v1/reservations`: the state table of the contract, replays, refusals and headers.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use super::with_policy;
use crate::support::app::*;
use crate::support::wait::wait_for;

#[tokio::test]
async fn a_reserve_shows_what_is_held_and_what_is_left() {
    let app = with_policy().await;
    let body = json!({
        "tenant": "acme", "subject": "user-42", "operation": "submit",
        "attributes": { "pages": 3, "handwriting": true }, "ttl_seconds": 60, "metadata": { "job": "8812" }
    });
    let held = app.post(RESERVATIONS, body).await;
    assert_eq!(held.status, 201, "{held:?}");
    assert_eq!(held.body["status"], "reserved");
    assert_eq!(held.body["lines"], json!([{ "meter": "page", "amount": "6" }]));
    assert_eq!(held.body["subjects"], json!({ "user": "user-42" }));
    assert_eq!(held.body["replayed"], false);
    let limit = &held.body["limits"][0];
    assert_eq!((&limit["reserved"], &limit["remaining"]), (&json!("6"), &json!("94")));
    assert!(held.header("ratelimit").starts_with(&format!("\"{}\";r=94;t=", "day")), "{held:?}");
    assert!(held.header("ratelimit-policy").starts_with(&format!("\"{}\";q=100;w=", "day")), "{held:?}");
    app.finish().await;
}

#[tokio::test]
async fn the_same_key_is_the_same_reservation() {
    let app = with_policy().await;
    let first = app.post_keyed(RESERVATIONS, "job-1", pages("5")).await;
    let again = app.post_keyed(RESERVATIONS, "\"job-1\"", pages("5")).await;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.body["id"], again.body["id"]);
    assert_eq!(again.body["replayed"], true);
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(again.body["limits"][0]["reserved"], "5");
    app.post_keyed(RESERVATIONS, "job-1", pages("6")).await.is_problem(422, "idempotency_key_reused");
    let mut differing = pages("5");
    differing["idempotency_key"] = json!("job-2");
    app.post_keyed(RESERVATIONS, "job-1", differing).await.is_problem(400, "invalid_request");
    app.finish().await;
}

#[tokio::test]
async fn a_refusal_names_the_limit_and_leaves_no_trace() {
    let app = with_policy().await;
    app.hold("98").await;
    let refused = app.post(RESERVATIONS, pages("3")).await;
    refused.is_problem(429, "quota_exceeded");
    assert_eq!(refused.body["refused_by"][0]["id"], "day");
    assert_eq!(refused.body["refused_by"][0]["cause"], "reserved");
    assert_eq!(refused.body["refused_by"][0]["shortfall"], "1");
    refused.waits_at_least(refused.body["retry_after_seconds"].as_i64().unwrap());
    assert!(!refused.header("ratelimit").is_empty());
    let above = app.post(RESERVATIONS, pages("101")).await;
    above.is_problem(402, "exceeds_plan");
    assert_eq!(above.header("retry-after"), "");
    assert_eq!(app.post(RESERVATIONS, pages("2")).await.status, 201);
    app.finish().await;
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let app = with_policy().await;
    for (amount, allowed) in [("100", true), ("101", false)] {
        let mut body = pages(amount);
        body["dry_run"] = json!(true);
        let answer = app.post(RESERVATIONS, body).await;
        assert_eq!((answer.status, &answer.body["allowed"]), (200, &json!(allowed)), "{answer:?}");
        assert!(answer.body.get("id").is_none());
    }
    app.hold("100").await;
    app.finish().await;
}

#[tokio::test]
async fn attributes_of_an_operation_whose_meter_was_archived_are_named_and_its_lines_are_taken() {
    let app = with_policy().await;
    let submit = json!({ "tenant": "acme", "operation": "submit", "attributes": { "pages": 5 } });
    let id = app.held(submit).await;
    app.define("meters/page", json!({ "unit": "page", "archived": true })).await;
    let refused = app.resolve(&id, "consume", json!({ "attributes": { "pages": 4 } })).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), ["/attributes"], "{refused:?}");
    app.resolve(&id, "consume", json!({ "lines": [{ "meter": "page", "amount": "4" }] })).await.expect(200);
    app.finish().await;
}

#[tokio::test]
async fn totals_never_decrease_and_repeats_are_replays() {
    let app = with_policy().await;
    let path = format!("/v1/reservations/{}/consume", app.hold("10").await);
    let consume =
        |amount: &str, is_final: bool| app.post(&path, json!({ "amount": amount, "final": is_final }));
    assert_eq!(consume("4", false).await.body["status"], "reserved");
    assert_eq!(consume("4", false).await.body["replayed"], true);
    let decreased = consume("3", false).await;
    decreased.is_problem(422, "amount_decreased");
    assert_eq!(decreased.pointers(), ["/amount"]);
    let done = consume("6", true).await;
    assert_eq!(done.body["lines"][0]["returned"], "4");
    assert_eq!(done.body["status"], "consumed");
    let again = consume("6", true).await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, "true"));
    let other = consume("7", true).await;
    other.is_problem(409, "already_resolved");
    assert_eq!(other.body["reservation"]["status"], "consumed");
    app.finish().await;
}

#[rstest]
#[case("consume", json!({ "amount": "2" }), &[("consume", json!({ "amount": "2" }), 200), ("consume", json!({ "amount": "3" }), 409), ("release", json!({}), 409), ("extend", json!({}), 409)])]
#[case("release", json!({}), &[("consume", json!({}), 409), ("release", json!({}), 200), ("extend", json!({}), 409)])]
#[tokio::test]
async fn a_resolved_reservation_resolves_once(
    #[case] first: &str,
    #[case] body: serde_json::Value,
    #[case] then: &[(&str, serde_json::Value, u16)],
) {
    let app = with_policy().await;
    let id = app.hold("5").await;
    let resolved = app.post(&format!("/v1/reservations/{id}/{first}"), body).await;
    assert_eq!(resolved.status, 200, "{resolved:?}");
    for (call, body, status) in then {
        let answer = app.post(&format!("/v1/reservations/{id}/{call}"), body.clone()).await;
        assert_eq!(answer.status, *status, "{first} then {call}: {answer:?}");
        if *status == 409 {
            answer.is_problem(409, "already_resolved");
            assert_eq!(answer.body["reservation"]["id"], id);
        }
    }
    let read = app.get(&format!("/v1/reservations/{id}")).await;
    assert_eq!((read.status, &read.body["id"]), (200, &json!(id)));
    app.finish().await;
}

#[rstest]
#[case("00000000-0000-8000-8000-000000000000")]
#[case("nonsense")]
#[case("%7Bp00%7D")]
#[case("..%2F..%2Fadmin")]
#[tokio::test]
async fn an_unknown_reservation_is_404_and_says_what_to_do(#[case] id: &str) {
    let app = spawn_app().await;
    for call in ["consume", "release", "extend"] {
        let answer = app.post(&format!("/v1/reservations/{id}/{call}"), json!({})).await;
        answer.is_problem(404, "not_found");
        assert!(answer.body["detail"].as_str().unwrap().contains(USAGE), "{answer:?}");
    }
    app.get(&format!("/v1/reservations/{id}")).await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn another_tenants_reservation_is_unknown_to_a_bound_key() {
    let app = with_policy().await;
    let id = app.hold("5").await;
    let stranger = app.make_key("service", Some("other")).await;
    stranger.get(&format!("/v1/reservations/{id}")).await.is_problem(404, "not_found");
    for call in ["consume", "release", "extend"] {
        stranger.post(&format!("/v1/reservations/{id}/{call}"), json!({})).await.is_problem(404, "not_found");
    }
    assert_eq!(app.get(&format!("/v1/reservations/{id}")).await.body["status"], "reserved");
    app.finish().await;
}

#[tokio::test]
async fn an_unknown_tenant_meter_or_operation_is_422_and_named() {
    let app = with_policy().await;
    for (field, value) in [("tenant", "nobody"), ("meter", "nothing")] {
        let mut body = pages("1");
        body[field] = json!(value);
        let answer = app.post(RESERVATIONS, body).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), [format!("/{field}")]);
    }
    let answer = app.post(RESERVATIONS, json!({ "tenant": "acme", "operation": "none" })).await;
    assert_eq!((answer.status, answer.pointers()), (422, vec!["/operation"]));
    app.finish().await;
}

#[tokio::test]
async fn an_extend_moves_the_expiry_and_only_later() {
    let app = with_policy().await;
    let id = app.hold("1").await;
    let path = reservation(&id, "extend");
    let before = app.get(&format!("/v1/reservations/{id}")).await.body["expires_at"].clone();
    let later = app.post(&path, json!({ "ttl_seconds": 600 })).await;
    assert!(later.body["expires_at"].as_str() > before.as_str(), "{later:?}");
    let same = app.post(&path, json!({ "ttl_seconds": 1 })).await;
    assert_eq!(same.body["expires_at"], later.body["expires_at"]);
    app.finish().await;
}

#[tokio::test]
async fn a_release_without_amounts_repeats_any_earlier_release() {
    let app = with_policy().await;
    let path = format!("/v1/reservations/{}/release", app.hold("50").await);
    app.post(&path, json!({ "incurred": "40" })).await.expect(200);
    let repeated = app.post(&path, json!({})).await.expect(200);
    assert_eq!((&repeated.body["replayed"], repeated.text("/lines/0/consumed")), (&json!(true), "40"));
    for other in ["41", "0"] {
        let refused = app.post(&path, json!({ "incurred": other })).await;
        refused.is_problem(409, "already_resolved");
    }
    app.finish().await;
}

#[tokio::test]
async fn after_a_release_was_charged_late_only_the_same_release_repeats_it() {
    let app = an_app().at_ms(1_800_000_000_000).start().await;
    app.with_day_of("100").await;
    let hold = pages("50");
    let path = format!("/v1/reservations/{}", app.post(RESERVATIONS, hold).await.expect(201).text("/id"));
    app.move_clock("2027-01-15T09:00:00Z").await;
    wait_for("the hold has ended", Duration::from_secs(20), async || {
        (app.get(&path).await.expect(200).text("/status") == "expired").then_some(())
    })
    .await;
    let release = format!("{path}/release");
    let charged = app.post(&release, json!({ "incurred": "40" })).await.expect(200);
    assert_eq!((charged.text("/status"), &charged.body["late"]), ("consumed", &json!(true)));
    let repeated = app.post(&release, json!({ "incurred": "40" })).await.expect(200);
    assert_eq!(repeated.body["replayed"], true);
    for other in [json!({}), json!({ "incurred": "41" })] {
        app.post(&release, other).await.is_problem(409, "already_resolved");
    }
    app.finish().await;
}
