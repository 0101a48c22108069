//! What is used already keeps its unit, its decimals and its name, also where the books do not know of the use yet.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

use super::Caller;
use crate::ledger::as_owner;
use crate::support::app::{Answered, AppOptions, TestApp, spawn_app_with};
use crate::support::wait::wait_for;

const METER: &str = "/v1/admin/meters/page";
const TENANT: &str = "/v1/admin/tenants/acme";
const PATIENCE: Duration = Duration::from_secs(30);

/// A plan of ten a day, and calls that do not wait long for the books.
async fn ten_a_day() -> TestApp {
    let settings = vec![("ledger.restore_wait_ms", "1000".to_owned())];
    let app = spawn_app_with(AppOptions { settings, ..AppOptions::default() }).await;
    app.with_plan(json!([{ "id": "day", "meter": "page", "window": "day", "capacity": "10" }]), json!([]))
        .await;
    app
}

async fn reserve(app: &TestApp, amount: &str) -> Answered {
    let body = json!({ "tenant": "acme", "meter": "page", "amount": amount, "ttl_seconds": 3600 });
    app.post("/v1/reservations", body).await
}

fn with_decimals(decimals: u8) -> Value {
    json!({ "unit": "page", "decimals": decimals, "without_limit": "unlimited" })
}

async fn connect(app: &TestApp) -> Client {
    let (client, connection) = tokio_postgres::connect(&app.database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Keeps the writer from booking until it is rolled back.
async fn hold_up_the_writer(app: &TestApp) -> Client {
    let client = connect(app).await;
    client.batch_execute("BEGIN; SELECT FROM cursors FOR UPDATE").await.unwrap();
    client
}

/// Waits until a change of the policy waits for its turn.
async fn waiting(watch: &Client) {
    wait_for("the change waits for the lock", PATIENCE, async || {
        let query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
                     AND query LIKE '%policy_version%'";
        (!watch.query(query, &[]).await.unwrap().is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_meter_whose_first_use_is_not_booked_yet_keeps_its_decimals() {
    let app = ten_a_day().await;
    let held_up = hold_up_the_writer(&app).await;
    reserve(&app, "8").await.expect(201);
    app.call(Method::PUT, METER, with_decimals(2)).await.is_problem(503, "gate_unavailable");
    reserve(&app, "9").await.is_problem(429, "quota_exceeded");
    held_up.batch_execute("ROLLBACK").await.unwrap();
    let answer = app.call(Method::PUT, METER, with_decimals(2)).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/decimals"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_meter_that_is_used_while_its_change_waits_for_another_keeps_its_decimals() {
    let app = ten_a_day().await;
    let (other, watch) = (connect(&app).await, connect(&app).await);
    other.batch_execute("BEGIN; UPDATE policy_version SET version = version").await.unwrap();
    let caller = Caller::admin(&app);
    let change = tokio::spawn(async move { caller.put(METER, with_decimals(2)).await });
    waiting(&watch).await;
    reserve(&app, "8").await.expect(201);
    app.drained().await;
    other.batch_execute("ROLLBACK").await.unwrap();
    let answer = change.await.unwrap();
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/decimals"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_meter_that_nothing_was_used_of_takes_other_decimals_and_goes() {
    let app = ten_a_day().await;
    app.put("/v1/admin/meters/second", json!({ "unit": "second" })).await.expect(201);
    reserve(&app, "8").await.expect(201);
    app.put("/v1/admin/meters/second", json!({ "unit": "second", "decimals": 2 })).await.expect(200);
    app.call(Method::DELETE, "/v1/admin/meters/second", json!(null)).await.expect(204);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_first_hold_is_not_booked_yet_stays() {
    let app = ten_a_day().await;
    app.put("/v1/admin/tenants/unused", json!({ "plan": "plan" })).await.expect(201);
    let held_up = hold_up_the_writer(&app).await;
    let held = reserve(&app, "8").await.expect(201);
    app.call(Method::DELETE, TENANT, json!(null)).await.is_problem(503, "gate_unavailable");
    held_up.batch_execute("ROLLBACK").await.unwrap();
    let answer = app.call(Method::DELETE, TENANT, json!(null)).await;
    answer.is_problem(409, "in_use");
    let why = "the tenant acme is in the books; set `archived` instead of deleting it";
    assert_eq!(answer.text("/detail"), why);
    app.call(Method::DELETE, "/v1/admin/tenants/unused", json!(null)).await.expect(204);
    let consume = format!("/v1/reservations/{}/consume", held.text("/id"));
    app.post(&consume, json!({ "amount": "3" })).await.expect(200);
    app.put(TENANT, json!({ "plan": "plan" })).await.expect(200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_quarantine_is_a_use() {
    let app = ten_a_day().await;
    let waits = "INSERT INTO quarantine (partition, epoch, sequence, tenant, event, reason) \
                 VALUES (0, 9, 9, 'acme', 'record \\004page', 'test')";
    as_owner(&app.database, waits).await.unwrap();
    app.call(Method::DELETE, TENANT, json!(null)).await.is_problem(409, "in_use");
    let answer = app.call(Method::PUT, METER, with_decimals(2)).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/decimals"]);
    as_owner(&app.database, "UPDATE quarantine SET status = 'discarded'").await.unwrap();
    app.put(METER, with_decimals(2)).await.expect(200);
    app.call(Method::DELETE, TENANT, json!(null)).await.expect(204);
    app.finish().await;
}
