//! Grants that go on and holds that are open over the ends of periods: what returns of these is the grant's again.

use rstest::rstest;

use super::continued_grants::{
    BOOKS, BURNS, CONTINUED, ended, granted, on, paid, pair, remaining, run, until, uses_all,
};
use super::continued_grants::{app, unpriced, used, voided, with};
use super::statements::{ISSUED, faults, run as billed};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;

const RETURNED: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, sum(amount)::float8 AS a \
    FROM continued_returns GROUP BY period_start ORDER BY period_start";

/// Holds so many pages half an hour before the end of March.
async fn held_over(app: &TestApp, amount: &str) -> String {
    app.move_clock("2026-03-31T23:30:00Z").await;
    app.held(pages(amount).lasting(86_400)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_returns_later_changes_nothing_of_what_another_grant_had_left_when_it_ended() {
    let app = app().await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    used(&app, "march", "50").await;
    let id = held_over(&app, "12").await;
    on(&app, "2026-04-01T02:00:00Z").await;
    let other = granted(&app, "b", until("2026-04-15T00:00:00Z", "10").with("priority", 70)).await;
    used(&app, "april", "72").await;
    on(&app, "2026-04-15T00:00:00Z").await;
    assert_eq!(ended(&app, &other).await, pair("expired", "6"), "four of it have burnt");
    app.release(&id).await.expect(200);
    run(&app).await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 30 18"]);
    assert_eq!(rows(&app.database, RETURNED).await, ["04 12"]);
    assert_eq!(remaining(&app).await, "12");
    on(&app, "2026-05-10T12:00:00Z").await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 30 18", "05 12 12"], "all that returned goes on");
    assert_eq!(
        rows(&app.database, BOOKS).await,
        ["03 80 0 0 50 18 0 0", "04 60 18 0 72 12 6 0", "05 50 12 62 0 0 0 0"]
    );
    uses_all(&app, "62").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_returns_to_what_rolled_over_changes_nothing_of_it_either() {
    let app = with(quota_of("50").with("max_rollover", "20")).await;
    let id = granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    used(&app, "march", "45").await;
    let hold = held_over(&app, "5").await;
    on(&app, "2026-04-01T02:00:00Z").await;
    let other = granted(&app, "b", until("2026-04-15T00:00:00Z", "10").with("priority", 70)).await;
    used(&app, "april", "84").await;
    on(&app, "2026-04-15T00:00:00Z").await;
    assert_eq!(ended(&app, &other).await, pair("expired", "6"), "four of it have burnt");
    app.release(&hold).await.expect(200);
    run(&app).await;
    assert_eq!(remaining(&app).await, "5");
    let change = "UPDATE rolled_returns SET amount = amount";
    as_owner(&app.database, &format!("{change} + 1")).await.unwrap();
    let found = faults(&app).await.concat();
    assert!(found.contains("have returned, of at most 5"), "{found}");
    as_owner(&app.database, &format!("{change} - 1")).await.unwrap();
    on(&app, "2026-05-10T12:00:00Z").await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 30 30"], "all of it has burnt");
    assert_eq!(ended(&app, &id).await, pair("expired", ""));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_over_three_closes_returns_to_the_grant_in_the_period_that_is_open_then() {
    let app = app().await;
    let id = granted(&app, "a", until("2026-12-01T00:00:00Z", "10")).await;
    used(&app, "march", "50").await;
    let hold = held_over(&app, "10").await;
    for month in ["04", "05", "06"] {
        on(&app, &format!("2026-{month}-01T02:00:00Z")).await;
        assert_eq!((remaining(&app).await, ended(&app, &id).await), ("50".into(), pair("active", "")));
    }
    app.consume(&hold, "4").await.expect(200);
    run(&app).await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 0 0", "05 0 0", "06 6 0"]);
    uses_all(&app, "56").await;
    on(&app, "2026-07-10T12:00:00Z").await;
    assert_eq!(ended(&app, &id).await, pair("expired", ""), "nothing is left of it");
    app.finish().await;
}

#[rstest]
#[case::it_expired_in_the_period_between("2026-04-20T00:00:00Z", false)]
#[case::it_was_voided_since("2026-12-01T00:00:00Z", true)]
#[case::it_ended_with_the_second_close("2026-05-01T00:00:00Z", false)]
#[tokio::test(flavor = "multi_thread")]
async fn what_returns_two_closes_later_lapses_where_the_grant_has_ended(
    #[case] expires_at: &str,
    #[case] is_voided: bool,
) {
    let app = app().await;
    let id = granted(&app, "a", until(expires_at, "30")).await;
    used(&app, "march", "50").await;
    let hold = held_over(&app, "10").await;
    for instant in ["2026-04-01T02:00:00Z", "2026-04-20T00:00:00Z", "2026-05-01T02:00:00Z"] {
        on(&app, instant).await;
    }
    if is_voided {
        assert_eq!(voided(&app, &id).await.expect(200).text("/unburnt"), "20");
    }
    app.release(&hold).await.expect(200);
    run(&app).await;
    let lapsed = "SELECT amount::float8 AS a FROM entries WHERE carried AND debit = 'lapsed'";
    assert_eq!(rows(&app.database, lapsed).await, ["10"]);
    uses_all(&app, "50").await;
    app.finish().await;
}

#[rstest]
#[case::the_older_one_first(true)]
#[case::the_newer_one_first(false)]
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_of_the_period_between_is_set_against_that_and_the_older_one_against_the_grant(
    #[case] older_first: bool,
) {
    let app = app().await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    used(&app, "march", "50").await;
    let older = held_over(&app, "12").await;
    on(&app, "2026-04-01T02:00:00Z").await;
    app.move_clock("2026-04-30T23:30:00Z").await;
    let newer = app.held(pages("5").lasting(86_400)).await;
    on(&app, "2026-05-01T02:00:00Z").await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 18 18", "05 18 18"]);
    let order = if older_first { [&older, &newer] } else { [&newer, &older] };
    for hold in order {
        app.release(hold).await.expect(200);
        run(&app).await;
    }
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 18 18", "05 30 18"]);
    let books = ["03 80 0 0 50 18 0 0", "04 50 18 0 0 18 45 0", "05 50 18 80 0 0 5 0"];
    assert_eq!(rows(&app.database, BOOKS).await, books, "what April included lapses with it");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_over_two_closes_is_earned_once_it_is_consumed_and_given_back_where_it_returned() {
    let app = unpriced().await;
    let id = granted(&app, "a", paid("30", "30", "2026-12-01T00:00:00Z")).await;
    used(&app, "march", "10").await;
    let hold = held_over(&app, "12").await;
    for month in ["04", "05"] {
        app.move_clock(&format!("2026-{month}-01T02:00:00Z")).await;
        billed(&app).await;
        assert_eq!(rows(&app.database, BURNS).await, ["03 10 10 0"], "what is held may return");
    }
    assert_eq!(faults(&app).await, [""; 0]);
    app.consume(&hold, "5").await.expect(200);
    app.move_clock("2026-06-01T02:00:00Z").await;
    billed(&app).await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 8 8", "05 15 8", "06 15 15"]);
    assert_eq!(rows(&app.database, BURNS).await, ["03 10 10 0", "05 5 5 0"]);
    assert_eq!(voided(&app, &id).await.expect(200).text("/unburnt"), "15");
    app.move_clock("2026-07-01T02:00:00Z").await;
    billed(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 30", "2 1 2026-03 -15"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn use_beyond_the_quota_takes_of_an_older_hold_what_the_next_period_pays_for() {
    let app = with(quota_of("50").with("mode", "soft")).await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "10")).await;
    used(&app, "march", "50").await;
    let hold = held_over(&app, "10").await;
    on(&app, "2026-04-01T02:00:00Z").await;
    used(&app, "april", "54").await;
    on(&app, "2026-05-01T02:00:00Z").await;
    assert_eq!(remaining(&app).await, "46", "four of the hold are May's");
    app.release(&hold).await.expect(200);
    run(&app).await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 0 0", "05 6 0"]);
    assert_eq!(remaining(&app).await, "56");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_changes_of_what_has_returned_is_named_by_the_proof() {
    let app = app().await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    used(&app, "march", "50").await;
    let hold = held_over(&app, "12").await;
    on(&app, "2026-04-01T02:00:00Z").await;
    app.release(&hold).await.expect(200);
    run(&app).await;
    assert_eq!(faults(&app).await, [""; 0]);
    let change = "UPDATE continued_returns SET amount = amount";
    as_owner(&app.database, &format!("{change} - 1")).await.unwrap();
    let found = faults(&app).await.concat();
    assert!(found.contains("goes on with 30"), "{found}");
    as_owner(&app.database, &format!("{change} + 1")).await.unwrap();
    app.finish().await;
}
