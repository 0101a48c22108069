//! Changes of prices, plans and currencies while a period is open: none takes an amount off what is used already.

use serde_json::{Value, json};

use super::statements::{DRAFT, amounts, draft, price, priced};
use crate::support::app::*;

fn per_unit(currency: &str, unit: &str, from: &str) -> Value {
    price(json!({ "model": "per_unit", "unit": unit, "currency": currency, "effective_from": from }))
}

/// The change is refused at this field, and the message says this.
async fn refused(app: &TestApp, path: &str, definition: Value, pointer: &str, says: &str) {
    let answer = app.put(&format!("/v1/admin/{path}"), definition).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), [pointer], "{answer:?}");
    let message = answer.text("/errors/0/message");
    assert!(message.contains(says), "{message}");
}

#[tokio::test]
async fn a_plan_whose_prices_begin_later_is_no_plan_for_the_open_period() {
    let app = priced(json!([per_unit("EUR", "1", "2026-01-01")])).await;
    app.define("plans/new", json!({ "prices": [per_unit("EUR", "2", "2026-03-15")] })).await;
    app.use_pages("a", 100).await.expect(201);
    app.drained().await;
    let moved = json!({ "plan": "new" });
    let says = "the open period of `acme` (from 2026-03-01) would have no price for `page` in EUR";
    refused(&app, "tenants/acme", moved.clone(), "/plan", says).await;
    assert_eq!(amounts(&draft(&app).await), ["100.00"]);
    let versions = json!([per_unit("EUR", "2", "2026-01-01"), per_unit("EUR", "3", "2026-03-15")]);
    app.define("plans/new", json!({ "prices": versions })).await;
    app.define("tenants/acme", moved).await;
    assert_eq!(amounts(&draft(&app).await), ["200.00"]);
    app.define("plans/free", json!({ "prices": [] })).await;
    app.define("tenants/acme", json!({ "plan": "free" })).await;
    assert_eq!(draft(&app).await["total"], "0", "a plan without any price for it is meant so");
    app.finish().await;
}

#[tokio::test]
async fn a_price_of_the_open_period_stays_in_its_list_once_something_is_booked() {
    let (now, april) = (per_unit("EUR", "1", "2026-01-01"), per_unit("EUR", "2", "2026-04-01"));
    let app = priced(json!([april.clone()])).await;
    app.define("plans/plan", json!({ "prices": [now] })).await;
    app.define("plans/plan", json!({ "prices": [april] })).await;
    app.define("plans/plan", json!({ "prices": [now] })).await;
    app.use_pages("a", 100).await.expect(201);
    for without in [json!([april]), json!([])] {
        refused(&app, "plans/plan", json!({ "prices": without }), "/prices", "no price for `page` in EUR")
            .await;
    }
    app.define("plans/plan", json!({ "prices": [now, april] })).await;
    assert_eq!(amounts(&draft(&app).await), ["100.00"]);
    app.move_clock("2026-04-01T00:00:00Z").await;
    app.define("plans/plan", json!({ "prices": [april] })).await;
    app.finish().await;
}

#[tokio::test]
async fn nobody_pays_in_a_currency_whose_prices_begin_later_than_others() {
    let euro = per_unit("EUR", "1", "2026-01-01");
    let app = priced(json!([euro])).await;
    app.define("tenants/acme", json!({ "plan": "plan", "currency": "EUR" })).await;
    let dollars = per_unit("USD", "1", "2027-01-01");
    app.define("plans/plan", json!({ "prices": [euro, dollars] })).await;
    let in_dollars = json!({ "plan": "plan", "currency": "USD" });
    refused(&app, "tenants/late", in_dollars.clone(), "/currency", "no price for `page` in USD").await;
    app.use_pages("a", 1).await.expect(201);
    refused(
        &app,
        "tenants/acme",
        in_dollars,
        "/currency",
        "(from 2026-04-01) would have no price for `page` in USD",
    )
    .await;
    app.finish().await;
}

#[tokio::test]
async fn until_another_currency_holds_everything_keeps_its_price_in_the_old_one() {
    let app = priced(json!([])).await;
    let (euro, dollar) = (per_unit("EUR", "1", "2026-01-01"), per_unit("USD", "1.1", "2026-01-01"));
    let in_euro = json!({ "plan": "plan", "currency": "EUR", "prices": [euro] });
    app.define("tenants/acme", in_euro).await;
    app.use_pages("a", 100).await.expect(201);
    app.drained().await;
    let switch = |prices: Value| json!({ "plan": "plan", "currency": "USD", "prices": prices });
    refused(&app, "tenants/acme", switch(json!([dollar])), "/prices", "pays in EUR until 2026-04-01").await;
    app.define("plans/dollars", json!({ "prices": [dollar] })).await;
    let onto = json!({ "plan": "dollars", "currency": "USD", "prices": [] });
    refused(&app, "tenants/acme", onto, "/plan", "pays in EUR until 2026-04-01").await;
    let answer = app.define("tenants/acme", switch(json!([euro, dollar]))).await;
    let dated = json!([{ "currency": "EUR" }, { "from": "2026-04-01T00:00:00Z", "currency": "USD" }]);
    assert_eq!(answer.body["currencies"], dated, "{answer:?}");
    assert_eq!(app.get("/v1/admin/tenants/acme").await.expect(200).body["currencies"], dated);
    assert_eq!(amounts(&draft(&app).await), ["100.00"]);
    app.define("bans/loud", json!({ "tenant": "acme", "subject": { "kind": "user", "id": "loud" } })).await;
    assert_eq!(app.get("/v1/admin/tenants/acme").await.expect(200).body["currencies"], dated);
    refused(&app, "tenants/acme", switch(json!([dollar])), "/prices", "pays in EUR until 2026-04-01").await;
    app.move_clock("2026-04-01T00:00:00Z").await;
    let answer = app.define("tenants/acme", switch(json!([dollar]))).await;
    assert_eq!(answer.body["currencies"], Value::Null, "{answer:?}");
    app.use_pages("b", 10).await.expect(201);
    assert_eq!(amounts(&draft(&app).await), ["11.00"]);
    app.finish().await;
}

#[tokio::test]
async fn the_currencies_of_one_tenant_say_nothing_of_anothers() {
    let both = json!([per_unit("EUR", "1", "2026-01-01"), per_unit("USD", "2", "2026-01-01")]);
    let app = an_app().at("2026-02-10T12:00:00Z").without_jobs().start().await;
    app.without_limits().await;
    for tenant in ["acme", "other"] {
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan", "currency": "EUR" })).await;
        app.post_keyed(USAGE, tenant, pages(1).of(tenant)).await.expect(201);
    }
    app.define("plans/plan", json!({ "prices": both })).await;
    app.drained().await;
    app.define("tenants/other", json!({ "currency": "USD" }).with("plan", "plan")).await;
    app.move_clock("2026-03-10T12:00:00Z").await;
    app.define("tenants/acme", json!({ "currency": "USD" }).with("plan", "plan")).await;
    app.define("tenants/other", json!({ "currency": "EUR" }).with("plan", "plan")).await;
    let other = "/v1/tenants/other/statements/draft";
    let currencies = async || {
        let (own, other) = (app.get(DRAFT).await.expect(200), app.get(other).await.expect(200));
        [own.text("/currency").to_owned(), other.text("/currency").to_owned()]
    };
    assert_eq!(currencies().await, ["EUR", "USD"]);
    app.move_clock("2026-04-10T12:00:00Z").await;
    assert_eq!(currencies().await, ["USD", "EUR"]);
    app.finish().await;
}

#[tokio::test]
async fn a_currency_changes_at_the_end_of_the_period_that_is_open_by_the_old_calendar() {
    // Without a currency of its own it pays in that of its prices.
    let (euro, dollar) = (per_unit("EUR", "1", "2026-01-01"), per_unit("USD", "2", "2026-01-01"));
    let app = priced(json!([euro])).await;
    app.use_pages("a", 1).await.expect(201);
    app.drained().await;
    let west = json!({ "plan": "plan", "time_zone": "America/Los_Angeles" });
    app.define("tenants/acme", west).await;
    app.define("plans/both", json!({ "prices": [euro, dollar] })).await;
    app.define("tenants/acme", json!({ "plan": "both", "currency": "USD" })).await;
    assert_eq!(draft(&app).await["currency"], "EUR");
    app.move_clock("2026-04-01T03:00:00Z").await;
    let stub = draft(&app).await;
    assert_eq!(
        (&stub["period"]["start"], &stub["currency"]),
        (&json!("2026-04-01T00:00:00Z"), &json!("USD"))
    );
    app.finish().await;
}

#[tokio::test]
async fn a_first_currency_after_work_without_prices_is_that_of_the_open_period() {
    let app = priced(json!([])).await;
    app.use_pages("a", 1).await.expect(201);
    app.drained().await;
    app.define("tenants/acme", json!({ "plan": "plan", "currency": "EUR" })).await;
    let both = json!([per_unit("EUR", "1", "2026-01-01"), per_unit("USD", "2", "2026-01-01")]);
    app.define("plans/plan", json!({ "prices": both })).await;
    let statement = draft(&app).await;
    assert_eq!((&statement["currency"], amounts(&statement)), (&json!("EUR"), vec!["1.00"]));
    app.finish().await;
}

#[tokio::test]
async fn the_currency_of_the_prices_does_not_change_within_a_period_that_is_booked() {
    let (yen, dinar) = (per_unit("JPY", "0.5", "2026-01-01"), per_unit("KWD", "0.0005", "2026-01-01"));
    let app = priced(json!([yen])).await;
    app.define("plans/plan", json!({ "prices": [dinar] })).await;
    app.define("plans/plan", json!({ "prices": [yen] })).await;
    app.use_pages("a", 5).await.expect(201);
    let says = "`acme` pays in JPY until 2026-04-01";
    refused(&app, "plans/plan", json!({ "prices": [dinar] }), "/prices", says).await;
    let yens = draft(&app).await;
    assert_eq!((&yens["currency"], &yens["total"]), (&json!("JPY"), &json!("2")));
    app.finish().await;
}

#[tokio::test]
async fn a_file_prunes_no_price_that_has_been_used() {
    let (old, now) = (per_unit("EUR", "1", "2026-01-01"), per_unit("EUR", "2", "2026-03-01"));
    let later = per_unit("EUR", "3", "2026-06-01");
    let app = priced(json!([old, now, later])).await;
    let file = |prices: Value| json!({ "policy": { "plans": [{ "id": "plan", "prices": prices }] }, "prune": ["prices"] });
    let apply = async |prices: Value| app.post("/v1/admin/policy", file(prices)).await;
    apply(json!([now, later])).await.expect(200);
    app.define("plans/plan", json!({ "prices": [old, now, later] })).await;
    app.use_pages("a", 100).await.expect(201);
    for without in [json!([now, later]), json!([old, later]), json!([])] {
        let answer = apply(without).await;
        answer.is_problem(422, "validation_failed");
        assert!(answer.pointers().iter().all(|pointer| *pointer == "/policy/plans/0/prices"), "{answer:?}");
    }
    apply(json!([old, now])).await.expect(200);
    assert_eq!(amounts(&draft(&app).await), ["200.00"]);
    app.finish().await;
}
