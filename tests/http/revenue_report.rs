//! `/v1/reports/revenue`: what issued statements and credit notes say is owed.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tollgate::ledger::Manner;

use crate::http::events::{event, send};
use crate::http::statements::price;
use crate::ledger::rows;
use crate::support::app::*;

const REVENUE: &str = "/v1/reports/revenue";

/// Closes and bills what is due.
async fn bill(app: &TestApp) {
    let grace = Duration::from_secs(3600);
    app.drained().await;
    while app.app().operations.periods.close(Manner::default(), grace).await.unwrap().closed > 0 {}
    app.app().operations.statements.issue(Manner::default(), grace).await.unwrap();
    app.drained().await;
}

/// A service after March and April. `acme` used 30 and 50 pages at 0.10 EUR, and 4 tokens at 0.25 EUR in March; `asia`,
/// whose months begin at another instant, used 7 pages at 20 JPY in March. Ten more pages of March came late.
async fn after_two_months() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.without_limits().await;
    let pages = price(json!({ "model": "per_unit", "unit": "0.10" }));
    let tokens = price(json!({ "meter": "token", "model": "per_unit", "unit": "0.25" }));
    app.define("plans/plan", json!({ "prices": [pages, tokens] })).await;
    let yen = price(json!({ "model": "per_unit", "unit": "20", "currency": "JPY" }));
    app.define("plans/yen", json!({ "prices": [yen] })).await.expect(201);
    let asia = json!({ "plan": "yen", "time_zone": "Asia/Tokyo" });
    app.define("tenants/asia", asia).await.expect(201);
    for (key, meter, tenant, amount) in
        [("a", "page", "acme", "30"), ("b", "token", "acme", "4"), ("c", "page", "asia", "7")]
    {
        let work = json!({ "tenant": tenant, "meter": meter, "amount": amount });
        app.post_keyed(USAGE, key, work).await.expect(201);
    }
    app.move_clock("2026-04-10T00:00:00Z").await;
    bill(&app).await;
    assert_eq!(of_march(&app).await, MARCH);
    app.use_pages("april", "50").await.expect(201);
    send(&app, &event("late", 10, Some("2026-03-20T00:00:00Z"))).await;
    app.move_clock("2026-05-10T00:00:00Z").await;
    bill(&app).await;
    assert_eq!(of_march(&app).await, MARCH, "a billed month says the same for ever");
    app
}

/// What the report says of March and before once it is billed.
const MARCH: [&str; 2] = ["2026-03-01 EUR 4.00 0.00 4.00 1", "2026-03-01 JPY 140 0 140 1"];

async fn of_march(app: &TestApp) -> Vec<String> {
    let path = format!("{REVENUE}?to=2026-03-31T00:00:00Z&group_by=period");
    figures(&app.get(&path).await.expect(200).body)
}

/// Of each row the groups that it has, its currency and amounts.
fn figures(body: &Value) -> Vec<String> {
    let line = |row: &Value| {
        let fields = ["period", "tenant", "plan", "meter", "currency", "billed", "corrected", "revenue"];
        let texts: Vec<_> = fields.iter().filter_map(|field| row[*field].as_str()).collect();
        format!("{} {}", texts.join(" "), row["documents"])
    };
    body["data"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn revenue_is_what_statements_and_notes_add_up_to_by_period_tenant_plan_and_meter() {
    let app = after_two_months().await;
    for (query, expected) in [
        ("", vec!["EUR 9.00 1.00 10.00 3", "JPY 140 0 140 2"]),
        (
            "?group_by=period",
            vec![
                "2026-04-01 EUR 5.00 1.00 6.00 2",
                "2026-04-01 JPY 0 0 0 1",
                "2026-03-01 EUR 4.00 0.00 4.00 1",
                "2026-03-01 JPY 140 0 140 1",
            ],
        ),
        (
            "?group_by=meter",
            vec!["page EUR 8.00 1.00 9.00 3", "token EUR 1.00 0.00 1.00 2", "page JPY 140 0 140 2"],
        ),
        ("?group_by=tenant,plan", vec!["acme plan EUR 9.00 1.00 10.00 3", "asia yen JPY 140 0 140 2"]),
        ("?tenant=acme&group_by=tenant", vec!["acme EUR 9.00 1.00 10.00 3"]),
        ("?from=2026-04-01T00:00:00Z", vec!["EUR 5.00 1.00 6.00 2"]),
        ("?to=2026-04-01T00:00:00Z&tenant=acme", vec!["EUR 4.00 0.00 4.00 1"]),
        ("?to=2026-03-01T00:00:00Z", vec!["JPY 140 0 140 1"]),
    ] {
        let answer = app.get(&format!("{REVENUE}{query}")).await.expect(200).body;
        assert_eq!(figures(&answer), expected, "{query}");
        assert!(answer["as_of"].is_string(), "{answer}");
    }
    let booked = "SELECT sum(CASE WHEN credit = 'revenue' THEN amount ELSE -amount END)::float8 AS a FROM entries \
        WHERE meter = 'money:EUR' AND 'revenue' IN (credit, debit)";
    assert_eq!(rows(&app.database, booked).await, ["10"], "as booked");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revenue_is_read_in_pages_and_as_a_file_and_by_its_own_tenant_only() {
    let app = after_two_months().await;
    let grouped = format!("{REVENUE}?group_by=period,tenant,plan,meter");
    let whole = app.get(&grouped).await.expect(200).body;
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    while cursor.is_empty() || cursor != "&cursor=" {
        let page = app.get(&format!("{grouped}&limit=1{cursor}")).await.expect(200).body;
        rows.extend(page["data"].as_array().unwrap().iter().cloned());
        cursor = format!("&cursor={}", page["next_cursor"].as_str().unwrap_or_default());
    }
    assert_eq!((rows.len(), Value::Array(rows)), (6, whole["data"].clone()));
    let file = app.get(&format!("{grouped}&format=csv")).await.expect(200);
    let lines: Vec<_> = file.body.as_str().unwrap().lines().collect();
    assert!(lines[0].starts_with("period,tenant,plan,meter,currency,billed,corrected,revenue,documents"));
    assert!(lines[4].starts_with("2026-03-01,acme,plan,page,EUR,3.00,0.00,3.00,1"), "{}", lines[4]);
    let bound = app.make_key("finance", Some("asia")).await;
    assert_eq!(figures(&bound.get(REVENUE).await.expect(200).body), ["JPY 140 0 140 2"]);
    bound.get(&format!("{REVENUE}?tenant=acme")).await.is_problem(403, "forbidden");
    app.finish().await;
}

#[rstest]
#[case("group_by=subject", "/group_by")]
#[case("group_by=plan,plan", "/group_by")]
#[case("from=now", "/from")]
#[case("meter=page", "/meter")]
#[tokio::test]
async fn a_wrong_parameter_of_revenue_is_named(#[case] query: &str, #[case] named: &str) {
    let app = spawn_app().await;
    let answer = app.get(&format!("{REVENUE}?{query}")).await;
    answer.is_problem(400, "invalid_request");
    assert_eq!(answer.pointers(), [named]);
    app.finish().await;
}
