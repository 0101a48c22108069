//! What a period costs: the draft of the open period, from what is booked.

use serde_json::{Value, json};

use super::events::{event, send};
use crate::support::app::*;

pub const DRAFT: &str = "/v1/tenants/acme/statements/draft";

/// A service in the middle of a month, with these prices of the plan.
pub async fn priced(prices: Value) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.without_limits().await;
    app.define("plans/plan", json!({ "prices": prices })).await;
    app
}

pub fn price(changes: Value) -> Value {
    let mut price = json!({ "meter": "page", "currency": "EUR", "effective_from": "2026-01-01" });
    changes.as_object().unwrap().iter().for_each(|(field, value)| price[field] = value.clone());
    price
}

fn graduated() -> Value {
    let tiers = json!([{ "up_to": "1000", "unit": "0.02" }, { "up_to": "5000", "unit": "0.015" }, { "unit": "0.01" }]);
    price(json!({ "model": "graduated", "tiers": tiers }))
}

pub async fn draft(app: &TestApp) -> Value {
    app.drained().await;
    app.get(DRAFT).await.expect(200).body
}

pub fn amounts(statement: &Value) -> Vec<&str> {
    statement["lines"].as_array().unwrap().iter().map(|line| line["amount"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_draft_prices_what_is_booked_of_the_open_period_to_the_digit() {
    let app = priced(json!([
        graduated(),
        price(json!({ "meter": "token", "model": "package", "unit": "5", "package_size": "100", "minimum": "7.5" })),
    ]))
    .await;
    app.use_pages("a", 5_001).await.expect(201);
    let held = app.hold(7).await;
    let statement = draft(&app).await;
    let tiers = json!([
        { "up_to": "1000", "quantity": "1000", "unit": "0.02", "amount": "20" },
        { "up_to": "5000", "quantity": "4000", "unit": "0.015", "amount": "60" },
        { "quantity": "1", "unit": "0.01", "amount": "0.01" }
    ]);
    let expected = json!({
        "tenant": "acme", "status": "draft", "document": "statement", "plan": "plan", "currency": "EUR", "total": "87.51",
        "period": { "start": "2026-03-01T00:00:00Z", "end": "2026-04-01T00:00:00Z", "time_zone": "UTC" },
        "lines": [
            { "kind": "usage", "meter": "page", "effective_from": "2026-01-01", "model": "graduated", "charge_on": "consumed",
              "quantity": "5001", "included": "0", "charged": "5001", "tiers": tiers, "amount": "80.01" },
            { "kind": "usage", "meter": "token", "effective_from": "2026-01-01", "model": "package", "charge_on": "consumed",
              "quantity": "0", "included": "0", "charged": "0", "unit": "5", "package_size": "100", "packages": "0",
              "minimum": "7.50", "amount": "7.50" },
        ],
        "unpriced": [], "policy_version": statement["policy_version"],
        "as_of": statement["as_of"], "as_of_event": statement["as_of_event"],
    });
    assert!(statement["policy_version"].as_u64().unwrap() > 0, "{statement}");
    assert_eq!(statement, expected);
    assert_ne!(statement["as_of_event"], "0-0");
    app.consume(&held, "7").await.expect(200);
    let later = draft(&app).await;
    assert_eq!((&later["lines"][0]["quantity"], &later["total"]), (&json!("5008"), &json!("87.58")));
    assert_ne!(later["as_of_event"], statement["as_of_event"]);
    app.finish().await;
}

#[tokio::test]
async fn a_draft_is_also_a_table() {
    let mut included = graduated();
    included["included"] = json!("500");
    let app = priced(json!([included])).await;
    app.use_pages("a", 2_000).await.expect(201);
    let statement = draft(&app).await;
    let table = app.get(&format!("{DRAFT}?format=csv")).await.expect(200);
    assert!(table.header("content-type").starts_with("text/csv"), "{table:?}");
    assert_eq!(table.header("content-disposition"), "attachment; filename=\"acme-draft.csv\"");
    let lines: Vec<&str> = table.body.as_str().unwrap().split("\r\n").collect();
    let as_of = lines[1].split(',').nth(3).unwrap();
    let header = "tenant,period_start,period_end,as_of,currency,kind,meter,price,effective_from,model,charge_on,\
        quantity,included,charged,unit,package_size,packages,tiers,minimum,id,percent,base,commitment,amount,plan,\
        policy_version,as_of_event,document,number,corrects,issued_at,billed,corrected,reason,happened_at,corrects_operation,billed_in_start,\
        billed_in_end,unpriced,books,credit_notes,other_totals";
    let (version, event) = (&statement["policy_version"], statement["as_of_event"].as_str().unwrap());
    let row = format!(
        "acme,2026-03-01T00:00:00Z,2026-04-01T00:00:00Z,{as_of},EUR,usage,page,,2026-01-01,graduated,consumed,\
         2000,500,1500,,,,1000 x 0.02; 500 x 0.015,,,,,,27.50,plan,{version},{event},statement,,,,,,,,,,,,,,"
    );
    assert_eq!(lines, [header, row.as_str(), ""]);
    app.get(&format!("{DRAFT}?format=pdf")).await.is_problem(400, "invalid_request");
    app.get(&format!("{DRAFT}?month=3")).await.is_problem(400, "invalid_request");
    app.finish().await;
}

#[tokio::test]
async fn without_prices_there_are_no_lines() {
    let app = priced(json!([])).await;
    app.use_pages("a", 3).await.expect(201);
    let statement = draft(&app).await;
    let found = (&statement["lines"], &statement["total"], &statement["currency"]);
    assert_eq!(found, (&json!([]), &json!("0"), &Value::Null));
    app.get("/v1/tenants/nobody/statements/draft").await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn a_period_begins_in_the_tenants_zone_and_takes_the_prices_of_its_first_day() {
    let versions = ["2026-02-28", "2026-03-01", "2026-03-02"];
    let prices = versions.iter().zip(["1", "2", "3"]);
    let prices =
        prices.map(|(day, unit)| price(json!({ "model": "per_unit", "unit": unit, "effective_from": day })));
    let app = priced(prices.collect()).await;
    // The first of March begins in Kiritimati 14 hours before it does in UTC.
    app.define("tenants/acme", json!({ "plan": "plan", "time_zone": "Pacific/Kiritimati" })).await;
    app.use_pages("a", 5).await.expect(201);
    let statement = draft(&app).await;
    assert_eq!(statement["period"]["start"], "2026-02-28T10:00:00Z");
    let line = &statement["lines"][0];
    assert_eq!((&line["effective_from"], &line["amount"]), (&json!("2026-03-01"), &json!("10.00")));
    app.move_clock("2026-03-31T10:00:00Z").await;
    app.use_pages("b", 5).await.expect(201);
    let next = draft(&app).await;
    assert_eq!(next["lines"][0]["amount"], "15.00", "the version of the second of March waited for April");
    app.finish().await;
}

#[tokio::test]
async fn currencies_without_decimals_and_with_three_have_their_own_digits() {
    let per_unit = |currency: &str, unit: &str| {
        price(json!({ "model": "per_unit", "unit": unit, "currency": currency }))
    };
    let app = priced(json!([per_unit("JPY", "0.5")])).await;
    app.define("plans/gulf", json!({ "prices": [per_unit("KWD", "0.0005")] })).await;
    app.define("tenants/gulf", json!({ "plan": "gulf" })).await;
    app.use_pages("a", 5).await.expect(201);
    app.post_keyed(USAGE, "b", pages(5).of("gulf")).await.expect(201);
    let yen = draft(&app).await;
    assert_eq!((&yen["currency"], &yen["total"], amounts(&yen)), (&json!("JPY"), &json!("2"), vec!["2"]));
    let dinar = app.get("/v1/tenants/gulf/statements/draft").await.expect(200).body;
    assert_eq!((&dinar["currency"], &dinar["total"]), (&json!("KWD"), &json!("0.002")));
    app.finish().await;
}

#[tokio::test]
async fn overage_is_what_was_consumed_beyond_the_quota() {
    let app = priced(json!([
        price(json!({ "id": "base", "model": "flat", "flat": "10" })),
        price(json!({ "id": "beyond", "model": "per_unit", "unit": "0.1", "charge_on": "overage" })),
    ]))
    .await;
    app.define("plans/plan", json!({ "quotas": [quota_of("100")] })).await;
    let first = app.hold(90).await;
    // More than was held: the excess of 30 goes beyond the quota.
    app.consume(&first, "120").await.expect(200);
    let statement = draft(&app).await;
    assert_eq!(amounts(&statement), ["10.00", "2.00"], "{statement}");
    assert_eq!(statement["lines"][1]["quantity"], "20");
    app.finish().await;
}

#[tokio::test]
async fn a_bill_too_large_to_be_written_names_its_meter() {
    let app = priced(json!([price(json!({ "model": "per_unit", "unit": "9999999999999999" }))])).await;
    app.use_pages("a", 100).await.expect(201);
    app.drained().await;
    let answer = app.get(DRAFT).await;
    answer.is_problem(422, "validation_failed");
    assert!(answer.text("/errors/0/message").contains("the amount of page is too large"), "{answer:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_draft_holds_the_use_of_its_own_period_and_what_came_too_late_for_a_closed_one() {
    let each = |meter: &str| price(json!({ "meter": meter, "model": "per_unit", "unit": "1" }));
    let app = priced(json!([each("page"), each("token")])).await;
    app.define("plans/plan", json!({ "quotas": [quota_of("50")] })).await;
    app.use_pages("a", 3).await.expect(201);
    let mut february = event("tokens", 7, Some("2026-02-20T10:00:00Z"));
    february["data"]["meter"] = json!("token");
    send(&app, &february).await;
    app.drained().await;
    app.move_clock("2026-03-31T12:00:00Z").await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    assert_eq!(amounts(&draft(&app).await), ["3.00", "7.00"], "April's quota is open already");
    app.move_clock("2026-04-01T00:00:00Z").await;
    app.use_pages("b", 4).await.expect(201);
    assert_eq!(amounts(&draft(&app).await), ["4.00", "0.00"]);
    app.finish().await;
}

#[tokio::test]
async fn what_the_quota_includes_is_no_overage_when_events_are_the_first_of_their_period() {
    let beyond = price(json!({ "model": "per_unit", "unit": "0.1", "charge_on": "overage" }));
    let app = priced(json!([beyond])).await;
    app.define("plans/plan", json!({ "quotas": [quota_of("50")] })).await;
    app.use_pages("a", 1).await.expect(201);
    app.move_clock("2026-04-01T00:00:00Z").await;
    send(&app, &event("first", 10, None)).await;
    let april = draft(&app).await;
    assert_eq!((&april["lines"][0]["quantity"], &april["total"]), (&json!("0"), &json!("0.00")), "{april}");
    send(&app, &event("second", 45, None)).await;
    let april = draft(&app).await;
    assert_eq!((&april["lines"][0]["quantity"], &april["total"]), (&json!("5"), &json!("0.50")), "{april}");
    app.finish().await;
}

#[tokio::test]
async fn an_event_opens_the_quota_of_an_earlier_period_that_is_not_closed_and_in_which_nothing_was_used() {
    let app = an_app().at("2026-03-01T00:59:59Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    send(&app, &event("late", 10, Some("2026-02-20T10:00:00Z"))).await;
    app.drained().await;
    let entries = app.get("/v1/tenants/acme/entries").await.expect(200);
    let rows = entries.body["data"].as_array().unwrap().iter();
    let february = rows.filter(|row| row["period_start"] == "2026-02-01T00:00:00Z");
    let granted = |row: &&Value| row["credit"] == "granted" && row["debit"] == "available";
    let granted: Vec<_> = february.filter(granted).map(|row| row["amount"].as_str().unwrap()).collect();
    assert_eq!(granted, ["50"], "{entries:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_tenants_own_prices_go_before_its_plans() {
    let app = priced(json!([graduated()])).await;
    let own = price(json!({ "model": "per_unit", "unit": "0.001" }));
    app.define("tenants/acme", json!({ "plan": "plan", "prices": [own] })).await;
    app.use_pages("a", 1_500).await.expect(201);
    assert_eq!(amounts(&draft(&app).await), ["1.50"]);
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    assert_eq!(amounts(&draft(&app).await), ["1.50"], "an absent list is left as it is");
    app.define("tenants/acme", json!({ "plan": "plan", "prices": [] })).await;
    assert_eq!(amounts(&draft(&app).await), ["27.50"]);
    app.finish().await;
}

#[tokio::test]
async fn another_currency_holds_from_the_next_period_on_and_at_once_where_nothing_is_booked() {
    let per_unit = |currency: &str, unit: &str| {
        price(json!({ "model": "per_unit", "unit": unit, "currency": currency }))
    };
    let app = priced(json!([per_unit("EUR", "1")])).await;
    let both = json!([per_unit("EUR", "1"), per_unit("JPY", "150"), per_unit("USD", "2")]);
    let refused = app.put("/v1/admin/plans/plan", json!({ "prices": both })).await;
    refused.is_problem(422, "validation_failed");
    app.define("tenants/acme", json!({ "plan": "plan", "currency": "EUR" })).await;
    app.define("plans/plan", json!({ "prices": both })).await;
    app.define("tenants/acme", json!({ "plan": "plan", "currency": "JPY" })).await;
    assert_eq!(draft(&app).await["currency"], "JPY", "nothing is booked");
    app.use_pages("a", 1).await.expect(201);
    app.drained().await;
    app.define("tenants/acme", json!({ "plan": "plan", "currency": "USD" })).await;
    app.define("tenants/acme", json!({ "plan": "plan", "currency": "EUR" })).await;
    let stored = app.define("tenants/acme", json!({ "plan": "plan" })).await;
    assert_eq!(stored.body["currency"], "EUR", "an absent currency is left as it is");
    let open = draft(&app).await;
    assert_eq!((&open["currency"], amounts(&open)), (&json!("JPY"), vec!["150"]));
    app.move_clock("2026-04-01T00:00:00Z").await;
    app.use_pages("b", 3).await.expect(201);
    let next = draft(&app).await;
    assert_eq!((&next["currency"], amounts(&next)), (&json!("EUR"), vec!["3.00"]));
    let wrong = app.put("/v1/admin/tenants/acme", json!({ "plan": "plan", "currency": "KWD" })).await;
    wrong.is_problem(422, "validation_failed");
    assert_eq!(wrong.pointers(), ["/currency"]);
    app.finish().await;
}

#[tokio::test]
async fn a_tenant_reads_its_own_draft_and_no_other() {
    let app = priced(json!([graduated()])).await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    let own = app.make_key("tenant", Some("acme")).await;
    own.get(DRAFT).await.expect(200);
    own.get("/v1/tenants/other/statements/draft").await.is_problem(403, "forbidden");
    app.finish().await;
}

#[tokio::test]
async fn a_meter_with_a_price_is_not_deleted_under_it() {
    let app = priced(json!([price(json!({ "meter": "token", "model": "flat", "flat": "1" }))])).await;
    app.delete("/v1/admin/meters/token").await.is_problem(409, "in_use");
    app.finish().await;
}
