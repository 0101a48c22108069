//! The money of paid grants: deferred when they are sold, earned as they burn, forfeited or given back when they end.

use rstest::rstest;
use serde_json::{Value, json};

use super::statements::{ISSUED, faults, in_march, per_page, run, statement};
use crate::http::statements::{amounts, draft};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;

pub(super) const GRANTS: &str = "/v1/admin/grants";
pub(super) const MONEY: &str = "SELECT substr(meter, 7) AS currency, credit, debit, amount::float8 AS a, to_char(period_start AT TIME ZONE 'UTC', 'MM') AS period, \
    to_char(happened_at AT TIME ZONE 'UTC', 'MM-DD HH24:MI') AS at FROM entries WHERE meter LIKE 'money:%' ORDER BY happened_at, operation_id, step, line, leg";
pub(super) const BURNS: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS period, amount::float8 AS a, recognised::float8 AS r, \
    forfeited::float8 AS f FROM grant_burns ORDER BY period_start, amount";

/// A tenant with a quota of fifty pages and nothing that has a price, in the middle of March.
pub(super) async fn unpriced() -> TestApp {
    with_prices(json!([])).await
}

async fn with_prices(prices: Value) -> TestApp {
    let app = in_march(prices).await;
    app.define("plans/plan", json!({ "quotas": [quota_of("50").with("mode", "soft")] })).await;
    app
}

/// Pages that burn before what is included, until the end of March, for this price.
pub(super) fn paid(amount: &str, price: &str) -> Value {
    json!({
        "tenant": "acme", "meter": "page", "amount": amount, "kind": "paid", "priority": 1,
        "expires_at": "2026-04-01T00:00:00Z", "paid_amount": price, "currency": "EUR"
    })
}

pub(super) async fn sold(app: &TestApp, key: &str, body: Value) -> String {
    app.post_keyed(GRANTS, key, body).await.expect(201).text("/id").to_owned()
}

async fn voided(app: &TestApp, id: &str) {
    app.drained().await;
    app.post(&format!("{GRANTS}/{id}/void"), json!({})).await.expect(200);
}

async fn revenue(app: &TestApp, query: &str) -> Vec<String> {
    let report = app.get(&format!("/v1/reports/revenue{query}")).await.expect(200).body;
    let fields =
        ["period", "plan", "meter", "currency", "billed", "corrected", "revenue", "deferred", "breakage"];
    let row =
        |row: &Value| fields.iter().filter_map(|field| row[*field].as_str()).collect::<Vec<_>>().join(" ");
    report["data"].as_array().unwrap().iter().map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paid_grant_is_owed_when_it_is_sold_earned_as_it_burns_and_what_lapses_is_kept() {
    let app = unpriced().await;
    let made = app.post_keyed(GRANTS, "a", paid("3", "10")).await.expect(201);
    assert_eq!((made.text("/paid_amount"), made.text("/currency")), ("10.00", "EUR"));
    app.use_pages("some", 2).await.expect(201);
    assert_eq!(rows(&app.database, MONEY).await, ["EUR deferred receivable 10 03 03-10 12:00"]);
    let so_far = draft(&app).await;
    assert_eq!((&so_far["currency"], &so_far["total"]), (&json!("EUR"), &json!("10.00")));
    let line = json!({ "kind": "grant", "meter": "page", "id": made.text("/id"), "quantity": "3", "amount": "10.00" });
    assert_eq!(so_far["lines"], json!([line]));
    assert_eq!(faults(&app).await, [""; 0], "what waits for its statement is no fault");
    app.move_clock("2026-04-02T12:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.notes), (1, 0));
    let booked = [
        "EUR deferred receivable 10 03 03-10 12:00",
        "EUR revenue deferred 6.67 03 04-01 01:00",
        "EUR breakage deferred 3.33 03 04-01 01:00",
    ];
    assert_eq!(rows(&app.database, MONEY).await, booked);
    let first = statement(&app, 1).await;
    assert_eq!((&first["lines"], &first["total"]), (&so_far["lines"], &json!("10.00")));
    assert_eq!(revenue(&app, "").await, ["EUR 10.00 0.00 6.67 0.00 3.33"]);
    run(&app).await;
    assert_eq!(rows(&app.database, MONEY).await, booked, "each once");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

/// The golden table: what is earned and what is kept of a price when so much has burnt.
#[rstest]
#[case::a_third("EUR", "10", "3", 1, "3.33 6.67")]
#[case::two_thirds("EUR", "10", "3", 2, "6.67 3.33")]
#[case::all_of_it("EUR", "10", "3", 3, "10 0")]
#[case::nothing("EUR", "10", "3", 0, "0 10")]
#[case::without_decimals("JPY", "100", "3", 2, "67 33")]
#[case::three_decimals("KWD", "10", "3", 1, "3.333 6.667")]
#[case::more_than_all_is_overage_or_the_quotas("EUR", "10", "3", 9, "10 0")]
#[tokio::test(flavor = "multi_thread")]
async fn the_price_is_earned_in_the_share_that_is_burnt(
    #[case] currency: &str,
    #[case] price: &str,
    #[case] amount: &str,
    #[case] used: u64,
    #[case] expected: &str,
) {
    let app = unpriced().await;
    sold(&app, "a", paid(amount, price).with("currency", currency)).await;
    if used > 0 {
        app.use_pages("some", used).await.expect(201);
    }
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    let earned = "SELECT recognised::float8 AS r, forfeited::float8 AS f FROM grant_burns";
    assert_eq!(rows(&app.database, earned).await, [expected]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_void_gives_back_what_is_not_burnt_by_a_note_to_the_statement_of_the_sale() {
    let app = with_prices(json!([per_page("1")])).await;
    let taxed = json!({ "plan": "plan", "taxes": [{ "code": "vat", "percent": "10" }] });
    app.define("tenants/acme", taxed).await;
    let id = sold(&app, "a", paid("10", "20")).await;
    app.use_pages("some", 4).await.expect(201);
    voided(&app, &id).await;
    let booked = [
        "EUR deferred receivable 20 03 03-10 12:00",
        "EUR revenue deferred 8 03 03-10 12:00",
        "EUR receivable deferred 12 03 03-10 12:00",
    ];
    assert_eq!(rows(&app.database, MONEY).await, booked, "at once");
    voided(&app, &id).await;
    app.move_clock("2026-04-02T12:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.notes), (1, 1));
    assert_eq!(amounts(&statement(&app, 1).await), ["4.00", "20.00", "2.40"]);
    let note = statement(&app, 2).await;
    let first = json!({
        "kind": "grant", "meter": "page", "id": id, "billed": "20.00", "corrected": "8.00", "amount": "-12.00"
    });
    assert_eq!((&note["lines"][0], &note["corrects"], &note["total"]), (&first, &json!(1), &json!("-13.20")));
    assert_eq!(revenue(&app, "").await, ["EUR 24.00 -12.00 12.00 0.00 0.00"]);
    let receivable = "SELECT sum(CASE WHEN debit = 'receivable' THEN amount ELSE -amount END)::float8 AS a FROM entries \
        WHERE 'receivable' IN (credit, debit)";
    assert_eq!(rows(&app.database, receivable).await, ["13.2"], "statement and note");
    assert_eq!(faults(&app).await, [""; 0]);
    app.move_clock("2026-05-02T12:00:00Z").await;
    assert_eq!(run(&app).await.notes, 0, "it is given back once");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_begins_later_is_billed_when_it_is_sold_and_given_back_whole_if_it_never_begins() {
    let app = unpriced().await;
    let later = json!({ "effective_at": "2026-04-20T00:00:00Z", "expires_at": "2026-05-01T00:00:00Z" });
    let of = |price: &str| {
        let mut body = paid("3", price);
        later.as_object().unwrap().iter().for_each(|(field, value)| body[field] = value.clone());
        body
    };
    let cancelled = sold(&app, "a", of("10")).await;
    sold(&app, "b", of("7")).await;
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 17"]);
    assert_eq!(revenue(&app, "?group_by=period").await, ["2026-03-01 EUR 17.00 0.00 0.00 17.00 0.00"]);
    voided(&app, &cancelled).await;
    app.move_clock("2026-04-20T12:00:00Z").await;
    app.app().operations.grants.follow().await.unwrap();
    app.use_pages("some", 1).await.expect(201);
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 17", "2 1 2026-03 -10"]);
    assert_eq!(rows(&app.database, BURNS).await, ["03 0 0 0", "04 1 2.33 4.67"]);
    let by_period =
        ["2026-04-01 EUR 0.00 -10.00 2.33 -17.00 4.67", "2026-03-01 EUR 17.00 0.00 0.00 17.00 0.00"];
    assert_eq!(revenue(&app, "?group_by=period").await, by_period);
    assert_eq!(revenue(&app, "?group_by=meter").await, ["page EUR 17.00 -10.00 2.33 0.00 4.67"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_paid_for_one_that_never_begins_is_earned_when_that_is_certain_and_not_in_the_billed_month_of_the_sale()
 {
    let app = unpriced().await;
    let later = paid("3", "40")
        .with("effective_at", "2026-05-10T00:00:00Z")
        .with("expires_at", "2026-06-01T00:00:00Z");
    sold(&app, "a", later).await;
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    let billed = "2026-03-01 EUR 40.00 0.00 0.00 40.00 0.00";
    assert_eq!(revenue(&app, "?group_by=period").await, [billed]);
    app.define("plans/plan", json!({ "quotas": [] })).await;
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    app.app().operations.grants.follow().await.unwrap();
    assert_eq!(
        revenue(&app, "?group_by=period").await,
        ["2026-06-01 EUR 0.00 0.00 0.00 -40.00 40.00", billed]
    );
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_grant_earns_after_a_change_of_zone_and_plan_is_in_the_row_of_its_periods_statement() {
    let app = with_prices(json!([per_page("1")])).await;
    sold(&app, "a", paid("10", "20").with("expires_at", "2026-12-01T00:00:00Z")).await;
    app.use_pages("march", 2).await.expect(201);
    app.drained().await;
    let quotas = json!([quota_of("50").with("mode", "soft")]);
    app.define("plans/later", json!({ "quotas": quotas, "prices": [per_page("1")] })).await;
    app.define("tenants/acme", json!({ "plan": "later", "time_zone": "Europe/Berlin" })).await;
    app.move_clock("2026-05-10T12:00:00Z").await;
    run(&app).await;
    app.use_pages("may", 3).await.expect(201);
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    // May begins on the last day of April in the zone of the sale.
    assert_eq!(rows(&app.database, BURNS).await, ["03 2 4 0", "04 3 6 0"]);
    assert_eq!(
        revenue(&app, "?group_by=period,plan&from=2026-04-01T00:00:00Z").await,
        ["2026-05-01 later EUR 3.00 0.00 9.00 -6.00 0.00", "2026-04-01 later EUR 0.00 0.00 0.00 0.00 0.00"]
    );
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_expires_inside_its_period_is_earned_as_of_its_end() {
    let app = unpriced().await;
    sold(&app, "a", paid("3", "10").with("expires_at", "2026-03-20T00:00:00Z")).await;
    app.use_pages("some", 1).await.expect(201);
    app.move_clock("2026-03-21T12:00:00Z").await;
    app.drained().await;
    app.app().operations.grants.follow().await.unwrap();
    app.use_pages("more", 30).await.expect(201);
    app.drained().await;
    app.app().operations.grants.follow().await.unwrap();
    let booked = [
        "EUR deferred receivable 10 03 03-10 12:00",
        "EUR revenue deferred 3.33 03 03-20 00:00",
        "EUR breakage deferred 6.67 03 03-20 00:00",
    ];
    assert_eq!(rows(&app.database, MONEY).await, booked);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, MONEY).await, booked);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

/// What was used and held of the fifty that the plan includes; what a lower plan voids, and what remains.
#[rstest]
#[case::all_that_is_free("10", "0", "30", "40")]
#[case::no_more_than_that("45", "0", "5", "30")]
#[case::nor_what_is_held_of_it("35", "10", "5", "30")]
#[case::nothing_is_free("60", "0", "0", "20")]
#[tokio::test(flavor = "multi_thread")]
async fn a_lower_plan_takes_nothing_of_a_paid_grant(
    #[case] used: &str,
    #[case] held: &str,
    #[case] taken: &str,
    #[case] remaining: &str,
) {
    let app = unpriced().await;
    app.define("plans/small", json!({ "quotas": [quota_of("20").with("mode", "soft")] })).await;
    sold(&app, "a", paid("30", "10").with("priority", 60)).await;
    app.use_pages("some", used).await.expect(201);
    let hold = match held {
        "0" => None,
        held => Some(app.hold(held).await),
    };
    app.define("tenants/acme", json!({ "plan": "small", "plan_from": "now" })).await;
    let voided = "SELECT coalesce(sum(amount), 0)::float8 AS a FROM entries WHERE debit = 'voided'";
    assert_eq!(rows(&app.database, voided).await, [taken]);
    assert_eq!(app.quota().await.text("/quotas/0/remaining"), remaining);
    if let Some(hold) = hold {
        app.release(&hold).await.expect(200);
    }
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    let burnt = if used == "60" { ["03 10 3.33 6.67"] } else { ["03 0 0 10"] };
    assert_eq!(rows(&app.database, BURNS).await, burnt, "what is not used is not earned");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_open_holds_take_of_it_at_the_close_counts_as_burnt() {
    let app = unpriced().await;
    sold(&app, "a", paid("4", "10")).await;
    app.use_pages("some", 1).await.expect(201);
    app.move_clock("2026-03-31T23:00:00Z").await;
    app.post(RESERVATIONS, pages("2").with("ttl_seconds", 14_400)).await.expect(201);
    app.move_clock("2026-04-01T01:30:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, "SELECT count(*) AS n FROM reservations_open").await, ["1"]);
    assert_eq!(rows(&app.database, BURNS).await, ["03 3 7.5 2.5"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_that_close_and_bill_at_once_book_each_row_once() {
    let app = unpriced().await;
    for number in 0..5 {
        sold(&app, &format!("grant {number}"), paid("3", "10")).await;
    }
    app.use_pages("some", 7).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    app.drained().await;
    let (one, other) = tokio::join!(run(&app), run(&app));
    assert_eq!(one.statements + other.statements, 1);
    let sums =
        "SELECT count(*) AS n, sum(recognised)::float8 AS r, sum(forfeited)::float8 AS f FROM grant_burns";
    assert_eq!(rows(&app.database, sums).await, ["5 23.33 26.67"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_pays_nothing_for_a_grant_also_once_it_has_become_a_customer() {
    let app = with_prices(json!([per_page("1")])).await;
    app.define("tenants/acme", json!({ "plan": "plan", "sandbox": true })).await;
    sold(&app, "a", paid("3", "10")).await;
    app.use_pages("some", 2).await.expect(201);
    app.drained().await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    sold(&app, "b", paid("5", "20")).await;
    app.define("tenants/acme", json!({ "plan": "plan", "sandbox": true })).await;
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 20"], "what was sold while it was a customer");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sold_in_another_currency_is_on_a_statement_of_its_own() {
    let app = with_prices(json!([per_page("1")])).await;
    let id = sold(&app, "a", paid("3", "1000").with("currency", "JPY")).await;
    app.use_pages("some", 1).await.expect(201);
    voided(&app, &id).await;
    app.move_clock("2026-04-02T12:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.notes, issued.billed), (2, 1, 1));
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 1", "2 2026-03 1000", "3 2 2026-03 -667"]);
    assert_eq!(revenue(&app, "").await, ["EUR 1.00 0.00 1.00 0.00 0.00", "JPY 1000 -667 333 0 0"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_changes_of_a_price_is_named_by_the_proof() {
    let app = unpriced().await;
    let id = sold(&app, "a", paid("3", "10")).await;
    app.use_pages("some", 2).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    for (change, back, named) in [
        (
            "UPDATE grant_burns SET recognised = 6.66",
            "UPDATE grant_burns SET recognised = 6.67",
            "earned part is 6.66, by entries 6.67",
        ),
        (
            "UPDATE grant_burns SET amount = 1",
            "UPDATE grant_burns SET amount = 2",
            "1 of 3 have burnt, which earns 3.33",
        ),
        (
            "UPDATE grant_burns SET forfeited = 3",
            "UPDATE grant_burns SET forfeited = 3.33",
            "forfeited part is 3, by entries 3.33",
        ),
        (
            "UPDATE grant_sales SET price = 11",
            "UPDATE grant_sales SET price = 10",
            "price is 11, by entries 10",
        ),
        (
            "UPDATE grants SET paid_amount = 9",
            "UPDATE grants SET paid_amount = 10",
            "it and its grant differ",
        ),
        (
            "UPDATE grant_sales SET is_over = false",
            "UPDATE grant_sales SET is_over = true",
            "it has ended, and 0 is deferred",
        ),
        (
            "UPDATE grant_sales SET statement = NULL",
            "UPDATE grant_sales SET statement = 1",
            "its total is 10, by entries 0",
        ),
        (
            "UPDATE grant_sales SET refunded = 1, refunded_at = now()",
            "UPDATE grant_sales SET refunded = NULL, refunded_at = NULL",
            "part that was given back is 1, by entries 0",
        ),
    ] {
        as_owner(&app.database, change).await.unwrap();
        let found = faults(&app).await.join("\n");
        assert!(
            found.contains(named) && (found.contains(&id) || found.contains("statement 1")),
            "{change}: {found}"
        );
        as_owner(&app.database, back).await.unwrap();
    }
    as_owner(&app.database, "CREATE TABLE kept AS SELECT * FROM grant_sales; DELETE FROM grant_sales")
        .await
        .unwrap();
    let found = faults(&app).await.join("\n");
    assert!(found.contains("0 is deferred without a sale"), "{found}");
    as_owner(&app.database, "INSERT INTO grant_sales SELECT * FROM kept; DROP TABLE kept").await.unwrap();
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[rstest]
#[case::a_price_without_a_currency(json!({ "currency": null }), "/currency")]
#[case::a_currency_without_a_price(json!({ "paid_amount": null }), "/currency")]
#[case::a_gift_with_a_price(json!({ "kind": "promotional" }), "/paid_amount")]
#[case::nothing(json!({ "paid_amount": "0" }), "/paid_amount")]
#[case::more_decimals_than_the_currency_has(json!({ "paid_amount": "0.001" }), "/paid_amount")]
#[case::no_currency(json!({ "currency": "XXX" }), "/currency")]
#[tokio::test(flavor = "multi_thread")]
async fn a_price_that_says_nothing_is_refused_and_named(#[case] changes: Value, #[case] named: &str) {
    let app = unpriced().await;
    let mut body = paid("3", "10");
    changes.as_object().unwrap().iter().for_each(|(field, value)| body[field] = value.clone());
    let answer = app.post_keyed(GRANTS, "a", body).await;
    assert!(matches!(answer.status, 400 | 422), "{answer:?}");
    assert_eq!(answer.pointers(), [named]);
    assert_eq!(rows(&app.database, MONEY).await, [""; 0]);
    app.finish().await;
}
