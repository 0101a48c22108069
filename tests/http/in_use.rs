//! What is used already keeps its unit, its decimals and its name, even where the use is not booked yet.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};
use tollgate::ledger::Manner;

use super::ratelimit::CHECK;
use super::statements::price;
use crate::jobs::statements::{in_march, statement};
use crate::ledger::as_owner;
use crate::support::app::*;
use crate::support::wait::wait_for;

const METER: &str = "/v1/admin/meters/page";
const TENANT: &str = "/v1/admin/tenants/acme";
const PATIENCE: Duration = Duration::from_secs(30);

/// A plan of ten a day, and calls that do not wait long for the books.
async fn ten_a_day() -> TestApp {
    let app = an_app().with("ledger.restore_wait_ms", "3000").start().await;
    app.with_day_of("10").await;
    app
}

async fn reserve(app: &TestApp, amount: &str) -> Answered {
    app.post(RESERVATIONS, pages(amount).lasting(3600)).await
}

fn with_decimals(decimals: u8) -> Value {
    json!({ "unit": "page", "decimals": decimals, "without_limit": "unlimited" })
}

pub async fn connect(app: &TestApp) -> Client {
    let (client, connection) = tokio_postgres::connect(&app.database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Keeps the writer from booking until it is rolled back.
pub async fn hold_up_the_writer(app: &TestApp) -> Client {
    let client = connect(app).await;
    client.batch_execute("BEGIN; SELECT FROM cursors FOR UPDATE").await.unwrap();
    client
}

/// Waits until a query that names a table waits for its turn.
pub async fn waits_for_the_lock(watch: &Client, table: &str) {
    wait_for("a query waits for the lock", PATIENCE, async || {
        let query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
                     AND query LIKE '%' || $1 || '%'";
        (!watch.query(query, &[&table]).await.unwrap().is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_meter_whose_first_use_is_not_booked_yet_keeps_its_decimals() {
    let app = ten_a_day().await;
    let held_up = hold_up_the_writer(&app).await;
    reserve(&app, "8").await.expect(201);
    app.put(METER, with_decimals(2)).await.is_problem(503, "gate_unavailable");
    reserve(&app, "9").await.is_problem(429, "quota_exceeded");
    held_up.batch_execute("ROLLBACK").await.unwrap();
    app.drained().await;
    let answer = app.put(METER, with_decimals(2)).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/decimals"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_meter_used_while_its_change_waits_for_another_change_keeps_its_decimals() {
    let app = ten_a_day().await;
    let (other, watch) = (connect(&app).await, connect(&app).await);
    other.batch_execute("BEGIN; UPDATE policy_version SET version = version").await.unwrap();
    let caller = app.caller();
    let change = tokio::spawn(async move { caller.put(METER, with_decimals(2)).await });
    waits_for_the_lock(&watch, "policy_version").await;
    reserve(&app, "8").await.expect(201);
    app.drained().await;
    other.batch_execute("ROLLBACK").await.unwrap();
    let answer = change.await.unwrap();
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/decimals"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_meter_can_change_its_decimals_and_be_deleted() {
    let app = ten_a_day().await;
    app.define("meters/second", json!({ "unit": "second" })).await.expect(201);
    reserve(&app, "8").await.expect(201);
    app.define("meters/second", json!({ "unit": "second", "decimals": 2 })).await.expect(200);
    app.delete("/v1/admin/meters/second").await.expect(204);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_first_hold_is_not_booked_yet_is_not_deleted() {
    let app = ten_a_day().await;
    app.define("tenants/unused", json!({ "plan": "plan" })).await.expect(201);
    let held_up = hold_up_the_writer(&app).await;
    let held = reserve(&app, "8").await.expect(201);
    app.delete(TENANT).await.is_problem(503, "gate_unavailable");
    held_up.batch_execute("ROLLBACK").await.unwrap();
    app.drained().await;
    let answer = app.delete(TENANT).await;
    answer.is_problem(409, "in_use");
    let why = "the tenant acme is in the books; set `archived` instead of deleting it";
    assert_eq!(answer.text("/detail"), why);
    app.delete("/v1/admin/tenants/unused").await.expect(204);
    let consume = reservation(held.text("/id"), "consume");
    app.post(&consume, json!({ "amount": "3" })).await.expect(200);
    app.put(TENANT, json!({ "plan": "plan" })).await.expect(200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_owes_nothing_but_an_adjustment_of_money_is_not_deleted() {
    let app = ten_a_day().await;
    let owed = json!({
        "tenant": "acme", "effect": "money", "amount": "500", "currency": "EUR", "reason": "set-up",
        "happened_at": "2026-01-01T00:00:00Z"
    });
    app.post_keyed("/v1/adjustments", "owed", owed).await.expect(201);
    app.delete(TENANT).await.is_problem(409, "in_use");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_for_whom_something_is_being_booked_is_deleted_before_it_or_not_at_all() {
    let app = ten_a_day().await;
    let (booking, watch) = (connect(&app).await, connect(&app).await);
    let books = "BEGIN; SELECT FROM tenants WHERE id = 'acme' FOR UPDATE; \
                 INSERT INTO quarantine (partition, epoch, sequence, tenant, event, reason) \
                 VALUES (0, 9, 9, 'acme', 'record', 'test')";
    booking.batch_execute(books).await.unwrap();
    let caller = app.caller();
    let deletion = tokio::spawn(async move { caller.delete(TENANT).await });
    waits_for_the_lock(&watch, "tenants").await;
    booking.batch_execute("COMMIT").await.unwrap();
    deletion.await.unwrap().is_problem(409, "in_use");
    as_owner(&app.database, "UPDATE quarantine SET status = 'discarded'").await.unwrap();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_first_statement_is_being_issued_is_not_deleted() {
    let app = in_march(json!([price(json!({ "id": "base", "model": "flat", "flat": "10" }))])).await;
    app.move_clock("2026-04-01T01:00:00Z").await;
    app.drained().await;
    let (chains, watch) = (connect(&app).await, connect(&app).await);
    let hold_up = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('tollgate other chain'), n) FROM generate_series(0, 511) n";
    chains.batch_execute(hold_up).await.unwrap();
    let issue = app.app().operations.statements.issue(Manner::default(), Duration::from_secs(3600));
    let deletion = async {
        waits_for_the_lock(&watch, "other chain").await;
        let caller = app.caller();
        let deletion = tokio::spawn(async move { caller.delete(TENANT).await });
        waits_for_the_lock(&watch, "\"tenants\"").await;
        chains.batch_execute("ROLLBACK").await.unwrap();
        deletion.await.unwrap()
    };
    let (issued, deleted) = tokio::join!(issue, deletion);
    assert_eq!(issued.unwrap().statements, 1);
    deleted.is_problem(409, "in_use");
    assert_eq!(statement(&app, 1).await["total"], "10.00");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_in_quarantine_counts_as_use_of_its_tenant_and_meter() {
    let app = ten_a_day().await;
    let waits = "INSERT INTO quarantine (partition, epoch, sequence, tenant, event, reason) \
                 VALUES (0, 9, 9, 'acme', 'record \\004page', 'test')";
    as_owner(&app.database, waits).await.unwrap();
    app.delete(TENANT).await.is_problem(409, "in_use");
    let answer = app.put(METER, with_decimals(2)).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/decimals"]);
    as_owner(&app.database, "UPDATE quarantine SET status = 'discarded'").await.unwrap();
    app.put(METER, with_decimals(2)).await.expect(200);
    app.delete(TENANT).await.expect(204);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_meter_that_is_not_booked_keeps_its_decimals_while_a_limit_counts_it() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    let calls = |decimals: u8| with_decimals(decimals).with("unit", "call").with("booked", false);
    let limit = day_of("10").with("meter", "call").with("class", "rate");
    let budget = json!({ "id": "budget", "meters": { "call": "1" }, "window": "day", "capacity": "100" });
    let budget = budget.with("decimals", 2);
    app.define("meters/call", calls(0)).await;
    app.define("operations/call", json!({ "costs": [{ "meter": "call", "base": "1" }] })).await;
    app.define("plans/plan", json!({ "limits": [limit, budget] })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    let left = async || {
        let check = app.post(CHECK, json!({ "tenant": "acme", "operation": "call" })).await.expect(200);
        check.text("/remaining").to_owned()
    };
    let is_refused = async || {
        let answer = app.put("/v1/admin/meters/call", calls(2)).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), ["/decimals"]);
    };
    assert_eq!(left().await, "9");
    is_refused().await;
    assert_eq!(left().await, "8");
    app.define("plans/plan", json!({ "limits": [budget] })).await;
    app.define("tenants/acme", json!({ "plan": "plan", "limits": [limit] })).await;
    is_refused().await;
    app.define("tenants/acme", json!({ "plan": "plan", "limits": [] })).await;
    app.define("meters/call", calls(2)).await.expect(200);
    assert_eq!(left().await, "97", "a budget has units of its own");
    app.define("plans/plan", json!({ "limits": [limit, budget] })).await;
    assert_eq!(left().await, "9", "it counts anew");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_off_or_over_or_goes_with_the_change_keeps_no_decimals_and_then_begins_at_zero() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    let calls = |decimals: u8| with_decimals(decimals).with("unit", "call").with("booked", false);
    let limit = day_of("10").with("meter", "call").with("class", "rate");
    app.define("meters/call", calls(0)).await;
    app.define("operations/call", json!({ "costs": [{ "meter": "call", "base": "1" }] })).await;
    app.define("plans/plan", json!({ "limits": [limit] })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    let changed = async |decimals: u8| app.put("/v1/admin/meters/call", calls(decimals)).await;
    let left = async || {
        let check = app.post(CHECK, json!({ "tenant": "acme", "operation": "call" })).await.expect(200);
        check.text("/remaining").to_owned()
    };
    assert_eq!(left().await, "9");
    let off = limit.clone().with("kind", "off");
    app.define("plans/plan", json!({ "limits": [off] })).await;
    let on = json!({ "tenant": "acme", "level": "tenant", "limit": "day", "kind": "hard", "reason": "test" });
    app.define("overrides/on", on).await;
    changed(2).await.is_problem(422, "validation_failed");
    app.delete("/v1/admin/overrides/on?tenant=acme").await.expect(204);
    changed(2).await.expect(200);
    app.define("plans/plan", json!({ "limits": [limit] })).await;
    assert_eq!(left().await, "9");

    let ends = limit.clone().with("until", "2026-03-10T13:00:00Z");
    app.define("plans/plan", json!({ "limits": [ends] })).await;
    assert_eq!(left().await, "8");
    changed(0).await.is_problem(422, "validation_failed");
    app.move_clock("2026-03-10T13:00:00Z").await;
    changed(0).await.expect(200);
    app.define("plans/plan", json!({ "limits": [limit] })).await;
    assert_eq!(left().await, "9");

    let file = async |limits: Value| {
        let meter = calls(2).with("id", "call");
        let policy = json!({ "meters": [meter], "plans": [{ "id": "plan", "limits": limits }] });
        app.post("/v1/admin/policy", json!({ "policy": policy, "prune": ["limits"] })).await
    };
    let stays = file(json!([limit])).await;
    stays.is_problem(422, "validation_failed");
    assert_eq!(stays.pointers(), ["/policy/meters/0/decimals"]);
    file(json!([])).await.expect(200);
    app.define("plans/plan", json!({ "limits": [limit] })).await;
    assert_eq!(left().await, "9");
    app.finish().await;
}
