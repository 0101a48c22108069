//! Rollover: what is unused of a closed period and may go on to the next one.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rstest::rstest;
use serde_json::{Value, json};
use tollgate::app::Role;
use tollgate::ledger::{Closed, Manner, VerifyOptions, verify};

use crate::http::events::{event, send};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;

const GRACE: Duration = Duration::from_secs(3600);
const CLOSURES: &str = "SELECT period_start AT TIME ZONE 'UTC' AS start, rolled::float8 AS r, lapsed::float8 AS l, \
    overage::float8 AS o FROM period_closures ORDER BY 1";
const BOOKS: &str = "SELECT period_start AT TIME ZONE 'UTC' AS start, granted::float8 AS g, rolled_in::float8 AS i, \
    available::float8 AS a, consumed::float8 AS c, rolled_out::float8 AS r, lapsed::float8 AS l \
    FROM balances WHERE tenant = 'acme' ORDER BY 1";

/// A quota of fifty pages a month, of which so many may go on to the next month.
fn rolling(max_rollover: &str) -> Value {
    quota_of("50").with("max_rollover", max_rollover)
}

/// A tenant with such a quota, in UTC, at this time, where no job runs by itself.
async fn at(now: &str, max_rollover: &str) -> TestApp {
    let app = an_app().at(now).without_jobs().start().await;
    app.with_plan(json!([]), json!([rolling(max_rollover)])).await;
    app
}

async fn used(app: &TestApp, key: &str, amount: &str) {
    app.use_pages(key, amount).await.expect(201);
}

async fn run(app: &TestApp) -> Closed {
    app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap()
}

fn closed(closed: u64, waiting: u64) -> Closed {
    Closed { closed, waiting, failed: 0 }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unused_goes_on_up_to_the_bound_and_is_used_in_the_next_period() {
    let app = at("2026-03-10T12:00:00Z", "15").await;
    used(&app, "march", "30").await;
    app.move_clock("2026-04-01T00:30:00Z").await;
    used(&app, "april", "50").await;
    assert_eq!(app.use_pages("early", "1").await.status, 429, "nothing goes on before the close");
    app.move_clock("2026-04-01T01:00:00Z").await;
    assert_eq!(run(&app).await, closed(1, 0));
    assert_eq!(rows(&app.database, CLOSURES).await, ["2026-03-01T00:00:00 15 5 0"]);
    let quota = app.quota().await;
    let figures =
        ["granted", "rolled_in", "remaining"].map(|field| quota.text(&format!("/quotas/0/{field}")));
    assert_eq!(figures, ["50", "15", "15"]);
    used(&app, "rolled", "15").await;
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    app.drained().await;
    let books = ["2026-03-01T00:00:00 50 0 0 30 15 5", "2026-04-01T00:00:00 50 15 0 65 0 0"];
    assert_eq!(rows(&app.database, BOOKS).await, books);
    assert_eq!(run(&app).await, closed(0, 0));
    assert_eq!(rows(&app.database, BOOKS).await, books, "once");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_over_burns_after_the_included_amount_and_does_not_go_on_again() {
    let app = at("2026-03-10T12:00:00Z", "40").await;
    used(&app, "march", "20").await;
    app.move_clock("2026-04-10T12:00:00Z").await;
    used(&app, "april", "15").await;
    assert_eq!(run(&app).await, closed(1, 0));
    app.move_clock("2026-05-10T12:00:00Z").await;
    used(&app, "may", "1").await;
    assert_eq!(run(&app).await, closed(1, 0));
    app.drained().await;
    let books = [
        "2026-03-01T00:00:00 50 0 0 20 30 0",
        "2026-04-01T00:00:00 50 30 0 15 35 30",
        "2026-05-01T00:00:00 50 35 84 1 0 0",
    ];
    assert_eq!(rows(&app.database, BOOKS).await, books);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn months_without_a_run_and_without_use_end_as_if_each_had_been_closed_in_time() {
    let app = at("2026-01-10T12:00:00Z", "100").await;
    used(&app, "january", "10").await;
    app.move_clock("2026-04-10T12:00:00Z").await;
    let mut done = Closed::default();
    while done.closed < 3 {
        done.add(run(&app).await);
    }
    assert_eq!(done, closed(3, 0));
    assert_eq!(run(&app).await, closed(0, 0));
    let books = [
        "2026-01-01T00:00:00 50 0 0 10 40 0",
        "2026-02-01T00:00:00 50 40 0 0 50 40",
        "2026-03-01T00:00:00 50 50 0 0 50 50",
        "2026-04-01T00:00:00 50 50 100 0 0 0",
    ];
    assert_eq!(rows(&app.database, BOOKS).await, books, "each month's fifty go on, once");
    used(&app, "april", "100").await;
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_on_where_the_tenant_has_lost_the_quota_and_a_new_bound_holds_from_the_next_period_on() {
    let app = at("2026-03-10T12:00:00Z", "50").await;
    used(&app, "march", "30").await;
    app.with_plan(json!([]), json!([rolling("5")])).await;
    app.move_clock("2026-04-01T12:00:00Z").await;
    used(&app, "april", "10").await;
    assert_eq!(run(&app).await, closed(1, 0));
    app.with_plan(json!([]), json!([])).await;
    app.move_clock("2026-05-01T12:00:00Z").await;
    assert_eq!(run(&app).await, closed(1, 0));
    let closures = ["2026-03-01T00:00:00 20 0 0", "2026-04-01T00:00:00 0 60 0"];
    assert_eq!(rows(&app.database, CLOSURES).await, closures);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_burns_first_spares_the_included_amount_and_its_own_rest_lapses() {
    let app = at("2026-03-10T12:00:00Z", "50").await;
    let grant = json!({
        "tenant": "acme", "meter": "page", "amount": "20", "kind": "promotional", "priority": 10,
        "expires_at": "2026-04-01T00:00:00Z"
    });
    app.post_keyed("/v1/admin/grants", "a", grant).await.expect(201);
    app.app().operations.grants.follow().await.unwrap();
    used(&app, "march", "25").await;
    app.move_clock("2026-04-01T12:00:00Z").await;
    assert_eq!(run(&app).await, closed(1, 0));
    assert_eq!(rows(&app.database, CLOSURES).await, ["2026-03-01T00:00:00 45 0 0"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_at_once_and_a_run_that_dies_before_the_gate_has_it_roll_over_once() {
    let app = at("2026-03-10T12:00:00Z", "20").await;
    let other = app.another_instance_with(&[Role::Http]).await;
    used(&app, "march", "30").await;
    app.move_clock("2026-04-01T12:00:00Z").await;
    used(&app, "april", "50").await;
    app.drained().await;
    let operations = &app.app().operations;
    let runs = (0..3).map(|_| operations.periods.close(Manner::default(), GRACE));
    let done: u64 = futures::future::join_all(runs).await.into_iter().map(|done| done.unwrap().closed).sum();
    assert_eq!(done, 1);
    // The job of grants sends what a run that died has left.
    operations.grants.follow().await.unwrap();
    let there = app.caller().at(other.url());
    assert_eq!(there.post(RESERVATIONS, pages("20")).await.status, 201);
    assert_eq!(there.post(RESERVATIONS, pages("1")).await.status, 429);
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_rolled_over_is_there_again_after_redis_has_lost_its_memory() {
    let app = at("2026-03-10T12:00:00Z", "20").await;
    used(&app, "march", "30").await;
    app.move_clock("2026-04-01T12:00:00Z").await;
    used(&app, "april", "50").await;
    assert_eq!(run(&app).await, closed(1, 0));
    app.drained().await;
    app.redis.flush().await;
    used(&app, "rolled", "20").await;
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollover_that_is_changed_is_found_and_named() {
    let app = at("2026-03-10T12:00:00Z", "15").await;
    used(&app, "march", "30").await;
    app.move_clock("2026-04-02T00:00:00Z").await;
    assert_eq!(run(&app).await, closed(1, 0));
    for (change, undo, names) in [
        (
            "UPDATE period_closures SET rolled = rolled + 1",
            "UPDATE period_closures SET rolled = rolled - 1",
            "16.000000000 rolled over",
        ),
        (
            "UPDATE period_closures SET period_end = period_end + interval '1 day'",
            "UPDATE period_closures SET period_end = period_end - interval '1 day'",
            "the next period got",
        ),
    ] {
        as_owner(&app.database, change).await.unwrap();
        let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
        let faults: Vec<_> = report.checks.iter().flat_map(|check| &check.faults).collect();
        assert!(
            !faults.is_empty() && faults.iter().all(|fault| fault.what.contains("acme page")),
            "{faults:?}"
        );
        assert!(faults.iter().any(|fault| fault.detail.contains(names)), "{faults:?}");
        as_owner(&app.database, undo).await.unwrap();
    }
    app.finish().await;
}

/// The books of a tenant whose grant ends soon after a period has begun, with the close of the period before in time or
/// after that end.
async fn books_with_a_short_grant(in_time: bool) -> Vec<String> {
    let app = at("2026-03-10T12:00:00Z", "20").await;
    used(&app, "march", "20").await;
    app.move_clock("2026-04-01T00:10:00Z").await;
    let grant = json!({
        "tenant": "acme", "meter": "page", "amount": "30", "kind": "promotional", "priority": 60,
        "expires_at": "2026-04-01T02:00:00Z"
    });
    app.post_keyed("/v1/admin/grants", "short", grant).await.expect(201);
    app.drained().await;
    send(&app, &event("april", 65, None)).await;
    if in_time {
        app.move_clock("2026-04-01T01:01:00Z").await;
        app.drained().await;
        assert_eq!(run(&app).await, closed(1, 0));
    }
    app.move_clock("2026-04-01T03:00:00Z").await;
    app.drained().await;
    app.app().operations.grants.follow().await.unwrap();
    run(&app).await;
    app.app().operations.grants.follow().await.unwrap();
    app.drained().await;
    let books = rows(&app.database, BOOKS).await;
    app.finish().await;
    books
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_grant_leaves_does_not_depend_on_when_the_period_before_was_closed() {
    let (in_time, late) = tokio::join!(books_with_a_short_grant(true), books_with_a_short_grant(false));
    assert_eq!(in_time, ["2026-03-01T00:00:00 50 0 0 20 20 10", "2026-04-01T00:00:00 80 20 5 65 0 30"]);
    assert_eq!(late, in_time);
}

/// What a year has in one month: pages of events and, in some months, of a grant with a priority.
type Month = (u32, Option<(u32, u8)>);

fn a_year(seed: u64) -> Vec<Month> {
    let mut random = StdRng::seed_from_u64(seed);
    let grant = |random: &mut StdRng| (random.random_range(1..40), random.random_range(40..60));
    (0..12)
        .map(|_| {
            let pages = if random.random_bool(0.2) { 0 } else { random.random_range(1..90) };
            (pages, random.random_bool(0.5).then(|| grant(&mut random)))
        })
        .collect()
}

/// The books and the entries of closes after such a year, closed each month or, after ten months without a run, at its
/// end.
async fn books_of(year: &[Month], terms: &Value, in_time: bool) -> [Vec<String>; 2] {
    let app = at("2026-01-02T00:00:00Z", "25").await;
    app.with_plan(json!([]), json!([terms])).await;
    for (month, (amount, grant)) in (1..).zip(year) {
        app.move_clock(&format!("2026-{month:02}-10T12:00:00Z")).await;
        app.drained().await;
        if in_time || month == 11 {
            while run(&app).await.closed > 0 {}
        }
        if let Some((granted, priority)) = grant {
            let (next_year, next) = (2026 + month / 12, month % 12 + 1);
            let body = json!({
                "tenant": "acme", "meter": "page", "amount": granted.to_string(), "kind": "promotional",
                "priority": priority, "expires_at": format!("{next_year}-{next:02}-01T00:00:00Z")
            });
            app.post_keyed("/v1/admin/grants", &format!("grant-{month}"), body).await.expect(201);
            app.drained().await;
        }
        if *amount > 0 {
            send(&app, &event(&format!("event-{month}"), *amount, None)).await;
        }
        app.drained().await;
        app.app().operations.grants.follow().await.unwrap();
    }
    app.move_clock("2027-01-10T12:00:00Z").await;
    app.drained().await;
    while run(&app).await.closed > 0 {}
    app.drained().await;
    let entries = "SELECT period_start AT TIME ZONE 'UTC' AS start, happened_at AT TIME ZONE 'UTC' AS at, credit, debit, \
        amount::float8 AS a FROM entries WHERE class = 'period' ORDER BY 2, 1, 3, 4";
    let books = [rows(&app.database, BOOKS).await, rows(&app.database, entries).await];
    app.finish().await;
    books
}

/// A quota of fifty pages on random terms of rollover.
fn terms(seed: u64) -> Value {
    let mut random = StdRng::seed_from_u64(seed);
    let max: u32 = random.random_range(5..60);
    let quota = rolling(&max.to_string()).with("min_rollover", random.random_range(0..=max).to_string());
    let quota = quota.with("rollover_periods", random.random_range(1..=4));
    quota.with("reroll", random.random_bool(0.5))
}

#[rstest]
#[case::plain(1, rolling("25"))]
#[case::plain(6, rolling("25"))]
#[case::on_all_terms(14, terms(14))]
#[case::on_all_terms(15, terms(15))]
#[case::on_all_terms(16, terms(16))]
#[tokio::test(flavor = "multi_thread")]
async fn a_year_whose_closes_were_late_has_the_books_of_one_that_was_closed_in_time(
    #[case] seed: u64,
    #[case] terms: Value,
) {
    let year = a_year(seed);
    let (in_time, late) = tokio::join!(books_of(&year, &terms, true), books_of(&year, &terms, false));
    assert_eq!(in_time[0].len(), 13, "each month, also without use, and the open one: {in_time:?}");
    assert!(in_time[1].iter().any(|entry| entry.contains("rolled_in")), "{in_time:?}");
    assert_eq!(late, in_time, "{year:?} {terms}");
}

#[tokio::test]
async fn a_bound_that_the_meter_cannot_count_is_named() {
    let app = an_app().without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    for value in ["0.5", "-1", "x"] {
        let plan = json!({ "id": "plan", "quotas": [rolling(value)] });
        let answer = app.put("/v1/admin/plans/plan", plan).await;
        assert_eq!((answer.status, answer.pointers()), (422, vec!["/quotas/0/max_rollover"]), "{answer:?}");
    }
    app.finish().await;
}
