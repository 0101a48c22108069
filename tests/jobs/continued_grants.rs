//! Grants that last longer than the period in which they begin: each close brings what is left of them to the next one.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tollgate::ledger::{Closed, Manner, VerifyOptions, verify};

use super::statements::{ISSUED, faults, run as billed};
use crate::http::events::{event, send};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;

pub const GRACE: Duration = Duration::from_secs(3600);
pub const GRANTS: &str = "/v1/admin/grants";
pub const BOOKS: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, granted::float8 AS g, rolled_in::float8 AS i, \
    available::float8 AS a, consumed::float8 AS c, rolled_out::float8 AS r, lapsed::float8 AS l, voided::float8 AS v \
    FROM balances WHERE meter = 'page' ORDER BY period_start";
pub const CONTINUED: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, amount::float8 AS a, rolled::float8 AS r \
    FROM continued_grants ORDER BY period_start, grant_id";
pub const BURNS: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS period, amount::float8 AS a, recognised::float8 AS r, \
    forfeited::float8 AS f FROM grant_burns ORDER BY period_start, amount";
pub const MONEY: &str = "SELECT credit, debit, amount::float8 AS a, to_char(period_start AT TIME ZONE 'UTC', 'MM') AS period, \
    to_char(happened_at AT TIME ZONE 'UTC', 'MM-DD HH24:MI') AS at FROM entries WHERE meter = 'money:EUR' ORDER BY happened_at, operation_id, step, line, leg";

/// Tenant `acme` with a quota of fifty pages a month, in UTC, on the tenth of March, where no job runs by itself.
pub async fn app() -> TestApp {
    with(quota_of("50")).await
}

pub async fn with(quota: Value) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota])).await;
    app
}

/// So many pages, from now on, which burn after what is included.
pub fn until(expires_at: &str, amount: &str) -> Value {
    json!({
        "tenant": "acme", "meter": "page", "amount": amount, "kind": "promotional", "priority": 60, "expires_at": expires_at
    })
}

pub async fn granted(app: &TestApp, key: &str, body: Value) -> String {
    let id = app.post_keyed(GRANTS, key, body).await.expect(201).text("/id").to_owned();
    app.drained().await;
    id
}

pub async fn used(app: &TestApp, key: &str, amount: &str) {
    app.use_pages(key, amount).await.expect(201);
    app.drained().await;
}

/// Closes what is due, with what the job of grants does before and after it.
pub async fn run(app: &TestApp) -> Closed {
    app.drained().await;
    let mut done = Closed::default();
    loop {
        app.app().operations.grants.follow().await.unwrap();
        let round = app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap();
        done.closed += round.closed;
        if round.closed == 0 {
            break;
        }
    }
    app.app().operations.grants.follow().await.unwrap();
    app.drained().await;
    done
}

pub async fn on(app: &TestApp, instant: &str) {
    app.move_clock(instant).await;
    run(app).await;
}

pub async fn voided(app: &TestApp, id: &str) -> Answered {
    app.drained().await;
    app.post(&format!("{GRANTS}/{id}/void"), json!({})).await
}

/// A grant's status, and what was unburnt of it.
pub async fn ended(app: &TestApp, id: &str) -> (String, String) {
    let grant = app.get(&format!("{GRANTS}/{id}")).await.expect(200);
    (grant.text("/status").to_owned(), grant.text("/unburnt").to_owned())
}

pub fn pair(one: &str, other: &str) -> (String, String) {
    (one.to_owned(), other.to_owned())
}

/// What remains of the quota.
pub async fn remaining(app: &TestApp) -> String {
    app.quota().await.text("/quotas/0/remaining").to_owned()
}

/// Uses exactly what remains: no unit more is let through.
pub async fn uses_all(app: &TestApp, amount: &str) {
    assert_eq!(remaining(app).await, amount);
    used(app, &format!("all {amount}"), amount).await;
    assert_eq!(app.use_pages("more", "1").await.status, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_over_three_periods_is_burnt_in_each_and_lapses_with_the_last() {
    let app = app().await;
    let id = granted(&app, "a", until("2026-06-01T00:00:00Z", "30")).await;
    used(&app, "march", "60").await;
    app.move_clock("2026-04-01T00:30:00Z").await;
    assert_eq!((run(&app).await.closed, remaining(&app).await), (0, "70".into()), "March is not closed yet");
    on(&app, "2026-04-01T01:00:00Z").await;
    let quota = app.quota().await;
    let left = json!([{ "id": id, "remaining": "20", "expires_at": "2026-06-01T00:00:00Z", "priority": 60 }]);
    assert_eq!(quota.body["quotas"][0]["grants"], left);
    let figures =
        ["granted", "rolled_in", "remaining"].map(|field| quota.text(&format!("/quotas/0/{field}")));
    assert_eq!(figures, ["70", "0", "70"]);
    used(&app, "april", "55").await;
    on(&app, "2026-05-10T12:00:00Z").await;
    used(&app, "may", "60").await;
    assert_eq!(remaining(&app).await, "5");
    assert_eq!(app.use_pages("more", "6").await.status, 429);
    assert_eq!(ended(&app, &id).await, pair("active", ""));
    on(&app, "2026-06-10T12:00:00Z").await;
    assert_eq!(ended(&app, &id).await, pair("expired", ""));
    voided(&app, &id).await.is_problem(409, "already_resolved");
    used(&app, "june", "50").await;
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    let books = ["03 80 0 0 60 20 0 0", "04 50 20 0 55 15 0 0", "05 50 15 0 60 0 5 0", "06 50 0 0 50 0 0 0"];
    assert_eq!(rows(&app.database, BOOKS).await, books);
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 20 20", "05 15 15"]);
    assert_eq!(rows(&app.database, "SELECT count(*) FROM due_cuts").await, ["0"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_keeps_its_place_in_the_burn_order() {
    let app = app().await;
    let last = granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    let first = granted(&app, "b", until("2026-12-01T00:00:00Z", "30").with("priority", 1)).await;
    used(&app, "march", "10").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    let sooner = granted(&app, "c", until("2026-05-01T00:00:00Z", "5")).await;
    used(&app, "april", "73").await;
    let quota = app.quota().await;
    let left = quota.body["quotas"][0]["grants"].as_array().unwrap();
    let left: Vec<_> = left.iter().map(|grant| (grant["id"].clone(), grant["remaining"].clone())).collect();
    assert_eq!(left, [(json!(sooner), json!("2")), (json!(last), json!("30"))], "{first} is burnt");
    on(&app, "2026-05-10T12:00:00Z").await;
    assert_eq!(ended(&app, &first).await, pair("expired", ""), "nothing was left of it at the close");
    uses_all(&app, "80").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_open_holds_take_of_it_at_the_close_returns_to_it() {
    let app = app().await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    app.move_clock("2026-03-31T23:30:00Z").await;
    used(&app, "march", "50").await;
    let id = app.held(pages("12").lasting(86_400)).await;
    on(&app, "2026-04-01T02:00:00Z").await;
    assert_eq!(
        (remaining(&app).await, rows(&app.database, CONTINUED).await),
        ("68".into(), vec!["04 18 18".into()])
    );
    app.consume(&id, "5").await.expect(200);
    run(&app).await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 25 18"]);
    used(&app, "april", "55").await;
    on(&app, "2026-05-10T12:00:00Z").await;
    assert_eq!(
        rows(&app.database, BOOKS).await,
        ["03 80 0 0 50 18 0 0", "04 50 18 0 60 20 0 0", "05 50 20 70 0 0 0 0"]
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_it_may_be_held_at_the_close_and_what_returns_after_its_end_lapses() {
    let app = app().await;
    let id = granted(&app, "a", until("2026-12-01T00:00:00Z", "10")).await;
    app.move_clock("2026-03-31T23:30:00Z").await;
    used(&app, "march", "50").await;
    let (one, other) =
        (app.held(pages("4").lasting(86_400)).await, app.held(pages("6").lasting(86_400)).await);
    on(&app, "2026-04-01T02:00:00Z").await;
    app.release(&one).await.expect(200);
    run(&app).await;
    assert_eq!(remaining(&app).await, "54");
    assert_eq!(voided(&app, &id).await.expect(200).text("/unburnt"), "4");
    app.release(&other).await.expect(200);
    run(&app).await;
    assert_eq!(rows(&app.database, BOOKS).await, ["03 60 0 0 50 0 0 0", "04 50 0 50 0 0 6 4"]);
    uses_all(&app, "50").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_expires_in_the_middle_of_a_later_period_at_the_gate_and_in_the_books() {
    let app = app().await;
    let id = granted(&app, "a", until("2026-04-15T00:00:00Z", "30")).await;
    used(&app, "march", "60").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    used(&app, "april", "58").await;
    app.database.close().await;
    app.move_clock("2026-04-15T00:00:00Z").await;
    assert_eq!(app.post(RESERVATIONS, pages("1")).await.status, 503, "what is left of it is not known yet");
    app.database.open().await;
    crate::support::wait::wait_for("the ledger answers again", Duration::from_secs(30), async || {
        app.app().operations.grants.follow().await.ok()
    })
    .await;
    assert_eq!(app.post(RESERVATIONS, pages("1")).await.status, 429);
    assert_eq!(ended(&app, &id).await, pair("expired", "12"));
    on(&app, "2026-05-10T12:00:00Z").await;
    assert_eq!(rows(&app.database, BOOKS).await, ["03 80 0 0 60 20 0 0", "04 50 20 0 58 0 12 0"]);
    let lapsed = "SELECT happened_at AT TIME ZONE 'UTC' AS at FROM entries WHERE debit = 'lapsed'";
    assert_eq!(rows(&app.database, lapsed).await, ["2026-04-15T00:00:00"]);
    app.finish().await;
}

#[rstest]
#[case::after_the_close("2026-04-10T12:00:00Z", ("voided", "20"))]
#[case::before_the_close("2026-04-01T00:30:00Z", ("ending", ""))]
#[tokio::test(flavor = "multi_thread")]
async fn a_void_in_a_later_period_takes_back_what_is_left_of_it(
    #[case] at: &str,
    #[case] (status, unburnt): (&str, &str),
) {
    let app = app().await;
    let id = granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    used(&app, "march", "60").await;
    on(&app, at).await;
    used(&app, "april", "50").await;
    voided(&app, &id).await.expect(200);
    assert_eq!(ended(&app, &id).await, pair(status, unburnt));
    assert_eq!(remaining(&app).await, "0");
    on(&app, "2026-04-11T12:00:00Z").await;
    assert_eq!(ended(&app, &id).await, pair("voided", "20"));
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    on(&app, "2026-05-10T12:00:00Z").await;
    assert_eq!(rows(&app.database, BOOKS).await, ["03 80 0 0 60 20 0 0", "04 50 20 0 50 0 0 20"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn use_in_the_grace_burns_it_in_the_period_that_has_ended() {
    let app = app().await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    app.move_clock("2026-03-31T23:30:00Z").await;
    used(&app, "march", "50").await;
    let id = app.held(pages("10").lasting(86_400)).await;
    app.move_clock("2026-04-01T00:30:00Z").await;
    app.consume(&id, "8").await.expect(200);
    send(&app, &event("late", 5, Some("2026-03-31T12:00:00Z"))).await;
    used(&app, "april", "50").await;
    assert_eq!(app.use_pages("early", "18").await.status, 429, "what March has used by then is known");
    on(&app, "2026-04-01T01:00:00Z").await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 17 17"]);
    uses_all(&app, "17").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_gone_on_is_there_again_after_redis_has_lost_its_memory() {
    let app = app().await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    used(&app, "march", "60").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    used(&app, "april", "58").await;
    app.redis.flush().await;
    uses_all(&app, "12").await;
    app.redis.flush().await;
    assert_eq!(remaining(&app).await, "0");
    assert_eq!(app.use_pages("again", "1").await.status, 429);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn use_beyond_the_quota_is_preserved_beside_it_and_burns_none_of_it_twice() {
    let app = with(quota_of("50").with("mode", "soft").with("preserve_overage", true)).await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    used(&app, "march", "90").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    let late = granted(&app, "b", until("2026-12-01T00:00:00Z", "20")).await;
    used(&app, "april", "45").await;
    on(&app, "2026-05-10T12:00:00Z").await;
    let books = ["03 80 0 0 90 0 0 0", "04 70 0 0 45 15 0 0", "05 50 15 65 0 0 0 0"];
    assert_eq!(rows(&app.database, BOOKS).await, books, "April pays ten of March, and burns five of {late}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_quota_is_gone_when_its_period_is_closed_lapses_with_that() {
    let app = app().await;
    let body = until("2026-12-01T00:00:00Z", "10").with("kind", "paid").with("paid_amount", "10");
    let id = granted(&app, "a", body.with("currency", "EUR")).await;
    let later = until("2026-12-01T00:00:00Z", "10").with("effective_at", "2026-03-20T00:00:00Z");
    let unbegun = granted(&app, "b", later).await;
    used(&app, "march", "54").await;
    app.with_plan(json!([]), json!([])).await;
    on(&app, "2026-03-25T12:00:00Z").await;
    assert_eq!(ended(&app, &unbegun).await, pair("active", ""), "the quota may come back");
    on(&app, "2026-04-10T12:00:00Z").await;
    for id in [&id, &unbegun] {
        assert_eq!(ended(&app, id).await, pair("expired", ""));
        voided(&app, id).await.is_problem(409, "already_resolved");
    }
    assert_eq!(rows(&app.database, BOOKS).await, ["03 60 0 0 54 0 6 0"]);
    assert_eq!(rows(&app.database, BURNS).await, ["03 4 4 6"]);
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    on(&app, "2027-01-10T12:00:00Z").await;
    assert_eq!(rows(&app.database, "SELECT count(*) FROM cuts WHERE is_end AND NOT is_settled").await, ["0"]);
    app.finish().await;
}

/// A tenant whose use is measured and costs nothing; pages with a price burn before what is included.
pub async fn unpriced() -> TestApp {
    with(quota_of("50").with("mode", "soft")).await
}

pub fn paid(amount: &str, price: &str, expires_at: &str) -> Value {
    let body = until(expires_at, amount).with("kind", "paid").with("priority", 1);
    body.with("paid_amount", price).with("currency", "EUR")
}

#[tokio::test(flavor = "multi_thread")]
async fn its_price_is_earned_in_each_period_as_it_burns_there_and_the_rest_is_kept_when_it_expires() {
    let app = unpriced().await;
    granted(&app, "a", paid("7", "10", "2026-05-20T00:00:00Z")).await;
    used(&app, "march", "2").await;
    app.move_clock("2026-04-10T12:00:00Z").await;
    billed(&app).await;
    assert_eq!(rows(&app.database, BURNS).await, ["03 2 2.86 0"]);
    assert_eq!(faults(&app).await, [""; 0]);
    used(&app, "april", "3").await;
    app.move_clock("2026-05-10T12:00:00Z").await;
    billed(&app).await;
    used(&app, "may", "1").await;
    on(&app, "2026-05-20T00:00:00Z").await;
    used(&app, "later", "9").await;
    app.move_clock("2026-07-10T12:00:00Z").await;
    billed(&app).await;
    let booked = [
        "deferred receivable 10 03 03-10 12:00",
        "revenue deferred 2.86 03 04-01 01:00",
        "revenue deferred 4.28 04 05-01 01:00",
        "revenue deferred 1.43 05 05-20 00:00",
        "breakage deferred 1.43 05 05-20 00:00",
    ];
    assert_eq!(rows(&app.database, MONEY).await, booked);
    assert_eq!(rows(&app.database, BURNS).await, ["03 2 2.86 0", "04 3 4.28 0", "05 1 1.43 1.43"]);
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 10"], "it is billed when it is sold");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_void_in_a_later_period_gives_back_what_is_not_burnt_by_then_and_what_holds_took_is_earned() {
    let app = unpriced().await;
    let id = granted(&app, "a", paid("10", "20", "2026-12-01T00:00:00Z")).await;
    used(&app, "march", "2").await;
    app.move_clock("2026-03-31T23:30:00Z").await;
    let (one, other) =
        (app.held(pages("3").lasting(86_400)).await, app.held(pages("1").lasting(86_400)).await);
    app.move_clock("2026-04-01T02:00:00Z").await;
    billed(&app).await;
    assert_eq!(rows(&app.database, BURNS).await, ["03 2 4 0"], "what is held may return");
    app.consume(&one, "1").await.expect(200);
    used(&app, "april", "1").await;
    assert_eq!(voided(&app, &id).await.expect(200).text("/unburnt"), "5");
    app.release(&other).await.expect(200);
    app.move_clock("2026-05-02T12:00:00Z").await;
    billed(&app).await;
    assert_eq!(rows(&app.database, BURNS).await, ["03 2 4 0", "04 3 6 0"]);
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 20", "2 1 2026-03 -10"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adjustment_lowers_what_has_come_over_and_grants_the_rest_of_it_again_until_its_own_end() {
    let app = app().await;
    let id = granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    used(&app, "march", "60").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    let body = json!({
        "tenant": "acme", "meter": "page", "effect": "allowance", "amount": "-5", "happened_at": "2026-04-10T12:00:00Z",
        "reason": "too much"
    });
    app.post_keyed("/v1/adjustments", "lower", body).await.expect(201);
    app.drained().await;
    assert_eq!(ended(&app, &id).await, pair("voided", "20"));
    assert_eq!(remaining(&app).await, "65");
    on(&app, "2026-05-10T12:00:00Z").await;
    uses_all(&app, "65").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closes_at_once_bring_it_over_once() {
    let app = app().await;
    granted(&app, "a", paid("30", "10", "2026-12-01T00:00:00Z")).await;
    used(&app, "march", "12").await;
    app.move_clock("2026-04-01T02:00:00Z").await;
    app.drained().await;
    let operations = &app.app().operations;
    let runs = (0..3).map(|_| operations.periods.close(Manner::default(), GRACE));
    let done: u64 = futures::future::join_all(runs).await.into_iter().map(|done| done.unwrap().closed).sum();
    assert_eq!(done, 1);
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 18 18"]);
    assert_eq!(rows(&app.database, BURNS).await, ["03 12 4 0"]);
    uses_all(&app, "68").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_changes_of_what_has_gone_on_is_named_by_the_proof() {
    let app = app().await;
    let id = granted(&app, "a", paid("30", "10", "2026-12-01T00:00:00Z")).await;
    used(&app, "march", "12").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    used(&app, "april", "1").await;
    on(&app, "2026-05-10T12:00:00Z").await;
    for (change, undo, named) in [
        ("SET amount = amount + 1", "SET amount = amount - 1", "of them unused before"),
        ("SET rolled = rolled - 1", "SET rolled = rolled + 1", "of them unused before"),
        ("SET amount = 31 WHERE amount = 18", "SET amount = 18 WHERE amount = 31", "goes on with 31"),
    ] {
        as_owner(&app.database, &format!("UPDATE continued_grants {change}")).await.unwrap();
        let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
        let faults: Vec<_> = report.checks.iter().flat_map(|check| &check.faults).collect();
        assert!(faults.iter().any(|fault| fault.detail.contains(named)), "{id} {change}: {faults:?}");
        as_owner(&app.database, &format!("UPDATE continued_grants {undo}")).await.unwrap();
    }
    app.finish().await;
}

/// The books of half a year with such grants, closed each month or, after months without a run, at its end; the job of
/// grants runs in both.
async fn books_of(in_time: bool) -> [Vec<String>; 4] {
    let app = an_app().at("2026-01-10T12:00:00Z").without_jobs().start().await;
    let quota = quota_of("50").with("mode", "soft").with("max_rollover", "10");
    app.with_plan(json!([]), json!([quota])).await;
    let step = async |instant: &str| {
        app.move_clock(instant).await;
        app.drained().await;
        if in_time {
            run(&app).await;
        } else {
            app.app().operations.grants.follow().await.unwrap();
        }
    };
    granted(&app, "a", until("2026-05-01T00:00:00Z", "40").with("max_rollover", "25")).await;
    let in_each = until("2026-12-01T00:00:00Z", "5").with("recurrence", "period").with("priority", 55);
    granted(&app, "d", in_each.with("max_rollover", "3").with("min_rollover", "1")).await;
    granted(&app, "b", paid("60", "10", "2026-03-15T00:00:00Z")).await;
    let third = granted(&app, "c", paid("20", "7", "2026-12-01T00:00:00Z").with("priority", 45)).await;
    let months = [(31, 30, 9, 4), (28, 8, 30, 0), (31, 4, 8, 8), (30, 5, 60, 70), (31, 3, 5, 1)];
    for (month, (last_day, amount, held, kept)) in (1..).zip(months) {
        step(&format!("2026-{month:02}-10T12:00:00Z")).await;
        used(&app, &format!("month-{month}"), &amount.to_string()).await;
        step(&format!("2026-{month:02}-15T00:00:00Z")).await;
        if month == 4 {
            voided(&app, &third).await.expect(200);
        }
        let next = month + 1;
        app.move_clock(&format!("2026-{month:02}-{last_day}T23:30:00Z")).await;
        let id = app.held(pages(held.to_string()).lasting(86_400)).await;
        step(&format!("2026-{next:02}-01T02:00:00Z")).await;
        match kept {
            0 => app.release(&id).await.expect(200),
            _ => app.consume(&id, &kept.to_string()).await.expect(200),
        };
    }
    app.move_clock("2026-07-10T12:00:00Z").await;
    run(&app).await;
    let entries = "SELECT period_start AT TIME ZONE 'UTC' AS start, happened_at AT TIME ZONE 'UTC' AS at, meter, class, credit, debit, \
        carried, amount::float8 AS a FROM entries ORDER BY 1, 2, 3, 4, 5, 6, 8";
    let mut books = Vec::new();
    for query in [BOOKS, CONTINUED, BURNS, entries] {
        books.push(rows(&app.database, query).await);
    }
    app.finish().await;
    books.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn months_that_are_closed_late_have_the_books_of_months_that_were_closed_in_time() {
    let (in_time, late) = tokio::join!(books_of(true), books_of(false));
    assert!(in_time[1].len() > 4 && in_time[2].len() > 3, "{in_time:?}");
    assert_eq!(late, in_time);
}
