//! Two instances on the same servers: a change made at one reaches the other by a notice, at once.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate::app::{App, Role};

use crate::support::app::*;

/// Long for a notice on a busy machine, and far less than the time after which the second instance looks by itself.
const NOTICED: Duration = Duration::from_secs(10);
/// How long a change of the policy takes at most until every instance decides by it, on a machine that does nothing
/// else.
const LIVE_WITHIN: Duration = Duration::from_secs(1);

/// Another instance, to which only a notice can bring a change in time.
async fn that_waits_for_notices(app: &TestApp) -> App {
    app.another_with(&[Role::Http], &[("policy.poll_ms", "60000".to_owned())]).await
}

/// Makes a change at one instance and waits for it at another one. How long the change itself took, the longest answer
/// meanwhile and one more afterwards say how busy the machine is.
async fn is_live_within_a_second<F: Future<Output = Answered>>(
    change: impl Future<Output = Answered>,
    there: impl Fn() -> F,
    is_made: impl Fn(&Answered) -> bool,
) {
    let began = Instant::now();
    let changed = change.await;
    let noise = Cell::new(began.elapsed());
    let asked = || async {
        let began = Instant::now();
        let answer = there().await;
        noise.set(noise.get().max(began.elapsed()));
        answer
    };
    let told = Instant::now();
    until(asked, is_made).await;
    let took = told.elapsed();
    asked().await;
    let noise = noise.get();
    assert!(took <= LIVE_WITHIN + 4 * noise, "{took:?}, where a call took up to {noise:?}: {changed:?}");
}

#[tokio::test]
async fn a_changed_policy_takes_effect_on_another_instance_within_a_second() {
    let app = spawn_app().await;
    let day_of = |capacity: &str| json!([day_of(capacity)]);
    app.with_plan(day_of("10"), json!([])).await;
    let second = that_waits_for_notices(&app).await;
    let there = app.caller().at(second.url());
    let quota = || there.get("/v1/tenants/acme/quota");
    until(quota, |answer| answer.text("/limits/0/capacity") == "10").await;

    let plan = app.define("plans/plan", json!({ "limits": day_of("20") }));
    is_live_within_a_second(plan, quota, |answer| answer.text("/limits/0/capacity") == "20").await;
    let wider =
        json!({ "tenant": "acme", "level": "tenant", "limit": "day", "capacity": "30", "reason": "test" });
    let wider = app.define("overrides/wider", wider);
    is_live_within_a_second(wider, quota, |answer| answer.text("/limits/0/capacity") == "30").await;
    let lifted = app.delete("/v1/admin/overrides/wider?tenant=acme");
    is_live_within_a_second(lifted, quota, |answer| answer.text("/limits/0/capacity") == "20").await;
    second.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adjustment_is_shown_with_the_quota_on_another_instance_at_its_notice() {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app.move_clock("2026-04-10T12:00:00Z").await;
    let second = that_waits_for_notices(&app).await;
    let there = app.caller().at(second.url());
    let quota = || there.get("/v1/tenants/acme/quota");
    until(quota, |answer| answer.text("/quotas/0/adjusted") == "0").await;
    let adjustment = json!({
        "tenant": "acme", "meter": "page", "effect": "usage", "amount": "7", "happened_at": "2026-03-10T12:00:00Z",
        "reason": "counted wrongly"
    });
    app.post_keyed("/v1/adjustments", "more", adjustment).await.expect(201);
    let told = Instant::now();
    until(quota, |answer| answer.text("/quotas/0/adjusted") == "7").await;
    assert!(told.elapsed() < NOTICED, "an adjustment took {:?}", told.elapsed());
    second.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn a_change_takes_effect_at_its_notice_while_others_come_without_a_pause() {
    let app = spawn_app().await;
    let limits = |capacity: &str| json!([day_of(capacity)]);
    app.with_plan(limits("10"), json!([])).await;
    let second = that_waits_for_notices(&app).await;
    let there = app.caller().at(second.url());
    let quota = || there.get("/v1/tenants/acme/quota");
    until(quota, |answer| answer.text("/limits/0/capacity") == "10").await;

    let (others, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let others = tokio::spawn(async move {
        let notice = r#"{"kind":"tenant","id":"other","version":1}"#;
        while others.execute("SELECT pg_notify('tollgate_changes', $1)", &[&notice]).await.is_ok() {}
    });
    app.define("plans/plan", json!({ "limits": limits("20") })).await;
    let told = Instant::now();
    until(quota, |answer| answer.text("/limits/0/capacity") == "20").await;
    assert!(told.elapsed() < NOTICED, "a plan took {:?}", told.elapsed());
    others.abort();
    connection.abort();
    second.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn a_revoked_key_is_refused_by_another_instance_at_its_notice() {
    let app = spawn_app().await;
    app.without_limits().await;
    let second = that_waits_for_notices(&app).await;
    let here = app.caller();
    let made = here.post("/v1/admin/keys", json!({ "name": "worker", "role": "service" })).await.expect(201);
    let worker = here.at(second.url()).with_key(Some(made.text("/key")));
    let call = || worker.get("/v1/tenants/acme/quota");
    until(call, |answer| answer.status == 200).await;
    assert_eq!(here.delete(&format!("/v1/admin/keys/{}", made.text("/id"))).await.status, 204);
    let told = Instant::now();
    until(call, |answer| answer.status == 401).await.is_problem(401, "unauthenticated");
    assert!(told.elapsed() < NOTICED, "a revocation took {:?}", told.elapsed());
    second.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn a_reservation_of_one_instance_is_consumed_at_another_and_a_limit_holds_over_both() {
    let app = spawn_app().await;
    app.with_day_of("10").await;
    let second = app.another_instance().await;
    let (here, there) = (app.caller(), app.caller().at(second.url()));
    let body = pages("6");
    let reserved = here.post_keyed(RESERVATIONS, "job", body.clone()).await.expect(201);
    let again = there.post_keyed(RESERVATIONS, "job", body.clone()).await.expect(200);
    assert_eq!((again.text("/id"), again.header("idempotency-replayed")), (reserved.text("/id"), "true"));
    there.post(RESERVATIONS, body).await.is_problem(429, "quota_exceeded");
    let path = reservation(reserved.text("/id"), "consume");
    let consumed = there.post(&path, json!({ "amount": "4", "ack": "ledger" })).await.expect(200);
    assert_eq!(consumed.text("/ack"), "ledger", "an instance without a writer waits for the other's");
    assert_eq!(here.post(&path, json!({ "amount": "4" })).await.expect(200).body["replayed"], true);
    second.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn what_is_booked_or_referred_to_is_not_deleted_and_its_unit_stays() {
    let app = spawn_app().await;
    app.without_limits().await;
    app.post_keyed(USAGE, "k", pages("1").with("ack", "ledger")).await.expect(201);
    for path in ["/v1/admin/plans/plan", "/v1/admin/meters/page", "/v1/admin/tenants/acme"] {
        app.delete(path).await.is_problem(409, "in_use");
    }
    let another_unit = json!({ "unit": "sheet", "without_limit": "unlimited" });
    let answer = app.put("/v1/admin/meters/page", another_unit).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/unit"]);
    app.finish().await;
}
