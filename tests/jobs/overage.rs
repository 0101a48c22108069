//! Overage that the next period pays for.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tollgate::ledger::{Closed, Manner, VerifyOptions, verify};

use super::statements::{ISSUED, faults, in_march, run as close_and_bill};
use crate::http::events::{event, send};
use crate::http::statements::price;
use crate::ledger::{as_owner, rows};
use crate::support::app::*;

const GRACE: Duration = Duration::from_secs(3600);
const BOOKS: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, consumed::float8 AS c, overage::float8 AS o, \
    repaid::float8 AS r, lapsed::float8 AS l, available::float8 AS a FROM balances ORDER BY period_start";
const CLOSURES: &str =
    "SELECT overage::float8 AS o, paid_by_next::float8 AS r FROM period_closures ORDER BY period_start";

/// Fifty pages a month, more is measured, and the next month pays for it.
fn preserving() -> Value {
    quota_of("50").with("mode", "soft").with("preserve_overage", true)
}

/// A tenant with such a quota that has used so many pages of it in March, on the second of April.
async fn after_march(quota: Value, used: u32) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota])).await;
    app.use_pages("march", used).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    app
}

async fn run(app: &TestApp) -> Closed {
    let closed = app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap();
    app.drained().await;
    closed
}

#[rstest]
#[case::less_than_the_next_period_includes(70, "20 20", "30")]
#[case::more_than_that(130, "80 50", "0")]
#[case::none(50, "0 0", "50")]
#[tokio::test(flavor = "multi_thread")]
async fn what_was_used_beyond_a_quota_is_paid_from_what_the_next_period_includes(
    #[case] used: u32,
    #[case] closure: &str,
    #[case] remaining: &str,
) {
    let app = after_march(preserving(), used).await;
    assert_eq!(run(&app).await.closed, 1);
    assert_eq!(rows(&app.database, CLOSURES).await, [closure]);
    assert_eq!(app.quota().await.text("/quotas/0/remaining"), remaining);
    assert_eq!(run(&app).await.closed, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_period_pays_by_what_it_opened_with_and_not_by_what_is_left_when_the_job_runs() {
    let app = after_march(preserving(), 70).await;
    app.use_pages("april", 45).await.expect(201);
    run(&app).await;
    assert_eq!(rows(&app.database, BOOKS).await, ["03 70 20 0 0 0", "04 45 0 20 0 -15"]);
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, CLOSURES).await, ["20 20", "15 15"], "May pays for April in turn");
    app.finish().await;
}

/// The plan from the last day of March on, whether April was opened before that, and what April pays and has left.
#[rstest]
#[case::less_that_is_open_already("small", true, "70 20", "0")]
#[case::less_that_is_not("small", false, "70 20", "0")]
#[case::more_that_is_open_already("large", true, "70 70", "10")]
#[case::more_that_is_not("large", false, "70 70", "10")]
#[tokio::test(flavor = "multi_thread")]
async fn the_next_period_pays_by_the_plan_that_held_when_it_began(
    #[case] plan: &str,
    #[case] is_open: bool,
    #[case] closure: &str,
    #[case] remaining: &str,
) {
    let app = an_app().at("2026-03-31T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([preserving()])).await;
    for (plan, included) in [("small", "20"), ("large", "80")] {
        app.define(&format!("plans/{plan}"), json!({ "quotas": [preserving().with("included", included)] }))
            .await;
    }
    app.use_pages("march", 120).await.expect(201);
    let operations = &app.app().operations;
    if is_open {
        operations.memory.open_next_periods().await.unwrap();
    }
    app.define("tenants/acme", json!({ "plan": plan, "plan_from": "next_period" })).await;
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    operations.plan_changes.follow().await.unwrap();
    assert_eq!(rows(&app.database, CLOSURES).await, [closure]);
    assert_eq!(app.quota().await.text("/quotas/0/remaining"), remaining);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_period_repaid_has_burnt_its_included_amount() {
    let app = after_march(preserving().with("max_rollover", "50"), 70).await;
    app.use_pages("april", 10).await.expect(201);
    run(&app).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let rolled = "SELECT rolled::float8 AS r FROM period_closures ORDER BY period_start";
    assert_eq!(rows(&app.database, rolled).await, ["0", "20"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_paid_where_the_quota_is_gone_and_what_is_changed_is_found_and_named() {
    let app = after_march(preserving(), 70).await;
    run(&app).await;
    as_owner(&app.database, "UPDATE period_closures SET paid_by_next = 19").await.unwrap();
    let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
    let faults: Vec<_> = report.checks.iter().flat_map(|check| &check.faults).collect();
    assert!(faults.iter().any(|fault| fault.detail.contains("repaid 20.000000000 of 19")), "{faults:?}");
    as_owner(&app.database, "UPDATE period_closures SET paid_by_next = 20").await.unwrap();
    app.use_pages("april", 60).await.expect(201);
    app.with_plan(json!([]), json!([])).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, CLOSURES).await, ["20 20", "30 0"]);
    app.finish().await;
}

#[rstest]
#[case::it_is_all_of_the_overage(50, "5 0", "0")]
#[case::there_was_more(57, "12 7", "0")]
#[case::more_than_the_next_period_includes(120, "75 50", "20")]
#[tokio::test(flavor = "multi_thread")]
async fn late_use_of_a_billed_period_is_billed_by_its_note_alone_and_repaid_by_no_other_period(
    #[case] used: u32,
    #[case] closure: &str,
    #[case] billed: &str,
    #[values(false, true)] is_billed_first: bool,
) {
    let beyond = price(json!({ "model": "per_unit", "unit": "1", "charge_on": "overage" }));
    let app = in_march(json!([beyond])).await;
    app.define("plans/plan", json!({ "quotas": [preserving()] })).await;
    app.use_pages("march", 50).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    if is_billed_first {
        close_and_bill(&app).await;
    }
    app.use_pages("april", used).await.expect(201);
    send(&app, &event("late", 5, Some("2026-03-20T10:00:00Z"))).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    close_and_bill(&app).await;
    let closures = "SELECT overage::float8 AS o, paid_by_next::float8 AS r FROM period_closures \
        WHERE meter = 'page' ORDER BY period_start";
    assert_eq!(rows(&app.database, closures).await, ["0 0", closure]);
    let april = format!("2 2026-04 {billed}");
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 0", &april, "3 1 2026-03 5"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}
