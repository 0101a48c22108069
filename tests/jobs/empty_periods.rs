//! Periods that include nothing and are not used, of which something may go on: they are closed as any other.

use rstest::rstest;
use serde_json::{Value, json};

use super::continued_grants::{BOOKS, ended, granted, on, pair, until, used, voided, with};
use super::statements::{ISSUED, faults, in_march, per_page, run as billed};
use crate::ledger::rows;
use crate::support::app::*;

const CLOSED: &str =
    "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month FROM period_closures ORDER BY 1";

fn rolling() -> Value {
    quota_of("0").with("max_rollover", "100")
}

fn preserving() -> Value {
    quota_of("0").with("mode", "soft").with("preserve_overage", true)
}

/// Opens the next period as its last day does.
async fn opened_ahead(app: &TestApp, instant: &str) {
    on(app, instant).await;
    app.app().operations.memory.open_next_periods().await.unwrap();
}

/// March has a grant, and April nothing at all; it is May.
async fn idle_in_april(app: &TestApp) {
    granted(app, "march", until("2026-03-31T00:00:00Z", "10")).await;
    opened_ahead(app, "2026-03-31T12:00:00Z").await;
    on(app, "2026-04-10T12:00:00Z").await;
    opened_ahead(app, "2026-04-30T12:00:00Z").await;
    on(app, "2026-05-05T12:00:00Z").await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_the_period_after_ends_and_that_one_is_closed_and_billed(
    #[values(rolling(), preserving())] quota: Value,
    #[values(true, false)] is_voided: bool,
) {
    let app = in_march(json!([per_page("1")])).await;
    app.define("plans/plan", json!({ "quotas": [quota] })).await;
    idle_in_april(&app).await;
    assert_eq!(rows(&app.database, CLOSED).await, ["03", "04"]);
    let id = granted(&app, "may", until("2026-05-15T00:00:00Z", "50")).await;
    used(&app, "may", "20").await;
    let status = if is_voided {
        voided(&app, &id).await.expect(200);
        "voided"
    } else {
        on(&app, "2026-05-15T00:00:00Z").await;
        "expired"
    };
    assert_eq!(ended(&app, &id).await, pair(status, "30"));
    app.move_clock("2026-06-10T12:00:00Z").await;
    billed(&app).await;
    assert_eq!(rows(&app.database, CLOSED).await, ["03", "04", "05"]);
    let issued = rows(&app.database, ISSUED).await;
    assert!(issued.last().is_some_and(|last| last.ends_with("2026-05 20")), "{issued:?}");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_lowered_in_the_period_after_takes_what_is_left() {
    let app = with(rolling()).await;
    app.define("plans/more", json!({ "quotas": [quota_of("20").with("max_rollover", "100")] })).await;
    granted(&app, "march", until("2026-03-31T00:00:00Z", "10")).await;
    opened_ahead(&app, "2026-03-31T12:00:00Z").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    app.define("tenants/acme", json!({ "plan": "more", "plan_from": "next_period" })).await;
    on(&app, "2026-05-05T12:00:00Z").await;
    used(&app, "may", "5").await;
    app.define("tenants/acme", json!({ "plan": "plan", "plan_from": "now" })).await;
    app.app().operations.plan_changes.follow().await.unwrap();
    on(&app, "2026-05-06T12:00:00Z").await;
    let changed = "SELECT changed::float8 AS c FROM quota_changes";
    assert_eq!(rows(&app.database, changed).await, ["-15"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn months_without_a_run_and_without_use_are_closed_one_after_the_other() {
    let app = with(rolling()).await;
    granted(&app, "march", until("2026-03-31T00:00:00Z", "10")).await;
    on(&app, "2026-06-10T12:00:00Z").await;
    assert_eq!(rows(&app.database, CLOSED).await, ["03", "04", "05"]);
    let books = ["03 10 0 0 0 0 10 0", "04 0 0 0 0 0 0 0", "05 0 0 0 0 0 0 0", "06 0 0 0 0 0 0 0"];
    assert_eq!(rows(&app.database, BOOKS).await, books);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_which_nothing_may_go_on_has_no_balance_and_holds_up_nothing() {
    let app = with(quota_of("0")).await;
    idle_in_april(&app).await;
    let id = granted(&app, "may", until("2026-05-15T00:00:00Z", "50")).await;
    on(&app, "2026-05-15T00:00:00Z").await;
    assert_eq!(ended(&app, &id).await, pair("expired", "50"));
    assert_eq!(rows(&app.database, BOOKS).await, ["03 10 0 0 0 0 10 0", "05 50 0 0 0 0 50 0"]);
    app.finish().await;
}

/// The quota is gone before the period begins that is open ahead.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_withdrawn_before_it_begins_leaves_no_balance() {
    let app = with(rolling()).await;
    granted(&app, "march", until("2026-03-31T00:00:00Z", "10")).await;
    opened_ahead(&app, "2026-03-31T12:00:00Z").await;
    app.define("plans/plan", json!({ "quotas": [] })).await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    on(&app, "2026-05-10T12:00:00Z").await;
    assert_eq!(rows(&app.database, BOOKS).await, ["03 10 0 0 0 0 10 0"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}
