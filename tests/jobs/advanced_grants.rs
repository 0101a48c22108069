//! Grants that go on are at the gate from the end of a period on: it need not be closed for that.

use serde_json::json;

use super::continued_grants::{
    BOOKS, CONTINUED, app, ended, granted, on, pair, remaining, run, until, used, uses_all, voided, with,
};
use crate::http::statements::{amounts, draft, price};
use crate::ledger::rows;
use crate::support::app::*;

const ADVANCES: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, amount::float8 AS a \
    FROM grant_advances ORDER BY period_start, grant_id";
/// March has ended, and is not closed.
const IN_GRACE: &str = "2026-04-01T00:10:00Z";
const CLOSED: &str = "2026-04-01T01:00:00Z";

/// Nothing is included: all that there is was granted.
async fn only_granted() -> TestApp {
    with(quota_of("0")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_call_of_the_next_period_finds_what_is_left_of_it_though_no_job_has_run() {
    let app = only_granted().await;
    let id = granted(&app, "a", until("2026-12-01T00:00:00Z", "100")).await;
    used(&app, "march", "40").await;
    app.move_clock(IN_GRACE).await;
    used(&app, "april", "10").await;
    assert_eq!(rows(&app.database, ADVANCES).await, ["04 60"]);
    assert_eq!(rows(&app.database, BOOKS).await, ["03 100 0 60 40 0 0 0", "04 0 0 -10 10 0 0 0"]);
    let quota = app.quota().await;
    let left = json!([{ "id": id, "remaining": "50", "expires_at": "2026-12-01T00:00:00Z", "priority": 60 }]);
    assert_eq!(quota.body["quotas"][0]["grants"], left);
    let figures =
        ["granted", "rolled_in", "remaining"].map(|field| quota.text(&format!("/quotas/0/{field}")));
    assert_eq!(figures, ["60", "0", "50"]);
    assert_eq!(app.use_pages("beyond", "51").await.status, 429);
    on(&app, CLOSED).await;
    assert_eq!(rows(&app.database, ADVANCES).await, [""; 0]);
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 60 60"]);
    uses_all(&app, "50").await;
    on(&app, "2026-05-10T12:00:00Z").await;
    assert_eq!(rows(&app.database, BOOKS).await[1], "04 0 60 0 60 0 0 0", "nothing was used beyond it");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_threshold_is_reached_and_no_overage_priced_by_using_it_before_the_close() {
    let app = only_granted().await;
    let beyond = price(json!({ "model": "per_unit", "unit": "1", "charge_on": "overage" }));
    app.define("plans/plan", json!({ "quotas": [quota_of("0")], "prices": [beyond] })).await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "100")).await;
    used(&app, "march", "10").await;
    app.move_clock(IN_GRACE).await;
    used(&app, "april", "30").await;
    app.app().ledger.raise_quota_notices(app.clock.now_ms(), 10).await.unwrap();
    let april = "SELECT percent FROM quota_notices WHERE period_start >= '2026-04-01'";
    assert_eq!(rows(&app.database, april).await, [""; 0]);
    assert_eq!(amounts(&draft(&app).await), ["0.00"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_in_the_period_before_counts_as_used_until_the_close_knows_better() {
    let app = only_granted().await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "100")).await;
    app.move_clock("2026-03-31T23:30:00Z").await;
    used(&app, "march", "40").await;
    let id = app.held(pages("25").lasting(86_400)).await;
    app.move_clock(IN_GRACE).await;
    used(&app, "early", "1").await;
    assert_eq!(app.use_pages("too much", "35").await.status, 429);
    run(&app).await;
    assert_eq!(remaining(&app).await, "34");
    app.consume(&id, "5").await.expect(200);
    used(&app, "april", "34").await;
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    on(&app, CLOSED).await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 55 55"]);
    uses_all(&app, "20").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_grace_uses_beyond_its_hold_is_overage_of_the_next_period_where_that_has_used_it_already() {
    let app = only_granted().await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "100")).await;
    app.move_clock("2026-03-31T23:30:00Z").await;
    let id = app.held(pages("10").lasting(86_400)).await;
    app.move_clock(IN_GRACE).await;
    used(&app, "april", "90").await;
    app.consume(&id, "30").await.expect(200);
    on(&app, CLOSED).await;
    assert_eq!(rows(&app.database, BOOKS).await, ["03 100 0 0 30 70 0 0", "04 0 70 -20 90 0 0 0"]);
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_void_in_the_grace_takes_it_back_at_once() {
    let app = only_granted().await;
    let id = granted(&app, "a", until("2026-12-01T00:00:00Z", "100")).await;
    used(&app, "march", "40").await;
    app.move_clock(IN_GRACE).await;
    used(&app, "april", "10").await;
    voided(&app, &id).await.expect(200);
    assert_eq!(app.use_pages("more", "1").await.status, 503, "what is unburnt is not known before the close");
    on(&app, CLOSED).await;
    assert_eq!(ended(&app, &id).await, pair("voided", "50"));
    assert_eq!(app.use_pages("again", "1").await.status, 429);
    assert_eq!(rows(&app.database, BOOKS).await, ["03 100 0 0 40 60 0 0", "04 0 60 0 10 0 0 50"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_void_from_before_the_period_s_end_takes_its_advance_back_however_late_it_is_stored() {
    let app = only_granted().await;
    let id = granted(&app, "a", until("2026-12-01T00:00:00Z", "100")).await;
    used(&app, "march", "40").await;
    app.move_clock("2026-03-31T23:59:59Z").await;
    let asked_at_ms = app.clock.now_ms();
    app.move_clock(IN_GRACE).await;
    used(&app, "april", "10").await;
    app.app().ledger.void_grant(id.parse().unwrap(), asked_at_ms, "somebody").await.unwrap();
    run(&app).await;
    assert_eq!(ended(&app, &id).await, pair("voided", "60"));
    assert_eq!(rows(&app.database, ADVANCES).await, [""; 0]);
    assert_ne!(app.use_pages("more", "1").await.status, 201);
    on(&app, CLOSED).await;
    assert_eq!(app.use_pages("more", "1").await.status, 402);
    assert_eq!(rows(&app.database, BOOKS).await, ["03 100 0 0 40 0 0 60", "04 0 0 -10 10 0 0 0"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_grant_of_which_nothing_is_left_leaves_nothing_to_ask() {
    let app = app().await;
    let id = granted(&app, "a", until("2026-12-01T00:00:00Z", "10")).await;
    used(&app, "march", "60").await;
    app.move_clock(IN_GRACE).await;
    used(&app, "april", "10").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ADVANCES).await, ["04 0"]);
    voided(&app, &id).await.expect(200);
    used(&app, "all", "40").await;
    assert_eq!(app.use_pages("more", "1").await.status, 429, "it is no bound");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_there_again_after_redis_has_lost_its_memory_and_with_another_grant() {
    let app = only_granted().await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "100")).await;
    used(&app, "march", "40").await;
    app.move_clock(IN_GRACE).await;
    used(&app, "april", "10").await;
    app.redis.flush().await;
    used(&app, "lost", "20").await;
    granted(&app, "b", until("2026-12-01T00:00:00Z", "5")).await;
    assert_eq!(remaining(&app).await, "35");
    app.redis.flush().await;
    assert_eq!(app.use_pages("more", "36").await.status, 429);
    on(&app, CLOSED).await;
    uses_all(&app, "35").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_an_earlier_period_is_not_closed_either_it_comes_with_the_closes() {
    let app = app().await;
    granted(&app, "a", until("2026-12-01T00:00:00Z", "30")).await;
    used(&app, "march", "60").await;
    app.move_clock("2026-04-10T12:00:00Z").await;
    used(&app, "april", "50").await;
    app.move_clock("2026-05-01T00:10:00Z").await;
    used(&app, "may", "50").await;
    assert_eq!(app.use_pages("more", "1").await.status, 429);
    run(&app).await;
    assert_eq!(rows(&app.database, ADVANCES).await, ["05 20"], "March is closed now");
    uses_all(&app, "20").await;
    on(&app, "2026-05-01T01:00:00Z").await;
    assert_eq!(rows(&app.database, CONTINUED).await, ["04 20 20", "05 20 20"]);
    assert_eq!(app.use_pages("still", "1").await.status, 429);
    app.finish().await;
}
