//! Statements where something comes late (use, returns, a statement itself), or where something is damaged.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tollgate::ledger::Manner;

use super::statements::{ISSUED, faults, in_march, per_page, run, statement};
use crate::http::events::{event, send};
use crate::http::statements::price;
use crate::ledger::{as_owner, rows};
use crate::support::app::*;

const GRACE: Duration = Duration::from_secs(3600);

/// Fifty pages a month, and what is used beyond them costs.
async fn with_overage_in_march() -> TestApp {
    let beyond = price(json!({ "model": "per_unit", "unit": "1", "charge_on": "overage" }));
    let app = in_march(json!([beyond])).await;
    app.define("plans/plan", json!({ "quotas": [quota_of("50").with("mode", "soft")] })).await;
    app
}

#[rstest]
#[case::late_use(false)]
#[case::an_adjustment(true)]
#[tokio::test(flavor = "multi_thread")]
async fn what_a_plan_included_pays_for_late_use_of_a_period_whose_quota_was_never_opened(
    #[case] is_adjusted: bool,
) {
    let app = with_overage_in_march().await;
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    app.define("plans/plan", json!({ "quotas": [quota_of("20").with("mode", "soft")] })).await;
    if is_adjusted {
        corrects(&app, "more", "58", "2026-03-20T10:00:00Z").await;
    } else {
        send(&app, &event("late", 58, Some("2026-03-20T10:00:00Z"))).await;
    }
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let issued = rows(&app.database, ISSUED).await;
    assert_eq!(issued, ["1 2026-03 0", "2 2026-04 0", "3 1 2026-03 8"], "March's plan included fifty");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[rstest]
#[case::less("-20")]
#[case::more("20")]
#[tokio::test(flavor = "multi_thread")]
async fn a_correction_that_stands_in_an_unused_period_takes_nothing_of_what_its_plan_included(
    #[case] of_march: &str,
) {
    let app = with_overage_in_march().await;
    app.use_pages("march", 80).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    corrects(&app, "march", of_march, "2026-03-20T10:00:00Z").await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    corrects(&app, "april", "58", "2026-04-20T10:00:00Z").await;
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    let note = format!("3 1 2026-03 {of_march}");
    let expected = ["1 2026-03 30", "2 2026-04 0", &note, "4 2026-05 0", "5 2 2026-04 8"];
    assert_eq!(rows(&app.database, ISSUED).await, expected);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_names_late_use_of_a_meter_whose_price_did_not_hold_yet() {
    let to_come =
        json!({ "meter": "token", "model": "per_unit", "unit": "1", "effective_from": "2027-01-01" });
    let app = in_march(json!([per_page("1"), price(to_come)])).await;
    app.use_pages("march", 5).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    send(&app, &event("late", 3, Some("2026-03-20T10:00:00Z"))).await;
    let mut unpriced = event("free", 4, Some("2026-03-20T10:00:00Z"));
    unpriced["data"]["meter"] = json!("token");
    send(&app, &unpriced).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 5", "2 2026-04 0", "3 1 2026-03 3"]);
    assert_eq!(statement(&app, 1).await["unpriced"], json!([]));
    assert_eq!(statement(&app, 3).await["unpriced"], json!(["token"]));
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

/// Adjusts what was used at an instant by so many pages.
async fn corrects(app: &TestApp, key: &str, amount: &str, happened_at: &str) {
    let body = json!({
        "tenant": "acme", "meter": "page", "effect": "usage", "amount": amount, "reason": "counted wrongly",
        "happened_at": happened_at
    });
    app.post_keyed("/v1/adjustments", key, body).await.expect(201);
}

#[rstest]
#[case::late_use(false)]
#[case::an_adjustment(true)]
#[tokio::test(flavor = "multi_thread")]
async fn late_use_of_the_month_before_takes_no_quota_from_late_use_of_the_month_that_it_is_booked_in(
    #[case] is_adjusted: bool,
) {
    let app = with_overage_in_march().await;
    app.use_pages("march", 45).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    send(&app, &event("late", 20, Some("2026-03-20T10:00:00Z"))).await;
    app.use_pages("april", 30).await.expect(201);
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let so_far = ["1 2026-03 0", "2 2026-04 0", "3 1 2026-03 15"];
    assert_eq!(rows(&app.database, ISSUED).await, so_far);
    // Thirty-five of April's fifty are used by now.
    if is_adjusted {
        corrects(&app, "more", "5", "2026-04-20T10:00:00Z").await;
    } else {
        send(&app, &event("later", 5, Some("2026-04-20T10:00:00Z"))).await;
    }
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    let issued = rows(&app.database, ISSUED).await;
    let of_april = issued.iter().filter(|row| row.contains("2026-04"));
    assert!(of_april.clone().all(|row| row.ends_with(" 0")), "{issued:?}");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_returned_of_a_carried_hold_was_unused_and_pays_for_late_use() {
    let app = with_overage_in_march().await;
    app.use_pages("march", 30).await.expect(201);
    app.move_clock("2026-03-31T23:30:00Z").await;
    let held = app.held(pages("20").lasting(86_400)).await;
    app.move_clock("2026-04-01T12:00:00Z").await;
    run(&app).await;
    app.release(&held).await.expect(200);
    send(&app, &event("late", 28, Some("2026-03-20T10:00:00Z"))).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let issued = rows(&app.database, ISSUED).await;
    assert_eq!(issued, ["1 2026-03 0", "2 2026-04 0", "3 1 2026-03 8"], "twenty had returned");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_late_use_pushed_into_the_next_period_and_returned_there_was_unused() {
    let app = with_overage_in_march().await;
    app.use_pages("march", 45).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    send(&app, &event("late", 20, Some("2026-03-20T10:00:00Z"))).await;
    app.use_pages("april", 20).await.expect(201);
    app.move_clock("2026-04-30T23:30:00Z").await;
    let held = app.held(pages("30").lasting(86_400)).await;
    app.move_clock("2026-05-01T12:00:00Z").await;
    run(&app).await;
    app.release(&held).await.expect(200);
    // Forty-five of April's fifty are used in all.
    corrects(&app, "more", "25", "2026-04-20T10:00:00Z").await;
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    let issued = rows(&app.database, ISSUED).await;
    assert_eq!(issued, ["1 2026-03 0", "2 2026-04 0", "3 1 2026-03 15", "4 2026-05 0"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_period_of_an_archived_tenant_has_a_statement_and_a_note_once_use_of_it_is_known() {
    let app = in_march(json!([per_page("1")])).await;
    app.define("tenants/acme", json!({ "plan": "plan", "archived": true })).await;
    app.move_clock("2026-04-02T12:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.billed), (0, 1));
    for (key, amount) in [("more", "5"), ("less", "-1")] {
        let of_march = json!({
            "tenant": "acme", "meter": "page", "effect": "usage", "amount": amount, "reason": "lost",
            "happened_at": "2026-03-20T10:00:00Z"
        });
        app.post_keyed("/v1/adjustments", key, of_march).await.expect(201);
    }
    app.move_clock("2026-05-02T12:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.notes), (1, 1));
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 0", "2 1 2026-03 4"]);
    let focus = app.get("/v1/tenants/acme/statements/1?format=focus").await.expect(200).body;
    let periods = "2026-04-01T00:00:00Z,2026-05-01T00:00:00Z,2026-03-01T00:00:00Z,2026-04-01T00:00:00Z";
    assert!(focus.as_str().unwrap().contains(&format!("acme,EUR,{periods},")), "in April's bill: {focus}");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

/// A grant of the archived tenant is sold in this currency before a month in which nothing is used.
#[rstest]
#[case::by_a_note_to_the_statement_of_the_grant("EUR", &["1 2026-03 10", "2 1 2026-03 6", "3 1 2026-03 2"])]
#[case::by_a_statement_in_its_own_currency("JPY", &["1 2026-03 10", "2 2026-03 1", "3 2 2026-03 5", "4 2 2026-03 2"])]
#[tokio::test(flavor = "multi_thread")]
async fn late_use_of_an_idle_period_in_which_only_a_grant_was_billed_is_billed_once(
    #[case] currency: &str,
    #[case] expected: &[&str],
) {
    let base = price(json!({ "id": "base", "model": "flat", "flat": "1" }));
    let app = in_march(json!([per_page("1"), base])).await;
    app.define("plans/plan", json!({ "quotas": [quota_of("50")], "prices": [per_page("1"), base] })).await;
    let grant = json!({
        "tenant": "acme", "meter": "page", "amount": "3", "kind": "paid", "expires_at": "2026-04-01T00:00:00Z",
        "paid_amount": "10", "currency": currency
    });
    app.post_keyed("/v1/admin/grants", "a", grant).await.expect(201);
    app.define("tenants/acme", json!({ "plan": "plan", "archived": true })).await;
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    for (amount, next) in
        [("5", "2026-05-02T12:00:00Z"), ("2", "2026-06-02T12:00:00Z"), ("", "2026-07-02T12:00:00Z")]
    {
        if !amount.is_empty() {
            let of_march = json!({
                "tenant": "acme", "meter": "page", "effect": "usage", "amount": amount, "reason": "lost",
                "happened_at": "2026-03-20T10:00:00Z"
            });
            app.post_keyed("/v1/adjustments", amount, of_march).await.expect(201);
        }
        app.move_clock(next).await;
        run(&app).await;
    }
    assert_eq!(rows(&app.database, ISSUED).await, expected);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[rstest]
#[case::a_balance(
    "UPDATE balances SET overage = overage - 1000 WHERE tenant = 't3'",
    "UPDATE balances SET overage = overage + 1000 WHERE tenant = 't3'"
)]
#[case::a_statement(
    "UPDATE statements SET document = '{' || document WHERE tenant = 't3'",
    "UPDATE statements SET document = substr(document, 2) WHERE tenant = 't3'"
)]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_of_one_tenant_holds_up_its_statement_only(#[case] damage: &str, #[case] undo: &str) {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().with("gate.partitions", 1).start().await;
    app.without_limits().await;
    app.define("plans/plan", json!({ "prices": [per_page("1")] })).await;
    for tenant in ["t1", "t2", "t3", "t4"] {
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
        app.post_keyed(USAGE, tenant, pages(2).of(tenant)).await.expect(201);
    }
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    for tenant in ["t1", "t2", "t3", "t4"] {
        let mut late = event(tenant, 3, Some("2026-03-20T10:00:00Z"));
        late["data"]["tenant"] = json!(tenant);
        send(&app, &late).await;
    }
    app.move_clock("2026-05-02T12:00:00Z").await;
    app.drained().await;
    while app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap().closed > 0 {}
    as_owner(&app.database, &format!("SET session_replication_role = replica; {damage}")).await.unwrap();
    let issued = app.app().operations.statements.issue(Manner::default(), GRACE).await.unwrap();
    assert_eq!((issued.statements, issued.notes, issued.failed.len()), (4, 3, 1), "{issued:?}");
    assert_eq!(issued.failed[0].0.as_str(), "t3");
    as_owner(&app.database, &format!("SET session_replication_role = replica; {undo}")).await.unwrap();
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.notes, issued.failed.len()), (1, 1, 0), "{issued:?}");
    app.finish().await;
}
