//! Grants that are given again in each period.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::ledger::{Manner, VerifyOptions, verify};

use super::events::{event, send};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const GRANTS: &str = "/v1/admin/grants";
const GRACE: Duration = Duration::from_secs(3600);
const BOOKS: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, granted::float8 AS g, rolled_in::float8 AS i, \
    available::float8 AS a, consumed::float8 AS c, lapsed::float8 AS l, voided::float8 AS v FROM balances ORDER BY period_start";

/// Tenant `acme` with a quota of fifty pages a month, in UTC, on the tenth of March; jobs run only when a test asks.
async fn app() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app
}

/// Ten pages in each period until this instant.
fn recurring(until: &str) -> Value {
    json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "promotional", "recurrence": "period", "expires_at": until
    })
}

async fn granted(app: &TestApp, key: &str, body: Value) -> String {
    app.post_keyed(GRANTS, key, body).await.expect(201).text("/id").to_owned()
}

async fn voided(app: &TestApp, id: &str) -> Answered {
    app.post(&format!("{GRANTS}/{id}/void"), json!({})).await
}

async fn uses(app: &TestApp, amount: &str) -> u16 {
    let answer = app.post(RESERVATIONS, pages(amount)).await;
    if answer.status == 201 {
        app.consume(answer.text("/id"), amount).await.expect(200);
    }
    assert!(matches!(answer.status, 201 | 429), "{answer:?}");
    answer.status
}

async fn close(app: &TestApp) {
    app.drained().await;
    while app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap().closed > 0 {}
}

async fn remaining(app: &TestApp) -> String {
    app.quota().await.text("/quotas/0/remaining").to_owned()
}

#[rstest::rstest]
#[case::made_before_it_is_open("2026-03-10T12:00:00Z")]
#[case::made_once_it_is_open("2026-03-31T12:00:00Z")]
#[tokio::test(flavor = "multi_thread")]
async fn the_next_period_serves_it_at_once_without_the_ledger(#[case] made_at: &str) {
    let app = app().await;
    assert_eq!(uses(&app, "20").await, 201);
    app.move_clock(made_at).await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    let id = granted(&app, "a", recurring("2027-01-01T00:00:00Z")).await;
    assert_eq!(remaining(&app).await, "40");
    app.move_clock("2026-03-31T23:00:00Z").await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    app.drained().await;
    app.database.close().await;
    app.move_clock("2026-04-01T00:00:00Z").await;
    let answer = app.post(RESERVATIONS, pages("60")).await.expect(201);
    assert_eq!(app.post(RESERVATIONS, pages("1")).await.status, 429);
    app.release(answer.text("/id")).await.expect(200);
    app.database.open().await;
    wait_for("the ledger answers again", Duration::from_secs(30), async || {
        app.app().operations.grants.follow().await.ok()
    })
    .await;
    let shown = app.quota().await.body["quotas"][0]["grants"].clone();
    assert_eq!(
        shown,
        json!([{ "id": id, "remaining": "10", "expires_at": "2026-05-01T00:00:00Z", "priority": 50 }])
    );
    let begun = "SELECT amount::float8 AS a, happened_at AT TIME ZONE 'UTC' AS at FROM entries \
        WHERE credit = 'granted' AND happened_at >= '2026-04-01T00:00:00Z' ORDER BY 1";
    assert_eq!(rows(&app.database, begun).await, ["10 2026-04-01T00:00:00", "50 2026-04-01T00:00:00"]);
    assert_eq!(app.get(GRANTS).await.body["data"].as_array().map(Vec::len), Some(1), "it is one grant");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_periods_are_opened_although_the_quotas_of_recurring_grants_cannot_be_listed() {
    let app = app().await;
    assert_eq!(uses(&app, "5").await, 201);
    granted(&app, "a", recurring("2027-01-01T00:00:00Z")).await;
    app.drained().await;
    let unreadable = "INSERT INTO grants SELECT (json_populate_record(g, json_build_object(\
        'id', gen_random_uuid(), 'meter', 'no meter', 'period_start', '2026-03-01T00:00:00Z'))).* FROM grants g";
    as_owner(&app.database, unreadable).await.unwrap();
    app.move_clock("2026-03-31T12:00:00Z").await;
    assert!(app.app().operations.memory.open_next_periods().await.is_err());
    let april = "SELECT meter FROM quota_periods WHERE period_start = '2026-04-01T00:00:00Z'";
    assert_eq!(rows(&app.database, april).await, ["page"]);
    as_owner(&app.database, "DELETE FROM grants WHERE meter = 'no meter'").await.unwrap();
    app.app().operations.memory.open_next_periods().await.unwrap();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_period_has_all_of_it_and_what_is_unburnt_lapses_with_each() {
    let app = app().await;
    granted(&app, "a", recurring("2026-06-15T00:00:00Z").with("priority", 60)).await;
    app.app().operations.grants.follow().await.unwrap();
    assert_eq!(uses(&app, "55").await, 201);
    app.move_clock("2026-04-10T12:00:00Z").await;
    assert_eq!((uses(&app, "60").await, uses(&app, "1").await), (201, 429));
    app.move_clock("2026-05-10T12:00:00Z").await;
    close(&app).await;
    assert_eq!(uses(&app, "1").await, 201);
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(remaining(&app).await, "59", "restored from the books");
    app.move_clock("2026-06-14T23:59:59Z").await;
    assert_eq!((uses(&app, "1").await, remaining(&app).await.as_str()), (201, "59"));
    app.move_clock("2026-06-15T00:00:00Z").await;
    app.drained().await;
    app.app().operations.grants.follow().await.unwrap();
    assert_eq!(remaining(&app).await, "49", "it has expired");
    app.move_clock("2026-07-10T12:00:00Z").await;
    assert_eq!(uses(&app, "1").await, 201);
    close(&app).await;
    let books =
        ["03 60 0 0 55 5 0", "04 60 0 0 60 0 0", "05 60 0 0 1 59 0", "06 60 0 0 1 59 0", "07 50 0 49 1 0 0"];
    assert_eq!(rows(&app.database, BOOKS).await, books);
    app.finish().await;
}

/// The anchor day with which the next period is opened, and the one that it begins with: it ends earlier or later then.
#[rstest::rstest]
#[case::the_end_comes_nearer(1, 15, "2026-04-20T00:00:00Z")]
#[case::the_end_moves_away(15, 1, "2027-01-01T00:00:00Z")]
#[tokio::test(flavor = "multi_thread")]
async fn it_ends_with_a_period_whose_end_has_moved_before_it_began(
    #[case] before: u8,
    #[case] after: u8,
    #[case] until: &str,
) {
    let app = app().await;
    assert_eq!(uses(&app, "5").await, 201);
    app.drained().await;
    app.define("tenants/acme", json!({ "plan": "plan", "anchor_day": before })).await;
    granted(&app, "a", recurring(until)).await;
    app.move_clock("2026-03-31T12:00:00Z").await;
    app.drained().await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    app.define("tenants/acme", json!({ "plan": "plan", "anchor_day": after })).await;
    app.move_clock("2026-06-02T12:00:00Z").await;
    app.drained().await;
    app.app().operations.grants.follow().await.unwrap();
    close(&app).await;
    let open = "SELECT count(*) FROM balances b LEFT JOIN period_closures c USING (tenant, meter, period_start) \
        WHERE c.tenant IS NULL AND b.period_end < '2026-06-01T00:00:00Z'";
    assert_eq!(rows(&app.database, open).await, ["0"], "every period that has ended is closed");
    let wrong = "SELECT period_start AT TIME ZONE 'UTC' AS start, available::float8 AS a FROM balances \
        WHERE period_end < '2026-06-01T00:00:00Z' AND available <> 0";
    assert_eq!(rows(&app.database, wrong).await, [""; 0], "and has nothing left");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_void_takes_back_what_open_periods_have_of_it_and_later_ones_get_none() {
    let app = app().await;
    let id = granted(&app, "a", recurring("2027-01-01T00:00:00Z").with("priority", 1)).await;
    assert_eq!(uses(&app, "4").await, 201);
    app.move_clock("2026-04-30T12:00:00Z").await;
    assert_eq!(uses(&app, "3").await, 201);
    close(&app).await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    let answer = voided(&app, &id).await.expect(200);
    assert_eq!((answer.text("/status"), answer.text("/unburnt")), ("voided", "17"), "{answer:?}");
    let again = voided(&app, &id).await.expect(200);
    assert_eq!((&again.body["replayed"], again.text("/unburnt")), (&json!(true), "17"));
    assert_eq!((remaining(&app).await.as_str(), uses(&app, "51").await), ("50", 429));
    app.move_clock("2026-05-10T12:00:00Z").await;
    assert_eq!((uses(&app, "50").await, uses(&app, "1").await), (201, 429));
    app.move_clock("2026-06-10T12:00:00Z").await;
    assert_eq!((uses(&app, "50").await, uses(&app, "1").await), (201, 429));
    close(&app).await;
    let books = ["03 60 0 0 4 56 0", "04 60 0 0 3 50 7", "05 60 0 0 50 0 10", "06 50 0 0 50 0 0"];
    assert_eq!(rows(&app.database, BOOKS).await, books);
    assert_eq!(app.get(&format!("{GRANTS}/{id}")).await.text("/status"), "voided");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_begins_later_recurs_from_its_own_period_on_and_one_voided_before_never_does() {
    let app = app().await;
    let later = recurring("2027-01-01T00:00:00Z").with("effective_at", "2026-04-20T00:00:00Z");
    let id = granted(&app, "a", later.clone()).await;
    let never = granted(&app, "b", later).await;
    assert_eq!(voided(&app, &never).await.expect(200).text("/status"), "voided");
    app.move_clock("2026-04-10T12:00:00Z").await;
    assert_eq!((uses(&app, "1").await, remaining(&app).await.as_str()), (201, "49"));
    app.move_clock("2026-04-20T00:00:00Z").await;
    assert_eq!(remaining(&app).await, "59");
    app.app().operations.grants.follow().await.unwrap();
    app.move_clock("2026-05-01T00:00:00Z").await;
    assert_eq!((uses(&app, "1").await, remaining(&app).await.as_str()), (201, "59"));
    let answer = app.get(&format!("{GRANTS}/{id}")).await.expect(200);
    assert_eq!((answer.text("/status"), answer.text("/recurrence")), ("active", "period"));
    close(&app).await;
    app.finish().await;
}

/// When it begins, and what March has used beyond its quota and April pays of that.
#[rstest::rstest]
#[case::it_repeats("2026-03-10T12:00:00Z", "70 60")]
#[case::it_begins_with_april("2026-04-01T00:00:00Z", "80 60")]
#[case::it_begins_in_april("2026-04-01T00:00:01Z", "80 50")]
#[tokio::test(flavor = "multi_thread")]
async fn preserved_overage_is_paid_by_what_recurs_too(#[case] effective_at: &str, #[case] expected: &str) {
    let app = app().await;
    let quota = quota_of("50").with("mode", "soft").with("preserve_overage", true);
    app.with_plan(json!([]), json!([quota])).await;
    granted(&app, "a", recurring("2027-01-01T00:00:00Z").with("effective_at", effective_at)).await;
    let never = recurring("2027-01-01T00:00:00Z").with("effective_at", "2026-04-01T00:00:00Z");
    let never = granted(&app, "b", never).await;
    voided(&app, &never).await.expect(200);
    app.use_pages("march", "130").await.expect(201);
    app.move_clock("2026-04-10T12:00:00Z").await;
    close(&app).await;
    let paid = "SELECT overage::float8 AS o, paid_by_next::float8 AS p FROM period_closures";
    assert_eq!(rows(&app.database, paid).await, [expected]);
    app.finish().await;
}

#[rstest::rstest]
#[case::it_is_gone("DELETE FROM grants WHERE repeats IS NOT NULL")]
#[case::another_amount("UPDATE grants SET amount = 11 WHERE repeats IS NOT NULL")]
#[tokio::test(flavor = "multi_thread")]
async fn verify_names_what_a_period_got_and_is_not_booked(#[case] tampering: &str) {
    let app = app().await;
    granted(&app, "a", recurring("2027-01-01T00:00:00Z")).await;
    app.move_clock("2026-04-10T12:00:00Z").await;
    assert_eq!(uses(&app, "1").await, 201);
    app.drained().await;
    app.check_books().await;
    as_owner(&app.database, tampering).await.unwrap();
    let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
    let mut faults = report.checks.iter().flat_map(|check| &check.faults);
    assert!(faults.any(|fault| fault.what.contains("acme")), "{report:?}");
    app.leave_unbalanced("its grant was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_voided_after_its_period_ended_was_given_in_it_also_where_that_is_opened_later() {
    let app = app().await;
    let id = granted(&app, "a", recurring("2027-01-01T00:00:00Z")).await;
    app.move_clock("2026-05-01T00:10:00Z").await;
    voided(&app, &id).await.expect(200);
    // Nothing was used in April before its end: this event opens its quota.
    send(&app, &event("late", 55, Some("2026-04-30T23:00:00Z"))).await;
    app.drained().await;
    let april =
        "SELECT granted::float8 AS g, consumed::float8 AS c FROM balances WHERE period_start = '2026-04-01Z'";
    assert_eq!(rows(&app.database, april).await, ["60 55"]);
    app.finish().await;
}
