//! Holds that are open when their period is closed, and facts that come later than that.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rstest::rstest;
use serde_json::{Value, json};
use tollgate::ledger::{Closed, Manner, VerifyOptions, verify};

use crate::http::events::{event, send};
use crate::http::statements::price;
use crate::jobs::statements::{per_page, run as billed};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const GRACE: Duration = Duration::from_secs(3600);
const BOOKS: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, available::float8 AS a, reserved::float8 AS r, \
    consumed::float8 AS c, lapsed::float8 AS l, overage::float8 AS o, carried_in::float8 AS i, carried_out::float8 AS u \
    FROM balances WHERE tenant = 'acme' ORDER BY period_start";
const CORRECTIONS: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, credit, debit, amount::float8 AS a, late, \
    happened_at AT TIME ZONE 'UTC' AS at FROM entries WHERE class = 'correction' ORDER BY 4";

/// A quota of fifty pages a month.
fn fifty() -> Value {
    quota_of("50")
}

/// A tenant with this quota, in UTC, half an hour before the end of March, where no job runs by itself.
async fn at_the_end_of_march(quota: Value) -> TestApp {
    let app = an_app().at("2026-03-31T23:30:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota])).await;
    app
}

async fn run(app: &TestApp) -> Closed {
    let closed = app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap();
    app.drained().await;
    closed
}

async fn held(app: &TestApp, amount: &str) -> String {
    app.held(pages(amount).lasting(86_400)).await
}

/// Has every hold expire that is due.
async fn swept(app: &TestApp) {
    app.swept(&app.app().operations.partitions().collect::<Vec<_>>()).await;
    app.drained().await;
}

const IN_MARCH: &[&str] = &["03 28 0 0"];
const IN_APRIL: &[&str] = &["03 10 0 29", "04 18 29 0"];
const IN_MAY: &[&str] = &["03 10 0 29", "04 0 29 29", "05 18 29 0"];
const DOCUMENTS: &str =
    "SELECT number, encode(hash, 'hex') AS hash, document FROM statements ORDER BY number";

#[rstest]
#[case::before_the_end("2026-03-31T23:59:59.999Z", IN_MARCH)]
#[case::at_the_end("2026-04-01T00:00:00Z", IN_MARCH)]
#[case::after_the_end("2026-04-01T00:00:00.001Z", IN_MARCH)]
#[case::before_the_grace_is_over("2026-04-01T00:59:59.999Z", IN_MARCH)]
#[case::when_it_is_over("2026-04-01T01:00:00Z", IN_APRIL)]
#[case::after_it_was_over("2026-04-01T01:00:00.001Z", IN_APRIL)]
#[case::hours_later("2026-04-01T20:00:00Z", IN_APRIL)]
#[case::forty_days_later("2026-05-10T12:00:00Z", IN_MAY)]
#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_of_an_open_hold_is_booked_in_its_period_until_that_is_closed_and_then_in_the_next(
    #[case] when: &str,
    #[case] expected: &[&str],
    #[values(false, true)] is_closed_first: bool,
) {
    let app = at_the_end_of_march(fifty()).await;
    let late_for_long =
        json!({ "unit": "page", "without_limit": "unlimited", "late_within_seconds": 10_000_000 });
    app.define("meters/page", late_for_long).await;
    app.define("plans/plan", json!({ "prices": [per_page("1")] })).await;
    app.use_pages("march", "10").await.expect(201);
    let (used, unused) = (held(&app, "20").await, held(&app, "5").await);
    let late = app.held(pages("3").lasting(60)).await;
    app.move_clock("2026-03-31T23:32:00Z").await;
    swept(&app).await;
    app.held(pages("4").lasting(600)).await;
    app.move_clock(when).await;
    app.drained().await;
    let closed = "SELECT * FROM period_closures WHERE period_start < '2026-03-30'";
    if is_closed_first {
        billed(&app).await;
    }
    let before = rows(&app.database, closed).await;
    assert_eq!(before.len(), usize::from(is_closed_first && expected.len() > 1));
    let documents = rows(&app.database, DOCUMENTS).await;
    assert_eq!(documents.is_empty(), before.is_empty());
    app.consume(&used, "15").await.expect(200);
    app.release(&unused).await.expect(200);
    assert_eq!(app.consume(&late, "3").await.expect(200).body["late"], true);
    swept(&app).await;
    // The books are sound before the job has booked what returned, and after.
    app.check_books().await;
    app.move_clock("2026-05-10T13:00:00Z").await;
    billed(&app).await;
    assert_eq!(rows(&app.database, DOCUMENTS).await[..documents.len()], documents, "to the byte");
    let figures = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, consumed::float8 AS c, carried_in::float8 AS i, \
        carried_out::float8 AS o FROM balances WHERE consumed + carried_in > 0 ORDER BY period_start";
    assert_eq!(rows(&app.database, figures).await, expected);
    if is_closed_first && expected.len() > 1 {
        assert_eq!(rows(&app.database, closed).await, before, "the closed period stays as it was");
    }
    assert_eq!(rows(&app.database, "SELECT count(*) FROM carried_returns").await, ["0"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_that_pushed_a_period_over_its_quota_are_charged_to_the_next_until_they_return() {
    let app = at_the_end_of_march(fifty()).await;
    let (more, open) = (held(&app, "30").await, held(&app, "20").await);
    app.consume(&more, "45").await.expect(200);
    app.move_clock("2026-04-01T02:00:00Z").await;
    assert_eq!(run(&app).await, Closed { closed: 1, ..Closed::default() });
    assert_eq!(rows(&app.database, BOOKS).await, ["03 0 0 45 0 0 0 5", "04 35 20 0 0 0 5 0"]);
    let figures = async || {
        let quota = app.quota().await;
        ["consumed", "carried", "remaining"].map(|field| quota.text(&format!("/quotas/0/{field}")).to_owned())
    };
    assert_eq!(figures().await, ["0", "20", "35"], "the gate has it at once");
    app.consume(&open, "8").await.expect(200);
    app.drained().await;
    run(&app).await;
    assert_eq!(rows(&app.database, BOOKS).await[1], "04 47 0 8 0 0 5 0", "three of the eight are April's");
    assert_eq!(figures().await, ["3", "0", "47"]);
    app.use_pages("all", "47").await.expect(201);
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_that_are_charged_and_stay_open_over_two_closes_are_folded_once() {
    let app = at_the_end_of_march(fifty()).await;
    let (more, _open) = (held(&app, "30").await, held(&app, "20").await);
    app.consume(&more, "45").await.expect(200);
    for closed in ["2026-04-01T02:00:00Z", "2026-05-01T02:00:00Z"] {
        app.move_clock(closed).await;
        app.get("/v1/tenants/acme/quota").await.expect(200);
        assert_eq!(run(&app).await, Closed { closed: 1, ..Closed::default() });
        app.check_books().await;
    }
    assert_eq!(rows(&app.database, BOOKS).await[1], "04 0 0 0 35 0 5 20");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_returns_goes_on_as_if_it_had_been_unused_at_the_close() {
    let app = at_the_end_of_march(fifty().with("max_rollover", "30")).await;
    app.use_pages("march", "10").await.expect(201);
    let (one, other) = (held(&app, "15").await, held(&app, "5").await);
    app.move_clock("2026-04-01T02:00:00Z").await;
    run(&app).await;
    let rolled = "SELECT rolled_in::float8 AS r FROM balances ORDER BY period_start";
    assert_eq!(rows(&app.database, rolled).await, ["0", "20"], "what is held is not unused");
    app.release(&other).await.expect(200);
    app.release(&one).await.expect(200);
    app.drained().await;
    run(&app).await;
    assert_eq!(rows(&app.database, BOOKS).await[1], "04 80 0 0 10 0 20 0", "ten more go on, as thirty may");
    app.use_pages("all", "80").await.expect(201);
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_consumed_of_a_carried_hold_burns_nothing_of_the_next_period() {
    let app = at_the_end_of_march(fifty().with("max_rollover", "50")).await;
    app.use_pages("march", "30").await.expect(201);
    let id = held(&app, "20").await;
    app.move_clock("2026-04-01T02:00:00Z").await;
    run(&app).await;
    app.consume(&id, "20").await.expect(200);
    app.use_pages("april", "10").await.expect(201);
    app.move_clock("2026-05-02T00:00:00Z").await;
    run(&app).await;
    let closures =
        "SELECT rolled::float8 AS r, lapsed::float8 AS l FROM period_closures ORDER BY period_start";
    assert_eq!(rows(&app.database, closures).await, ["0 0", "40 0"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_of_a_grant_that_ends_before_the_period_before_is_closed() {
    for is_late in [false, true] {
        let app = at_the_end_of_march(fifty()).await;
        app.use_pages("march", "30").await.expect(201);
        let id = held(&app, "20").await;
        app.move_clock("2026-04-01T02:00:00Z").await;
        if !is_late {
            run(&app).await;
        }
        let grant = json!({
            "tenant": "acme", "meter": "page", "amount": "30", "kind": "paid", "priority": 1,
            "expires_at": "2026-04-05T00:00:00Z"
        });
        app.post_keyed("/v1/admin/grants", "a", grant).await.expect(201);
        app.consume(&id, "20").await.expect(200);
        app.use_pages("april", "10").await.expect(201);
        app.move_clock("2026-04-06T00:00:00Z").await;
        app.drained().await;
        app.app().operations.grants.follow().await.unwrap();
        run(&app).await;
        app.app().operations.grants.follow().await.unwrap();
        let lapsed = "SELECT amount::float8 AS a FROM entries WHERE class = 'grant' AND debit = 'lapsed'";
        assert_eq!(rows(&app.database, lapsed).await, ["20"], "{is_late}");
        let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
        assert!(report.checks.iter().all(|check| check.faults.is_empty()), "{report:?}");
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_closed_period_is_a_correction_in_the_open_one_with_both_dates() {
    let app = at_the_end_of_march(fifty()).await;
    app.use_pages("march", "10").await.expect(201);
    app.move_clock("2026-04-01T00:30:00Z").await;
    send(&app, &event("in-time", 1, Some("2026-03-31T12:00:00Z"))).await;
    app.move_clock("2026-04-10T00:00:00Z").await;
    app.use_pages("april", "5").await.expect(201);
    send(&app, &event("late", 7, Some("2026-03-31T12:00:00Z"))).await;
    app.drained().await;
    assert_eq!(rows(&app.database, CORRECTIONS).await, ["04 available consumed 7 false 2026-03-31T12:00:00"]);
    run(&app).await;
    send(&app, &event("later", 8, Some("2026-03-31T13:00:00Z"))).await;
    app.drained().await;
    let closure = "SELECT lapsed::float8 AS l, overage::float8 AS o FROM period_closures";
    assert_eq!(rows(&app.database, closure).await, ["39 0"]);
    assert_eq!(rows(&app.database, BOOKS).await, ["03 0 0 11 39 0 0 0", "04 30 0 20 0 0 0 0"]);
    let usage = "SELECT consumed::float8 AS c FROM usage_hourly WHERE subject = 0 ORDER BY hour_at";
    assert_eq!(rows(&app.database, usage).await, ["8", "8", "10", "5"], "in the hours in which it was done");
    app.app().operations.grants.follow().await.unwrap();
    let quota = app.quota().await;
    let figures = ["granted", "consumed", "remaining"].map(|field| quota.text(&format!("/quotas/0/{field}")));
    assert_eq!(figures, ["50", "20", "30"]);
    assert_eq!(app.use_pages("more", "31").await.status, 429, "the gate has the lower capacity");
    app.use_pages("all", "30").await.expect(201);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_closed_period_opens_the_period_in_which_it_is_booked_and_not_its_own() {
    let app = an_app().at("2026-04-10T00:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([fifty().with("max_rollover", "50")])).await;
    send(&app, &event("late", 7, Some("2026-03-31T12:00:00Z"))).await;
    app.drained().await;
    assert_eq!(rows(&app.database, BOOKS).await, ["04 43 0 7 0 0 0 0"], "nothing of March rolls over");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_consume_of_a_hold_that_expired_before_the_close_is_a_correction() {
    let app = an_app().at("2026-03-31T23:30:00Z").start().await;
    app.with_plan(json!([]), json!([fifty()])).await;
    let id = app.held(pages("20").lasting(600)).await;
    app.move_clock("2026-04-01T00:50:00Z").await;
    wait_for("the hold expires", Duration::from_secs(30), async || {
        (app.read(&id).await.text("/status") == "expired").then_some(())
    })
    .await;
    app.move_clock("2026-04-01T01:00:00Z").await;
    app.use_pages("april", "1").await.expect(201);
    app.consume(&id, "12").await.expect(200);
    app.drained().await;
    wait_for("the gate has the lower capacity", Duration::from_secs(30), async || {
        (app.quota().await.text("/quotas/0/remaining") == "37").then_some(())
    })
    .await;
    assert_eq!(rows(&app.database, CORRECTIONS).await, ["04 available consumed 12 true 2026-04-01T01:00:00"]);
    run(&app).await;
    assert_eq!(rows(&app.database, BOOKS).await, ["03 0 0 0 50 0 0 0", "04 37 0 13 0 0 0 0"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_nobody_gives_back_is_carried_from_close_to_close() {
    let app = at_the_end_of_march(fifty()).await;
    let id = held(&app, "20").await;
    app.move_clock("2026-04-10T12:00:00Z").await;
    app.use_pages("april", "5").await.expect(201);
    app.move_clock("2026-06-02T12:00:00Z").await;
    app.use_pages("june", "5").await.expect(201);
    app.drained().await;
    while run(&app).await.closed > 0 {}
    let carried = ["03 0 0 0 30 0 0 20", "04 0 0 5 45 0 20 20", "05 0 0 0 50 0 20 20", "06 45 20 5 0 0 20 0"];
    assert_eq!(rows(&app.database, BOOKS).await, carried);
    app.consume(&id, "20").await.expect(200);
    app.drained().await;
    while run(&app).await.closed > 0 {}
    assert_eq!(rows(&app.database, BOOKS).await[3], "06 45 0 25 0 0 20 0", "March has paid for it");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_at_once_carry_and_return_each_hold_once() {
    let app = at_the_end_of_march(fifty().with("max_rollover", "50")).await;
    let (one, other) = (held(&app, "20").await, held(&app, "5").await);
    app.move_clock("2026-04-01T02:00:00Z").await;
    app.release(&one).await.expect(200);
    app.drained().await;
    let operations = &app.app().operations;
    let runs =
        || futures::future::join_all((0..3).map(|_| operations.periods.close(Manner::default(), GRACE)));
    let done: u64 = runs().await.into_iter().map(|done| done.unwrap().closed).sum();
    assert_eq!(done, 1);
    app.release(&other).await.expect(200);
    app.drained().await;
    runs().await;
    assert_eq!(rows(&app.database, BOOKS).await, ["03 0 0 0 0 0 0 25", "04 100 0 0 0 0 25 0"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_carried_hold_that_is_changed_is_found_and_named() {
    let app = at_the_end_of_march(fifty()).await;
    let id = held(&app, "20").await;
    app.move_clock("2026-04-01T02:00:00Z").await;
    run(&app).await;
    app.consume(&id, "5").await.expect(200);
    app.drained().await;
    let changes = [
        ("UPDATE carried_holds SET held = held + 1", "UPDATE carried_holds SET held = held - 1", "are 21"),
        ("UPDATE carried_holds SET returned = 1", "UPDATE carried_holds SET returned = 0", "returned 1"),
        (
            "UPDATE carried_returns SET amount = 14",
            "UPDATE carried_returns SET amount = 15",
            "line 0 (page) holds 0",
        ),
        (
            "UPDATE balances SET consumed_of_carried = 6 WHERE carried_in > 0",
            "UPDATE balances SET consumed_of_carried = 5 WHERE carried_in > 0",
            "consumed of carried holds is 6",
        ),
    ];
    for (change, undo, named) in changes {
        as_owner(&app.database, change).await.unwrap();
        let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
        let faults: Vec<_> = report.checks.iter().flat_map(|check| &check.faults).collect();
        assert!(faults.iter().any(|fault| fault.detail.contains(named)), "{change}: {faults:?}");
        as_owner(&app.database, undo).await.unwrap();
    }
    run(&app).await;
    app.finish().await;
}

/// What happens to the hold of one month's end: how many pages it holds, when it ends, and how much of it is used; none
/// where it is released. And the pages of an event that comes ten days later for the month that has ended.
type Turn = (u32, &'static str, Option<u32>, u32);

fn a_year(seed: u64) -> Vec<Turn> {
    const ENDS: [&str; 4] = ["00:30:00", "00:59:59.999", "01:00:00", "09:00:00"];
    let mut random = StdRng::seed_from_u64(seed);
    let turn = |random: &mut StdRng| {
        let held = random.random_range(1..40);
        let used = random.random_bool(0.6).then(|| random.random_range(0..held + 10));
        (held, ENDS[random.random_range(0..ENDS.len())], used, random.random_range(0..20))
    };
    (0..8).map(|_| turn(&mut random)).collect()
}

/// Prices of this unit: all that is used costs, in tiers, and what is beyond the quota costs more.
fn prices(unit: u64) -> Value {
    let tiers = json!([{ "up_to": "30", "unit": format!("0.{unit}7") }, { "unit": format!("0.0{unit}") }]);
    let used = price(json!({ "id": "used", "model": "graduated", "tiers": tiers }));
    let beyond = json!({ "id": "beyond", "model": "per_unit", "unit": "0.333", "charge_on": "overage", "included": "3" });
    json!([used, price(beyond)])
}

/// Closes and bills what is due.
async fn settle(app: &TestApp) {
    while run(app).await.closed > 0 {}
    app.app().operations.statements.issue(Manner::default(), GRACE).await.unwrap();
}

/// The books, entries and statements of such months, closed and billed at every turn or, after six months without a
/// run, at the end.
async fn books_of(year: &[Turn], terms: &Value, in_time: bool) -> [Vec<String>; 4] {
    let app = an_app().at("2026-01-02T00:00:00Z").without_jobs().start().await;
    let quota = fifty().with("max_rollover", "25").with("mode", "soft").with("preserve_overage", true);
    let terms = terms.as_object().into_iter().flatten();
    let quota = terms.fold(quota, |quota, (field, value)| quota.with(field, value.clone()));
    app.with_plan(json!([]), json!([quota])).await;
    app.define("plans/plan", json!({ "prices": prices(1) })).await;
    for (month, (held_pages, end, used, late)) in (1..).zip(year) {
        let next = month + 1;
        let last_day = if month == 2 {
            28
        } else if [4, 6, 9, 11].contains(&month) {
            30
        } else {
            31
        };
        app.move_clock(&format!("2026-{month:02}-{last_day}T23:30:00Z")).await;
        if in_time || month == 7 {
            settle(&app).await;
        }
        let id = held(&app, &held_pages.to_string()).await;
        app.drained().await;
        app.move_clock(&format!("2026-{next:02}-01T{end}Z")).await;
        if in_time && held_pages % 2 == 0 {
            settle(&app).await;
        }
        if month % 3 == 0 {
            app.define("plans/plan", json!({ "prices": prices(month) })).await;
        }
        let answer = match used {
            Some(amount) => app.consume(&id, &amount.to_string()).await,
            None => app.release(&id).await,
        };
        answer.expect(200);
        app.drained().await;
        app.move_clock(&format!("2026-{next:02}-11T12:00:00Z")).await;
        if in_time {
            settle(&app).await;
        }
        if *late > 0 {
            let time = format!("2026-{month:02}-20T12:00:00Z");
            send(&app, &event(&format!("late-{month}"), *late, Some(&time))).await;
        }
        send(&app, &event(&format!("event-{month}"), held_pages / 2 + 1, None)).await;
        app.drained().await;
    }
    app.move_clock("2026-10-10T12:00:00Z").await;
    settle(&app).await;
    run(&app).await;
    let entries = "SELECT period_start AT TIME ZONE 'UTC' AS start, happened_at AT TIME ZONE 'UTC' AS at, class, credit, debit, \
        carried, amount::float8 AS a FROM entries ORDER BY 1, 2, 3, 4, 5, 7";
    let sums = "SELECT sum(granted)::float8 AS g, sum(rolled_in)::float8 AS i, sum(rolled_out)::float8 AS o, \
        sum(repaid)::float8 AS r FROM balances";
    let mut books = Vec::new();
    let documents =
        "SELECT number, corrects, document::jsonb - 'books' AS document FROM statements ORDER BY number";
    for query in [BOOKS, entries, sums, documents] {
        books.push(rows(&app.database, query).await);
    }
    app.finish().await;
    books.try_into().unwrap()
}

#[rstest]
#[case(1, json!({}))]
#[case(2, json!({ "rollover_periods": 2, "min_rollover": "5" }))]
#[case(3, json!({ "rollover_periods": 3, "min_rollover": "10", "reroll": true }))]
#[tokio::test(flavor = "multi_thread")]
async fn months_with_holds_over_their_ends_have_the_same_books_and_statements_whenever_they_are_closed(
    #[case] seed: u64,
    #[case] terms: Value,
) {
    let year = a_year(seed);
    let (in_time, late) = tokio::join!(books_of(&year, &terms, true), books_of(&year, &terms, false));
    assert!(in_time[1].iter().any(|entry| entry.contains("carried_in")), "{in_time:?}");
    assert!(in_time[1].iter().any(|entry| entry.contains("correction")), "{in_time:?}");
    assert!(in_time[3].len() > 10, "statements and notes: {in_time:?}");
    assert_eq!(late, in_time, "{year:?}");
}
