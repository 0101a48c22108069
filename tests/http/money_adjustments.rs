//! Adjustments of money: in the books, on the statement of the open period and in reports.

use rstest::rstest;
use serde_json::{Value, json};

use super::statement_files::fields_of_workbook;
use super::statements::{DRAFT, amounts, draft};
use crate::jobs::statements::{ISSUED, faults, in_march, per_page, run, statement};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::process::tollgate;

const ADJUSTMENTS: &str = "/v1/adjustments";
const MONEY: &str = "SELECT meter, credit, debit, amount::float8 AS a, class, to_char(happened_at AT TIME ZONE 'UTC', 'MM-DD') AS at \
    FROM entries WHERE meter LIKE 'money:%' ORDER BY booked_at, amount";

fn credit(amount: &str) -> Value {
    json!({
        "tenant": "acme", "effect": "money", "amount": amount, "currency": "EUR", "happened_at": "2026-03-09T10:00:00Z",
        "reason": "goodwill", "reference": "ticket 9"
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn money_is_owed_back_at_once_and_is_a_line_of_the_open_periods_statement_before_its_taxes() {
    let app = in_march(json!([per_page("1")])).await;
    app.define("tenants/acme", json!({ "plan": "plan", "taxes": [{ "code": "vat", "percent": "10" }] }))
        .await;
    app.use_pages("a", 10).await.expect(201);
    let posted = app.post_keyed(ADJUSTMENTS, "less", credit("-2.50")).await.expect(201).body;
    for (field, expected) in [
        ("status", json!("booked")),
        ("amount", json!("-2.5")),
        ("currency", json!("EUR")),
        ("meter", json!(null)),
        ("statement", json!(null)),
        ("booked_in", json!("2026-03-01T00:00:00Z")),
    ] {
        assert_eq!(posted[field], expected, "{field}: {posted}");
    }
    let more = credit("4").with("meter", "page").with("reason", "setup");
    app.post_keyed(ADJUSTMENTS, "more", more.clone()).await.expect(201);
    app.post_keyed(ADJUSTMENTS, "more", more.clone()).await.expect(200);
    app.post_keyed(ADJUSTMENTS, "more", more.with("currency", "USD")).await.expect(422);
    let booked = [
        "money:EUR receivable revenue 2.5 correction 03-09",
        "money:EUR revenue receivable 4 correction 03-09",
    ];
    assert_eq!(rows(&app.database, MONEY).await, booked);
    assert_eq!(amounts(&draft(&app).await), ["10.00", "-2.50", "4.00", "1.15"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 12.65"]);
    let first = statement(&app, 1).await;
    let line = json!({
        "kind": "adjustment", "id": posted["id"], "reason": "goodwill", "amount": "-2.50",
        "happened_at": "2026-03-09T10:00:00Z",
    });
    assert_eq!(first["lines"][1], line);
    let shown = app.get(&format!("{ADJUSTMENTS}/{}", posted["id"].as_str().unwrap())).await.expect(200).body;
    assert_eq!(shown["statement"], 1);
    let listed = app.get("/v1/reports/adjustments?effect=money&meter=page").await.expect(200).body;
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");
    let mut command = tollgate(&["report", "adjustments", "--effect", "money", "--output", "csv"]);
    command.args(["--url", app.url()]).env("TOLLGATE_ADMIN_KEY", app.key());
    let read = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let table = String::from_utf8(read.stdout).unwrap();
    for row in [",acme,,money,-2.5,", ",acme,page,money,4,"] {
        let found = table.lines().find(|line| line.contains(row)).unwrap_or_default();
        assert!(
            found.contains(",EUR,1,"),
            "{row} with its currency and statement in {table} {:?}",
            read.stderr
        );
    }
    let revenue = app.get("/v1/reports/revenue?group_by=meter").await.expect(200).body;
    let of_meter = |row: &Value| {
        format!("{} {}", row["meter"].as_str().unwrap_or("-"), row["revenue"].as_str().unwrap())
    };
    let of_meters: Vec<_> = revenue["data"].as_array().unwrap().iter().map(of_meter).collect();
    assert_eq!(of_meters, ["- -2.50", "page 14.00"], "{revenue}");
    let csv = app.get("/v1/tenants/acme/statements/1?format=csv").await.expect(200);
    assert!(csv.body.as_str().unwrap().contains("goodwill"), "{csv:?}");
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(amounts(&statement(&app, 2).await), ["0.00", "0.00"], "no statement has it twice");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_adjusted_of_a_closed_period_says_when_it_happened_and_is_a_correction() {
    let app = in_march(json!([])).await;
    let first = app.post_keyed(ADJUSTMENTS, "setup", credit("3")).await.expect(201).text("/id").to_owned();
    app.move_clock("2026-04-02T12:00:00Z").await;
    let late = credit("-1").with("corrects", first.as_str());
    let late = app.post_keyed(ADJUSTMENTS, "march", late).await.expect(201).text("/id").to_owned();
    // Lines stand in the order in which they were booked.
    app.move_clock("2026-04-02T13:00:00Z").await;
    let soon = credit("4").with("happened_at", "2026-04-02T10:00:00Z").with("reason", "setup");
    app.post_keyed(ADJUSTMENTS, "april", soon).await.expect(201);
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let april = statement(&app, 2).await;
    let line = json!({
        "kind": "adjustment", "id": late, "reason": "goodwill", "amount": "-1.00",
        "happened_at": "2026-03-09T10:00:00Z", "corrects_operation": first,
    });
    assert_eq!(april["lines"][0], line);
    let (march, april, may) = ("2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z");
    let file = async |format: &str| {
        let answer = app.get(&format!("/v1/tenants/acme/statements/2?format={format}")).await.expect(200);
        answer.body.as_str().unwrap().to_owned()
    };
    let focus = file("focus").await;
    let rows: Vec<_> = focus.lines().collect();
    let of_march =
        format!("acme,EUR,{april},{may},{march},{april},Adjustment,Correction,Adjustment: goodwill,");
    let of_april = format!("acme,EUR,{april},{may},{april},{may},Adjustment,,Adjustment: setup,");
    assert!(rows[1].starts_with(&of_march) && rows[2].starts_with(&of_april), "{focus}");
    let table = file("csv").await;
    assert!(table.contains(&format!(",goodwill,2026-03-09T10:00:00Z,{first}")), "{table}");
    let page = file("html").await;
    assert!(
        page.contains("happened: 2026-03-09T10:00:00Z") && page.contains(&format!("corrects: {first}")),
        "{page}"
    );
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_is_of_one_currency_and_names_what_the_others_come_to() {
    let app = in_march(json!([per_page("1")])).await;
    app.use_pages("a", 10).await.expect(201);
    let in_dollars = credit("4").with("currency", "USD");
    let posted = app.post_keyed(ADJUSTMENTS, "dollars", in_dollars).await.expect(201);
    let own = draft(&app).await;
    assert_eq!((&own["currency"], amounts(&own)), (&json!("EUR"), vec!["10.00"]));
    assert_eq!(own["other_totals"], json!([{ "currency": "USD", "total": "4.00" }]));
    let page = app.get(&format!("{DRAFT}?format=html")).await.expect(200);
    assert!(page.body.as_str().unwrap().contains("In another currency: 4.00 USD."), "{page:?}");
    let table = app.get(&format!("{DRAFT}?format=csv")).await.expect(200);
    assert!(table.body.as_str().unwrap().ends_with(",4.00 USD\r\n"), "{table:?}");
    let fields = fields_of_workbook(&app, DRAFT).await;
    assert!(fields.contains(&["other_total".to_owned(), "4.00 USD".to_owned()]), "{fields:?}");
    let dollars = app.get(&format!("{DRAFT}?currency=USD")).await.expect(200).body;
    assert_eq!((&dollars["lines"][0]["id"], &dollars["total"]), (&posted.body["id"], &json!("4.00")));
    assert_eq!(dollars["other_totals"], json!([{ "currency": "EUR", "total": "10.00" }]));
    let yen = app.get(&format!("{DRAFT}?currency=JPY")).await.expect(200).body;
    assert_eq!((&yen["currency"], &yen["lines"], &yen["total"]), (&json!("JPY"), &json!([]), &json!("0")));
    let wrong = app.get(&format!("{DRAFT}?currency=euro")).await;
    wrong.is_problem(400, "invalid_request");
    assert_eq!(wrong.pointers(), ["/currency"]);
    app.move_clock("2026-04-02T12:00:00Z").await;
    let closing = app.get(&format!("{DRAFT}?period=closing&currency=USD")).await.expect(200).body;
    assert_eq!((&closing["lines"], &closing["total"]), (&dollars["lines"], &dollars["total"]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_one_is_booked_once_another_key_approves_it_in_the_period_that_is_open_then() {
    let app = in_march(json!([])).await;
    let pending = app.post_keyed(ADJUSTMENTS, "large", credit("-1000.01")).await.expect(201);
    assert_eq!(pending.text("/status"), "pending");
    let approve = format!("{ADJUSTMENTS}/{}/approve", pending.text("/id"));
    app.post(&approve, json!({})).await.is_problem(403, "forbidden");
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, MONEY).await, [""; 0]);
    let other = app.make_key("finance", None).await;
    let booked = other.post(&approve, json!({})).await.expect(200);
    assert_eq!((booked.text("/status"), booked.text("/booked_in")), ("booked", "2026-04-01T00:00:00Z"));
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-04 -1000.01"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_changes_of_one_is_named_by_the_proof() {
    let app = in_march(json!([])).await;
    let id = app.post_keyed(ADJUSTMENTS, "a", credit("-2")).await.expect(201).text("/id").to_owned();
    for (change, back) in [
        ("UPDATE adjustments SET booked_amount = -3", "UPDATE adjustments SET booked_amount = -2"),
        ("UPDATE adjustments SET amount = -3", "UPDATE adjustments SET amount = -2"),
        ("UPDATE adjustments SET currency = 'USD'", "UPDATE adjustments SET currency = 'EUR'"),
    ] {
        as_owner(&app.database, change).await.unwrap();
        let found = faults(&app).await.join("\n");
        assert!(found.contains(&format!("adjustment {id} of acme")), "{change}: {found}");
        as_owner(&app.database, back).await.unwrap();
    }
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[rstest]
#[case::no_currency(json!({ "currency": null }), "/currency")]
#[case::nothing(json!({ "amount": "0" }), "/amount")]
#[case::more_decimals_than_the_currency_has(json!({ "amount": "0.001" }), "/amount")]
#[case::an_unknown_meter(json!({ "meter": "nothing" }), "/meter")]
#[case::units_in_a_currency(json!({ "effect": "usage", "meter": "page" }), "/currency")]
#[case::units_of_no_meter(json!({ "effect": "usage", "currency": null }), "/meter")]
#[case::what_is_not_yet(json!({ "happened_at": "2026-03-11T00:00:00Z" }), "/happened_at")]
#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_booked_is_refused_and_named(#[case] changes: Value, #[case] named: &str) {
    let app = in_march(json!([])).await;
    let mut body = credit("1");
    changes.as_object().unwrap().iter().for_each(|(field, value)| body[field] = value.clone());
    let answer = app.post_keyed(ADJUSTMENTS, "a", body).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), [named]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_not_billed_so_nothing_is_adjusted() {
    let app = in_march(json!([])).await;
    app.define("tenants/acme", json!({ "plan": "plan", "sandbox": true })).await;
    let answer = app.post_keyed(ADJUSTMENTS, "a", credit("1")).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/tenant"]);
    app.finish().await;
}
