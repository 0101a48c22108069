//! Adjustments of the use of holds that were carried on: the ledger alone corrects it, in the period that bills it.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tollgate::writer::retry;

use super::statements::{ISSUED, faults, per_page, run, statement};
use crate::http::adjustments::{ADJUSTMENTS, pages_left};
use crate::http::statements::{amounts, draft, price};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const RESERVED_AT: &str = "2026-03-31T23:30:00Z";
const CONSUMED_AT: &str = "2026-04-01T20:00:00Z";
const ENTRIES: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM') AS period, credit, debit, amount::float8 AS a, class, \
    carried, happened_at AT TIME ZONE 'UTC' AS at FROM entries WHERE 'adjusted' IN (credit, debit) ORDER BY booked_at, amount";

/// Fifty pages a month; more is measured.
fn soft() -> Value {
    quota_of("50").with("mode", "soft")
}

/// So many pages of acme that this reservation, or adjustment, consumed wrongly.
fn correction(amount: &str, at: &str, corrects: &str) -> Value {
    json!({
        "tenant": "acme", "meter": "page", "effect": "usage", "amount": amount, "happened_at": at, "corrects": corrects,
        "reason": "counted twice", "reference": "ticket 1"
    })
}

async fn posted(app: &TestApp, key: &str, body: Value) -> Value {
    app.post_keyed(ADJUSTMENTS, key, body).await.expect(201).body
}

/// Posts it and is refused for its amount. Returns why.
async fn refused(app: &TestApp, key: &str, body: Value) -> String {
    let refused = app.post_keyed(ADJUSTMENTS, key, body).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), ["/amount"], "{refused:?}");
    refused.text("/errors/0/message").to_owned()
}

/// A tenant with this quota and price that used ten pages in March and held these then; in the evening of the first of
/// April, where March is closed and billed.
async fn with_holds<const N: usize>(quota: Value, price: Value, held: [&str; N]) -> (TestApp, [String; N]) {
    let app = an_app().at(RESERVED_AT).without_jobs().start().await;
    app.with_plan(json!([]), json!([quota])).await;
    app.define("plans/plan", json!({ "prices": [price] })).await;
    app.use_pages("march", "10").await.expect(201);
    let mut holds = [const { String::new() }; N];
    for (hold, amount) in holds.iter_mut().zip(held) {
        *hold = app.held(pages(amount).lasting(86_400)).await;
    }
    app.move_clock("2026-04-01T02:00:00Z").await;
    run(&app).await;
    app.move_clock(CONSUMED_AT).await;
    (app, holds)
}

/// A tenant of which a carried hold of twenty was consumed, beside seven pages of April.
async fn after_a_carried_use() -> (TestApp, String) {
    let (app, [hold]) = with_holds(soft(), per_page("1"), ["20"]).await;
    app.consume(&hold, "20").await.expect(200);
    app.use_pages("april", "7").await.expect(201);
    (app, hold)
}

#[rstest]
#[case::when_it_was_reserved(RESERVED_AT)]
#[case::when_it_was_consumed(CONSUMED_AT)]
#[tokio::test(flavor = "multi_thread")]
async fn use_of_a_carried_hold_is_corrected_in_the_bill_of_the_open_period_in_which_it_stands(
    #[case] at: &str,
) {
    let (app, hold) = after_a_carried_use().await;
    assert_eq!(amounts(&draft(&app).await), ["27.00"]);
    let less = posted(&app, "less", correction("-5", at, &hold)).await;
    for (field, expected) in [
        ("status", "booked"),
        ("booked_amount", "-5"),
        ("period_start", "2026-04-01T00:00:00Z"),
        ("booked_in", "2026-04-01T00:00:00Z"),
        ("happened_at", at),
        ("corrects", &hold),
    ] {
        assert_eq!(less[field], expected, "{field}: {less}");
    }
    let again = app.post_keyed(ADJUSTMENTS, "less", correction("-5", at, &hold)).await.expect(200);
    assert_eq!(again.body["replayed"], true);
    let entry = format!("2026-04 consumed adjusted 5 correction true {}", at.trim_end_matches('Z'));
    assert_eq!(rows(&app.database, ENTRIES).await, [entry]);
    assert_eq!(amounts(&draft(&app).await), ["22.00"]);
    assert_eq!(pages_left(&app).await, ["7", "43"], "the allowance of April is untouched");
    app.redis.flush().await;
    assert_eq!(pages_left(&app).await, ["7", "43"], "restored from the books");
    assert_eq!(app.quota().await.text("/quotas/0/adjusted"), "-5");
    let of_hour = "SELECT to_char(hour_at AT TIME ZONE 'UTC', 'MM-DD HH24') AS hour, corrections::float8 AS c FROM usage_hourly \
        WHERE corrections <> 0";
    assert_eq!(rows(&app.database, of_hour).await, [format!("{} -5", at[5..13].replace('T', " "))]);
    app.move_clock("2026-05-02T12:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.notes), (1, 0), "March's bill was right");
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 10", "2 2026-04 22"]);
    let closed =
        "SELECT lapsed::float8 AS l, overage::float8 AS o FROM period_closures ORDER BY period_start";
    assert_eq!(rows(&app.database, closed).await, ["20 0", "43 0"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[rstest]
#[case::when_it_was_reserved(RESERVED_AT)]
#[case::when_it_was_consumed(CONSUMED_AT)]
#[tokio::test(flavor = "multi_thread")]
async fn once_that_period_is_closed_a_note_to_its_statement_corrects_it(#[case] at: &str) {
    let (app, hold) = after_a_carried_use().await;
    posted(&app, "in april", correction("-2", at, &hold)).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let less = posted(&app, "less", correction("-5", at, &hold)).await;
    assert_eq!(
        (&less["period_start"], &less["booked_in"]),
        (&json!("2026-04-01T00:00:00Z"), &json!("2026-05-01T00:00:00Z"))
    );
    refused(&app, "too much", correction("-14", at, &hold)).await;
    assert_eq!(amounts(&draft(&app).await), ["0.00"], "nothing of it is May's");
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    let issued = ["1 2026-03 10", "2 2026-04 25", "3 2026-05 0", "4 2 2026-04 -5"];
    assert_eq!(rows(&app.database, ISSUED).await, issued);
    let line = json!([{ "kind": "usage", "meter": "page", "billed": "25.00", "corrected": "20.00", "amount": "-5.00" }]);
    assert_eq!(statement(&app, 4).await["lines"], line);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_taken_back_than_was_consumed_of_the_hold_and_what_it_holds_may_be_consumed_and_taken_back_later()
 {
    let (app, [hold, other]) = with_holds(soft(), per_page("1"), ["20", "9"]).await;
    app.consume(&other, "9").await.expect(200);
    app.resolve(&hold, "consume", json!({ "amount": "8", "final": false })).await.expect(200);
    app.drained().await;
    let why = refused(&app, "too much", correction("-9", CONSUMED_AT, &hold)).await;
    assert!(why.contains("the 8 that were consumed of that reservation"), "{why}");
    posted(&app, "some", correction("-5", CONSUMED_AT, &hold)).await;
    refused(&app, "one too many", correction("-4", RESERVED_AT, &hold)).await;
    app.check_books().await;
    app.consume(&hold, "20").await.expect(200);
    app.drained().await;
    assert_eq!(amounts(&draft(&app).await), ["24.00"]);
    refused(&app, "more than is left", correction("-16", CONSUMED_AT, &hold)).await;
    posted(&app, "the rest", correction("-15", CONSUMED_AT, &hold)).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 10", "2 2026-04 9"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_waits_while_a_call_of_the_reservation_that_it_names_is_not_booked() {
    let (app, [hold]) = with_holds(soft(), per_page("1"), ["20"]).await;
    let refused = "ALTER TABLE balances ADD CONSTRAINT refused CHECK (consumed_of_carried = 0)";
    as_owner(&app.database, refused).await.unwrap();
    app.consume(&hold, "20").await.expect(200);
    let ledger = &app.app().ledger;
    wait_for("its event is in quarantine", Duration::from_secs(30), async || {
        (ledger.count_quarantined().await.unwrap() == 1).then_some(())
    })
    .await;
    let less = correction("-5", RESERVED_AT, &hold);
    app.post_keyed(ADJUSTMENTS, "less", less.clone()).await.is_problem(503, "gate_unavailable");
    as_owner(&app.database, "ALTER TABLE balances DROP CONSTRAINT refused").await.unwrap();
    let event = ledger.quarantined(false, None, 10).await.unwrap().remove(0);
    assert_eq!(retry(ledger, event.partition, event.outbox_id, "test").await.unwrap().resolved, 1);
    let booked = posted(&app, "less", less).await;
    assert_eq!(booked["period_start"], "2026-04-01T00:00:00Z", "not in March, which used ten pages itself");
    let audit = app.get("/v1/admin/audit?object_kind=quarantine").await.expect(200);
    assert_eq!((audit.text("/data/0/actor"), audit.text("/data/0/action")), ("test", "retry"));
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_names_no_reservation_is_refused_with_what_to_do_where_nothing_else_was_used_then() {
    let (app, [hold]) = with_holds(soft(), per_page("1"), ["20"]).await;
    app.consume(&hold, "20").await.expect(200);
    app.drained().await;
    let unnamed = |amount: &str, at: &str| {
        let mut body = correction(amount, at, &hold);
        body.as_object_mut().unwrap().remove("corrects");
        body
    };
    for (key, amount, at) in [("march", "-11", RESERVED_AT), ("april", "-5", CONSUMED_AT)] {
        let why = refused(&app, key, unnamed(amount, at)).await;
        assert!(why.contains("name in `corrects` the reservation"), "{why}");
    }
    let march = posted(&app, "of march", unnamed("-10", RESERVED_AT)).await;
    assert_eq!(march["period_start"], "2026-03-01T00:00:00Z", "what March used itself");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_consumed_before_it_was_carried_on_is_corrected_in_the_period_of_its_reserve() {
    let app = an_app().at(RESERVED_AT).without_jobs().start().await;
    app.with_plan(json!([]), json!([soft()])).await;
    app.define("plans/plan", json!({ "prices": [per_page("1")] })).await;
    let hold = app.held(pages("20").lasting(86_400)).await;
    app.resolve(&hold, "consume", json!({ "amount": "8", "final": false })).await.expect(200);
    app.move_clock("2026-04-01T02:00:00Z").await;
    run(&app).await;
    app.move_clock(CONSUMED_AT).await;
    app.consume(&hold, "20").await.expect(200);
    app.drained().await;
    refused(&app, "of march", correction("-9", RESERVED_AT, &hold)).await;
    refused(&app, "of april", correction("-13", CONSUMED_AT, &hold)).await;
    let march = posted(&app, "march", correction("-8", RESERVED_AT, &hold)).await;
    let april = posted(&app, "april", correction("-12", CONSUMED_AT, &hold)).await;
    assert_eq!(
        [&march, &april].map(|one| one["period_start"].as_str().unwrap()),
        ["2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"]
    );
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 8", "2 2026-04 0", "3 1 2026-03 -8"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

/// April has used 48 of fifty pages, and seven beyond a carried hold: five are overage. What March had paid for of the
/// other hold is none.
#[rstest]
#[case::before_april_is_closed("2026-04-03T12:00:00Z", &["1 2026-03 0", "2 2026-04 2", "3 2026-05 0"])]
#[case::after_it("2026-05-02T12:00:00Z", &["1 2026-03 0", "2 2026-04 5", "3 2026-05 0", "4 2 2026-04 -3"])]
#[tokio::test(flavor = "multi_thread")]
async fn only_what_of_it_burnt_the_quota_where_it_stands_is_overage_that_is_taken_back(
    #[case] corrected_at: &str,
    #[case] issued: &[&str],
) {
    let beyond = price(json!({ "model": "per_unit", "unit": "1", "charge_on": "overage" }));
    let (app, [small, large]) = with_holds(soft(), beyond, ["5", "20"]).await;
    app.consume(&small, "12").await.expect(200);
    app.consume(&large, "20").await.expect(200);
    app.use_pages("april", "48").await.expect(201);
    assert_eq!(amounts(&draft(&app).await), ["5.00"]);
    app.move_clock(corrected_at).await;
    run(&app).await;
    posted(&app, "of the large one", correction("-6", CONSUMED_AT, &large)).await;
    posted(&app, "of the small one", correction("-10", CONSUMED_AT, &small)).await;
    posted(&app, "not of the small one after all", correction("7", CONSUMED_AT, &small)).await;
    app.check_books().await;
    for at in ["2026-05-03T12:00:00Z", "2026-06-02T12:00:00Z"] {
        app.move_clock(at).await;
        run(&app).await;
    }
    assert_eq!(rows(&app.database, ISSUED).await, issued);
    let april = "SELECT document::jsonb #>> '{used,page,consumed}' AS c FROM statements WHERE period_start = '2026-04-01Z' \
        ORDER BY number DESC LIMIT 1";
    assert_eq!(rows(&app.database, april).await, ["71"], "eighty less six and three");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_added_again_after_the_close_is_overage_beyond_all_that_its_statement_took_back() {
    let beyond = price(json!({ "model": "per_unit", "unit": "1", "charge_on": "overage" }));
    let (app, [small, large]) = with_holds(soft(), beyond, ["5", "20"]).await;
    app.consume(&small, "12").await.expect(200);
    app.consume(&large, "20").await.expect(200);
    app.use_pages("april", "48").await.expect(201);
    app.drained().await;
    posted(&app, "of the large one", correction("-6", CONSUMED_AT, &large)).await;
    posted(&app, "of the small one", correction("-10", CONSUMED_AT, &small)).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    posted(&app, "not of the small one after all", correction("7", CONSUMED_AT, &small)).await;
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    // Five were overage, and seven of what burnt the quota were taken back: the first two of the four more were unused.
    let issued = ["1 2026-03 0", "2 2026-04 0", "3 2026-05 0", "4 2 2026-04 2"];
    assert_eq!(rows(&app.database, ISSUED).await, issued);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_of_a_hold_was_paid_for_is_decided_once_all_holds_are_consumed() {
    let beyond = price(json!({ "model": "per_unit", "unit": "1", "charge_on": "overage" }));
    // Ten used and seventy held of fifty: thirty of the holds are charged to April.
    let (app, [one, other]) = with_holds(soft(), beyond, ["20", "50"]).await;
    app.consume(&one, "20").await.expect(200);
    app.drained().await;
    posted(&app, "all of one", correction("-20", CONSUMED_AT, &one)).await;
    app.consume(&other, "50").await.expect(200);
    app.use_pages("april", "40").await.expect(201);
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(
        rows(&app.database, ISSUED).await,
        ["1 2026-03 0", "2 2026-04 0"],
        "ten were charged, and forty"
    );
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_correction_that_is_undone_gives_no_overage_of_others_away() {
    let beyond = price(json!({ "model": "per_unit", "unit": "1", "charge_on": "overage" }));
    let (app, [one, other]) = with_holds(soft(), beyond, ["20", "20"]).await;
    app.consume(&one, "20").await.expect(200);
    app.consume(&other, "20").await.expect(200);
    app.use_pages("april", "57").await.expect(201);
    app.drained().await;
    posted(&app, "wrong", correction("7", CONSUMED_AT, &one)).await;
    posted(&app, "right", correction("-7", CONSUMED_AT, &other)).await;
    posted(&app, "undone", correction("-7", CONSUMED_AT, &one)).await;
    assert_eq!(amounts(&draft(&app).await), ["7.00"], "what others used is overage as before");
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 0", "2 2026-04 7"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_use_of_it_is_overage_beyond_what_is_unused_where_it_stands_in_all_its_documents_together() {
    let beyond = price(json!({ "model": "per_unit", "unit": "1", "charge_on": "overage" }));
    let (app, [hold]) = with_holds(soft(), beyond, ["20"]).await;
    app.consume(&hold, "20").await.expect(200);
    app.use_pages("april", "46").await.expect(201);
    app.drained().await;
    posted(&app, "more", correction("3", CONSUMED_AT, &hold)).await;
    assert_eq!(amounts(&draft(&app).await), ["0.00"], "four were unused");
    posted(&app, "much more", correction("2", CONSUMED_AT, &hold)).await;
    assert_eq!(amounts(&draft(&app).await), ["1.00"]);
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    posted(&app, "even more", correction("4", CONSUMED_AT, &hold)).await;
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    let issued = ["1 2026-03 0", "2 2026-04 1", "3 2026-05 0", "4 2 2026-04 4"];
    assert_eq!(rows(&app.database, ISSUED).await, issued);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_of_it_is_undone_by_one_that_names_the_correction() {
    let (app, hold) = after_a_carried_use().await;
    let wrong = posted(&app, "wrong", correction("-20", RESERVED_AT, &hold)).await;
    let wrong = wrong["id"].as_str().unwrap();
    refused(&app, "nothing is left", correction("-1", RESERVED_AT, wrong)).await;
    let undone = posted(&app, "undone", correction("20", RESERVED_AT, wrong)).await;
    assert_eq!(undone["period_start"], "2026-04-01T00:00:00Z");
    let undone = undone["id"].as_str().unwrap();
    assert_eq!(amounts(&draft(&app).await), ["27.00"]);
    posted(&app, "after all", correction("-20", CONSUMED_AT, undone)).await;
    assert_eq!(amounts(&draft(&app).await), ["7.00"]);
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 10", "2 2026-04 7"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_period_repays_no_overage_of_it_that_was_taken_back() {
    let beyond = price(json!({ "model": "per_unit", "unit": "1", "charge_on": "overage" }));
    let (app, [hold]) = with_holds(soft().with("preserve_overage", true), beyond, ["5"]).await;
    app.consume(&hold, "17").await.expect(200);
    app.use_pages("april", "48").await.expect(201);
    app.drained().await;
    posted(&app, "less", correction("-7", CONSUMED_AT, &hold)).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let closures =
        "SELECT overage::float8 AS o, paid_by_next::float8 AS r FROM period_closures ORDER BY period_start";
    assert_eq!(rows(&app.database, closures).await, ["0 0", "10 3"]);
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 0", "2 2026-04 0"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_one_is_booked_where_it_belongs_when_another_person_approves_it() {
    let (app, [hold]) = with_holds(quota_of("5000"), per_page("1"), ["2000"]).await;
    app.consume(&hold, "2000").await.expect(200);
    app.drained().await;
    let pending = posted(&app, "large", correction("-1500", CONSUMED_AT, &hold)).await;
    assert_eq!(pending["status"], "pending");
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let other = app.make_key("finance", None).await;
    let approve = format!("{ADJUSTMENTS}/{}/approve", pending["id"].as_str().unwrap());
    let booked = other.post(&approve, json!({})).await.expect(200).body;
    assert_eq!(
        (&booked["period_start"], &booked["booked_in"]),
        (&json!("2026-04-01T00:00:00Z"), &json!("2026-05-01T00:00:00Z"))
    );
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    let issued = ["1 2026-03 10", "2 2026-04 2000", "3 2026-05 0", "4 2 2026-04 -1500"];
    assert_eq!(rows(&app.database, ISSUED).await, issued);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_noted_of_it_and_was_changed_is_found_and_named() {
    let (app, hold) = after_a_carried_use().await;
    posted(&app, "less", correction("-5", CONSUMED_AT, &hold)).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(faults(&app).await, [""; 0]);
    for (change, back, named) in [
        (
            "UPDATE corrections SET of_held = -4",
            "UPDATE corrections SET of_held = -5",
            "-4.000000000 of it held",
        ),
        (
            "UPDATE corrections SET period_start = '2026-03-01Z'",
            "UPDATE corrections SET period_start = '2026-04-01Z'",
            "corrections of carried holds in acme page 2026-03-01",
        ),
        (
            "UPDATE adjustments SET carried_hold = NULL, of_held = 0",
            &format!("UPDATE adjustments SET carried_hold = '{hold}', of_held = -5"),
            "is booked with -5",
        ),
    ] {
        as_owner(&app.database, change).await.unwrap();
        let found = faults(&app).await.concat();
        assert!(found.contains(named), "{change}: {found}");
        as_owner(&app.database, back).await.unwrap();
    }
    app.finish().await;
}
