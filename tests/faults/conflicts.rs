//! Parked calls that the gate will never take, settled by an operator.

use serde_json::{Value, json};
use tollgate::operations::ConflictChoice;
use tollgate::writer::{discard, retry};

use super::gate_away::{both, counted, hold, impatient, limited, park_consume, replayed};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;

/// A reservation with 4 of 10 pages consumed, and a parked consume of 7 that the gate refuses.
async fn conflict(app: &TestApp) -> (String, i64) {
    let id = hold(app, "10").await;
    app.consume(&id, "4").await.expect(200);
    app.drained().await;
    park_consume(app, &id, "7").await;
    app.app().operations.outage.look_for_parked().await.unwrap();
    replayed(app).await;
    let number = rows(&app.database, "SELECT number FROM parked WHERE state = 'conflict'").await;
    (id, number[0].parse().unwrap())
}

/// A reservation of 10 pages whose consume of 4 is done at the gate by `done_at_the_gate`, and a parked consume of 7
/// that the gate refuses.
async fn conflict_while(app: &TestApp, id: &str) -> i64 {
    app.consume(id, "4").await.expect(200);
    park_consume(app, id, "7").await;
    app.app().operations.outage.look_for_parked().await.unwrap();
    replayed(app).await;
    let number = rows(&app.database, "SELECT number FROM parked WHERE state = 'conflict'").await;
    number[0].parse().unwrap()
}

/// The row of the only conflict, as the operator sees it.
fn listed(app: &TestApp) -> Value {
    let listed = app.command(&["parked", "list", "--output", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    listed[0]["not_booked"].clone()
}

async fn billed(app: &TestApp) -> String {
    replayed(app).await;
    app.drained().await;
    rows(&app.database, "SELECT sum(consumed)::float8 AS c FROM balances").await.remove(0)
}

async fn audited(app: &TestApp, number: i64) -> Value {
    let query = format!("SELECT detail::text FROM audit_log WHERE object = 'parked {number}'");
    serde_json::from_str(&rows(&app.database, &query).await[0]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_conflict_said_and_the_books_lack_becomes_usage_once() {
    let app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    let (id, number) = conflict(&app).await;
    let listed = app.command(&["parked", "list", "--output", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!((&listed[0]["reservation"], &listed[0]["said"]), (&json!(id), &json!("7 page")), "{listed}");
    assert_eq!(listed[0]["not_booked"], "3 page");

    let number_text = number.to_string();
    let resolve = [
        "parked",
        "resolve",
        number_text.as_str(),
        "--as",
        "usage",
        "--reason",
        "the client meant 7",
        "--yes",
    ];
    let settled = app.command(&resolve);
    assert!(settled.status.success(), "{settled:?}");
    let again = app.command(&resolve);
    assert!(!again.status.success());
    let why = String::from_utf8(again.stderr).unwrap();
    assert!(why.contains(&format!("no parked call in conflict {number}")), "{why}");

    replayed(&app).await;
    app.drained().await;
    assert_eq!(counted(&app).await, both("7", "0"));
    let usage = app.get("/v1/tenants/acme/usage?group_by=meter").await;
    assert_eq!(usage.text("/data/0/consumed"), "7", "{usage:?}");
    let note = audited(&app, number).await;
    assert_eq!((&note["choice"], &note["reason"]), (&json!("usage"), &json!("the client meant 7")));
    assert_eq!(note["booked"], json!([{ "meter": "page", "amount": "3" }]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_of_a_conflict_counts_in_the_quota_too_and_after_a_loss_of_memory() {
    let app = impatient().start().await;
    limited(&app, "allow", json!([quota_of("90")])).await;
    let operations = &app.app().operations;
    for (forgets, consumed) in [(false, "7"), (true, "14")] {
        let (_, number) = conflict(&app).await;
        if forgets {
            app.drained().await;
            app.redis.flush().await;
        }
        operations.outage.resolve_conflict(number, ConflictChoice::Usage, "ops", "it meant 7").await.unwrap();
        operations.outage.look_for_parked().await.unwrap();
        replayed(&app).await;
        app.drained().await;
        assert_eq!(operations.outage.parked_conflicts(10).await.unwrap().len(), 0);
        assert_eq!(counted(&app).await, both(consumed, "0"));
        let quota = app.get("/v1/tenants/acme/quota").await;
        assert_eq!(quota.text("/quotas/0/consumed"), consumed, "{quota:?}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_may_be_dropped_or_tried_again_and_books_nothing() {
    let app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    let (id, number) = conflict(&app).await;
    let operations = &app.app().operations;
    operations.outage.resolve_conflict(number, ConflictChoice::Retry, "ops", "once more").await.unwrap();
    replayed(&app).await;
    let kept = app.app().ledger.count_parked().await.unwrap();
    assert_eq!(kept.conflicts, 1, "the gate refuses it again");
    operations.outage.resolve_conflict(number, ConflictChoice::Drop, "ops", "a mistake").await.unwrap();
    assert_eq!(app.app().ledger.count_parked().await.unwrap().conflicts, 0);
    assert_eq!(counted(&app).await, both("4", "0"));
    assert_eq!(audited(&app, number).await["choice"], "retry");

    app.drained().await;
    park_consume(&app, &id, "3").await;
    operations.outage.look_for_parked().await.unwrap();
    replayed(&app).await;
    let view = operations.outage.parked_conflicts(10).await.unwrap().remove(0);
    assert!(view.missing.is_empty(), "the books have more: {view:?}");
    let number = view.conflict.number;
    operations.outage.resolve_conflict(number, ConflictChoice::Usage, "ops", "all there").await.unwrap_err();
    operations.outage.resolve_conflict(number, ConflictChoice::Drop, "ops", "all there").await.unwrap();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_still_on_its_way_to_the_books_is_not_billed_by_usage_of_a_conflict_as_well() {
    // The list waits for the books as long as a statement may take.
    let app = impatient().with("postgres.statement_timeout_ms", 10_000).start().await;
    limited(&app, "allow", json!([])).await;
    let id = hold(&app, "10").await;
    app.drained().await;
    let (client, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE entries IN EXCLUSIVE MODE").await.unwrap();
    let number = conflict_while(&app, &id).await;
    let operations = &app.app().operations;
    let early = operations.outage.resolve_conflict(number, ConflictChoice::Usage, "ops", "it meant 7").await;
    let told = listed(&app);
    client.batch_execute("ROLLBACK").await.unwrap();
    early.unwrap_err();
    assert!(told.as_str().unwrap().starts_with("not known"), "{told}");
    app.drained().await;
    assert_eq!(listed(&app), "3 page");
    operations.outage.resolve_conflict(number, ConflictChoice::Usage, "ops", "it meant 7").await.unwrap();
    operations.outage.look_for_parked().await.unwrap();
    assert_eq!(billed(&app).await, "7");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_of_a_conflict_waits_until_what_is_in_quarantine_is_decided() {
    let app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    let id = hold(&app, "10").await;
    app.drained().await;
    let waits = "INSERT INTO quarantine (partition, epoch, sequence, reservation_id, tenant, event, reason) \
                 SELECT partition, 0, 0, id, tenant, 'torn', 'a test' FROM reservations";
    as_owner(&app.database, waits).await.unwrap();
    let number = conflict_while(&app, &id).await;
    app.drained().await;
    let operations = &app.app().operations;
    let early = operations.outage.resolve_conflict(number, ConflictChoice::Usage, "ops", "it meant 7").await;
    let why = early.unwrap_err().to_string();
    assert!(why.contains("quarantine"), "{why}");
    assert!(listed(&app).as_str().unwrap().contains("quarantine"), "{}", listed(&app));
    let ledger = &app.app().ledger;
    for event in ledger.quarantined(false, None, 10).await.unwrap() {
        if event.event == b"torn" {
            discard(ledger, event.partition, event.outbox_id, "anna", "a test").await.unwrap();
        } else {
            retry(ledger, event.partition, event.outbox_id, "test").await.unwrap();
        }
    }
    assert_eq!(listed(&app), "3 page");
    operations.outage.resolve_conflict(number, ConflictChoice::Usage, "ops", "it meant 7").await.unwrap();
    operations.outage.look_for_parked().await.unwrap();
    assert_eq!(billed(&app).await, "7");
    app.finish().await;
}
