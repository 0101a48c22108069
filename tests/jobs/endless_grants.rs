//! Grants without an end: they go on from close to close until nothing is left of them, and burn after those that end.

use serde_json::{Value, json};

use super::continued_grants::{
    CONTINUED, GRANTS, app, ended, granted, on, pair, remaining, until, used, voided,
};
use super::statements::faults;
use crate::ledger::rows;
use crate::support::app::*;

/// So many pages, for good.
fn endless(amount: &str) -> Value {
    let mut body = until("", amount);
    body.as_object_mut().unwrap().remove("expires_at");
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_until_it_is_voided_and_burns_after_those_that_end() {
    let app = app().await;
    let made = app.post_keyed(GRANTS, "a", endless("30")).await.expect(201);
    let id = made.text("/id").to_owned();
    assert_eq!(made.body["expires_at"], Value::Null);
    let again = app.post_keyed(GRANTS, "a", endless("30").with("expires_at", Value::Null)).await.expect(200);
    assert_eq!((again.text("/id"), &again.body["replayed"]), (id.as_str(), &json!(true)));
    let other = app.post_keyed(GRANTS, "a", until("2030-01-01T00:00:00Z", "30")).await;
    other.is_problem(422, "idempotency_key_reused");
    let dated = granted(&app, "b", until("2030-01-01T00:00:00Z", "10")).await;
    let left = |id: &str, remaining: &str, expires_at: Value| json!({ "id": id, "remaining": remaining, "expires_at": expires_at, "priority": 60 });
    let both = json!([left(&dated, "10", json!("2030-01-01T00:00:00Z")), left(&id, "30", Value::Null)]);
    assert_eq!(app.quota().await.body["quotas"][0]["grants"], both);
    used(&app, "march", "65").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    assert_eq!(app.quota().await.body["quotas"][0]["grants"], json!([left(&id, "25", Value::Null)]));
    used(&app, "april", "60").await;
    on(&app, "2026-05-10T12:00:00Z").await;
    assert_eq!(remaining(&app).await, "65");
    let listed = app.get(GRANTS).await.expect(200);
    let ends =
        ["/data/0/expires_at", "/data/1/expires_at"].map(|at| listed.body.pointer(at).unwrap().clone());
    assert!(ends.contains(&Value::Null) && ends.contains(&json!("2030-01-01T00:00:00Z")), "{listed:?}");
    voided(&app, &id).await.expect(200);
    assert_eq!(ended(&app, &id).await, pair("voided", "15"));
    assert_eq!(remaining(&app).await, "50");
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 25 25", "05 15 15"]);
    assert_eq!(rows(&app.database, "SELECT count(*) FROM due_cuts").await, ["0"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_recurs_without_an_end_is_given_in_each_period_until_it_is_voided() {
    let app = app().await;
    let id = granted(&app, "a", endless("10").with("recurrence", "period")).await;
    for (month, day) in [("march", "2026-03-10"), ("april", "2026-04-10"), ("may", "2026-05-10")] {
        on(&app, &format!("{day}T12:00:00Z")).await;
        assert_eq!(remaining(&app).await, "60", "{month}");
        used(&app, month, "55").await;
    }
    voided(&app, &id).await.expect(200);
    assert_eq!(ended(&app, &id).await, pair("voided", "5"));
    on(&app, "2026-06-10T12:00:00Z").await;
    assert_eq!(remaining(&app).await, "50");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}
