//! Redelivery: parked calls reach the gate whatever expired, filled up or lagged meanwhile, and no caller waits
//! for all of them.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use tollgate::clock::Clock;
use tollgate::domain::reservation::ReservationState;

use super::gate_away::{PATIENCE, both, counted, hold, impatient, limited, long, replayed, said};
use crate::ledger::as_owner;
use crate::support::app::*;
use crate::support::wait::wait_for;

fn on_test_clock() -> AppOptions {
    impatient().at("2026-03-10T12:00:00Z").without_jobs()
}

/// Sweeps until the gate has this reservation as expired.
async fn swept(app: &TestApp, id: &str) {
    let (gate, operations) = (&app.app().gate, &app.app().operations);
    let id = operations.calls.parse_reservation_id(id).unwrap();
    wait_for("the sweep has been there", PATIENCE, async || {
        operations.calls.expire_due(id.partition()).await.ok()?;
        let found = gate.peek_record(id, None, Some(app.clock.now_ms())).await.ok()?.record?;
        (found.head.state == ReservationState::Expired).then_some(())
    })
    .await;
}

/// Replays by hand until the gate has every parked call.
async fn replay(app: &TestApp) {
    wait_for("parked calls reach the gate", PATIENCE, async || {
        app.app().operations.outage.redeliver_parked().await;
        (app.app().ledger.count_parked().await.unwrap().waiting == 0).then_some(())
    })
    .await;
    assert_eq!(app.app().ledger.count_parked().await.unwrap().conflicts, 0);
}

async fn consumed(app: &TestApp, id: &str) -> [String; 3] {
    let read = app.read(id).await.expect(200);
    ["/status", "/lines/0/consumed", "/lines/1/consumed"].map(|field| read.text(field).to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_was_swept_before_its_parked_calls_came_is_charged_exactly_what_they_said() {
    let app = on_test_clock().start().await;
    limited(&app, "allow", json!([])).await;
    let strict = json!({ "unit": "page", "without_limit": "unlimited", "on_late": "reject" });
    app.define("meters/page", strict).await;
    let short = |lines| json!({ "tenant": "acme", "lines": lines, "ttl_seconds": 60 });
    let page = |amount| json!({ "meter": "page", "amount": amount });
    let reserve = async |lines| app.held(short(lines)).await;
    let finished = reserve(json!([page("10")])).await;
    let two = reserve(json!([page("6"), { "meter": "token", "amount": "4" }])).await;
    let given_up = reserve(json!([page("4")])).await;
    let untouched = reserve(json!([page("3")])).await;
    app.drained().await;

    let frozen = app.redis.freeze();
    let part = |amount| json!({ "amount": amount, "final": false });
    app.resolve(&finished, "consume", part("5")).await.expect(200);
    app.consume(&finished, "8").await.expect(200);
    app.resolve(&two, "consume", json!({ "lines": [page("5")], "final": false })).await.expect(200);
    app.resolve(&given_up, "consume", part("2")).await.expect(200);
    app.move_clock("2026-03-10T12:05:00Z").await;
    let released = app.release(&given_up).await;
    assert_eq!(said(&released), (200, "released", false, true), "{released:?}");
    app.resolve(&untouched, "release", json!({ "incurred": "1" })).await.is_problem(503, "gate_unavailable");
    drop(frozen);
    for id in [&finished, &two, &given_up, &untouched] {
        swept(&app, id).await;
    }
    replay(&app).await;
    let texts = |values: [&str; 3]| values.map(str::to_owned);
    assert_eq!(consumed(&app, &finished).await, texts(["consumed", "8", ""]));
    assert_eq!(consumed(&app, &two).await, texts(["expired", "5", "0"]), "nothing said that it was all");
    assert_eq!(consumed(&app, &given_up).await, texts(["consumed", "2", ""]));
    assert_eq!(counted(&app).await, both("15", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_total_reaches_a_gate_that_has_no_memory_left_for_the_partial_one_before_it() {
    let app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    let id = hold(&app, "10").await;
    app.drained().await;
    let mut redis = app.redis.connection().await;
    let mut memory = async |bytes: &str| {
        redis::cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec_async(&mut redis).await.unwrap();
    };
    memory("1").await;
    let part = app.resolve(&id, "consume", json!({ "amount": "5", "final": false })).await;
    assert_eq!(said(&part), (200, "reserved", false, true), "{part:?}");
    let all = app.consume(&id, "8").await;
    assert_eq!(said(&all), (200, "consumed", false, true), "{all:?}");
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("8", "0"));
    memory("0").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_a_gate_that_takes_no_writes_every_call_is_answered_as_its_limits_say() {
    let app = impatient().start().await;
    app.with_plan(
        json!([{ "id": "day", "meter": "page", "window": "day", "capacity": "1000", "on_gate_failure": "allow" }]),
        json!([]),
    )
    .await;
    let mut redis = app.redis.connection().await;
    let mut memory = async |bytes: &str| {
        redis::cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec_async(&mut redis).await.unwrap();
    };
    memory("1").await;
    wait_for("it is known to take no writes", PATIENCE, async || {
        (!app.app().gate.takes_writes()).then_some(())
    })
    .await;
    app.use_pages("first", 1).await.expect(201);
    let keys: Vec<_> = (0..150).map(|number| format!("one of many {number}")).collect();
    let answers = futures::future::join_all(keys.iter().map(|key| app.use_pages(key, 1))).await;
    for answer in answers {
        assert_eq!((answer.status, &answer.body["degraded"]), (201, &json!(true)), "{answer:?}");
    }
    memory("0").await;
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("151", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_books_have_is_settled_although_the_gate_lost_its_memory_since_and_nothing_happened_in_the_new()
 {
    let mut app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    let id = hold(&app, "10").await;
    app.drained().await;
    let frozen = app.redis.freeze();
    app.consume(&id, "4").await.expect(200);
    drop(frozen);
    app.drained().await;
    app.redis.kill9().unwrap();
    as_owner(&app.database, "UPDATE parked SET state = 'waiting', settled_at = NULL").await.unwrap();
    app.app().operations.outage.look_for_parked().await.unwrap();
    std::fs::remove_dir_all(app.redis.directory().join("appendonlydir")).unwrap();
    app.redis.restart().unwrap();
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("4", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_consume_is_charged_as_it_was_answered_although_the_gate_had_granted_less() {
    let app = impatient().without_writer().start().await;
    limited(&app, "allow", json!([])).await;
    hold(&app, "95").await;
    let mut best = long("8");
    best["mode"] = json!("best_effort");
    let granted = app.post_keyed(RESERVATIONS, "best", best.clone()).await.expect(201);
    assert_eq!(granted.text("/lines/0/amount"), "5");
    let frozen = app.redis.freeze();
    // The first attempt is not booked yet, as if its answer had been lost.
    let again = app.post_keyed(RESERVATIONS, "best", best).await.expect(201);
    assert_eq!(again.text("/lines/0/amount"), "8");
    let all = app.resolve(again.text("/id"), "consume", json!({})).await;
    assert_eq!((said(&all), all.text("/lines/0/consumed")), ((200, "consumed", false, true), "8"), "{all:?}");
    drop(frozen);
    wait_for("the gate has it", PATIENCE, async || (counted(&app).await == both("8", "95")).then_some(()))
        .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_calls_than_are_redelivered_at_once_all_reach_the_gate() {
    let mut app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    app.redis.kill9().unwrap();
    let keys: Vec<String> = (0..130).map(|number| format!("k{number}")).collect();
    let posted = keys.iter().map(|key| app.post_keyed(USAGE, key, pages("1")));
    for answer in join_all(posted).await {
        answer.expect(201);
    }
    app.redis.restart().unwrap();
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("130", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_starts_knows_of_every_tenant_whose_calls_wait() {
    let mut app = impatient().without_jobs().start().await;
    limited(&app, "allow", json!([])).await;
    let frozen = app.redis.freeze();
    app.post_keyed(USAGE, "away", pages("5")).await.expect(201);
    drop(frozen);
    let others = "INSERT INTO parked (tenant, partition, reservation_id, call, taken_at, payload, fingerprint) \
        SELECT format('a%s', 1000 + other), partition, reservation_id, call, taken_at, payload, fingerprint \
        FROM parked, generate_series(1, 1000) AS other";
    as_owner(&app.database, others).await.unwrap();
    app.restart().await;
    let next = app.post_keyed(USAGE, "next", pages("1")).await.expect(201);
    assert_eq!(next.text("/limits/0/consumed"), "6");
    as_owner(&app.database, "DELETE FROM parked WHERE tenant <> 'acme'").await.unwrap();
    replay(&app).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_call_of_a_day_that_a_clock_set_back_has_not_reached_waits_for_it_alone() {
    let mut app = impatient().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    limited(&app, "allow", json!([])).await;
    app.use_pages("before", 1).await.expect(201);
    let a_day_ahead = Clock::test(app.clock.now_ms() + 86_400_000);
    let behind = std::mem::replace(&mut app.clock, a_day_ahead);
    let ahead = app.another_instance().await;
    app.clock = behind;
    let frozen = app.redis.freeze();
    let tomorrow = app.caller().at(ahead.url()).post_keyed(USAGE, "tomorrow", pages("7")).await.expect(201);
    app.post_keyed(USAGE, "today", pages("3")).await.expect(201);
    drop(frozen);
    ahead.stop().await;
    counted(&app).await;
    let now = app.use_pages("now", 1).await.expect(201);
    assert_eq!(now.text("/limits/0/consumed"), "5", "what was parked today is counted before it");
    app.release(tomorrow.text("/id")).await.is_problem(503, "gate_unavailable");
    app.move_clock("2026-03-11T00:00:00Z").await;
    let next = app.use_pages("next", 1).await.expect(201);
    assert_eq!(
        next.text("/limits/0/consumed"),
        "8",
        "and what was parked tomorrow before the first call of its day"
    );
    replay(&app).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_books_are_behind_nobody_waits_for_them_once_calls_are_delivered() {
    let app = impatient().without_writer().start().await;
    limited(&app, "allow", json!([])).await;
    let frozen = app.redis.freeze();
    app.post_keyed(USAGE, "u", pages("5")).await.expect(201);
    drop(frozen);
    wait_for("the gate has counted it", PATIENCE, async || {
        (counted(&app).await == both("5", "0")).then_some(())
    })
    .await;
    let began = Instant::now();
    for _ in 0..5 {
        hold(&app, "1").await;
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(app.app().ledger.count_parked().await.unwrap().waiting, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_of_one_tenant_do_not_tie_another_to_the_ledger() {
    let app = impatient().with("gate.partitions", "1").without_jobs().on_own_postgres().start().await;
    limited(&app, "allow", json!([])).await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    let id = hold(&app, "10").await;
    let mut others = pages("5");
    others["tenant"] = json!("other");
    app.post_keyed(USAGE, "warm", others.clone()).await.expect(201);
    let frozen = app.redis.freeze();
    app.post_keyed(USAGE, "u", others).await.expect(201);
    drop(frozen);
    assert_eq!(counted(&app).await, both("0", "10"));
    let postgres = app.database.freeze();
    app.consume(&id, "4").await.expect(200);
    drop(postgres);
    assert_eq!(counted(&app).await, both("4", "0"));
    app.leave_unbalanced("without jobs no parked call reaches the gate");
}
