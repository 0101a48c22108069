//! Statements of closed periods, and the notes that correct them.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tollgate::ledger::{Issued, Manner, VerifyOptions, verify};

use crate::http::events::{event, send};
use crate::http::statement_files::fields_of_workbook;
use crate::http::statements::{DRAFT, amounts, draft, price};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;

const GRACE: Duration = Duration::from_secs(3600);
pub const ISSUED: &str = "SELECT number, corrects, to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM') AS month, \
    total::float8 AS total FROM statements WHERE tenant = 'acme' ORDER BY number";
const MONEY: &str = "SELECT meter, credit, debit, amount::float8 AS a, class, to_char(happened_at AT TIME ZONE 'UTC', 'MM-DD HH24:MI') AS at \
    FROM entries WHERE meter LIKE 'money:%' ORDER BY happened_at, amount";

pub fn per_page(unit: &str) -> Value {
    price(json!({ "model": "per_unit", "unit": unit }))
}

/// A tenant with these prices, in the middle of March, where no job runs by itself.
pub async fn in_march(prices: Value) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.without_limits().await;
    app.define("plans/plan", json!({ "prices": prices })).await;
    app
}

/// Closes and bills what is due.
pub async fn run(app: &TestApp) -> Issued {
    app.drained().await;
    while app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap().closed > 0 {}
    let issued = app.app().operations.statements.issue(Manner::default(), GRACE).await.unwrap();
    app.drained().await;
    issued
}

pub async fn statement(app: &TestApp, number: u64) -> Value {
    app.get(&format!("/v1/tenants/acme/statements/{number}")).await.expect(200).body
}

pub async fn faults(app: &TestApp) -> Vec<String> {
    let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
    let faulty = report.checks.iter().filter(|check| !check.faults.is_empty());
    faulty.map(|check| format!("{}: {:?}", check.name, check.faults)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_period_has_one_statement_of_the_draft_s_lines_which_is_booked_and_never_changes() {
    let app =
        in_march(json!([per_page("0.5"), price(json!({ "id": "base", "model": "flat", "flat": "10" }))]))
            .await;
    app.use_pages("a", 7).await.expect(201);
    let last_draft = draft(&app).await;
    app.move_clock("2026-04-01T00:59:00Z").await;
    assert_eq!(run(&app).await, Issued::default(), "the grace is not over");
    app.move_clock("2026-04-01T01:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.notes, issued.billed, issued.waiting), (1, 0, 1, 0));
    assert_eq!(run(&app).await, Issued::default());
    let first = statement(&app, 1).await;
    for field in ["tenant", "plan", "period", "currency", "lines", "total", "unpriced"] {
        assert_eq!(first[field], last_draft[field], "{field}");
    }
    assert_eq!((&first["status"], &first["document"]), (&json!("issued"), &json!("statement")));
    assert_eq!((&first["number"], &first["issued_at"]), (&json!(1), &json!("2026-04-01T01:00:00Z")));
    assert_eq!(first["total"], "13.50");
    let booked = rows(&app.database, MONEY).await;
    assert_eq!(
        booked,
        [
            "money:EUR revenue receivable 3.5 period 04-01 01:00",
            "money:EUR revenue receivable 10 period 04-01 01:00"
        ]
    );
    // Another price, and later use, change nothing of it.
    let dearer = json!([per_page("9"), price(json!({ "id": "base", "model": "flat", "flat": "20" }))]);
    app.define("plans/plan", json!({ "prices": dearer })).await;
    app.use_pages("b", 3).await.expect(201);
    app.drained().await;
    assert_eq!(statement(&app, 1).await, first);
    let refused = as_owner(&app.database, "UPDATE statements SET total = 0").await.unwrap_err();
    assert!(format!("{refused:?}").contains("the books are never edited"), "{refused:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discounts_a_commitment_and_taxes_are_on_the_statement_and_a_tax_is_no_revenue() {
    let app = in_march(json!([per_page("1")])).await;
    let terms = json!({
        "prices": [per_page("1")],
        "discounts": [{ "id": "early", "percent": "10" }],
        "minimum_commitments": [{ "amount": "20", "currency": "EUR" }],
    });
    app.define("plans/plan", terms).await;
    let taxed = json!({ "plan": "plan", "taxes": [{ "code": "vat", "percent": "25" }] });
    app.define("tenants/acme", taxed).await;
    app.use_pages("a", 10).await.expect(201);
    assert_eq!(amounts(&draft(&app).await), ["10.00", "-1.00", "11.00", "5.00"]);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    let first = statement(&app, 1).await;
    assert_eq!(
        (amounts(&first), &first["total"]),
        (vec!["10.00", "-1.00", "11.00", "5.00"], &json!("25.00"))
    );
    let booked = rows(&app.database, MONEY).await;
    assert_eq!(
        booked,
        [
            "money:EUR receivable revenue 1 period 04-01 01:00",
            "money:EUR tax receivable 5 period 04-01 01:00",
            "money:EUR revenue receivable 10 period 04-01 01:00",
            "money:EUR revenue receivable 11 period 04-01 01:00",
        ]
    );
    // Twenty more in March: the discount grows, the commitment is reached, and the tax follows.
    send(&app, &event("late", 20, Some("2026-03-20T10:00:00Z"))).await;
    app.define("plans/plan", json!({ "discounts": [] })).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let note = statement(&app, 3).await;
    assert_eq!((amounts(&note), &note["total"]), (vec!["20.00", "-2.00", "-11.00", "1.75"], &json!("8.75")));
    let revenue = app.get("/v1/reports/revenue?group_by=period").await.expect(200).body;
    let of = |row: usize| {
        let row = &revenue["data"].as_array().unwrap()[row];
        ["period", "billed", "corrected", "revenue"].map(|field| row[field].as_str().unwrap().to_owned())
    };
    assert_eq!(of(1), ["2026-03-01", "20.00", "0.00", "20.00"], "{revenue}");
    assert_eq!(of(0)[2..], ["7.00", "27.00"], "April's bill has the note: {revenue}");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_has_drafts_and_no_statements_until_a_period_in_which_it_has_become_a_customer() {
    let app = in_march(json!([per_page("1")])).await;
    app.define("tenants/acme", json!({ "plan": "plan", "sandbox": true })).await;
    app.use_pages("march", 3).await.expect(201);
    assert_eq!(amounts(&draft(&app).await), ["3.00"]);
    app.move_clock("2026-04-02T12:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.billed), (0, 1));
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    app.use_pages("april", 4).await.expect(201);
    send(&app, &event("late", 30, Some("2026-03-20T10:00:00Z"))).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.notes), (1, 0), "what comes late for the sandbox stays free");
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-04 4"]);
    let revenue = app.get("/v1/reports/revenue").await.expect(200).body;
    assert_eq!(revenue["data"][0]["revenue"], "4.00");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_booked_later_for_a_billed_period_is_in_a_note_and_not_in_the_next_statement() {
    let tiers = json!([{ "up_to": "100", "unit": "0.02" }, { "unit": "0.01" }]);
    let app = in_march(json!([price(json!({ "model": "graduated", "tiers": tiers }))])).await;
    app.use_pages("march", 90).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    let first = statement(&app, 1).await;
    assert_eq!(first["total"], "1.80");
    app.use_pages("april", 40).await.expect(201);
    send(&app, &event("late", 30, Some("2026-03-20T10:00:00Z"))).await;
    assert_eq!(amounts(&draft(&app).await), ["0.80"], "the thirty are March's");
    app.move_clock("2026-05-01T02:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.notes), (1, 1));
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 1.8", "2 2026-04 0.8", "3 1 2026-03 0.4"]);
    assert_eq!(statement(&app, 1).await, first, "its bytes stay");
    let note = statement(&app, 3).await;
    let line = json!([{ "kind": "usage", "meter": "page", "billed": "1.80", "corrected": "2.20", "amount": "0.40" }]);
    assert_eq!(
        (&note["document"], &note["corrects"], &note["lines"]),
        (&json!("credit_note"), &json!(1), &line)
    );
    let notes = app.get("/v1/tenants/acme/statements/1/credit-notes").await.expect(200);
    assert_eq!(notes.body["data"].as_array().unwrap().len(), 1, "{notes:?}");
    assert_eq!(notes.text("/data/0/total"), "0.40");
    // More comes in May: the next note adds up with the first.
    send(&app, &event("later", 10, Some("2026-03-31T20:00:00Z"))).await;
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    let issued = rows(&app.database, ISSUED).await;
    assert_eq!(issued[3..], ["4 2026-05 0", "5 1 2026-03 0.1"]);
    app.finish().await;
}

#[rstest]
#[case::what_lapsed("0")]
#[case::what_rolled_over("50")]
#[case::both("2")]
#[tokio::test(flavor = "multi_thread")]
async fn what_was_unused_pays_for_late_use_before_it_is_overage(#[case] max_rollover: &str) {
    let beyond = price(json!({ "model": "per_unit", "unit": "1", "charge_on": "overage" }));
    let app = in_march(json!([beyond])).await;
    let quota = quota_of("50").with("mode", "soft").with("max_rollover", max_rollover);
    app.define("plans/plan", json!({ "quotas": [quota] })).await;
    app.use_pages("march", 45).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    app.use_pages("april", 50).await.expect(201);
    send(&app, &event("late", 8, Some("2026-03-20T10:00:00Z"))).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let issued = rows(&app.database, ISSUED).await;
    assert_eq!(issued, ["1 2026-03 0", "2 2026-04 0", "3 1 2026-03 3"], "five of the eight were unused");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_is_billed_by_the_plan_and_prices_that_held_when_it_ended() {
    let app = in_march(json!([per_page("1")])).await;
    app.define("plans/dear", json!({ "prices": [per_page("5")] })).await;
    app.use_pages("march", 3).await.expect(201);
    app.move_clock("2026-04-01T00:10:00Z").await;
    app.drained().await;
    app.define("tenants/acme", json!({ "plan": "dear" })).await;
    let closing = format!("{DRAFT}?period=closing");
    let to_come = app.get(&closing).await.expect(200).body;
    assert_eq!((&to_come["status"], &to_come["plan"]), (&json!("draft"), &json!("plan")));
    app.move_clock("2026-04-01T12:00:00Z").await;
    run(&app).await;
    for field in ["period", "currency", "lines", "total"] {
        assert_eq!(to_come[field], statement(&app, 1).await[field], "{field}");
    }
    app.get(&closing).await.is_problem(404, "not_found");
    assert_eq!(
        (&statement(&app, 1).await["total"], &statement(&app, 1).await["plan"]),
        (&json!("3.00"), &json!("plan"))
    );
    app.use_pages("april", 3).await.expect(201);
    app.move_clock("2026-05-01T12:00:00Z").await;
    run(&app).await;
    assert_eq!(
        (&statement(&app, 2).await["total"], &statement(&app, 2).await["plan"]),
        (&json!("15.00"), &json!("dear"))
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn months_of_downtime_are_billed_one_by_one_and_periods_without_a_price_have_no_number() {
    let app = in_march(json!([])).await;
    app.use_pages("march", 3).await.expect(201);
    app.move_clock("2026-04-10T12:00:00Z").await;
    app.define("plans/plan", json!({ "prices": [price(json!({ "model": "flat", "flat": "10" }))] })).await;
    app.move_clock("2026-08-02T12:00:00Z").await;
    app.drained().await;
    let dry = Manner { dry_run: true, ..Manner::default() };
    let would = app.app().operations.statements.issue(dry, GRACE).await.unwrap();
    assert_eq!((would.billed, would.waiting), (0, 1), "March is not closed");
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.billed), (4, 5));
    let months = ["1 2026-04 10", "2 2026-05 10", "3 2026-06 10", "4 2026-07 10"];
    assert_eq!(rows(&app.database, ISSUED).await, months);
    let list = app.get("/v1/tenants/acme/statements?limit=3").await.expect(200);
    assert_eq!(list.text("/data/0/period_start"), "2026-07-01T00:00:00Z");
    let next = list.text("/next_cursor").to_owned();
    let rest = app.get(&format!("/v1/tenants/acme/statements?limit=3&cursor={next}")).await.expect(200);
    assert_eq!(rest.body["data"].as_array().unwrap().len(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_use_of_a_period_before_billing_began_is_billed_where_it_is_booked() {
    let app = in_march(json!([per_page("1")])).await;
    send(&app, &event("february", 4, Some("2026-02-20T10:00:00Z"))).await;
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 4"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_made_within_the_grace_is_billed_for_the_month_before_only_if_it_was_used() {
    let app = an_app().at("2026-04-01T00:10:00Z").without_jobs().start().await;
    app.without_limits().await;
    app.define("plans/plan", json!({ "prices": [price(json!({ "model": "flat", "flat": "10" })), price(json!({ "meter": "token", "model": "per_unit", "unit": "1" }))] })).await;
    app.define("tenants/used", json!({ "plan": "plan" })).await;
    let mut of_march = event("e", 3, Some("2026-03-31T23:50:00Z"));
    of_march["data"]["tenant"] = json!("used");
    send(&app, &of_march).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let months = "SELECT tenant, number, to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM') AS month FROM statements ORDER BY 1, 2";
    assert_eq!(rows(&app.database, months).await, ["acme 1 2026-04", "used 1 2026-03", "used 2 2026-04"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issued_statement_is_read_in_every_format_and_by_its_tenant_only() {
    let app = in_march(json!([per_page("0.5")])).await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    app.use_pages("a", 7).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    send(&app, &event("late", 2, Some("2026-03-20T10:00:00Z"))).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let own = app.make_key("tenant", Some("acme")).await;
    for (number, title) in [(1, "Statement 1"), (3, "Credit note 3")] {
        let path = format!("/v1/tenants/acme/statements/{number}");
        let page = own.get(&format!("{path}?format=html")).await.expect(200);
        assert!(page.body.as_str().unwrap().contains(&format!("<h1>{title}<small")), "{page:?}");
        for format in ["csv", "focus"] {
            let table = own.get(&format!("{path}?format={format}")).await.expect(200);
            assert_eq!(table.body.as_str().unwrap().lines().count(), 2, "{table:?}");
        }
        let table = own.get(&format!("{path}?format=csv")).await.expect(200);
        assert_eq!(
            table.header("content-disposition"),
            format!("attachment; filename=\"acme-{number}.csv\"")
        );
        own.get(&format!("{path}?format=xlsx")).await.expect(200);
    }
    let notes = json!([{ "number": 3, "corrects": 1, "total": "1.00" }]);
    assert_eq!(statement(&app, 2).await["credit_notes"], notes, "April's statement names it");
    let page = own.get("/v1/tenants/acme/statements/2?format=html").await.expect(200);
    assert!(page.body.as_str().unwrap().contains("credit note 3 to statement 1"), "{page:?}");
    let table = own.get("/v1/tenants/acme/statements/2?format=csv").await.expect(200);
    let row = table.body.as_str().unwrap().lines().nth(1).unwrap().to_owned();
    assert!(row.ends_with(",3 to statement 1: 1.00 EUR,"), "{row}");
    let fields = fields_of_workbook(&own, "/v1/tenants/acme/statements/2").await;
    assert!(
        fields.contains(&["credit_note".to_owned(), "3 to statement 1: 1.00 EUR".to_owned()]),
        "{fields:?}"
    );
    let billed_in =
        json!({ "start": "2026-04-01T00:00:00Z", "end": "2026-05-01T00:00:00Z", "time_zone": "UTC" });
    assert_eq!(statement(&app, 3).await["billed_in"], billed_in);
    let table = own.get("/v1/tenants/acme/statements/3?format=focus").await.expect(200);
    let instants = "2026-04-01T00:00:00Z,2026-05-01T00:00:00Z,2026-03-01T00:00:00Z,2026-04-01T00:00:00Z";
    let row = table.body.as_str().unwrap().lines().nth(1).unwrap().to_owned();
    assert!(row.starts_with(&format!("acme,EUR,{instants},Usage,Correction,")), "{row}");
    assert!(row.ends_with(",3,1,3"), "its number, that of its statement, its number as an invoice: {row}");
    let table = own.get("/v1/tenants/acme/statements/3?format=csv").await.expect(200);
    let row = table.body.as_str().unwrap().lines().nth(1).unwrap().to_owned();
    assert!(row.contains(",2026-04-01T00:00:00Z,2026-05-01T00:00:00Z,,"), "{row}");
    own.get("/v1/tenants/acme/statements/4").await.is_problem(404, "not_found");
    for wrong in ["0", "01", "-1", "x", "99999999999999999999"] {
        own.get(&format!("/v1/tenants/acme/statements/{wrong}")).await.is_problem(404, "not_found");
    }
    own.get("/v1/tenants/other/statements/1").await.is_problem(403, "forbidden");
    own.get("/v1/tenants/other/statements").await.is_problem(403, "forbidden");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_changed_of_statements_is_found_and_named() {
    let app = in_march(json!([per_page("0.5")])).await;
    app.use_pages("a", 7).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    send(&app, &event("late", 2, Some("2026-03-20T10:00:00Z"))).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(faults(&app).await, Vec::<String>::new());
    for (change, undo, named) in [
        (
            "UPDATE statements SET total = 4 WHERE number = 1",
            "UPDATE statements SET total = 3.50 WHERE number = 1",
            "its row and its text differ",
        ),
        (
            "UPDATE statements SET document = replace(document, '\"zone\":\"UTC\"', '\"zone\":\"utc\"') WHERE number = 1",
            "UPDATE statements SET document = replace(document, '\"zone\":\"utc\"', '\"zone\":\"UTC\"') WHERE number = 1",
            "its text has changed",
        ),
        (
            "UPDATE statements SET number = 9 WHERE number = 3",
            "UPDATE statements SET number = 3 WHERE number = 9",
            "statement 9 of acme",
        ),
        (
            "UPDATE entries SET amount = amount + 1 WHERE meter LIKE 'money:%' AND class = 'period'",
            "UPDATE entries SET amount = amount - 1 WHERE meter LIKE 'money:%' AND class = 'period'",
            "its total is 3.5, by entries 4.5",
        ),
        (
            "UPDATE corrections SET consumed = consumed + 1",
            "UPDATE corrections SET consumed = consumed - 1",
            "by entries 2.000000000",
        ),
        // The sum of what is booked in April stays: only the note says for which period it is.
        (
            "UPDATE corrections SET period_start = period_start + interval '1 day'",
            "UPDATE corrections SET period_start = period_start - interval '1 day'",
            "credit note 3 of acme page",
        ),
        (
            "UPDATE statements SET operation_id = gen_random_uuid() WHERE number = 3; CREATE TABLE kept AS SELECT 1",
            "UPDATE statements SET operation_id = (SELECT operation_id FROM entries WHERE meter LIKE 'money:%' AND class = 'correction') \
             WHERE number = 3; DROP TABLE kept",
            "is receivable without a statement",
        ),
    ] {
        let as_any = |statement: &str| format!("SET session_replication_role = replica; {statement}");
        as_owner(&app.database, &as_any(change)).await.unwrap();
        let found = faults(&app).await;
        assert!(found.iter().any(|fault| fault.contains(named)), "{change}: {found:?}");
        as_owner(&app.database, &as_any(undo)).await.unwrap();
        assert_eq!(faults(&app).await, Vec::<String>::new(), "{undo}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bill_that_is_too_large_holds_up_its_own_tenant_and_is_named() {
    let app = in_march(json!([per_page("9999999999999999")])).await;
    app.define("plans/small", json!({ "prices": [per_page("1")] })).await;
    app.define("tenants/other", json!({ "plan": "small" })).await;
    app.use_pages("a", 100).await.expect(201);
    app.post_keyed(USAGE, "b", pages(5).of("other")).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!(issued.statements, 1);
    assert!(issued.failed[0].1.contains("the amount of page is too large"), "{issued:?}");
    let of_other = "SELECT tenant, total::float8 AS t FROM statements";
    assert_eq!(rows(&app.database, of_other).await, ["other 5"]);
    // March is billed by the first price after its end by which it can be, April by what holds at its own end.
    app.move_clock("2026-04-02T12:01:00Z").await;
    app.define("plans/plan", json!({ "prices": [per_page("9999999999999998")] })).await;
    app.move_clock("2026-04-02T12:02:00Z").await;
    app.define("plans/plan", json!({ "prices": [per_page("2")] })).await;
    app.move_clock("2026-04-02T12:03:00Z").await;
    app.define("plans/plan", json!({ "prices": [per_page("3")] })).await;
    app.use_pages("april", 1).await.expect(201);
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.failed.len()), (1, 0), "{issued:?}");
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 200", "2 2026-04 3"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_an_older_version_made_is_billed_too() {
    let app = in_march(json!([per_page("1")])).await;
    app.use_pages("a", 7).await.expect(201);
    as_owner(&app.database, "DELETE FROM billing").await.unwrap();
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 7"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_at_once_issue_each_statement_once() {
    let app = in_march(json!([per_page("1")])).await;
    let other = app.another_instance().await;
    for tenant in 0..20 {
        app.define(&format!("tenants/t{tenant}"), json!({ "plan": "plan" })).await;
        app.post_keyed(USAGE, &format!("u{tenant}"), pages(tenant + 1).of(format!("t{tenant}")))
            .await
            .expect(201);
    }
    app.move_clock("2026-06-02T12:00:00Z").await;
    app.drained().await;
    while app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap().closed > 0 {}
    let issue = |of: &tollgate::app::App| {
        let operations = of.operations.clone();
        async move { operations.statements.issue(Manner::default(), GRACE).await.unwrap() }
    };
    let (one, two) = tokio::join!(issue(app.app()), issue(&other));
    assert_eq!(one.billed + two.billed, 21 * 3);
    let issued =
        "SELECT count(*) AS n, count(DISTINCT (tenant, period_start)) AS d, max(number) AS m FROM statements";
    assert_eq!(rows(&app.database, issued).await, ["63 63 3"]);
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_due_at_an_instant_is_issued_and_said_by_a_dry_run() {
    let app = in_march(json!([per_page("1")])).await;
    app.use_pages("a", 7).await.expect(201);
    app.move_clock("2026-05-02T12:00:00Z").await;
    app.drained().await;
    app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap();
    let as_of = Manner { as_of_ms: Some(1_775_005_200_000), dry_run: true };
    let dry = app.app().operations.statements.issue(as_of, GRACE).await.unwrap();
    assert_eq!((dry.statements, rows(&app.database, ISSUED).await.len()), (1, 0));
    let april = Manner { dry_run: false, ..as_of };
    let issued = app.app().operations.statements.issue(april, GRACE).await.unwrap();
    assert_eq!((issued.statements, rows(&app.database, ISSUED).await), (1, vec!["1 2026-03 7".to_owned()]));
    app.finish().await;
}
