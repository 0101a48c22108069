//! Rollover: the least that goes on, for how many periods it does, and whether again.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tollgate::ledger::{Closed, Manner, VerifyOptions, verify};

use crate::ledger::{as_owner, rows};
use crate::support::app::*;

const GRACE: Duration = Duration::from_secs(3600);
const BOOKS: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, granted::float8 AS g, rolled_in::float8 AS i, \
    available::float8 AS a, consumed::float8 AS c, rolled_out::float8 AS r, lapsed::float8 AS l FROM balances ORDER BY period_start";

/// Tenant `acme` with a quota of fifty pages a month on these terms, in UTC, on the tenth of March, where no job runs
/// by itself.
async fn app(terms: Value) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([on(terms)])).await;
    app
}

fn on(terms: Value) -> Value {
    terms
        .as_object()
        .unwrap()
        .iter()
        .fold(quota_of("50"), |quota, (field, value)| quota.with(field, value.clone()))
}

async fn run(app: &TestApp) -> Closed {
    app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap()
}

/// Uses so many pages on the tenth of this month of 2026, and closes what has ended before.
async fn month(app: &TestApp, number: u32, amount: &str) {
    app.move_clock(&format!("2026-{number:02}-10T12:00:00Z")).await;
    while run(app).await.closed > 0 {}
    app.use_pages(&format!("month-{number}"), amount).await.expect(201);
    app.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_to_the_least_is_granted_to_the_next_period() {
    let app = app(json!({ "max_rollover": "30", "min_rollover": "20" })).await;
    month(&app, 3, "45").await;
    month(&app, 4, "70").await;
    assert_eq!(
        app.use_pages("more", "1").await.status,
        429,
        "twenty more than is included, five of them unused"
    );
    month(&app, 5, "10").await;
    month(&app, 6, "80").await;
    let books = ["03 50 0 0 45 5 0", "04 65 5 0 70 0 0", "05 70 0 0 10 30 30", "06 50 30 0 80 0 0"];
    assert_eq!(rows(&app.database, BOOKS).await, books, "what was granted beside it lapses with its period");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_after_each_period_is_the_least_and_the_most_at_once() {
    let app = app(json!({ "max_rollover": "20", "min_rollover": "20" })).await;
    month(&app, 3, "50").await;
    month(&app, 4, "10").await;
    app.move_clock("2026-06-10T12:00:00Z").await;
    while run(&app).await.closed > 0 {}
    let quota = app.quota().await;
    let figures =
        ["granted", "rolled_in", "remaining"].map(|field| quota.text(&format!("/quotas/0/{field}")));
    assert_eq!(figures, ["50", "20", "70"]);
    let books = ["03 50 0 0 50 0 0", "04 70 0 0 10 20 40", "05 50 20 0 0 20 50", "06 50 20 70 0 0 0"];
    assert_eq!(rows(&app.database, BOOKS).await, books);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_rolled_over_counts_in_so_many_periods_and_what_ends_first_burns_first() {
    let app = app(json!({ "max_rollover": "25", "rollover_periods": 2 })).await;
    month(&app, 3, "30").await;
    month(&app, 4, "10").await;
    month(&app, 5, "60").await;
    month(&app, 6, "75").await;
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    let books = [
        "03 50 0 0 30 20 0",
        // Of forty unused twenty-five go on; so do the twenty of March.
        "04 50 20 0 10 45 15",
        // Ten of March's twenty are burnt, the others have had their two periods.
        "05 50 45 0 60 25 10",
        "06 50 25 0 75 0 0",
    ];
    assert_eq!(rows(&app.database, BOOKS).await, books);
    app.finish().await;
}

#[rstest]
#[case::in_its_next_period(json!({ "max_rollover": "40", "reroll": true }), &[
    "03 50 0 0 30 20 0", "04 50 20 0 10 40 20", "05 50 40 0 70 20 0", "06 50 20 70 0 0 0"
])]
#[case::after_its_last_one(json!({ "max_rollover": "15", "rollover_periods": 2, "reroll": true }), &[
    "03 50 0 0 30 15 5", "04 50 15 0 10 30 25", "05 50 30 0 70 10 0", "06 50 10 60 0 0 0"
])]
#[tokio::test(flavor = "multi_thread")]
async fn with_reroll_what_is_left_goes_on_again_within_the_same_bound(
    #[case] terms: Value,
    #[case] books: &[&str],
) {
    let app = app(terms).await;
    month(&app, 3, "30").await;
    month(&app, 4, "10").await;
    month(&app, 5, "70").await;
    app.move_clock("2026-06-10T12:00:00Z").await;
    while run(&app).await.closed > 0 {}
    assert_eq!(rows(&app.database, BOOKS).await, books);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_over_for_two_periods_goes_on_although_the_plan_no_longer_lets_anything_roll_over() {
    let app = app(json!({ "max_rollover": "50", "rollover_periods": 3 })).await;
    month(&app, 3, "30").await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    month(&app, 4, "50").await;
    month(&app, 5, "55").await;
    month(&app, 6, "1").await;
    month(&app, 7, "1").await;
    let books = [
        "03 50 0 0 30 20 0",
        "04 50 20 0 50 20 0",
        "05 50 20 0 55 15 0",
        "06 50 15 0 1 0 64",
        "07 50 0 49 1 0 0",
    ];
    assert_eq!(rows(&app.database, BOOKS).await, books);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_returns_of_a_carried_hold_counts_as_long_as_what_rolled_over_with_it() {
    let app = app(json!({ "max_rollover": "30", "rollover_periods": 2 })).await;
    app.move_clock("2026-03-31T23:30:00Z").await;
    app.use_pages("march", "30").await.expect(201);
    let id = app.held(pages("15").lasting(36_000)).await;
    app.move_clock("2026-04-01T02:00:00Z").await;
    while run(&app).await.closed > 0 {}
    app.release(&id).await.expect(200);
    app.drained().await;
    run(&app).await;
    let rolled = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, periods_left, amount::float8 AS a, \
        rolled::float8 AS r FROM rolled_amounts ORDER BY period_start, ends_at";
    assert_eq!(rows(&app.database, rolled).await, ["04 1 20 5"]);
    month(&app, 4, "50").await;
    app.move_clock("2026-05-10T12:00:00Z").await;
    while run(&app).await.closed > 0 {}
    assert_eq!(rows(&app.database, rolled).await, ["04 1 20 5", "05 0 20 20"]);
    app.use_pages("may", "70").await.expect(201);
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_pays_for_preserved_overage_too() {
    let terms =
        json!({ "max_rollover": "20", "min_rollover": "20", "mode": "soft", "preserve_overage": true });
    let app = app(terms).await;
    month(&app, 3, "115").await;
    app.move_clock("2026-04-10T12:00:00Z").await;
    while run(&app).await.closed > 0 {}
    let paid =
        "SELECT overage::float8 AS o, paid_by_next::float8 AS p, added::float8 AS a FROM period_closures";
    assert_eq!(rows(&app.database, paid).await, ["65 65 20"]);
    assert_eq!(app.quota().await.text("/quotas/0/remaining"), "5");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_names_an_amount_that_came_over_and_is_not_booked() {
    let app = app(json!({ "max_rollover": "30", "min_rollover": "10", "rollover_periods": 2 })).await;
    month(&app, 3, "45").await;
    month(&app, 4, "1").await;
    for (change, undo) in [
        ("UPDATE rolled_amounts SET amount = amount + 1", "UPDATE rolled_amounts SET amount = amount - 1"),
        ("UPDATE rolled_amounts SET rolled = rolled + 1", "UPDATE rolled_amounts SET rolled = rolled - 1"),
        ("UPDATE period_closures SET added = added + 1", "UPDATE period_closures SET added = added - 1"),
    ] {
        as_owner(&app.database, change).await.unwrap();
        let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
        let faults: Vec<_> = report.checks.iter().flat_map(|check| &check.faults).collect();
        assert!(!faults.is_empty(), "{change}");
        assert!(faults.iter().all(|fault| fault.what.contains("acme page")), "{faults:?}");
        as_owner(&app.database, undo).await.unwrap();
    }
    app.finish().await;
}

#[tokio::test]
async fn terms_that_contradict_one_another_are_named() {
    let app = an_app().without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    for (terms, pointer) in [
        (json!({ "max_rollover": "5", "min_rollover": "6" }), "/quotas/0/min_rollover"),
        (json!({ "min_rollover": "1" }), "/quotas/0/min_rollover"),
        (json!({ "max_rollover": "5", "min_rollover": "0.5" }), "/quotas/0/min_rollover"),
        (json!({ "max_rollover": "5", "rollover_periods": 0 }), "/quotas/0/rollover_periods"),
        (json!({ "max_rollover": "5", "rollover_periods": 37 }), "/quotas/0/rollover_periods"),
        (json!({ "rollover_periods": 2 }), "/quotas/0/rollover_periods"),
        (json!({ "reroll": true }), "/quotas/0/reroll"),
    ] {
        let plan = json!({ "id": "plan", "quotas": [on(terms.clone())] });
        let answer = app.put("/v1/admin/plans/plan", plan).await;
        assert_eq!((answer.status, answer.pointers()), (422, vec![pointer]), "{terms}: {answer:?}");
    }
    app.finish().await;
}
