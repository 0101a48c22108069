//! A hold that is open in the books and that a warm gate does not know: it is restored once, alone, and ends as any
//! other.

use std::cell::Cell;
use std::time::Duration;

use redis::AsyncCommands;
use serde_json::json;
use tollgate::domain::ids::{Subject, SubjectId, SubjectKind, TenantId};
use tollgate::writer::discard;

use crate::ledger::as_owner;
use crate::support::app::*;
use crate::support::wait::wait_for;

const PATIENCE: Duration = Duration::from_secs(60);

async fn app_with(options: AppOptions) -> TestApp {
    let app = options.start().await;
    app.with_plan(json!([day_of("100")]), json!([quota_of("90")])).await;
    app
}

async fn hold(app: &TestApp, ttl_seconds: u32) -> String {
    app.post_keyed(RESERVATIONS, "job", pages("5").lasting(ttl_seconds))
        .await
        .expect(201)
        .text("/id")
        .to_owned()
}

async fn usage(app: &TestApp, key: &str) {
    app.use_pages(key, "1").await.expect(201);
}

fn restores(app: &TestApp) -> String {
    let text = app.app().operations.metrics_text();
    let line = text.lines().find(|line| line.starts_with("tollgate_restores_total{kind=\"tenant\"}"));
    line.unwrap().to_owned()
}

/// How many of the tenant's reservations are listed with this status, by the books.
async fn listed(app: &TestApp, status: &str) -> usize {
    let listed = app.get(&format!("/v1/tenants/acme/reservations?status={status}")).await.expect(200);
    listed.body["data"].as_array().unwrap().len()
}

/// A warm tenant that was restored before its hold was booked, as a reserve that waited in quarantine is.
/// The states named are torn at once when the gate forgets, so that no restore comes between.
async fn restored_without_it(app: &TestApp, ttl_seconds: u32, torn: &[String]) -> String {
    let id = hold(app, ttl_seconds).await;
    usage(app, "before").await;
    app.drained().await;
    let aside = "CREATE TABLE kept AS SELECT * FROM reservations WHERE state = 'reserved' AND tenant = 'acme'; \
                 DELETE FROM reservations WHERE state = 'reserved' AND tenant = 'acme'";
    as_owner(&app.database, aside).await.unwrap();
    let mut lost = redis::pipe();
    lost.atomic().cmd("FLUSHALL");
    for state in torn {
        lost.cmd("SET").arg(state).arg("torn");
    }
    lost.exec_async(&mut app.redis.connection().await).await.unwrap();
    usage(app, "after").await;
    app.drained().await;
    as_owner(&app.database, "INSERT INTO reservations SELECT * FROM kept").await.unwrap();
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_whose_consume_was_discarded_is_restored_once_and_a_later_consume_is_billed() {
    let app = app_with(an_app()).await;
    let id = hold(&app, 3600).await;
    app.drained().await;
    let waits = "INSERT INTO quarantine (partition, epoch, sequence, reservation_id, tenant, event, reason) \
                 SELECT partition, 0, 0, id, tenant, 'torn', 'a test' FROM reservations";
    as_owner(&app.database, waits).await.unwrap();
    let path = reservation(&id, "consume");
    app.post(&path, json!({ "amount": "3" })).await.expect(200);
    wait_for("it waits in quarantine", PATIENCE, async || {
        (app.app().ledger.count_quarantined().await.unwrap() == 2).then_some(())
    })
    .await;
    let mut redis = app.redis.connection().await;
    let keys: Vec<String> = redis.keys("tg1:*:rsv:*").await.unwrap();
    let _: () = redis.del(keys).await.unwrap();
    let before = restores(&app);
    let waits = app.post(&path, json!({ "amount": "3" })).await;
    waits.is_problem(503, "gate_unavailable");
    assert_eq!(restores(&app), before, "the tenant is not restored for it");
    let ledger = &app.app().ledger;
    for event in ledger.quarantined(false, None, 10).await.unwrap() {
        discard(ledger, event.partition, event.outbox_id, "anna", "a test").await.unwrap();
    }
    let consumed = app.post(&path, json!({ "amount": "3" })).await.expect(200);
    assert_eq!((consumed.text("/status"), &consumed.body["replayed"]), ("consumed", &json!(false)));
    app.drained().await;
    assert_eq!(listed(&app, "consumed").await, 1);
    assert_eq!(restores(&app), before, "the tenant was not restored for it");
    app.leave_unbalanced("a consume of the gate was kept from the books");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_booked_after_the_restore_of_its_tenant_is_restored_at_its_next_call() {
    let app = app_with(an_app()).await;
    let id = restored_without_it(&app, 3600, &[]).await;
    let before = restores(&app);
    let again = app.post_keyed(RESERVATIONS, "job", pages("5").lasting(3600)).await.expect(200);
    assert_eq!((again.text("/id"), again.text("/status")), (&*id, "reserved"));
    let quota = app.quota().await;
    assert_eq!((quota.text("/quotas/0/consumed"), quota.text("/quotas/0/reserved")), ("2", "5"));
    let consumed = app.consume(&id, "3").await.expect(200);
    assert_eq!((consumed.text("/limits/0/consumed"), consumed.text("/limits/0/reserved")), ("5", "0"));
    assert_eq!(restores(&app), before, "the tenant was not restored for it");
    app.finish().await;
}

/// Moves the clock on from `noon` until the hold has expired in the books.
async fn expires(app: &TestApp, noon: jiff::Timestamp) {
    // A hold restored late falls due with the next bucket.
    let passed_seconds = Cell::new(300);
    wait_for("it expires in the books", PATIENCE, async || {
        passed_seconds.set(passed_seconds.get() + 5);
        let now = noon + jiff::SignedDuration::from_secs(passed_seconds.get());
        app.move_clock(&now.to_string()).await;
        (listed(app, "expired").await == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_hold_expires_although_nobody_calls() {
    let noon: jiff::Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
    let options = an_app().at_ms(noon.as_millisecond());
    let app = app_with(options).await;
    restored_without_it(&app, 60, &[]).await;
    expires(&app, noon).await;
    assert_eq!(app.app().operations.memory.tell_forgotten_holds().await.unwrap(), 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_cannot_be_restored_does_not_keep_forgotten_holds_of_others_open() {
    let noon: jiff::Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
    let options = an_app().at_ms(noon.as_millisecond());
    let app = app_with(options).await;
    app.define("tenants/torn", json!({ "plan": "plan" })).await;
    app.post(RESERVATIONS, pages("5").of("torn").lasting(3600)).await.expect(201);
    app.drained().await;
    let state: Vec<String> = app.redis.connection().await.keys("tg1:*:state:torn").await.unwrap();
    restored_without_it(&app, 60, &state).await;
    expires(&app, noon).await;
    app.leave_unbalanced("the state of one tenant stays torn");
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_of_a_subject_whose_restore_was_interrupted_expire_although_nobody_calls() {
    let noon: jiff::Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
    let options = an_app().at_ms(noon.as_millisecond());
    let app = app_with(options).await;
    let limits = json!([{ "id": "own", "meter": "page", "window": "day", "capacity": "50",
                          "scope": "subject", "subject_kind": "user", "class": "quota" }]);
    app.define("tenants/acme", json!({ "plan": "plan", "limits": limits })).await;
    let body = json!({ "tenant": "acme", "meter": "page", "amount": "5", "ttl_seconds": 60, "subjects": { "user": "ada" } });
    app.post(RESERVATIONS, body).await.expect(201);
    app.drained().await;
    // The state after an instance was killed between suspending and restoring.
    let (gate, tenant) = (&app.app().gate, TenantId::parse("acme").unwrap());
    let ada = Subject { kind: SubjectKind::parse("user").unwrap(), id: SubjectId::parse("ada").unwrap() };
    let (partition, hash) = (gate.partition_of(&tenant), gate.subject_hash(&tenant, &ada));
    let epoch = gate.epoch(partition).unwrap();
    gate.suspend(partition, epoch, &tenant, Some(hash), Some(noon.as_millisecond())).await.unwrap().unwrap();
    expires(&app, noon).await;
    app.finish().await;
}
