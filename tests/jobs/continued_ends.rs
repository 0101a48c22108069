//! How grants that go on end: by their date or a void, whatever is late, away or changed meanwhile.

use rstest::rstest;
use serde_json::json;

use super::continued_grants::{
    BOOKS, BURNS, CONTINUED, MONEY, app, ended, granted, on, paid, pair, remaining, run,
};
use super::continued_grants::{until, used, uses_all, voided, with};
use super::statements::{ISSUED, faults, run as billed};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_price_of_one_that_is_voided_in_the_grace_is_given_back_where_no_period_takes_it() {
    let app = with(quota_of("50").with("mode", "soft")).await;
    let id = granted(&app, "a", paid("10", "10", "2026-12-01T00:00:00Z")).await;
    used(&app, "march", "4").await;
    app.with_plan(json!([]), json!([])).await;
    app.move_clock("2026-04-01T00:30:00Z").await;
    voided(&app, &id).await.expect(200);
    app.move_clock("2026-04-01T02:00:00Z").await;
    billed(&app).await;
    assert_eq!(ended(&app, &id).await, pair("voided", ""));
    assert_eq!(rows(&app.database, BURNS).await, ["03 4 4 0"]);
    let booked = [
        "deferred receivable 10 03 03-10 12:00",
        "revenue deferred 4 03 04-01 00:30",
        "receivable deferred 6 03 04-01 00:30",
    ];
    assert_eq!(rows(&app.database, MONEY).await, booked);
    app.move_clock("2026-05-02T12:00:00Z").await;
    billed(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 10", "2 1 2026-03 -6"]);
    run(&app).await;
    assert_eq!(
        rows(&app.database, "SELECT grant_id FROM cuts WHERE is_end AND NOT is_settled").await,
        [""; 0]
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_recurs_and_is_voided_after_its_period_has_ended_keeps_the_price_of_that() {
    let app = with(quota_of("50").with("mode", "soft")).await;
    let recurring = paid("10", "10", "2026-12-01T00:00:00Z").with("recurrence", "period");
    let id = granted(&app, "a", recurring).await;
    used(&app, "march", "4").await;
    app.move_clock("2026-04-01T00:30:00Z").await;
    voided(&app, &id).await.expect(200);
    app.move_clock("2026-04-01T02:00:00Z").await;
    billed(&app).await;
    assert_eq!(rows(&app.database, BURNS).await, ["03 4 4 6"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_void_that_the_gate_hears_of_after_the_grant_s_date_is_cut_in_the_period_in_which_it_was_asked_for()
{
    let app = app().await;
    let id = granted(&app, "a", until("2026-04-15T00:00:00Z", "30").with("priority", 1)).await;
    used(&app, "march", "10").await;
    app.app().ledger.void_grant(id.parse().unwrap(), app.clock.now_ms(), "somebody").await.unwrap();
    app.move_clock("2026-04-20T12:00:00Z").await;
    // Its boundary is behind the date.
    granted(&app, "b", until("2026-04-25T00:00:00Z", "1")).await;
    run(&app).await;
    assert_eq!(ended(&app, &id).await, pair("voided", "20"));
    assert_eq!(rows(&app.database, BOOKS).await[0], "03 80 0 0 10 0 50 20");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_returned_of_another_tenant_and_cannot_be_read_holds_up_no_end_of_a_grant() {
    let app = app().await;
    let id = granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    used(&app, "march", "60").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    let damaged = "INSERT INTO carried_returns (partition, epoch, sequence, line, tenant, meter, period_start, period_end, amount, \
        reservation_id, step, happened_at, operation, hour_at, subjects) \
        SELECT partition, 1, 1, 0, 'other', 'page', '2026-04-01Z', '2026-05-01Z', 5, gen_random_uuid(), -1, '2026-04-10Z', '', \
        '2026-04-10Z', '{}' FROM tenants WHERE id = 'acme'";
    as_owner(&app.database, damaged).await.unwrap();
    assert_eq!(voided(&app, &id).await.expect(200).text("/unburnt"), "20");
    as_owner(&app.database, "DELETE FROM carried_returns WHERE tenant = 'other'").await.unwrap();
    app.finish().await;
}

#[rstest]
#[case::after_the_close("2026-04-10T12:00:00Z", "55", "20", "0")]
#[case::before_the_close("2026-04-01T00:30:00Z", "53", "20", "2")]
#[case::less_than_what_is_included("2026-04-01T00:30:00Z", "40", "20", "15")]
#[tokio::test(flavor = "multi_thread")]
async fn use_of_a_later_period_in_which_it_was_voided_is_taken_back_and_it_is_voided_by_as_much_more(
    #[case] at: &str,
    #[case] amount: &str,
    #[case] unburnt: &str,
    #[case] left: &str,
) {
    let app = app().await;
    let id = granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    used(&app, "march", "60").await;
    on(&app, at).await;
    used(&app, "april", amount).await;
    let less = json!({
        "tenant": "acme", "meter": "page", "effect": "usage", "amount": "-5", "happened_at": at, "reason": "counted twice"
    });
    voided(&app, &id).await.expect(200);
    app.post_keyed("/v1/adjustments", "less", less).await.expect(201);
    on(&app, "2026-04-10T12:00:00Z").await;
    assert_eq!(ended(&app, &id).await, pair("voided", unburnt));
    assert_eq!(remaining(&app).await, left);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_first_period_has_become_shorter_before_it_begins_goes_on_until_its_date() {
    let app = app().await;
    let body = until("2026-04-25T00:00:00Z", "30").with("effective_at", "2026-04-05T00:00:00Z");
    let id = granted(&app, "a", body).await;
    app.define("tenants/acme", json!({ "plan": "plan", "anchor_day": 15 })).await;
    on(&app, "2026-04-10T12:00:00Z").await;
    used(&app, "stub", "55").await;
    on(&app, "2026-04-16T12:00:00Z").await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 25 25"]);
    used(&app, "april", "60").await;
    on(&app, "2026-04-25T00:00:00Z").await;
    assert_eq!(ended(&app, &id).await, pair("expired", "15"));
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plan_includes_more_ends_with_its_period_also_where_that_has_become_shorter() {
    let app = app().await;
    app.define("plans/pro", json!({ "quotas": [quota_of("80")] })).await;
    used(&app, "march", "1").await;
    app.move_clock("2026-03-31T12:00:00Z").await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    app.define("tenants/acme", json!({ "plan": "pro" })).await;
    app.app().operations.plan_changes.follow().await.unwrap();
    app.define("tenants/acme", json!({ "plan": "pro", "anchor_day": 15 })).await;
    on(&app, "2026-04-10T12:00:00Z").await;
    assert_eq!(remaining(&app).await, "80");
    on(&app, "2026-04-16T12:00:00Z").await;
    assert_eq!(rows(&app.database, CONTINUED).await, [""; 0]);
    uses_all(&app, "80").await;
    let raised = "SELECT id FROM grants WHERE effective_at >= '2026-04-01Z'";
    assert_eq!(rows(&app.database, raised).await, [""; 0], "it is included");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_ends_waits_for_an_older_one_that_comes_over_two_late_closes() {
    let app = with(quota_of("0")).await;
    granted(&app, "older", until("2026-12-01T00:00:00Z", "100").with("priority", 10)).await;
    let of_may = until("2026-05-20T00:00:00Z", "50").with("effective_at", "2026-05-02T00:00:00Z");
    let ending = granted(&app, "of May", of_may).await;
    app.move_clock("2026-05-10T12:00:00Z").await;
    app.app().operations.grants.follow().await.unwrap();
    used(&app, "may", "10").await;
    app.move_clock("2026-05-25T12:00:00Z").await;
    run(&app).await;
    assert_eq!(ended(&app, &ending).await, pair("expired", "50"), "the older grant burns first");
    on(&app, "2026-06-01T01:00:00Z").await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 100 100", "05 100 100", "06 90 90"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_that_end_at_one_cut_are_booked_together_each_with_what_is_left_of_it() {
    let app = app().await;
    for (key, priority) in [("first", 1), ("second", 2), ("last", 60)] {
        granted(&app, key, until("2026-03-20T00:00:00Z", "10").with("priority", priority)).await;
    }
    granted(&app, "later", until("2026-03-25T00:00:00Z", "10")).await;
    used(&app, "march", "15").await;
    app.move_clock("2026-03-21T12:00:00Z").await;
    app.drained().await;
    assert_eq!(app.app().operations.grants.follow().await.unwrap().settled, 3);
    let left = "SELECT priority, settled_amount::float8 AS left FROM grants WHERE settled_at IS NOT NULL ORDER BY priority";
    assert_eq!(rows(&app.database, left).await, ["1 0", "2 5", "60 10"]);
    let batches =
        "SELECT count(*), count(DISTINCT (chain, batch)) AS batches FROM entries WHERE debit = 'lapsed'";
    assert_eq!(rows(&app.database, batches).await, ["2 1"]);
    app.move_clock("2026-03-26T12:00:00Z").await;
    app.drained().await;
    assert_eq!(app.app().operations.grants.follow().await.unwrap().settled, 1);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}
