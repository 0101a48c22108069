//! How much of a grant goes on when a period is closed: at most so much, at least so much.

use rstest::rstest;
use serde_json::{Value, json};

use super::continued_grants::{
    BOOKS, CONTINUED, GRANTS, app, ended, granted, on, pair, remaining, run, until, used, uses_all, voided,
    with,
};
use super::statements::faults;
use crate::ledger::rows;
use crate::support::app::*;

const ROLLED: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, amount::float8 AS a, rolled::float8 AS r \
    FROM rolled_amounts ORDER BY period_start, ends_at";

/// Ten pages until the end of the year, which burn after what is included, on these terms.
fn once(terms: Value) -> Value {
    with_terms(until("2026-12-01T00:00:00Z", "10"), &terms)
}

/// Ten pages in each period, likewise.
fn in_each(terms: Value) -> Value {
    with_terms(until("2026-12-01T00:00:00Z", "10").with("recurrence", "period"), &terms)
}

fn with_terms(body: Value, terms: &Value) -> Value {
    terms.as_object().unwrap().iter().fold(body, |body, (field, value)| body.with(field, value.clone()))
}

/// The use of March, what of the grant comes over, and the books of both months.
#[rstest]
#[case::at_most_so_much(json!({ "max_rollover": "4" }), "53", "04 4 4", ["03 60 0 0 53 4 3 0", "04 50 4 54 0 0 0 0"])]
#[case::at_least_so_much(json!({ "min_rollover": "5" }), "58", "04 5 2", ["03 60 0 0 58 2 0 0", "04 53 2 55 0 0 0 0"])]
#[case::at_least_so_much_of_nothing(json!({ "min_rollover": "5" }), "60", "04 5 0", ["03 60 0 0 60 0 0 0", "04 55 0 55 0 0 0 0"])]
#[case::the_same_in_each(json!({ "max_rollover": "6", "min_rollover": "6" }), "51", "04 6 6", ["03 60 0 0 51 6 3 0", "04 50 6 56 0 0 0 0"])]
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_given_once_goes_on_within_its_bounds(
    #[case] terms: Value,
    #[case] amount: &str,
    #[case] continued: &str,
    #[case] books: [&str; 2],
) {
    let app = app().await;
    let id = granted(&app, "a", once(terms)).await;
    used(&app, "march", amount).await;
    app.move_clock("2026-04-01T00:30:00Z").await;
    assert_eq!(run(&app).await.closed, 0);
    let comes_over = continued.split(' ').nth(1).unwrap();
    let all = (50 + comes_over.parse::<u32>().unwrap()).to_string();
    assert_eq!(remaining(&app).await, all, "the gate has as much of it before March is closed");
    on(&app, "2026-04-01T01:00:00Z").await;
    assert_eq!(rows(&app.database, CONTINUED).await, [continued]);
    assert_eq!(rows(&app.database, BOOKS).await, books);
    assert_eq!(ended(&app, &id).await, pair("active", ""));
    assert_eq!(faults(&app).await, [""; 0]);
    uses_all(&app, &all).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_which_nothing_may_go_on_ends_with_its_period() {
    let app = app().await;
    let id = granted(&app, "a", once(json!({ "max_rollover": "0" }))).await;
    used(&app, "march", "53").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    assert_eq!(ended(&app, &id).await, pair("expired", ""));
    assert_eq!(rows(&app.database, BOOKS).await, ["03 60 0 0 53 0 7 0", "04 50 0 50 0 0 0 0"]);
    uses_all(&app, "50").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_recurs_rolls_over_within_its_bounds_and_counts_as_long_as_the_quota_says() {
    let app = with(quota_of("50").with("max_rollover", "1").with("rollover_periods", 2)).await;
    granted(&app, "a", in_each(json!({ "max_rollover": "6", "min_rollover": "2" }))).await;
    used(&app, "march", "53").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    used(&app, "april", "60").await;
    on(&app, "2026-05-10T12:00:00Z").await;
    assert_eq!(remaining(&app).await, "66");
    used(&app, "may", "66").await;
    on(&app, "2026-06-10T12:00:00Z").await;
    let books = [
        // Seven are unused.
        "03 60 0 0 53 6 1 0",
        // What came over burns before it, so six of it are unused, and four are burnt.
        "04 60 6 0 60 6 0 0",
        "05 60 6 0 66 0 0 0",
        // All was used: the least is granted.
        "06 62 0 62 0 0 0 0",
    ];
    assert_eq!(rows(&app.database, BOOKS).await, books);
    assert_eq!(rows(&app.database, ROLLED).await, ["04 6 6", "05 6 6", "06 2 0"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[rstest]
#[case::as_its_own_terms_say(quota_of("50"))]
#[case::beside_a_quota_that_rolls_over(quota_of("50").with("max_rollover", "1"))]
#[tokio::test(flavor = "multi_thread")]
async fn what_recurs_and_is_voided_between_the_end_of_its_first_period_and_the_close_rolls_over_from_that(
    #[case] quota: Value,
) {
    let app = with(quota).await;
    let id = granted(&app, "a", in_each(json!({ "max_rollover": "6" }))).await;
    used(&app, "march", "53").await;
    app.move_clock("2026-04-01T00:30:00Z").await;
    voided(&app, &id).await.expect(200);
    on(&app, "2026-04-01T01:00:00Z").await;
    assert_eq!(rows(&app.database, ROLLED).await, ["04 6 6"]);
    assert_eq!(rows(&app.database, BOOKS).await, ["03 60 0 0 53 6 1 0", "04 50 6 56 0 0 0 0"]);
    assert_eq!(faults(&app).await, [""; 0]);
    uses_all(&app, "56").await;
    app.finish().await;
}

/// March uses fifty and holds seven of the grant's ten: three are unused. All seven return.
#[rstest]
#[case::given_once(once(json!({ "max_rollover": "4" })), CONTINUED, ["04 3 3", "04 4 3"])]
#[case::given_in_each(in_each(json!({ "max_rollover": "5", "min_rollover": "4" })), ROLLED, ["04 4 3", "04 5 3"])]
#[tokio::test(flavor = "multi_thread")]
async fn what_returns_of_carried_holds_goes_on_beside_what_was_unused(
    #[case] body: Value,
    #[case] query: &str,
    #[case] comes_over: [&str; 2],
) {
    let app = app().await;
    granted(&app, "a", body).await;
    app.move_clock("2026-03-31T23:30:00Z").await;
    used(&app, "march", "50").await;
    let id = app.held(pages("7").lasting(86_400)).await;
    on(&app, "2026-04-01T02:00:00Z").await;
    assert_eq!(rows(&app.database, query).await, [comes_over[0]]);
    app.release(&id).await.expect(200);
    run(&app).await;
    assert_eq!(rows(&app.database, query).await, [comes_over[1]]);
    let lapsed = "SELECT amount::float8 AS a FROM entries WHERE credit = 'reserved' AND debit = 'lapsed'";
    assert_eq!(rows(&app.database, lapsed).await, ["6"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_bounds_are_shown_are_part_of_what_was_asked_for_and_faults_in_them_are_named() {
    let app = app().await;
    let body = once(json!({ "max_rollover": "4", "min_rollover": "2" }));
    let made = app.post_keyed(GRANTS, "a", body.clone()).await.expect(201);
    assert_eq!((made.text("/max_rollover"), made.text("/min_rollover")), ("4", "2"));
    assert_eq!(app.get(GRANTS).await.text("/data/0/max_rollover"), "4");
    assert_eq!(app.post_keyed(GRANTS, "a", body.clone()).await.expect(200).body["replayed"], true);
    let other = app.post_keyed(GRANTS, "a", body.with("max_rollover", "5")).await;
    other.is_problem(422, "idempotency_key_reused");
    let plain = app.post_keyed(GRANTS, "b", once(json!({ "max_rollover": null }))).await.expect(201);
    assert_eq!((plain.body["max_rollover"].clone(), plain.text("/min_rollover")), (Value::Null, "0"));
    let price = json!({ "kind": "paid", "paid_amount": "1", "currency": "EUR" });
    for (body, pointer) in [
        (once(json!({ "max_rollover": "0.5" })), "/max_rollover"),
        (once(json!({ "max_rollover": "3", "min_rollover": "4" })), "/min_rollover"),
        (once(json!({ "min_rollover": "11" })), "/min_rollover"),
        (in_each(json!({ "min_rollover": "1" })), "/min_rollover"),
        (with_terms(once(json!({ "max_rollover": "4" })), &price), "/max_rollover"),
        (with_terms(once(json!({ "min_rollover": "4" })), &price), "/min_rollover"),
    ] {
        let answer = app.post_keyed(GRANTS, "c", body.clone()).await;
        assert_eq!((answer.status, answer.pointers()), (422, vec![pointer]), "{body}: {answer:?}");
    }
    app.finish().await;
}
