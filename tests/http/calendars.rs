//! A tenant's zone and anchor day change at the end of its open period, on a test clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::domain::amount::Decimals;
use tollgate::domain::checkpoint::ReconciliationState;
use tollgate::domain::ids::{MeterId, TenantId};
use tollgate::ledger::QuotaPeriod;

use crate::ledger::events::including;
use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

const TENANT: &str = "/v1/admin/tenants/acme";
const PERIODS: &str = "SELECT period_start AT TIME ZONE 'UTC' AS s, period_end AT TIME ZONE 'UTC' AS e FROM quota_periods ORDER BY 1";
const BALANCES: &str = "SELECT period_start AT TIME ZONE 'UTC' AS s, period_end AT TIME ZONE 'UTC' AS e FROM balances ORDER BY 1";

/// A tenant in UTC at this time, with a limit for every window and a quota; nothing runs by itself.
async fn in_utc_at(now: &str) -> TestApp {
    let app = an_app().at(now).without_jobs().start().await;
    app.with_plan(limits(), json!([quota_of("50")])).await;
    app
}

fn limits() -> Value {
    let limit = |window: &str| json!({ "id": window, "meter": "page", "window": window, "capacity": "1000", "class": "quota" });
    ["hour", "day", "week", "month"].map(limit).into_iter().collect()
}

async fn use_pages(app: &TestApp, amount: &str) -> u16 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let key = NEXT.fetch_add(1, Ordering::SeqCst).to_string();
    let answer = app.use_pages(&key, amount).await;
    assert!(matches!(answer.status, 201 | 429), "{answer:?}");
    answer.status
}

async fn change(app: &TestApp, zone: &str, anchor_day: u8) -> Value {
    app.put(TENANT, json!({ "plan": "plan", "time_zone": zone, "anchor_day": anchor_day })).await.body
}

/// The period's start and end, what is consumed of the quota, and each window's end with what is consumed in it.
async fn standing(app: &TestApp) -> (String, String, String, Vec<(String, String)>) {
    let quota = app.quota().await;
    assert_eq!(quota.text("/source"), "gate", "{quota:?}");
    let of = |id: &str| {
        let limits = quota.body["limits"].as_array().unwrap();
        let limit = limits.iter().find(|limit| limit["id"] == id).unwrap();
        (limit["resets_at"].as_str().unwrap().to_owned(), limit["consumed"].as_str().unwrap().to_owned())
    };
    let windows = ["hour", "day", "week", "month"].map(of).to_vec();
    let text = |pointer| quota.text(pointer).to_owned();
    (text("/period/start"), text("/period/end"), text("/quotas/0/consumed"), windows)
}

/// Compares the tenant's counters with the books.
async fn compare(app: &TestApp) {
    let acme: TenantId = "acme".parse().unwrap();
    let taken =
        app.app().operations.reconcile.take_checkpoint(&acme).await.unwrap().expect("counters to compare");
    let judged = wait_for("the checkpoint is judged", Duration::from_secs(30), async || {
        app.app().ledger.reconciliation(&acme, taken.id, taken.place).await.unwrap()
    })
    .await;
    assert_eq!(judged.state, ReconciliationState::Clean, "{judged:?}");
}

fn ends(windows: &[(String, String)]) -> Vec<&str> {
    windows.iter().map(|(end, _)| end.as_str()).collect()
}

fn consumed(windows: &[(String, String)]) -> Vec<&str> {
    windows.iter().map(|(_, consumed)| consumed.as_str()).collect()
}

#[rstest::rstest]
#[case::east("Europe/Berlin", 1, "2026-04-30T22:00:00Z", ["2026-04-01T01:00:00Z", "2026-04-01T22:00:00Z", "2026-04-05T22:00:00Z", "2026-04-30T22:00:00Z"])]
#[case::west("America/New_York", 1, "2026-04-01T04:00:00Z", ["2026-04-01T01:00:00Z", "2026-04-01T04:00:00Z", "2026-04-06T04:00:00Z", "2026-04-01T04:00:00Z"])]
#[case::half_an_hour("Asia/Kolkata", 15, "2026-04-14T18:30:00Z", ["2026-04-01T00:30:00Z", "2026-04-01T18:30:00Z", "2026-04-05T18:30:00Z", "2026-04-30T18:30:00Z"])]
#[case::to_the_10th("UTC", 10, "2026-04-10T00:00:00Z", ["2026-04-01T01:00:00Z", "2026-04-02T00:00:00Z", "2026-04-06T00:00:00Z", "2026-05-01T00:00:00Z"])]
#[case::to_the_31st("UTC", 31, "2026-04-30T00:00:00Z", ["2026-04-01T01:00:00Z", "2026-04-02T00:00:00Z", "2026-04-06T00:00:00Z", "2026-05-01T00:00:00Z"])]
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_zone_or_anchor_takes_effect_at_the_end_of_the_open_period(
    #[case] zone: &str,
    #[case] anchor_day: u8,
    #[case] period_end: &str,
    #[case] first_ends: [&str; 4],
) {
    let app = in_utc_at("2026-03-31T12:00:00Z").await;
    assert_eq!(use_pages(&app, "20").await, 201);
    let hold = pages("9").lasting(86400);
    let held = app.held(hold).await;
    let before = standing(&app).await;
    let shown = change(&app, zone, anchor_day).await;
    assert_eq!((&shown["time_zone"], &shown["anchor_day"]), (&json!(zone), &json!(anchor_day)));
    assert_eq!(shown["calendars"][1]["from"], "2026-04-01T00:00:00Z", "{shown}");
    let (start, end, used, windows) = standing(&app).await;
    assert_eq!((&start, &end, &used), (&before.0, &before.1, &before.2), "nothing that is open has changed");
    assert_eq!(consumed(&windows), consumed(&before.3));
    assert_eq!(windows[2].0, "2026-04-01T00:00:00Z", "the week over the turn ends there");
    let before = (start, end, used, windows);
    assert_eq!(use_pages(&app, "22").await, 429, "nothing is granted again: 50 less 20 and 9 is 21");
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(standing(&app).await, before, "restored before the change holds");
    app.move_clock("2026-03-31T23:59:30Z").await;
    assert_eq!(use_pages(&app, "1").await, 201);

    app.move_clock("2026-04-01T00:00:00Z").await;
    let (start, end, used, windows) = standing(&app).await;
    assert_eq!((start.as_str(), end.as_str(), used.as_str()), ("2026-04-01T00:00:00Z", period_end, "0"));
    assert_eq!((ends(&windows), consumed(&windows)), (first_ends.to_vec(), vec!["0"; 4]));
    app.move_clock("2026-04-01T00:10:00Z").await;
    assert_eq!(use_pages(&app, "5").await, 201);
    app.consume(&held, "4").await.expect(200);
    app.move_clock("2026-04-01T00:40:00Z").await;
    assert_eq!(use_pages(&app, "45").await, 201, "the first period carries its included amount in full");
    assert_eq!(use_pages(&app, "1").await, 429);
    compare(&app).await;
    let after = standing(&app).await;
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(standing(&app).await, after, "restored after it holds");
    app.move_clock(period_end).await;
    let (start, _, used, _) = standing(&app).await;
    assert_eq!((start.as_str(), used.as_str()), (period_end, "0"));
    assert_eq!(use_pages(&app, "50").await, 201);
    app.drained().await;
    let period_end = period_end.trim_end_matches('Z');
    let (first, stub) =
        ("2026-03-01T00:00:00 2026-04-01T00:00:00", format!("2026-04-01T00:00:00 {period_end}"));
    for table in [PERIODS, BALANCES] {
        assert_eq!(rows(&app.database, table).await[..2], [first, &stub]);
    }
    assert!(app.get(TENANT).await.expect(200).body["calendars"].is_null(), "nothing is to come");
    app.finish().await;
}

#[rstest::rstest]
#[case::east("Europe/Berlin", "2026-02-28T23:00:00Z")]
#[case::west("America/New_York", "2026-03-01T05:00:00Z")]
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_has_booked_nothing_changes_at_once(#[case] zone: &str, #[case] start: &str) {
    let app = in_utc_at("2026-03-10T12:00:00Z").await;
    app.define("plans/plan", json!({ "limits": limits(), "quotas": [] })).await;
    // The gate knows its counters, and windows, from here on.
    app.quota().await;
    assert!(change(&app, zone, 1).await["calendars"].is_null());
    app.define(
        "plans/plan",
        json!({ "limits": limits(), "quotas": [{ "meter": "page", "included": "50" }] }),
    )
    .await;
    let (found, _, used, windows) = standing(&app).await;
    assert_eq!((found.as_str(), used.as_str(), consumed(&windows)), (start, "0", vec!["0"; 4]));
    assert_eq!(use_pages(&app, "20").await, 201);
    let (_, _, used, windows) = standing(&app).await;
    assert_eq!((used.as_str(), consumed(&windows)), ("20", vec!["20"; 4]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_leaves_the_zone_and_the_anchor_that_it_does_not_name() {
    let app = in_utc_at("2026-03-10T12:00:00Z").await;
    change(&app, "Europe/Berlin", 15).await;
    for body in [
        json!({ "plan": "plan" }),
        json!({ "plan": "plan", "anchor_day": 15 }),
        json!({ "plan": "plan", "time_zone": "Europe/Berlin" }),
    ] {
        let stored = app.put(TENANT, body).await.body;
        assert_eq!((&stored["time_zone"], &stored["anchor_day"]), (&json!("Europe/Berlin"), &json!(15)));
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_change_of_calendar_is_shown_and_can_be_changed_or_withdrawn() {
    let app = in_utc_at("2026-03-10T12:00:00Z").await;
    assert_eq!(use_pages(&app, "20").await, 201);
    change(&app, "Europe/Berlin", 15).await;
    let to_come = |from: &str, zone: &str, anchor_day: u8| {
        json!([
            { "time_zone": "UTC", "anchor_day": 1 },
            { "from": from, "time_zone": zone, "anchor_day": anchor_day }
        ])
    };
    let berlin = to_come("2026-04-01T00:00:00Z", "Europe/Berlin", 15);
    assert_eq!(app.get(TENANT).await.expect(200).body["calendars"], berlin);
    assert_eq!(app.get("/v1/admin/tenants").await.expect(200).body["data"][0]["calendars"], berlin);
    let shown = change(&app, "Asia/Tokyo", 1).await;
    assert_eq!(shown["calendars"], to_come("2026-04-01T00:00:00Z", "Asia/Tokyo", 1));
    assert!(change(&app, "UTC", 1).await["calendars"].is_null(), "withdrawn");
    // Too near to the turn for every instance to hear of it in time.
    app.move_clock("2026-03-31T23:59:30Z").await;
    let shown = change(&app, "Asia/Tokyo", 1).await;
    assert_eq!(shown["calendars"], to_come("2026-05-01T00:00:00Z", "Asia/Tokyo", 1));
    app.move_clock("2026-04-01T00:00:00Z").await;
    let (start, end, ..) = standing(&app).await;
    assert_eq!((start.as_str(), end.as_str()), ("2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z"));
    assert_eq!(use_pages(&app, "50").await, 201);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_that_is_opened_already_ends_where_the_last_change_before_it_says() {
    let app = in_utc_at("2026-03-31T12:00:00Z").await;
    assert_eq!(use_pages(&app, "20").await, 201);
    let operations = &app.app().operations;
    let ahead = operations.memory.open_next_periods().await.unwrap();
    assert_eq!((ahead.opened, ahead.delivered), (1, 1));
    change(&app, "UTC", 10).await;
    let ended = ["2026-03-01T00:00:00 2026-04-01T00:00:00", "2026-04-01T00:00:00 2026-04-10T00:00:00"];
    assert_eq!(rows(&app.database, PERIODS).await, ended);
    assert_eq!(rows(&app.database, BALANCES).await, ended);
    let again = operations.memory.open_next_periods().await.unwrap();
    assert_eq!((again.opened, again.delivered), (0, 1), "the gate is told again");

    app.move_clock("2026-04-01T00:00:00Z").await;
    assert_eq!(use_pages(&app, "50").await, 201);
    assert_eq!(use_pages(&app, "1").await, 429);
    app.move_clock("2026-04-10T00:00:00Z").await;
    assert_eq!(use_pages(&app, "50").await, 201);
    let (start, end, ..) = standing(&app).await;
    assert_eq!((start.as_str(), end.as_str()), ("2026-04-10T00:00:00Z", "2026-05-10T00:00:00Z"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_opened_by_an_older_calendar_ends_where_the_current_calendar_says() {
    let app = in_utc_at("2026-03-31T12:00:00Z").await;
    assert_eq!(use_pages(&app, "20").await, 201);
    change(&app, "UTC", 10).await;
    let ms = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let by_the_old = (ms("2026-04-01T00:00:00Z"), ms("2026-05-01T00:00:00Z"));
    let page = MeterId::parse("page").unwrap();
    let (decimals, terms) = (Decimals::new(0).unwrap(), including(50));
    let acme: TenantId = "acme".parse().unwrap();
    let version = &rows(&app.database, "SELECT version FROM tenants WHERE id = 'acme'").await[0];
    let period =
        QuotaPeriod { decimals, period_ms: by_the_old, terms, tenant_version: version.parse().unwrap() };
    let opened = app.app().ledger.open_quota_period(&acme, &page, &period).await.unwrap();
    assert_eq!(opened.capacity.until_ms, ms("2026-04-10T00:00:00Z"));
    for table in [PERIODS, BALANCES] {
        assert_eq!(rows(&app.database, table).await[1], "2026-04-01T00:00:00 2026-04-10T00:00:00");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_of_days_and_months_that_are_over_stays_as_it_was_after_a_change_of_zone() {
    let app = in_utc_at("2026-03-31T12:00:00Z").await;
    assert!(change(&app, "America/New_York", 1).await["calendars"].is_null());
    assert_eq!(use_pages(&app, "20").await, 201);
    // 23:30 in New York; half past five of the 1st of April in Berlin.
    app.move_clock("2026-04-01T03:30:00Z").await;
    assert_eq!(use_pages(&app, "3").await, 201);
    app.drained().await;
    let used = async |granularity: &str| -> Vec<String> {
        let path = format!("/v1/tenants/acme/usage?granularity={granularity}&from=2026-03-01T00:00:00Z");
        let answer = app.get(&path).await.expect(200).body;
        let rows = answer["data"].as_array().unwrap().iter();
        rows.map(|row| format!("{} {}", row["start"], row["consumed"]).replace('"', "")).collect()
    };
    let (march, last_day) = ("2026-03-01T05:00:00Z 23", "2026-03-31T04:00:00Z 23");
    assert_eq!((used("month").await, used("day").await), (vec![march.into()], vec![last_day.into()]));
    change(&app, "Europe/Berlin", 1).await;
    app.move_clock("2026-04-01T04:30:00Z").await;
    assert_eq!(use_pages(&app, "5").await, 201);
    app.drained().await;
    // April begins where New York's March has ended, as for limits and the quota.
    let april = "2026-04-01T04:00:00Z 5";
    assert_eq!(used("month").await, [april, march]);
    assert_eq!(used("day").await, [april, last_day]);
    assert_eq!(used("hour").await, [april, "2026-04-01T03:00:00Z 3", "2026-03-31T12:00:00Z 20"]);
    app.move_clock("2026-04-01T22:30:00Z").await;
    assert_eq!(use_pages(&app, "7").await, 201);
    app.drained().await;
    assert_eq!(used("day").await, ["2026-04-01T22:00:00Z 7", april, last_day]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_of_a_month_stays_one_where_only_the_anchor_day_changes() {
    let app = in_utc_at("2026-03-10T12:00:00Z").await;
    assert_eq!(use_pages(&app, "20").await, 201);
    change(&app, "UTC", 15).await;
    // The period of the old anchor day ends with March.
    app.move_clock("2026-04-10T12:00:00Z").await;
    assert_eq!(use_pages(&app, "3").await, 201);
    app.move_clock("2026-04-20T12:00:00Z").await;
    assert_eq!(use_pages(&app, "4").await, 201);
    change(&app, "UTC", 10).await;
    app.move_clock("2026-05-12T12:00:00Z").await;
    assert_eq!(use_pages(&app, "5").await, 201);
    app.move_clock("2026-05-18T12:00:00Z").await;
    assert_eq!(use_pages(&app, "6").await, 201);
    app.drained().await;
    let path = "/v1/tenants/acme/usage?granularity=month&from=2026-03-01T00:00:00Z";
    let answer = app.get(path).await.expect(200).body;
    let rows = answer["data"].as_array().unwrap().iter();
    let months: Vec<_> = rows.map(|row| (row["start"].as_str().unwrap(), &row["consumed"])).collect();
    let month = |start, consumed: &str| (start, json!(consumed));
    let expected = [
        month("2026-05-01T00:00:00Z", "11"),
        month("2026-04-01T00:00:00Z", "7"),
        month("2026-03-01T00:00:00Z", "20"),
    ];
    assert_eq!(months, expected.each_ref().map(|(start, consumed)| (*start, consumed)));
    app.finish().await;
}
