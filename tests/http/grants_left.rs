//! What is left of each grant, as the quota is read.

use serde_json::{Value, json};

use crate::ledger::as_owner;
use crate::support::app::*;

const GRANTS: &str = "/v1/admin/grants";
const END: &str = "2026-04-01T00:00:00Z";

/// Tenant `acme` with a quota of fifty pages a month, in UTC, on the tenth of March; jobs run only when a test asks.
async fn app() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app
}

async fn granted(app: &TestApp, key: &str, amount: &str, priority: u8, expires_at: &str) -> String {
    let body = json!({
        "tenant": "acme", "meter": "page", "amount": amount, "kind": "paid", "priority": priority, "expires_at": expires_at
    });
    app.post_keyed(GRANTS, key, body).await.expect(201).text("/id").to_owned()
}

async fn uses(app: &TestApp, key: &str, amount: &str) {
    app.use_pages(key, amount).await.expect(201);
    app.drained().await;
}

/// Of each grant that is shown its id and what remains.
async fn left(app: &TestApp) -> Vec<(String, String)> {
    let quota = app.quota().await;
    let shown = quota.body["quotas"][0]["grants"].as_array().cloned().unwrap_or_default();
    let text = |grant: &Value, field: &str| grant[field].as_str().unwrap_or_default().to_owned();
    shown.iter().map(|grant| (text(grant, "id"), text(grant, "remaining"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_says_what_is_left_of_each_grant_in_the_order_in_which_they_burn() {
    let app = app().await;
    assert_eq!(app.quota().await.body["quotas"][0]["grants"], json!([]));
    let last = granted(&app, "last", "10", 60, END).await;
    let first = granted(&app, "first", "10", 1, "2026-03-20T00:00:00Z").await;
    let of = |first_left: &str, last_left: &str| {
        [(first.clone(), first_left.to_owned()), (last.clone(), last_left.to_owned())]
    };
    assert_eq!(left(&app).await, of("10", "10"));
    uses(&app, "a", "4").await;
    assert_eq!(left(&app).await, of("6", "10"), "with what is used since the last grant began");
    let shown = app.quota().await.body["quotas"][0]["grants"][0].clone();
    assert_eq!(
        shown,
        json!({ "id": first, "remaining": "6", "expires_at": "2026-03-20T00:00:00Z", "priority": 1 })
    );
    uses(&app, "b", "58").await;
    assert_eq!(
        left(&app).await,
        [(last.clone(), "8".to_owned())],
        "one of which nothing is left is not shown"
    );
    app.post(&format!("{GRANTS}/{last}/void"), json!({})).await.expect(200);
    assert_eq!(left(&app).await, []);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_shown_from_its_beginning_until_its_end() {
    let app = app().await;
    let body = json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "promotional",
        "effective_at": "2026-03-15T00:00:00Z", "expires_at": "2026-03-20T00:00:00Z"
    });
    let id = app.post_keyed(GRANTS, "a", body).await.expect(201).text("/id").to_owned();
    assert_eq!(left(&app).await, []);
    app.move_clock("2026-03-15T00:00:00Z").await;
    app.app().operations.grants.follow().await.unwrap();
    assert_eq!(left(&app).await, [(id, "10".to_owned())]);
    app.move_clock("2026-03-20T00:00:00Z").await;
    assert_eq!(left(&app).await, []);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_tenant_with_very_many_grants_the_next_hundred_are_shown_and_of_thousands_none() {
    let app = app().await;
    granted(&app, "template", "1", 60, END).await;
    let more = async |from: u32, to: u32| {
        let insert = format!(
            "WITH made AS ( \
                INSERT INTO grants (tenant, id, meter, decimals, amount, kind, priority, effective_at, expires_at, reason, \
                    fingerprint, created_at, created_by, period_start) \
                SELECT tenant, gen_random_uuid(), meter, decimals, amount, kind, 50 + number % 2, effective_at, expires_at, '', \
                    fingerprint, created_at, created_by, period_start \
                FROM (SELECT * FROM grants ORDER BY created_at LIMIT 1) g, generate_series({from}, {to}) AS number \
                RETURNING tenant, id) \
            INSERT INTO cuts (tenant, grant_id, is_end, meter, period_start, epoch, sequence, consumed, is_settled) \
            SELECT m.tenant, m.id, false, 'page', '2026-03-01T00:00:00Z', 1, 1, 0, false FROM made m"
        );
        as_owner(&app.database, &insert).await.unwrap();
    };
    more(2, 200).await;
    let shown = app.quota().await.body["quotas"][0]["grants"].as_array().cloned().unwrap();
    assert_eq!(shown.len(), 100);
    assert!(shown.iter().all(|grant| grant["priority"] == 50), "{shown:?}");
    more(201, 5_001).await;
    assert!(app.quota().await.body["quotas"][0].get("grants").is_none());
    app.leave_unbalanced("grants were made up");
}
