use std::time::Duration;

use serde_json::json;
use tollgate::domain::ids::ReservationId;
use tollgate::domain::reservation::ReservationState;

use super::continued_grants::{self, granted, on, remaining, run, until};
use super::statements::faults;
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

/// A tenant with a quota of fifty pages a month, in UTC, at this time.
async fn at(now: &str) -> TestApp {
    let app = an_app().at(now).with("postgres.checkout_timeout_ms", "2000").start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app
}

async fn use_pages(app: &TestApp, key: &str, amount: &str) -> u16 {
    app.use_pages(key, amount).await.status
}

const DELIVERED: &str =
    "SELECT period_start AT TIME ZONE 'UTC' AS at FROM quota_periods WHERE delivered_at IS NOT NULL";

async fn delivered(app: &TestApp) {
    wait_for("the next period is delivered", Duration::from_secs(30), async || {
        (rows(&app.database, DELIVERED).await == ["2026-04-01T00:00:00"]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_turn_of_a_month_needs_no_ledger() {
    let app = at("2026-03-30T20:00:00Z").await;
    assert_eq!(use_pages(&app, "a", "45").await, 201);
    let hold = pages("5").lasting(5400);
    app.move_clock("2026-03-31T23:00:00Z").await;
    let id = app.held(hold).await;
    delivered(&app).await;
    app.drained().await;
    assert_eq!(use_pages(&app, "b", "1").await, 429, "the period that is still on has nothing left");

    // With the filters of a day ago each key would be asked of the ledger.
    app.app().operations.memory.key_filters.seal_keys(Duration::from_secs(30)).await.unwrap();
    app.database.close().await;
    app.move_clock("2026-04-01T00:45:00Z").await;
    assert_eq!(use_pages(&app, "c", "30").await, 201);
    assert_eq!(use_pages(&app, "d", "20").await, 201);
    assert_eq!(use_pages(&app, "e", "1").await, 429, "the new period has fifty and no more");
    let id = app.app().operations.calls.parse_reservation_id(&id).unwrap();
    wait_for("the sweep goes on without the ledger", Duration::from_secs(30), async || {
        let found =
            app.app().gate.peek_record(ReservationId::from_bytes(*id.as_bytes()), None, None).await.ok()?;
        (found.record?.head.state == ReservationState::Expired).then_some(())
    })
    .await;
    app.database.open().await;
    app.drained().await;

    let granted = "SELECT period_start AT TIME ZONE 'UTC' AS at, granted::float8 AS g, consumed::float8 AS c, reserved::float8 AS r FROM balances ORDER BY 1";
    assert_eq!(
        rows(&app.database, granted).await,
        ["2026-03-01T00:00:00 50 45 0", "2026-04-01T00:00:00 50 50 0"]
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_restored_on_the_last_day_gets_both_periods() {
    let app = at("2026-03-31T12:00:00Z").await;
    assert_eq!(use_pages(&app, "a", "10").await, 201);
    app.move_clock("2026-03-31T12:06:00Z").await;
    delivered(&app).await;
    app.drained().await;
    app.redis.flush().await;
    let quota = app.quota().await;
    assert_eq!(
        (quota.text("/quotas/0/remaining"), quota.text("/quotas/0/granted")),
        ("40", "50"),
        "{quota:?}"
    );
    app.database.close().await;
    app.move_clock("2026-04-01T00:00:00Z").await;
    // Without a key: keyed calls ask the ledger for a day after a loss.
    let hold = |amount: &str| pages(amount);
    app.post(RESERVATIONS, hold("50")).await.expect(201);
    app.post(RESERVATIONS, hold("1")).await.expect(429);
    app.database.open().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_is_opened_once_whether_ahead_or_at_its_first_use() {
    let app = at("2026-03-31T12:00:00Z").await;
    assert_eq!(use_pages(&app, "a", "10").await, 201);
    let operations = &app.app().operations;
    let runs = futures::future::join_all((0..4).map(|_| operations.memory.open_next_periods())).await;
    assert!(runs.iter().all(Result::is_ok), "{runs:?}");
    delivered(&app).await;
    app.move_clock("2026-04-01T00:00:00Z").await;
    assert_eq!(use_pages(&app, "b", "10").await, 201);
    app.drained().await;
    let grants = "SELECT count(*) AS n, sum(amount)::float8 AS a FROM entries WHERE class = 'grant'";
    assert_eq!(rows(&app.database, grants).await, ["2 100"]);
    app.finish().await;
}

const GRANTED: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, granted::float8 AS g \
    FROM balances ORDER BY period_start";

/// Runs the job; returns how many periods it has opened.
async fn opened(app: &TestApp) -> u64 {
    app.app().operations.memory.open_next_periods().await.unwrap().opened
}

/// A tenant with a quota of fifty pages and ten more that recur, in March, where no job runs by itself.
async fn with_what_recurs() -> TestApp {
    let app = continued_grants::app().await;
    granted(&app, "a", until("2027-01-01T00:00:00Z", "10").with("recurrence", "period")).await;
    app
}

#[tokio::test(flavor = "multi_thread")]
async fn what_recurs_is_given_again_without_use_once_its_tenant_is_no_longer_archived() {
    let app = with_what_recurs().await;
    app.define("tenants/acme", json!({ "plan": "plan", "archived": true })).await;
    on(&app, "2026-05-10T12:00:00Z").await;
    assert_eq!(opened(&app).await, 0, "its tenant is archived");
    assert_eq!(rows(&app.database, GRANTED).await, ["03 60"]);
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    let due = app.app().operations.memory.next_periods_due().await.unwrap();
    assert_eq!((due.opened, opened(&app).await, opened(&app).await), (1, 1, 0), "once");
    assert_eq!(rows(&app.database, GRANTED).await, ["03 60", "05 60"]);
    assert_eq!(remaining(&app).await, "60");
    on(&app, "2026-06-10T12:00:00Z").await;
    assert_eq!(rows(&app.database, GRANTED).await, ["03 60", "05 60", "06 60"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

/// Of how many quotas with a recurring grant in force no period is open at an instant.
async fn to_open(app: &TestApp, instant: &str) -> usize {
    let at_ms = instant.parse::<jiff::Timestamp>().unwrap().as_millisecond();
    app.app().ledger.quotas_to_open(at_ms, None, 10).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_recurs_opens_no_period_that_was_on_before_it_was_given() {
    let app = with_what_recurs().await;
    let (before, on, after) = ("2026-02-10T12:00:00Z", "2026-03-10T12:00:00Z", "2026-04-10T12:00:00Z");
    assert_eq!([to_open(&app, before).await, to_open(&app, on).await, to_open(&app, after).await], [0, 0, 1]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_recurs_opens_no_period_that_is_closed_while_it_is_on() {
    let app = with_what_recurs().await;
    // As where a wrong clock has closed it, and the period itself is gone.
    let closed = "INSERT INTO period_closures (tenant, meter, period_start, period_end, closed_at, lapsed, overage) \
        VALUES ('acme', 'page', '2026-04-01Z', '2026-05-01Z', '2026-05-01 01:00Z', 0, 0)";
    as_owner(&app.database, closed).await.unwrap();
    let (on, after) = ("2026-04-10T12:00:00Z", "2026-05-10T12:00:00Z");
    assert_eq!([to_open(&app, on).await, to_open(&app, after).await], [0, 1]);
    as_owner(&app.database, "DELETE FROM period_closures").await.unwrap();
    assert_eq!(to_open(&app, on).await, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_runs_that_open_the_same_period_one_has_opened_it() {
    let app = with_what_recurs().await;
    app.move_clock("2026-05-10T12:00:00Z").await;
    let (client, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    // Both list the quota before either opens its period.
    client.batch_execute("BEGIN; SELECT FROM tenants FOR UPDATE").await.unwrap();
    let both_wait = async {
        let waiting = "SELECT count(*) FROM pg_stat_activity \
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        wait_for("both runs wait for the tenant", Duration::from_secs(30), async || {
            (rows(&app.database, waiting).await == ["2"]).then_some(())
        })
        .await;
        client.batch_execute("ROLLBACK").await.unwrap();
    };
    let (one, other, ()) = tokio::join!(opened(&app), opened(&app), both_wait);
    assert_eq!(one + other, 1);
    assert_eq!(rows(&app.database, GRANTED).await, ["03 60", "05 60"]);
    run(&app).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_jobs_come_late_what_recurs_is_given_now_and_in_each_month_before_by_its_close() {
    let app = with_what_recurs().await;
    app.move_clock("2026-06-10T12:00:00Z").await;
    assert_eq!(opened(&app).await, 1);
    assert_eq!(rows(&app.database, GRANTED).await, ["03 60", "06 60"]);
    run(&app).await;
    assert_eq!(rows(&app.database, GRANTED).await, ["03 60", "04 60", "05 60", "06 60"]);
    assert_eq!((opened(&app).await, remaining(&app).await.as_str()), (0, "60"));
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}
