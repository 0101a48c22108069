//! A recorded trace of model calls, billed: nothing of it is lost or billed twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::cli::{Trace, TraceFacts, tenant_number};
use tollgate::ledger::{Manner, VerifyOptions, verify};

use crate::cli::example;
use crate::http::statements::price;
use crate::support::app::*;
use crate::support::process::path_from_environment;

const TENANTS: u16 = 50;
/// So many uses go to the service in one call.
const AT_ONCE: usize = 500;
const METERS: [&str; 3] = ["llm.request", "llm.input_token", "llm.output_token"];

/// Cents, half to even, of so many millionths of a euro.
fn cents(micro: u64) -> u64 {
    let (whole, rest) = (micro / 10_000, micro % 10_000);
    whole + u64::from(rest > 5_000 || (rest == 5_000 && whole % 2 == 1))
}

/// What each meter's units cost, in cents: as the prices of the plan, counted another way.
fn owed([requests, input, output]: [u64; 3]) -> u64 {
    let tiered = |units: u64, up_to: u64, first: u64, then: u64| {
        units.min(up_to) * first + units.saturating_sub(up_to) * then
    };
    cents(requests * 100)
        + cents(tiered(input, 20_000, 300, 100))
        + cents(tiered(output, 1_000, 2_000, 1_200))
}

/// Requests, input and output tokens of a trace, as its file has them.
fn summed(path: &Path) -> [u64; 3] {
    let text = std::fs::read_to_string(path).unwrap();
    let mut sums = [0; 3];
    for line in text.lines().skip(1).filter(|line| !line.is_empty()) {
        let columns: Vec<&str> = line.split(',').collect();
        let tokens = |column: usize| columns[column].trim().parse::<u64>().unwrap();
        sums.iter_mut().zip([1, tokens(1), tokens(2)]).for_each(|(sum, amount)| *sum += amount);
    }
    sums
}

/// Records uses, and again: the second time is a replay.
async fn record(app: &TestApp, items: &[Value]) {
    for expected in [201, 200] {
        let answer = app.post("/v1/batch", json!({ "items": items })).await.expect(200);
        let results = answer.body["results"].as_array().unwrap();
        assert_eq!(results.len(), items.len());
        let other = results.iter().find(|result| result["status"] != expected);
        assert!(other.is_none(), "{expected} was expected: {other:?}");
    }
}

/// Plan `ai` with a price of each meter.
async fn priced() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    for meter in METERS {
        app.define(&format!("meters/{meter}"), json!({ "unit": "unit", "without_limit": "unlimited" })).await;
    }
    let tiers =
        |up_to: &str, first: &str, then: &str| json!([{ "up_to": up_to, "unit": first }, { "unit": then }]);
    let graduated =
        |meter: &str, tiers| price(json!({ "meter": meter, "model": "graduated", "tiers": tiers }));
    let prices = json!([
        price(json!({ "meter": METERS[0], "model": "per_unit", "unit": "0.0001" })),
        graduated(METERS[1], tiers("20000", "0.0003", "0.0001")),
        graduated(METERS[2], tiers("1000", "0.002", "0.0012")),
    ]);
    app.define("plans/ai", json!({ "prices": prices })).await;
    app
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_billed_on_graduated_prices_adds_up_to_the_trace() {
    let app = priced().await;
    let path = path_from_environment("TOLLGATE_TRACE").unwrap_or_else(|| example("trace.csv"));
    let facts = TraceFacts::survey(&path).unwrap();
    let mut used: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    let mut items = Vec::new();
    for row in Trace::open(&path).unwrap() {
        let row = row.unwrap();
        let tenant = format!("model-{}", tenant_number(&facts.hash, row.number, TENANTS));
        if !used.contains_key(&tenant) {
            app.define(&format!("tenants/{tenant}"), json!({ "plan": "ai" })).await;
        }
        let amounts = [1, row.input_tokens, row.output_tokens];
        let lines: Vec<_> = METERS
            .iter()
            .zip(amounts)
            .filter(|(_, amount)| *amount > 0)
            .map(|(meter, amount)| json!({ "meter": meter, "amount": amount }))
            .collect();
        let work = json!({ "tenant": tenant, "lines": lines });
        items
            .push(json!({ "call": "usage", "idempotency_key": format!("row-{}", row.number), "body": work }));
        if items.len() == AT_ONCE {
            record(&app, &items).await;
            items.clear();
        }
        let sums = used.entry(tenant).or_default();
        sums.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum += amount);
    }
    if !items.is_empty() {
        record(&app, &items).await;
    }
    app.move_clock("2026-04-10T00:00:00Z").await;
    app.drained().await;
    let grace = Duration::from_secs(3600);
    app.app().operations.periods.close(Manner::default(), grace).await.unwrap();
    let issued = app.app().operations.statements.issue(Manner::default(), grace).await.unwrap();
    assert_eq!((issued.statements, issued.failed), (u64::try_from(used.len()).unwrap(), Vec::new()));
    let mut billed = [0; 3];
    for (tenant, sums) in &used {
        let statement = app.get(&format!("/v1/tenants/{tenant}/statements/1")).await.expect(200).body;
        let quantity = |meter: &str| -> u64 {
            let lines = statement["lines"].as_array().unwrap().iter();
            let of_meter = lines.filter(|line| line["meter"] == meter);
            of_meter.map(|line| line["quantity"].as_str().unwrap().parse::<u64>().unwrap()).sum()
        };
        let quantities = METERS.map(quantity);
        assert_eq!(&quantities, sums, "{tenant}");
        let cents = owed(*sums);
        assert_eq!(statement["total"], format!("{}.{:02}", cents / 100, cents % 100), "{statement}");
        billed.iter_mut().zip(quantities).for_each(|(sum, quantity)| *sum += quantity);
    }
    assert_eq!(billed, summed(&path));
    assert_eq!(billed, [facts.rows, facts.input_tokens, facts.output_tokens]);
    let cents: u64 = used.values().map(|sums| owed(*sums)).sum();
    println!("{billed:?} of {} tenants billed with {}.{:02} EUR", used.len(), cents / 100, cents % 100);
    app.drained().await;
    let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
    assert!(report.checks.iter().all(|check| check.faults.is_empty()), "{:?}", report.checks);
    app.finish().await;
}
