//! Notices of quotas: thresholds and forecasts, raised and resolved by a job from what is booked.

use serde_json::{Value, json};
use tollgate::ledger::NoticeChanges;

use super::continued_grants::run as close;
use crate::ledger::rows;
use crate::support::app::*;

const NOTICES: &str = "/v1/tenants/acme/notices";

/// A tenant with this quota of pages, in UTC, at noon of the first of March, where no job runs by itself.
async fn with(quota: Value) -> TestApp {
    let app = an_app().at("2026-03-01T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota])).await;
    app
}

async fn run(app: &TestApp) -> NoticeChanges {
    app.drained().await;
    app.app().ledger.raise_quota_notices(app.clock.now_ms(), 2).await.unwrap()
}

fn changes(raised: u64, resolved: u64) -> NoticeChanges {
    NoticeChanges { raised, resolved }
}

/// Of each notice its kind, threshold, consumption and allowance, and whether it is resolved.
async fn notices(app: &TestApp, filter: &str) -> Vec<String> {
    let list = app.get(&format!("{NOTICES}?{filter}")).await.expect(200).body;
    let line = |row: &Value| {
        let text = |field: &str| row[field].as_str().unwrap_or("-").to_owned();
        let resolved = if row["resolved_at"].is_null() { "" } else { " resolved" };
        format!("{} {} {} of {}{resolved}", text("kind"), row["percent"], text("consumed"), text("allowance"))
    };
    list["data"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_threshold_is_raised_once_and_several_at_once_when_usage_jumps() {
    let app = with(quota_of("100")).await;
    app.use_pages("little", "49").await.expect(201);
    assert_eq!(run(&app).await, changes(0, 0), "below the lowest, and too early for a forecast");
    app.use_pages("half", "1").await.expect(201);
    assert_eq!(run(&app).await, changes(1, 0));
    assert_eq!(run(&app).await, changes(0, 0));
    app.use_pages("much", "41").await.expect(201);
    app.drained().await;
    let runs = (0..3).map(|_| app.app().ledger.raise_quota_notices(app.clock.now_ms(), 2));
    let raised: u64 =
        futures::future::join_all(runs).await.into_iter().map(|done| done.unwrap().raised).sum();
    assert_eq!(raised, 2, "runs at once raise nothing twice");
    let expected =
        ["threshold 90 91 of 100", "threshold 80 91 of 100", "threshold 50 50 of 100"].map(str::to_owned);
    assert_eq!(notices(&app, "").await, expected);
    let first = app.get(&format!("{NOTICES}?limit=1")).await.expect(200).body;
    let row = &first["data"][0];
    assert_eq!((&row["meter"], &row["period_end"]), (&json!("page"), &json!("2026-04-01T00:00:00Z")));
    let rest = format!("limit=2&cursor={}", first["next_cursor"].as_str().unwrap());
    assert_eq!(notices(&app, &rest).await, expected[1..]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_what_one_run_raised_of_two_periods_each_once() {
    let app = with(quota_of("100").with("notices_percent", json!([80]))).await;
    app.use_pages("march", "80").await.expect(201);
    app.move_clock("2026-04-01T00:01:00Z").await;
    app.use_pages("april", "90").await.expect(201);
    assert_eq!(run(&app).await, changes(2, 0));
    let first = app.get(&format!("{NOTICES}?limit=1")).await.expect(200).body;
    let next = format!("{NOTICES}?limit=1&cursor={}", first["next_cursor"].as_str().unwrap());
    let second = app.get(&next).await.expect(200).body;
    let starts = [&first, &second].map(|page| page["data"][0]["period_start"].clone());
    assert_eq!(json!(starts), json!(["2026-04-01T00:00:00Z", "2026-03-01T00:00:00Z"]));
    assert_eq!(second["has_more"], false);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_is_resolved_once_usage_is_below_it_and_not_raised_again_in_the_period() {
    let app = with(quota_of("100").with("notices_percent", json!([80]))).await;
    app.use_pages("much", "80").await.expect(201);
    assert_eq!(run(&app).await, changes(1, 0));
    let grant = json!({
        "tenant": "acme", "meter": "page", "amount": "100", "kind": "promotional",
        "expires_at": "2026-04-01T00:00:00Z"
    });
    app.post_keyed("/v1/admin/grants", "more", grant).await.expect(201);
    assert_eq!(run(&app).await, changes(0, 1));
    app.use_pages("again", "90").await.expect(201);
    assert_eq!(run(&app).await, changes(0, 0));
    assert_eq!(notices(&app, "").await, ["threshold 80 80 of 100 resolved"]);
    assert_eq!(notices(&app, "status=raised").await, [""; 0]);
    assert_eq!(notices(&app, "status=resolved&meter=page").await.len(), 1);
    app.move_clock("2026-04-01T12:00:00Z").await;
    app.use_pages("april", "85").await.expect(201);
    assert_eq!(run(&app).await, changes(1, 0), "the next period has its own");
    app.finish().await;
}

/// As [`notices`], of this period, the lowest first.
async fn of_period(app: &TestApp, start: &str) -> Vec<String> {
    let columns = "percent, consumed::float8 AS c, allowance::float8 AS a, raised_at AT TIME ZONE 'UTC' AS r, \
        resolved_at AT TIME ZONE 'UTC' AS e";
    let query =
        format!("SELECT {columns} FROM quota_notices WHERE period_start = '{start}' ORDER BY percent");
    rows(&app.database, &query).await
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_end_with_their_period_and_what_was_reached_after_the_last_run_is_told_then_once() {
    let app = with(quota_of("100")).await;
    app.use_pages("some", "40").await.expect(201);
    app.move_clock("2026-03-16T00:00:00Z").await;
    app.use_pages("half", "15").await.expect(201);
    assert_eq!(run(&app).await, changes(2, 0), "half, and the forecast");
    app.move_clock("2026-03-31T23:59:00Z").await;
    app.use_pages("late", "30").await.expect(201);
    let held = app.held(pages("6").lasting(86_400)).await;
    app.move_clock("2026-04-01T00:01:00Z").await;
    assert_eq!(run(&app).await, changes(1, 2), "80 %, which is over as it is told");
    assert_eq!(notices(&app, "status=raised").await, [""; 0]);
    app.consume(&held, "6").await.expect(200);
    app.use_pages("april", "60").await.expect(201);
    assert_eq!(run(&app).await, changes(2, 0), "90 % of March in its grace, half of April");
    app.move_clock("2026-04-01T01:00:00Z").await;
    close(&app).await;
    for _ in 0..2 {
        assert_eq!(run(&app).await, changes(0, 0), "what lapses with the close reaches no threshold");
    }
    let march = [
        "0 55 100 2026-03-16T00:00:00 2026-04-01T00:01:00",
        "50 55 100 2026-03-16T00:00:00 2026-04-01T00:01:00",
        "80 85 100 2026-04-01T00:01:00 2026-04-01T00:01:00",
        "90 91 100 2026-04-01T00:01:00 2026-04-01T00:01:00",
    ];
    assert_eq!(of_period(&app, "2026-03-01").await, march);
    assert_eq!(notices(&app, "status=raised").await, ["threshold 50 60 of 100"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_run_after_the_close_tells_what_the_period_had_reached_of_what_it_allowed() {
    let quota = quota_of("100").with("max_rollover", "5").with("mode", "soft");
    let app = with(quota).await;
    let grant = json!({
        "tenant": "acme", "meter": "page", "amount": "100", "kind": "promotional",
        "expires_at": "2026-12-01T00:00:00Z"
    });
    app.post_keyed("/v1/admin/grants", "lasting", grant).await.expect(201);
    for tenant in ["beyond", "held"] {
        app.define(&format!("tenants/{tenant}"), json!({ "id": tenant, "plan": "plan" })).await;
    }
    app.use_pages("some", "110").await.expect(201);
    app.post_keyed(USAGE, "beyond", pages("120").of("beyond")).await.expect(201);
    app.move_clock("2026-03-31T23:59:00Z").await;
    app.post_keyed(USAGE, "held", pages("75").of("held")).await.expect(201);
    app.post(RESERVATIONS, pages("65").of("held").lasting(86_400)).await.expect(201);
    app.move_clock("2026-04-01T01:00:00Z").await;
    close(&app).await;
    // Of 200 pages 110, of 100 pages 120, of 100 pages 75 beside 65 that were held.
    assert_eq!(run(&app).await, changes(1 + 4 + 1, 0));
    let told = "SELECT tenant, max(percent) AS p, max(allowance)::float8 AS a FROM quota_notices GROUP BY 1 ORDER BY 1";
    assert_eq!(rows(&app.database, told).await, ["acme 50 200", "beyond 100 100", "held 50 100"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_or_consumed_of_the_period_before_reaches_no_threshold_and_puts_none_off() {
    let app = with(quota_of("100")).await;
    app.move_clock("2026-03-31T23:59:00Z").await;
    let (used, unused) =
        (app.held(pages("70").lasting(86_400)).await, app.held(pages("30").lasting(86_400)).await);
    app.move_clock("2026-04-01T02:00:00Z").await;
    close(&app).await;
    assert_eq!(run(&app).await, changes(0, 0), "April has used nothing");
    app.consume(&used, "70").await.expect(200);
    assert_eq!(run(&app).await, changes(0, 0), "what March pays for is not used in April");
    app.use_pages("half", "50").await.expect(201);
    assert_eq!(run(&app).await, changes(1, 0));
    app.release(&unused).await.expect(200);
    close(&app).await;
    assert_eq!(run(&app).await, changes(0, 0), "what returned of March lapses");
    assert_eq!(notices(&app, "status=raised").await, ["threshold 50 50 of 100"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forecast_says_when_the_quota_is_used_up_and_is_resolved_when_the_pace_slows() {
    let app = with(quota_of("100")).await;
    app.use_pages("fast", "20").await.expect(201);
    app.move_clock("2026-03-04T00:00:00Z").await;
    assert_eq!(run(&app).await, changes(0, 0), "less than a tenth of the period is over");
    app.move_clock("2026-03-06T00:00:00Z").await;
    assert_eq!(run(&app).await, changes(1, 0));
    let list = app.get(NOTICES).await.expect(200).body;
    let row = &list["data"][0];
    // Twenty in five days: a hundred in twenty-five.
    assert_eq!((&row["kind"], &row["runs_out_at"]), (&json!("forecast"), &json!("2026-03-26T00:00:00Z")));
    assert!(row.get("percent").is_none(), "{row}");
    let quota = app.quota().await;
    let pace = ["burn_per_day", "runs_out_at"].map(|field| quota.text(&format!("/quotas/0/{field}")));
    assert_eq!(pace, ["4", "2026-03-26T00:00:00Z"], "the quota answer says the same");
    app.move_clock("2026-03-07T04:48:00Z").await;
    assert_eq!(run(&app).await, changes(0, 1), "at this pace all of it lasts until the end");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_without_use_or_thresholds_raise_nothing_and_tenants_see_their_own() {
    let app = with(quota_of("100").with("notices_percent", json!([]))).await;
    app.define("tenants/other", json!({ "id": "other", "plan": "plan" })).await;
    app.use_pages("all", "100").await.expect(201);
    assert_eq!(run(&app).await, changes(0, 0));
    app.with_plan(json!([]), json!([quota_of("100")])).await;
    for tenant in ["one", "two", "three"] {
        app.define(&format!("tenants/{tenant}"), json!({ "id": tenant, "plan": "plan" })).await;
        app.post(RESERVATIONS, pages("1").of(tenant)).await.expect(201);
    }
    app.post_keyed(USAGE, "other", pages("60").of("other")).await.expect(201);
    assert_eq!(run(&app).await, changes(1, 0), "what is only held is not used");
    let bound = app.make_key("tenant", Some("other")).await;
    let own = bound.get("/v1/tenants/other/notices").await.expect(200).body;
    assert_eq!(own["data"][0]["percent"], 50);
    bound.get(NOTICES).await.is_problem(403, "forbidden");
    app.get("/v1/tenants/nobody/notices").await.is_problem(404, "not_found");
    app.get(&format!("{NOTICES}?status=open")).await.is_problem(400, "invalid_request");
    app.finish().await;
}

#[tokio::test]
async fn a_threshold_that_cannot_be_is_named() {
    let app = with(quota_of("100")).await;
    for (percents, pointer) in [(json!([50, 101]), "1"), (json!([0]), "0"), (json!([50, 80, 50]), "2")] {
        let plan = json!({ "id": "plan", "quotas": [quota_of("1").with("notices_percent", percents)] });
        let answer = app.put("/v1/admin/plans/plan", plan).await;
        assert_eq!(answer.pointers(), [format!("/quotas/0/notices_percent/{pointer}")], "{answer:?}");
    }
    app.finish().await;
}
