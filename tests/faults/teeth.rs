//! `verify` must find and name every manipulation.

use std::collections::BTreeMap;

use redis::AsyncCommands;
use serde_json::{Value, json};
use tollgate::ledger::{VerifyOptions, verify};

use crate::http::events::{event, send};
use crate::jobs::statements::{in_march, per_page, run};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::process::tollgate;

async fn used(app: &TestApp) {
    app.with_plan(json!([day_of("1000")]), json!([quota_of("900")])).await;
    for job in 0..5 {
        let reserved = app.post_keyed(RESERVATIONS, &format!("job-{job}"), pages("7")).await;
        let id = reserved.body["id"].as_str().unwrap();
        let consumed = app.consume(id, "5").await;
        assert_eq!(consumed.status, 200, "{consumed:?}");
    }
    app.drained().await;
    app.check_books().await;
}

/// Runs SQL as the owner of the tables, with their triggers off.
async fn tamper(app: &TestApp, sql: &str) {
    let (client, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute("SET session_replication_role = replica").await.unwrap();
    let touched = client.execute(sql, &[]).await.unwrap();
    assert_eq!(touched, 1, "{sql}");
    drop(client);
    driver.await.unwrap().unwrap();
}

async fn faults(app: &TestApp) -> String {
    let options = VerifyOptions { rebuild: true, ..VerifyOptions::default() };
    let report = verify(&app.app().ledger, options).await.unwrap();
    let faults = report.checks.iter().flat_map(|check| {
        check.faults.iter().map(|fault| format!("{}: {} {}", check.name, fault.what, fault.detail))
    });
    faults.collect::<Vec<_>>().join("\n")
}

const AN_ENTRY: &str = "(tenant, operation_id, step, line, leg) = \
     (SELECT tenant, operation_id, step, line, leg FROM entries WHERE class = 'usage' \
      ORDER BY operation_id, step, line, leg LIMIT 1)";

#[tokio::test(flavor = "multi_thread")]
async fn one_changed_entry_is_found_and_named() {
    let app = spawn_app().await;
    used(&app).await;
    tamper(&app, &format!("UPDATE entries SET amount = amount + 1 WHERE {AN_ENTRY}")).await;
    let faults = faults(&app).await;
    assert!(faults.contains("acme") || faults.contains("chain"), "{faults}");
    assert!(faults.contains("hash"), "{faults}");
    app.leave_unbalanced("the books were tampered with");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_deleted_entry_is_found_and_named() {
    let app = spawn_app().await;
    used(&app).await;
    tamper(&app, &format!("DELETE FROM entries WHERE {AN_ENTRY}")).await;
    let faults = faults(&app).await;
    assert!(!faults.is_empty());
    assert!(faults.contains("rows") || faults.contains("hash"), "{faults}");
    app.leave_unbalanced("the books were tampered with");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_changed_balance_is_found_and_named() {
    // No month ends soon, which would open another balance.
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    used(&app).await;
    tamper(
        &app,
        "UPDATE balances SET consumed = consumed + 1, available = available - 1 WHERE tenant = 'acme'",
    )
    .await;
    let faults = faults(&app).await;
    assert!(faults.contains("acme") && faults.contains("page"), "{faults}");
    app.leave_unbalanced("the books were tampered with");
}

async fn spoil_a_counter(app: &TestApp) {
    let mut connection = app.redis.connection().await;
    let keys: Vec<String> = connection.keys("tg1:*:state:acme").await.unwrap();
    let fields: Vec<(Vec<u8>, Vec<u8>)> = connection.hgetall(&keys[0]).await.unwrap();
    let (name, mut value) = fields.into_iter().find(|(name, _)| name.len() == 8).unwrap();
    value[8] = value[8].wrapping_add(1);
    let _: () = connection.hset(&keys[0], name, value).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_changed_counter_is_found_and_named() {
    let app = spawn_app().await;
    used(&app).await;
    spoil_a_counter(&app).await;
    let check = app.app().operations.reconcile.verify_gate().await.unwrap();
    assert_eq!(check.faults.len(), 1, "{:?}", check.faults);
    assert!(check.faults[0].contains("acme"), "{:?}", check.faults);
    app.leave_unbalanced("the books were tampered with");
}

#[rstest::rstest]
#[case::ahead("2051-03-05T10:00:00Z")]
#[case::behind("2021-03-05T10:00:00Z")]
#[tokio::test(flavor = "multi_thread")]
async fn verify_compares_the_counters_of_a_test_clock_by_its_time_and_says_where_it_compared_none(
    #[case] now: jiff::Timestamp,
) {
    let app = an_app().at_ms(now.as_millisecond()).with("environment", "sandbox").start().await;
    let verify = async || {
        let mut verify = tollgate(&["verify", "--output", "json"]);
        verify.envs(app.variables());
        let output = tokio::task::spawn_blocking(move || verify.output().unwrap()).await.unwrap();
        let checks: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let gate = checks.into_iter().find(|check| check["check"] == "gate equals ledger").unwrap();
        (output.status.code(), gate)
    };
    let (code, gate) = verify().await;
    assert_eq!((code, &gate["checked"]), (Some(0), &json!(0)), "{gate}");
    assert!(gate["result"].as_str().unwrap().starts_with("skipped: "), "{gate}");
    used(&app).await;
    let (code, gate) = verify().await;
    assert_eq!((code, &gate["checked"], &gate["result"]), (Some(0), &json!(2), &json!("ok")), "{gate}");
    spoil_a_counter(&app).await;
    let (code, gate) = verify().await;
    assert_eq!((code, &gate["faults"]), (Some(3), &json!(1)), "{gate}");
    app.leave_unbalanced("the books were tampered with");
}

/// Everything of the tenant's only operation, the newest batch of its chain: gone, as if it had never been.
const VANISH: &str = "SET session_replication_role = replica; \
    DELETE FROM batches b USING entries e WHERE e.tenant = 'last' AND (b.chain, b.number) = (e.chain, e.batch); \
    DELETE FROM entries WHERE tenant = 'last'; \
    DELETE FROM reservations WHERE tenant = 'last'; \
    DELETE FROM balances WHERE tenant = 'last'; \
    DELETE FROM usage_hourly WHERE tenant = 'last'";

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_batch_of_a_chain_cannot_vanish_with_all_that_follows_from_it() {
    let app = spawn_app().await;
    used(&app).await;
    app.define("tenants/last", json!({})).await;
    let body = json!({ "tenant": "last", "meter": "token", "amount": "9" });
    app.post_keyed(USAGE, "last", body.clone()).await.expect(201);
    app.drained().await;
    let operations = &app.app().operations;
    let mut told = BTreeMap::new();
    operations.memory.anchor_chains(&mut told).await.unwrap();
    let check = operations.memory.check_anchors().await.unwrap();
    assert!(check.anchors > 0 && check.faults.is_empty(), "{check:?}");
    as_owner(&app.database, VANISH).await.unwrap();
    // What is left is whole in itself.
    assert_eq!(faults(&app).await, "");
    let lost = operations.memory.check_anchors().await.unwrap();
    assert_eq!(lost.faults.len(), 1, "{lost:?}");
    assert!(lost.faults[0].contains(": batch ") && lost.faults[0].ends_with("is gone"), "{lost:?}");
    let mut verify = tollgate(&["verify"]);
    verify.envs(app.variables());
    let output = tokio::task::spawn_blocking(move || verify.output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    // It stays known while the chain grows again, and is one alarm.
    app.post_keyed(USAGE, "later", body).await.expect(201);
    app.drained().await;
    for _ in 0..2 {
        operations.memory.anchor_chains(&mut told).await.unwrap();
    }
    let lost = operations.memory.check_anchors().await.unwrap();
    assert!(lost.faults.len() == 1 && lost.faults[0].ends_with("is another one by now"), "{lost:?}");
    let metrics = operations.metrics_text();
    assert!(metrics.contains("tollgate_alarms_total{alarm=\"chain\"} 1"), "{metrics}");
    app.leave_unbalanced("the books were tampered with");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_anchored_head_only_rises_and_outlives_a_new_epoch() {
    let mut app = spawn_app().await;
    used(&app).await;
    let mut told = BTreeMap::new();
    app.app().operations.memory.anchor_chains(&mut told).await.unwrap();
    let before = app.app().gate.anchors().await.unwrap();
    let (chain, head) = before[0];
    let lower = tollgate::domain::chain::ChainHead { number: head.number - 1, ..head };
    app.app().gate.anchor(chain, lower).await.unwrap();
    assert_eq!(app.app().gate.anchors().await.unwrap(), before);
    app.redis.restart().unwrap();
    app.restart().await;
    assert_eq!(app.app().gate.anchors().await.unwrap(), before);
    assert!(told.is_empty());
    app.finish().await;
}

const DONE: &str = "the books were tampered with";

/// Seven pages in March, at one euro each, and the statement of it.
async fn billed() -> TestApp {
    let app = in_march(json!([per_page("1")])).await;
    app.use_pages("march", 7).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    assert_eq!(run(&app).await.statements, 1);
    assert_eq!(faults(&app).await, "");
    app
}

#[tokio::test(flavor = "multi_thread")]
async fn a_month_that_nobody_has_billed_is_found_and_named() {
    let app = billed().await;
    app.use_pages("april", 2).await.expect(201);
    tamper(
        &app,
        "UPDATE billing SET billed_until = '2026-05-01Z', next_end = '2026-06-01Z' WHERE tenant = 'acme'",
    )
    .await;
    let is_ahead = "billing of acme is from 2026-03-01 00:00:00 to 2026-05-01 00:00:00, \
                    by its periods from 2026-03-01 00:00:00 to 2026-04-01 00:00:00";
    let found = faults(&app).await;
    assert!(found.contains(is_ahead), "{found}");
    app.use_pages("later", 3).await.expect(201);
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    let found = faults(&app).await;
    assert!(
        found.contains("billing of acme 2026-05-01 00:00:00 the one before ended at 2026-04-01"),
        "{found}"
    );
    app.leave_unbalanced(DONE);
}

#[tokio::test(flavor = "multi_thread")]
async fn periods_that_have_no_document_are_billed_one_after_the_other_too() {
    let app = in_march(json!([])).await;
    app.use_pages("unpriced", 7).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    app.define("plans/plan", json!({ "prices": [per_page("1")] })).await;
    app.define("tenants/acme", json!({ "plan": "plan", "sandbox": true })).await;
    app.use_pages("sandbox", 7).await.expect(201);
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    app.define("tenants/acme", json!({ "plan": "plan", "archived": true })).await;
    app.move_clock("2026-08-02T12:00:00Z").await;
    run(&app).await;
    let billed = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, last_number FROM billed_periods \
                  WHERE tenant = 'acme' ORDER BY period_end";
    assert_eq!(rows(&app.database, billed).await, ["03 0", "04 0", "05 0", "06 0", "07 0"]);
    assert_eq!(faults(&app).await, "");
    tamper(&app, "DELETE FROM billed_periods WHERE tenant = 'acme' AND period_start = '2026-05-01Z'").await;
    let found = faults(&app).await;
    assert!(
        found.contains("billing of acme 2026-06-01 00:00:00 the one before ended at 2026-05-01"),
        "{found}"
    );
    app.leave_unbalanced(DONE);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_document_cannot_vanish_even_where_nothing_is_owed() {
    let app = in_march(json!([per_page("0")])).await;
    app.use_pages("march", 7).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    assert_eq!(run(&app).await.statements, 1);
    assert_eq!(faults(&app).await, "");
    tamper(&app, "DELETE FROM statements WHERE tenant = 'acme'").await;
    let found = faults(&app).await;
    assert!(found.contains("billing of acme has issued 1 documents, of which 0 are kept"), "{found}");
    app.leave_unbalanced(DONE);
}

#[rstest::rstest]
#[case::start("period_start = '2026-02-01Z'", "its row and its text differ")]
#[case::end("period_end = '2026-05-01Z'", "its row and its text differ")]
#[case::when_it_was_issued("issued_at = issued_at + interval '1 day'", "its row and its text differ")]
#[case::operation("operation_id = gen_random_uuid()", "its row and its text differ")]
#[case::an_earlier_bill("billed_in = '2026-02-01Z'", "its row and its text differ")]
#[case::a_later_bill("billed_in = '2026-04-01Z'", "is in the bill of 2026-04-01 00:00:00, by its number")]
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_statement_s_row_says_otherwise_than_its_text_is_found_and_named(
    #[case] change: &str,
    #[case] named: &str,
) {
    let app = billed().await;
    tamper(&app, &format!("UPDATE statements SET {change} WHERE tenant = 'acme'")).await;
    let found = faults(&app).await;
    assert!(found.contains("statement 1 of acme") && found.contains(named), "{found}");
    app.leave_unbalanced(DONE);
}

/// Two pages that were used in March and are known in April, late by themselves or as an adjustment.
async fn corrected(app: &TestApp, is_adjusted: bool) {
    if is_adjusted {
        let more = json!({
            "tenant": "acme", "meter": "page", "effect": "usage", "amount": "2", "reason": "lost",
            "happened_at": "2026-03-20T10:00:00Z"
        });
        app.post_keyed("/v1/adjustments", "more", more).await.expect(201);
    } else {
        send(app, &event("late", 2, Some("2026-03-20T10:00:00Z"))).await;
    }
    app.drained().await;
}

#[rstest::rstest]
#[case::late_use(false, "are 0, by the hours of their entries 2.000000000")]
#[case::adjustment(true, "are 0 adjusted, by adjustments 2.000000000")]
#[tokio::test(flavor = "multi_thread")]
async fn which_closed_month_is_corrected_is_found_and_named_where_it_was_changed(
    #[case] is_adjusted: bool,
    #[case] named: &str,
) {
    let app = billed().await;
    corrected(&app, is_adjusted).await;
    assert_eq!(faults(&app).await, "");
    // No note says yet of which month it is.
    tamper(&app, "UPDATE corrections SET period_start = '2026-02-01Z' WHERE tenant = 'acme'").await;
    let found = faults(&app).await;
    let of_march = "corrections of acme page 2026-03-01 00:00:00 booked in 2026-04-01 00:00:00";
    assert!(found.contains(&format!("{of_march} {named}")), "{found}");
    app.leave_unbalanced(DONE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_nobody_will_end_is_found_and_named() {
    let app = in_march(json!([])).await;
    app.define("plans/plan", json!({ "quotas": [quota_of("50")] })).await;
    let pages = json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "promotional", "expires_at": "2026-03-20T00:00:00Z"
    });
    app.post_keyed("/v1/admin/grants", "a", pages).await.expect(201);
    app.drained().await;
    assert_eq!(faults(&app).await, "");
    tamper(&app, "DELETE FROM due_cuts WHERE tenant = 'acme' AND is_end").await;
    let found = faults(&app).await;
    assert!(found.contains("ends at 2026-03-20 00:00:00, where no cut is made or wanted"), "{found}");
    app.leave_unbalanced(DONE);
}
