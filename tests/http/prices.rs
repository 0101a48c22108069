//! `GET /v1/admin/prices`: all versions of prices, with the plan or the tenant that each belongs to.

use serde_json::{Value, json};

use super::statements::price;
use crate::support::app::*;

const PRICES: &str = "/v1/admin/prices";

fn dated(meter: &str, id: &str, day: &str) -> Value {
    let price = price(json!({ "model": "per_unit", "unit": "1", "meter": meter, "effective_from": day }));
    if id.is_empty() { price } else { price.with("id", id) }
}

/// Two plans and two tenants with prices, and one of each without.
async fn app() -> TestApp {
    let app = spawn_app().await;
    for meter in ["page", "token"] {
        app.define(&format!("meters/{meter}"), json!({ "unit": meter, "without_limit": "unlimited" })).await;
    }
    let versions = [
        dated("token", "", "2026-01-01"),
        dated("page", "base", "2026-01-01"),
        dated("page", "", "2026-02-01"),
        dated("page", "", "2026-03-01"),
    ];
    app.define("plans/first", json!({ "prices": versions })).await;
    app.define("plans/second", json!({ "prices": [dated("page", "", "2026-01-01")] })).await;
    app.define("plans/without", json!({})).await;
    app.define("tenants/acme", json!({ "plan": "first", "prices": [dated("page", "", "2026-04-01")] })).await;
    app.define("tenants/beta", json!({ "plan": "without", "prices": [dated("token", "", "2026-01-01")] }))
        .await;
    app.define("tenants/gamma", json!({ "plan": "without" })).await;
    app
}

/// Owner, meter, id and first day of each price of a page.
fn shown(page: &Value) -> Vec<String> {
    let of = |price: &Value| {
        let field = |name: &str| price[name].as_str().unwrap_or("-").to_owned();
        let fields = ["plan", "tenant", "meter", "id", "effective_from"].map(field);
        fields.join(" ")
    };
    page["data"].as_array().unwrap().iter().map(of).collect()
}

const ALL: [&str; 7] = [
    "first - page - 2026-03-01",
    "first - page - 2026-02-01",
    "first - page base 2026-01-01",
    "first - token - 2026-01-01",
    "second - page - 2026-01-01",
    "- acme page - 2026-04-01",
    "- beta token - 2026-01-01",
];

#[tokio::test]
async fn prices_of_plans_and_tenants_are_one_list_and_each_names_its_owner() {
    let app = app().await;
    let all = app.get(PRICES).await.expect(200).body;
    assert_eq!(shown(&all), ALL);
    assert_eq!((&all["has_more"], &all["next_cursor"]), (&json!(false), &Value::Null));
    let first = dated("page", "", "2026-03-01");
    let stored = first.with("charge_on", "consumed").with("included", "0");
    assert_eq!(all["data"][0], stored.with("plan", "first").with("tenant", Value::Null));
    for size in 1..ALL.len() {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        // A cursor that stands still ends too.
        for _ in 0..=ALL.len() {
            let page = app.get(&format!("{PRICES}?limit={size}{cursor}")).await.expect(200).body;
            assert!(page["data"].as_array().unwrap().len() <= size);
            found.extend(shown(&page));
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found, ALL, "in pages of {size}");
    }
    app.finish().await;
}

#[tokio::test]
async fn they_are_listed_by_plan_tenant_and_meter() {
    let app = app().await;
    let of = async |filter: &str| shown(&app.get(&format!("{PRICES}?{filter}")).await.expect(200).body);
    assert_eq!(of("plan=first").await, ALL[..4]);
    assert_eq!(of("plan=first&meter=token").await, ALL[3..4]);
    assert_eq!(of("plan=without").await, [""; 0]);
    assert_eq!(of("tenant=acme").await, ALL[5..6]);
    assert_eq!(of("tenant=gamma").await, [""; 0]);
    assert_eq!(of("meter=token").await, [ALL[3], ALL[6]]);
    assert_eq!(of("meter=nothing").await, [""; 0]);
    let page = app.get(&format!("{PRICES}?meter=page&limit=4")).await.expect(200).body;
    assert_eq!(shown(&page), [ALL[0], ALL[1], ALL[2], ALL[4]]);
    let next = page["next_cursor"].as_str().unwrap();
    assert_eq!(of(&format!("meter=page&limit=4&cursor={next}")).await, ALL[5..6]);
    app.get(&format!("{PRICES}?cursor={next}")).await.is_problem(400, "invalid_request");
    app.get(&format!("{PRICES}?plan=nobody")).await.is_problem(404, "not_found");
    app.get(&format!("{PRICES}?tenant=nobody")).await.is_problem(404, "not_found");
    app.get(&format!("{PRICES}?plan=first&tenant=acme")).await.is_problem(400, "invalid_request");
    app.get(&format!("{PRICES}?currency=EUR")).await.is_problem(400, "invalid_request");
    app.finish().await;
}

#[tokio::test]
async fn those_who_read_what_administrators_set_read_prices() {
    let app = app().await;
    app.make_key("finance", None).await.get(PRICES).await.expect(200);
    for (role, tenant) in [("finance", Some("acme")), ("service", None), ("tenant", Some("acme"))] {
        app.make_key(role, tenant).await.get(PRICES).await.is_problem(403, "forbidden");
    }
    app.finish().await;
}
