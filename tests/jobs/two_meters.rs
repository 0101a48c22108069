//! A tenant with quotas of two meters, used together: each burns, rolls over and goes on by itself.

use serde_json::{Value, json};

use super::continued_grants::{GRANTS, on, until};
use super::statements::faults;
use crate::ledger::rows;
use crate::support::app::*;

/// The books of a meter: month, granted, rolled in, available, consumed, rolled out, lapsed.
async fn books(app: &TestApp, meter: &str) -> Vec<String> {
    let query = format!(
        "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, granted::float8 AS g, rolled_in::float8 AS i, \
            available::float8 AS a, consumed::float8 AS c, rolled_out::float8 AS r, lapsed::float8 AS l \
        FROM balances WHERE meter = '{meter}' ORDER BY period_start"
    );
    rows(&app.database, &query).await
}

/// Uses so many pages and tokens in one piece of work.
async fn used(app: &TestApp, key: &str, pages: &str, tokens: &str) {
    let lines = json!([{ "meter": "page", "amount": pages }, { "meter": "token", "amount": tokens }]);
    app.post_keyed(USAGE, key, json!({ "tenant": "acme", "lines": lines })).await.expect(201);
    app.drained().await;
}

/// What remains of pages and of tokens.
async fn remaining(app: &TestApp) -> [String; 2] {
    let quota = app.quota().await.body;
    let of = |meter: &str| {
        let quotas = quota["quotas"].as_array().unwrap();
        let found = quotas.iter().find(|quota| quota["meter"] == meter).unwrap();
        found["remaining"].as_str().unwrap().to_owned()
    };
    ["page", "token"].map(of)
}

async fn granted(app: &TestApp, key: &str, body: Value) {
    app.post_keyed(GRANTS, key, body).await.expect(201);
    app.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_meter_burns_and_rolls_over_is_nothing_to_the_other() {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    let pages = quota_of("50").with("max_rollover", "30");
    let tokens = quota_of("1000").with("meter", "token").with("max_rollover", "100");
    app.with_plan(json!([]), json!([pages, tokens])).await;
    granted(&app, "pages", until("2026-04-01T00:00:00Z", "10").with("priority", 1)).await;
    granted(&app, "tokens", until("2026-12-01T00:00:00Z", "200").with("meter", "token")).await;
    used(&app, "march", "55", "900").await;
    assert_eq!(remaining(&app).await, ["5", "300"]);
    on(&app, "2026-04-01T02:00:00Z").await;
    assert_eq!(remaining(&app).await, ["55", "1300"], "what is unused of both, and the grant of tokens");
    used(&app, "april", "52", "1250").await;
    on(&app, "2026-05-01T02:00:00Z").await;
    assert_eq!(remaining(&app).await, ["50", "1050"], "only the grant goes on: it burns last");
    used(&app, "may", "50", "1050").await;
    let both = |pages: &str, tokens: &str| json!({ "tenant": "acme", "lines": [{ "meter": "page", "amount": pages }, { "meter": "token", "amount": tokens }] });
    let refused = app.post(RESERVATIONS, both("1", "1")).await;
    refused.is_problem(429, "quota_exceeded");
    assert_eq!(refused.body["refused_by"].as_array().unwrap().len(), 2, "{refused:?}");
    assert_eq!(books(&app, "page").await, ["03 60 0 0 55 5 0", "04 50 5 0 52 0 3", "05 50 0 0 50 0 0"]);
    let tokens = ["03 1200 0 0 900 300 0", "04 1000 300 0 1250 50 0", "05 1000 50 0 1050 0 0"];
    assert_eq!(books(&app, "token").await, tokens);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}
