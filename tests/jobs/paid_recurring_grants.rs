//! Paid grants that recur: sold in each period, also without use and whenever jobs run.

use rstest::rstest;
use serde_json::json;

use super::paid_grants::{BURNS, GRANTS, MONEY, paid, sold, unpriced};
use super::statements::{ISSUED, faults, run};
use crate::ledger::rows;
use crate::support::app::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_recurs_costs_its_price_in_each_period_also_where_jobs_were_away_for_months() {
    let app = unpriced().await;
    let recurring = paid("3", "10").with("recurrence", "period").with("expires_at", "2026-06-01T00:00:00Z");
    let id = sold(&app, "a", recurring).await;
    app.use_pages("march", 1).await.expect(201);
    app.move_clock("2026-04-10T12:00:00Z").await;
    app.use_pages("april", 2).await.expect(201);
    app.move_clock("2026-05-10T12:00:00Z").await;
    app.use_pages("may", 3).await.expect(201);
    app.move_clock("2026-09-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 10", "2 2026-04 10", "3 2026-05 10"]);
    assert_eq!(rows(&app.database, BURNS).await, ["03 1 3.33 6.67", "04 2 6.67 3.33", "05 3 10 0"]);
    let at = "SELECT to_char(happened_at AT TIME ZONE 'UTC', 'MM-DD') AS at FROM entries WHERE credit = 'revenue' ORDER BY 1";
    assert_eq!(rows(&app.database, at).await, ["04-01", "05-01", "06-01"], "as if they had run in time");
    assert_eq!(app.get(&format!("{GRANTS}/{id}")).await.text("/paid_amount"), "10.00");
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

/// The documents, burns and money of three months of which only the first is used. Jobs run in time, or at the end.
async fn sold_without_use(in_time: bool) -> [Vec<String>; 3] {
    let app = unpriced().await;
    let recurring = paid("3", "10").with("recurrence", "period").with("expires_at", "2026-06-01T00:00:00Z");
    sold(&app, "a", recurring).await;
    app.use_pages("march", 1).await.expect(201);
    if in_time {
        for month in [3, 4] {
            let last_day = if month == 3 { 31 } else { 30 };
            app.move_clock(&format!("2026-{month:02}-{last_day}T12:00:00Z")).await;
            app.app().operations.memory.open_next_periods().await.unwrap();
            app.move_clock(&format!("2026-{:02}-02T12:00:00Z", month + 1)).await;
            run(&app).await;
        }
    }
    app.move_clock("2026-06-10T12:00:00Z").await;
    run(&app).await;
    let (issued, burns) = (rows(&app.database, ISSUED).await, rows(&app.database, BURNS).await);
    let mut money = rows(&app.database, MONEY).await;
    money.sort();
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
    [issued, burns, money]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_recurs_is_sold_in_months_without_use_whenever_jobs_run() {
    let in_time = sold_without_use(true).await;
    assert_eq!(in_time[0], ["1 2026-03 10", "2 2026-04 10", "3 2026-05 10"]);
    assert_eq!(in_time[1], ["03 1 3.33 6.67", "04 0 0 10", "05 0 0 10"]);
    assert_eq!(sold_without_use(false).await, in_time);
}

/// Whether the tenant is a sandbox until the last noon of March; when the recurring grant is sold then, whether April
/// was opened before that or after it was used.
#[rstest]
#[case::who_becomes_one(false, &["03-10", "04-01"])]
#[case::who_was_one(true, &["05-01"])]
#[tokio::test(flavor = "multi_thread")]
async fn what_recurs_is_sold_by_what_its_tenant_was_a_day_before_the_period_whenever_that_is_opened(
    #[case] is_sandbox: bool,
    #[case] expected: &[&str],
    #[values(true, false)] is_opened_ahead: bool,
) {
    let app = unpriced().await;
    let of = |sandbox: bool| json!({ "plan": "plan", "sandbox": sandbox });
    app.define("tenants/acme", of(is_sandbox)).await;
    let recurring = paid("3", "10").with("recurrence", "period").with("expires_at", "2026-06-01T00:00:00Z");
    sold(&app, "a", recurring).await;
    app.use_pages("march", 1).await.expect(201);
    app.move_clock("2026-03-31T12:00:00Z").await;
    if is_opened_ahead {
        app.app().operations.memory.open_next_periods().await.unwrap();
    }
    app.define("tenants/acme", of(!is_sandbox)).await;
    for day in ["2026-04-10T12:00:00Z", "2026-05-10T12:00:00Z"] {
        app.move_clock(day).await;
        app.use_pages(day, 1).await.expect(201);
    }
    let sales = "SELECT to_char(sold_at AT TIME ZONE 'UTC', 'MM-DD') AS at FROM grant_sales ORDER BY 1";
    assert_eq!(rows(&app.database, sales).await, expected);
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_recurs_is_sold_again_without_use_once_its_tenant_is_no_longer_archived() {
    let app = unpriced().await;
    let recurring = paid("3", "10").with("recurrence", "period").with("expires_at", "2026-07-01T00:00:00Z");
    sold(&app, "a", recurring).await;
    app.define("tenants/acme", json!({ "plan": "plan", "archived": true })).await;
    app.move_clock("2026-05-10T12:00:00Z").await;
    run(&app).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    let sales = "SELECT to_char(sold_at AT TIME ZONE 'UTC', 'MM-DD') AS at FROM grant_sales ORDER BY 1";
    assert_eq!(rows(&app.database, sales).await, ["03-10", "05-01"]);
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, sales).await, ["03-10", "05-01", "06-01"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}
