//! The gate frozen, killed or emptied under a running service: the calls that are taken meanwhile, and the gate's state
//! afterwards.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tollgate::domain::amount::Amount;
use tollgate::domain::parked::ParkedCall;
use tollgate::domain::resolution::Totals;
use tollgate::ledger::{VerifyOptions, verify};

use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// An instance that gives a silent gate up after a second.
pub(super) fn impatient() -> AppOptions {
    an_app().with("redis.response_timeout_ms", 1000)
}

async fn app() -> TestApp {
    impatient().start().await
}

/// Tenant `acme` under one limit a day, which says this of a gate that is away.
pub(super) async fn limited(app: &TestApp, on_gate_failure: &str, quotas: Value) {
    let day = json!({ "id": "day", "meter": "page", "window": "day", "capacity": "100", "on_gate_failure": on_gate_failure });
    app.with_plan(json!([day]), quotas).await;
}

/// So many pages, held for an hour.
pub(super) fn long(amount: &str) -> Value {
    pages(amount).lasting(3600)
}

pub(super) async fn hold(app: &TestApp, amount: &str) -> String {
    app.held(long(amount)).await
}

/// Waits until the gate has every parked call.
pub(super) async fn replayed(app: &TestApp) {
    wait_for("parked calls reach the gate", PATIENCE, async || {
        (app.app().ledger.count_parked().await.unwrap().waiting == 0).then_some(())
    })
    .await;
}

/// Consumed and reserved of the limit `day`, as the gate has them.
pub(super) async fn counted(app: &TestApp) -> [String; 2] {
    let quota = wait_for("the gate answers", PATIENCE, async || {
        let quota = app.get("/v1/tenants/acme/quota").await;
        (quota.status == 200 && quota.body["source"] == "gate").then_some(quota)
    })
    .await;
    ["consumed", "reserved"].map(|field| quota.text(&format!("/limits/0/{field}")).to_owned())
}

/// Parks a final consume of a booked reservation, as an instance would that cannot reach the gate.
pub(super) async fn park_consume(app: &TestApp, id: &str, amount: &str) {
    let totals = Totals::Single(Amount::parse(amount).unwrap());
    let payload = ParkedCall::Consume { totals, is_final: true }.encode();
    let payload: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
    let insert = format!(
        "INSERT INTO parked (tenant, partition, reservation_id, call, taken_at, payload) \
         SELECT tenant, partition, id, 'consume', now(), decode('{payload}', 'hex') FROM reservations WHERE id = '{id}'"
    );
    as_owner(&app.database, &insert).await.unwrap();
}

pub(super) fn both(consumed: &str, reserved: &str) -> [String; 2] {
    [consumed.to_owned(), reserved.to_owned()]
}

pub(super) fn said(answer: &Answered) -> (u16, &str, bool, bool) {
    let flag = |name: &str| answer.body[name].as_bool().unwrap_or_default();
    (answer.status, answer.text("/status"), flag("replayed"), flag("degraded"))
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_gate_is_frozen_known_reservations_are_consumed_and_released_and_nothing_counts_twice() {
    let app = app().await;
    limited(&app, "deny", json!([quota_of("90")])).await;
    let (one, two, three) = (hold(&app, "10").await, hold(&app, "20").await, hold(&app, "5").await);
    app.drained().await;

    let frozen = app.redis.freeze();
    let consumed = app.resolve(&one, "consume", json!({ "amount": "4", "ack": "ledger" })).await;
    assert_eq!(said(&consumed), (200, "consumed", false, true), "{consumed:?}");
    assert_eq!((consumed.text("/ack"), consumed.text("/lines/0/returned")), ("ledger", "6"));
    let again = app.consume(&one, "4").await;
    assert_eq!(said(&again), (200, "consumed", true, true), "{again:?}");
    app.consume(&one, "5").await.is_problem(409, "already_resolved");
    app.release(&one).await.is_problem(409, "already_resolved");
    let released = app.resolve(&two, "release", json!({ "incurred": "3" })).await;
    assert_eq!(said(&released), (200, "released", false, true), "{released:?}");
    let part = app.resolve(&three, "consume", json!({ "amount": "2", "final": false })).await;
    assert_eq!(said(&part), (200, "reserved", false, true), "{part:?}");
    app.consume(&three, "1").await.is_problem(422, "amount_decreased");
    app.resolve(&three, "extend", json!({})).await.is_problem(503, "gate_unavailable");
    let read = app.read(&one).await;
    assert_eq!((read.text("/status"), read.text("/lines/0/consumed")), ("consumed", "4"), "{read:?}");
    app.post(RESERVATIONS, long("1")).await.is_problem(503, "gate_unavailable");
    drop(frozen);

    replayed(&app).await;
    assert_eq!(counted(&app).await, both("9", "3"));
    let again = app.resolve(&one, "consume", json!({ "amount": "4", "ack": "ledger" })).await;
    assert_eq!(said(&again), (200, "consumed", true, true), "{again:?}");
    let rest = app.consume(&three, "5").await;
    assert_eq!(said(&rest), (200, "consumed", false, true), "{rest:?}");
    assert_eq!(counted(&app).await, both("12", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_its_limits_allow_goes_on_while_the_gate_is_killed_and_is_counted_once() {
    let mut app = app().await;
    limited(&app, "allow", json!([])).await;
    app.redis.kill9().unwrap();

    let first = app.post_keyed(RESERVATIONS, "job", long("30")).await;
    assert_eq!(said(&first), (201, "reserved", false, true), "{first:?}");
    assert_ne!(first.text("/expires_at"), "");
    let id = first.text("/id").to_owned();
    let again = app.post_keyed(RESERVATIONS, "job", long("30")).await;
    assert_eq!((said(&again), again.text("/id")), ((200, "reserved", true, true), id.as_str()), "{again:?}");
    app.post_keyed(RESERVATIONS, "job", long("31")).await.is_problem(422, "idempotency_key_reused");
    let beyond = app.post_keyed(USAGE, "much", pages("90")).await;
    assert_eq!(said(&beyond), (201, "consumed", false, true), "{beyond:?}");
    let again = app.post_keyed(USAGE, "much", pages("90")).await;
    assert_eq!(said(&again), (200, "consumed", true, true), "{again:?}");
    let mut best = long("7");
    best["mode"] = json!("best_effort");
    let best = app.post_keyed(RESERVATIONS, "best", best).await.expect(201);
    assert_eq!(best.text("/lines/0/amount"), "7");
    let mut dry = long("1");
    dry["dry_run"] = json!(true);
    app.post(RESERVATIONS, dry).await.is_problem(503, "gate_unavailable");
    let part = app.resolve(&id, "consume", json!({ "amount": "10", "final": false })).await;
    assert_eq!(said(&part), (200, "reserved", false, true), "{part:?}");
    let all = app.resolve(&id, "consume", json!({ "amount": "12", "ack": "ledger" })).await;
    assert_eq!(said(&all), (200, "consumed", false, true), "{all:?}");
    let now = app.post_keyed(RESERVATIONS, "job", long("30")).await;
    assert_eq!(said(&now), (200, "consumed", true, true), "{now:?}");
    let read = app.read(&id).await.expect(200);
    assert_eq!((read.text("/status"), &read.body["degraded"]), ("consumed", &json!(true)));

    app.redis.restart().unwrap();
    // A call of the tenant lets parked calls go first.
    let now = wait_for("the gate answers", PATIENCE, async || {
        let now = app.post_keyed(RESERVATIONS, "job", long("30")).await;
        (now.status == 200 && app.app().ledger.count_parked().await.unwrap().waiting == 0).then_some(now)
    })
    .await;
    assert_eq!(said(&now), (200, "consumed", true, true), "{now:?}");
    assert_eq!(counted(&app).await, both("102", "7"));
    app.post(RESERVATIONS, long("1")).await.is_problem(429, "quota_exceeded");
    app.drained().await;
    let entries = app.get(&format!("/v1/tenants/acme/entries?reservation={id}")).await.expect(200);
    let rows = entries.body["data"].as_array().unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["flags"] == json!(["degraded"])), "{entries:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_or_a_quota_that_denies_and_an_unknown_reservation_are_answered_with_503() {
    let mut app = app().await;
    let limit = |id: &str, on_gate_failure: &str| json!({ "id": id, "meter": "page", "window": "day", "capacity": "100", "on_gate_failure": on_gate_failure });
    app.with_plan(
        json!([limit("a", "allow"), limit("b", "deny")]),
        json!([{ "meter": "token", "included": "5" }]),
    )
    .await;
    let unknown = hold(&app, "1").await;
    app.drained().await;
    app.redis.kill9().unwrap();
    app.post(RESERVATIONS, long("1")).await.is_problem(503, "gate_unavailable");
    app.post_keyed(USAGE, "k", pages("1")).await.is_problem(503, "gate_unavailable");
    let token = json!({ "tenant": "acme", "meter": "token", "amount": "1" });
    app.post(RESERVATIONS, token).await.is_problem(503, "gate_unavailable");
    // What was never booked is known to the gate alone.
    as_owner(&app.database, "DELETE FROM reservations").await.unwrap();
    for verb in ["consume", "release", "extend"] {
        app.resolve(&unknown, verb, json!({})).await.is_problem(503, "gate_unavailable");
    }
    app.read(&unknown).await.is_problem(503, "gate_unavailable");
    assert_eq!(app.app().ledger.count_parked().await.unwrap().waiting, 0);
    app.leave_unbalanced("its reservations were deleted from the books");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redelivery_that_was_not_noted_as_done_is_repeated_without_effect() {
    let app = app().await;
    limited(&app, "allow", json!([])).await;
    let known = hold(&app, "10").await;
    app.drained().await;
    let frozen = app.redis.freeze();
    app.post_keyed(USAGE, "u", pages("5")).await.expect(201);
    let id = app.post_keyed(RESERVATIONS, "r", long("8")).await.expect(201).text("/id").to_owned();
    app.resolve(&id, "consume", json!({ "amount": "3", "final": false })).await.expect(200);
    app.consume(&id, "6").await.expect(200);
    app.resolve(&known, "release", json!({ "incurred": "1" })).await.expect(200);
    drop(frozen);
    replayed(&app).await;
    app.drained().await;
    assert_eq!(counted(&app).await, both("12", "0"));
    for _ in 0..2 {
        as_owner(&app.database, "UPDATE parked SET state = 'waiting', settled_at = NULL").await.unwrap();
        app.app().operations.outage.look_for_parked().await.unwrap();
        replayed(&app).await;
        assert_eq!(app.app().ledger.count_parked().await.unwrap().conflicts, 0);
        assert_eq!(counted(&app).await, both("12", "0"));
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_redeliver_at_once_and_everything_counts_once() {
    let mut app = app().await;
    limited(&app, "allow", json!([])).await;
    let other = app.another_instance().await;
    app.redis.kill9().unwrap();
    for number in 0..12 {
        let id = app.post_keyed(RESERVATIONS, &format!("r{number}"), long("2")).await.expect(201);
        app.resolve(id.text("/id"), "consume", json!({ "amount": "1" })).await.expect(200);
    }
    app.redis.restart().unwrap();
    other.operations.outage.look_for_parked().await.unwrap();
    wait_for("both have replayed", PATIENCE, async || {
        tokio::join!(
            app.app().operations.outage.redeliver_parked(),
            other.operations.outage.redeliver_parked()
        );
        (app.app().ledger.count_parked().await.unwrap().waiting == 0).then_some(())
    })
    .await;
    assert_eq!(app.app().ledger.count_parked().await.unwrap().conflicts, 0);
    assert_eq!(counted(&app).await, both("12", "0"));
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_taken_while_the_gate_was_away_reach_a_gate_that_came_back_empty() {
    let mut app = app().await;
    limited(&app, "allow", json!([])).await;
    let known = hold(&app, "10").await;
    app.post_keyed(USAGE, "before", pages("1")).await.expect(201);
    app.drained().await;
    app.redis.kill9().unwrap();
    app.consume(&known, "4").await.expect(200);
    let repeat = app.post_keyed(USAGE, "before", pages("1")).await;
    assert_eq!(said(&repeat), (200, "consumed", true, true), "the ledger's row knows it: {repeat:?}");
    app.post_keyed(USAGE, "during", pages("20")).await.expect(201);
    std::fs::remove_dir_all(app.redis.directory().join("appendonlydir")).unwrap();
    app.redis.restart().unwrap();
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("25", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_stays_parked_until_the_books_have_what_the_gate_did_with_it() {
    let mut app = impatient().without_writer().start().await;
    limited(&app, "allow", json!([])).await;
    app.redis.kill9().unwrap();
    app.post_keyed(USAGE, "u", pages("5")).await.expect(201);
    for _ in 0..2 {
        app.redis.restart().unwrap();
        wait_for("the gate has counted it", PATIENCE, async || {
            (counted(&app).await == both("5", "0")).then_some(())
        })
        .await;
        assert_eq!(app.app().ledger.count_parked().await.unwrap().waiting, 1);
        app.redis.kill9().unwrap();
        std::fs::remove_dir_all(app.redis.directory().join("appendonlydir")).unwrap();
    }
    app.leave_unbalanced("its Redis is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_consumed_in_time_is_charged_although_it_expired_before_the_gate_heard_of_it() {
    let app = impatient().at("2026-03-10T12:00:00Z").start().await;
    limited(&app, "allow", json!([])).await;
    let strict = json!({ "unit": "page", "without_limit": "unlimited", "on_late": "reject" });
    app.define("meters/page", strict).await;
    let body = pages("9").lasting(60);
    let known = app.held(body.clone()).await;
    app.drained().await;
    let frozen = app.redis.freeze();
    app.consume(&known, "4").await.expect(200);
    let new = app.post_keyed(RESERVATIONS, "new", body.clone()).await.expect(201).text("/id").to_owned();
    app.consume(&new, "5").await.expect(200);
    let left = app.post_keyed(RESERVATIONS, "left", body).await.expect(201).text("/id").to_owned();
    app.move_clock("2026-03-10T12:05:00Z").await;
    app.resolve(&left, "consume", json!({})).await.is_problem(503, "gate_unavailable");
    drop(frozen);
    replayed(&app).await;
    assert_eq!(app.app().ledger.count_parked().await.unwrap().conflicts, 0);
    // The sweep may have been there before the hold was: it comes again with the next stretch of time.
    app.move_clock("2026-03-10T12:05:10Z").await;
    wait_for("what nobody consumed has expired", PATIENCE, async || {
        (counted(&app).await == both("9", "0")).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_part_taken_while_the_gate_is_away_takes_larger_totals_then_and_afterwards() {
    let app = impatient().at("2026-03-10T12:00:00Z").start().await;
    limited(&app, "allow", json!([])).await;
    let body = pages("9").lasting(60);
    let id = app.held(body).await;
    app.move_clock("2026-03-10T12:05:00Z").await;
    wait_for("the hold expires", PATIENCE, async || (counted(&app).await == both("0", "0")).then_some(()))
        .await;
    app.drained().await;
    let part = async |total: &str| {
        let late = app.resolve(&id, "consume", json!({ "amount": total, "final": false })).await.expect(200);
        assert_eq!((late.text("/status"), &late.body["late"]), ("expired", &json!(true)), "{late:?}");
    };
    let frozen = app.redis.freeze();
    part("4").await;
    part("6").await;
    drop(frozen);
    replayed(&app).await;
    assert_eq!(app.app().ledger.count_parked().await.unwrap().conflicts, 0);
    assert_eq!(counted(&app).await, both("6", "0"));
    part("7").await;
    let closed = app.consume(&id, "8").await.expect(200);
    assert_eq!(closed.text("/status"), "consumed", "{closed:?}");
    assert_eq!(counted(&app).await, both("8", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn units_taken_while_the_gate_was_away_belong_to_the_month_in_which_they_were_taken() {
    let app = impatient().at("2026-03-31T21:59:00Z").start().await;
    limited(&app, "allow", json!([])).await;
    app.define("tenants/acme", json!({ "plan": "plan", "time_zone": "Europe/Berlin" })).await;
    app.post_keyed(USAGE, "before", pages("1")).await.expect(201);
    app.drained().await;
    let frozen = app.redis.freeze();
    app.post_keyed(USAGE, "march", pages("5")).await.expect(201);
    let id = app.post_keyed(RESERVATIONS, "r", long("8")).await.expect(201).text("/id").to_owned();
    app.move_clock("2026-03-31T22:01:00Z").await;
    app.consume(&id, "6").await.expect(200);
    app.post_keyed(USAGE, "april", pages("2")).await.expect(201);
    drop(frozen);
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("2", "0"));
    app.drained().await;
    let query = "SELECT (period_start AT TIME ZONE 'UTC')::date::text AS period, trunc(consumed)::text AS consumed \
                 FROM balances WHERE meter = 'page' ORDER BY 1";
    assert_eq!(rows(&app.database, query).await, ["2026-02-28 12", "2026-03-31 2"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_call_is_redelivered_as_it_was_taken_after_any_change_of_policy() {
    let app = app().await;
    limited(&app, "allow", json!([])).await;
    hold(&app, "1").await;
    let frozen = app.redis.freeze();
    let id = app.post_keyed(RESERVATIONS, "r", long("8")).await.expect(201).text("/id").to_owned();
    let week = json!({ "id": "day", "meter": "page", "window": "week", "capacity": "3" });
    app.define("plans/plan", json!({ "limits": [week] })).await;
    wait_for("the plan has changed", PATIENCE, async || {
        let answer = app.post(RESERVATIONS, long("1")).await;
        (answer.status == 503).then_some(())
    })
    .await;
    app.consume(&id, "6").await.expect(200);
    drop(frozen);
    replayed(&app).await;
    assert_eq!(app.app().ledger.count_parked().await.unwrap().conflicts, 0);
    let read = app.read(&id).await.expect(200);
    assert_eq!((read.text("/status"), read.text("/lines/0/consumed")), ("consumed", "6"));
    app.post(RESERVATIONS, long("1")).await.is_problem(429, "quota_exceeded");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_gate_and_ledger_away_nothing_is_taken() {
    let mut app = app().await;
    limited(&app, "allow", json!([])).await;
    let known = hold(&app, "1").await;
    app.drained().await;
    app.redis.kill9().unwrap();
    app.database.close().await;
    // Which of the two is named depends on whether the tenant's policy is still in memory.
    app.post_keyed(RESERVATIONS, "r", long("1")).await.expect(503);
    app.resolve(&known, "consume", json!({})).await.expect(503);
    app.database.open().await;
    app.redis.restart().unwrap();
    wait_for("both are back", PATIENCE, async || {
        (app.resolve(&known, "consume", json!({})).await.status == 200).then_some(())
    })
    .await;
    assert_eq!(counted(&app).await, both("1", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_gate_will_never_take_is_kept_and_reported() {
    let app = app().await;
    limited(&app, "allow", json!([])).await;
    let id = hold(&app, "10").await;
    app.consume(&id, "4").await.expect(200);
    app.drained().await;
    park_consume(&app, &id, "7").await;
    app.app().operations.outage.look_for_parked().await.unwrap();
    replayed(&app).await;
    assert_eq!(app.app().ledger.count_parked().await.unwrap().conflicts, 1);
    let metrics =
        app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tollgate_parked_conflicts_total 1"), "{metrics}");
    let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
    let warned = report.checks.iter().flat_map(|check| &check.warnings);
    assert!(warned.into_iter().any(|warning| warning.detail.contains("already consumed")), "{report:?}");
    let used = app.call(Method::GET, &format!("/v1/reservations/{id}"), Value::Null).await;
    assert_eq!(used.text("/lines/0/consumed"), "4");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_admitted_while_the_gate_was_away_has_its_slot_until_it_ends() {
    let mut app = app().await;
    let slots = json!({
        "id": "slots", "meter": "page", "algorithm": "concurrency", "counts": "reservations", "capacity": "3",
        "on_gate_failure": "allow",
    });
    app.with_plan(json!([slots]), json!([])).await;
    let [known, ended] = [hold(&app, "5").await, hold(&app, "5").await];
    app.drained().await;
    app.redis.kill9().unwrap();
    app.consume(&ended, "4").await.expect(200);
    let taken = hold(&app, "20").await;
    app.redis.restart().unwrap();
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("0", "2"));
    hold(&app, "1").await;
    app.post(RESERVATIONS, long("1")).await.is_problem(429, "rate_limited");
    app.release(&taken).await.expect(200);
    app.consume(&known, "5").await.expect(200);
    assert_eq!(counted(&app).await, both("0", "1"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interval_refuses_nothing_while_the_gate_is_away_and_begins_with_the_next_call_that_the_gate_decides()
 {
    let mut app = app().await;
    limited(&app, "allow", json!([])).await;
    let costs = json!([{ "meter": "page", "base": "1" }]);
    app.define("operations/scan", json!({ "costs": costs, "min_interval_seconds": 86_400 })).await;
    let scan = json!({ "tenant": "acme", "subject": "ada", "operation": "scan", "ttl_seconds": 3600 });
    app.redis.kill9().unwrap();
    for key in ["first", "second"] {
        let admitted = app.post_keyed(RESERVATIONS, key, scan.clone()).await;
        assert_eq!(said(&admitted), (201, "reserved", false, true), "{admitted:?}");
    }
    app.redis.restart().unwrap();
    replayed(&app).await;
    assert_eq!(counted(&app).await, ["0", "2"]);
    app.post_keyed(RESERVATIONS, "third", scan.clone()).await.expect(201);
    app.post(RESERVATIONS, scan).await.is_problem(429, "rate_limited");
    app.finish().await;
}
