//! Shares of counters: what two instances admit before and while the gate is away is never above the capacity, and it
//! is counted once afterwards.

use std::time::Duration;

use serde_json::{Value, json};

use super::fallbacks::decided_by;
use super::gate_away::{PATIENCE, counted, impatient, replayed};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::caller::Caller;
use crate::support::wait::wait_for;

const CHECK: &str = "/v1/ratelimit/check";
const CAPACITY: usize = 40;

fn local(limit: Value) -> Value {
    limit.with("on_gate_failure", "local").with("class", "rate").with("capacity", CAPACITY.to_string())
}

/// So often, at most, this call is admitted by an instance.
async fn admits(caller: &Caller, path: &str, key: &str, body: &Value, most: usize) -> usize {
    for number in 0..most {
        let answer = match path {
            CHECK => caller.post(path, body.clone()).await,
            _ => caller.post_keyed(path, &format!("{key}-{number}"), body.clone()).await,
        };
        match answer.status {
            200 | 201 if answer.body["allowed"] != json!(false) => {}
            _ => return number,
        }
    }
    most
}

/// Two instances, each with a share of the counter of this call, of which some is used already.
async fn with_shares(app: &TestApp, path: &str, body: &Value) -> (tollgate::app::App, [Caller; 2]) {
    let other = app.another_instance().await;
    let callers = [app.caller(), app.caller().at(other.url())];
    assert_eq!(admits(&callers[0], path, "first", body, 4).await, 4);
    assert_eq!(admits(&callers[1], path, "second", body, 2).await, 2);
    for _ in 0..2 {
        app.app().operations.outage.renew_shares().await;
        other.operations.outage.renew_shares().await;
    }
    (other, callers)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_admit_their_shares_and_no_more_and_all_of_it_is_counted_once() {
    let app = impatient().start().await;
    let day = json!({ "id": "day", "meter": "page", "window": "day" });
    app.with_plan(json!([local(day)]), json!([])).await;
    let (other, callers) = with_shares(&app, USAGE, &pages("1")).await;
    let frozen = app.redis.freeze();
    let mut admitted = 6;
    for (number, caller) in callers.iter().enumerate() {
        let by_one = admits(caller, USAGE, &format!("away-{number}"), &pages("1"), CAPACITY).await;
        assert!((8..=9).contains(&by_one), "half of what was left, by two: {by_one}");
        admitted += by_one;
        caller.post_keyed(RESERVATIONS, "more", pages("1")).await.is_problem(503, "gate_unavailable");
        let decided = ["local", "local_used_up"].map(|policy| decided_by(&app, policy));
        assert!(number > 0 || (decided[0] >= 8 && decided[1] >= 1), "by its own share: {decided:?}");
    }
    drop(frozen);
    replayed(&app).await;
    app.drained().await;
    let consumed = wait_for("the gate counts it", PATIENCE, async || {
        let [consumed, _] = counted(&app).await;
        (consumed == admitted.to_string()).then_some(consumed)
    })
    .await;
    let rest = CAPACITY - consumed.parse::<usize>().unwrap();
    let last = wait_for("shares are given back", PATIENCE, async || {
        let answer = callers[0].post_keyed(USAGE, "rest", pages(rest)).await;
        (answer.status == 201).then_some(answer)
    })
    .await;
    assert_eq!(last.text("/limits/0/consumed"), CAPACITY.to_string());
    callers[1].post_keyed(USAGE, "beyond", pages("1")).await.is_problem(429, "rate_limited");
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_are_admitted_by_shares_and_what_they_used_is_counted_with_the_next_lease() {
    let app = impatient().start().await;
    app.define("meters/call", json!({ "unit": "call", "booked": false })).await;
    app.define("operations/call", json!({ "costs": [{ "meter": "call", "base": "1" }] })).await;
    let hour = json!({
        "id": "hour", "meter": "call", "scope": "subject", "subject_kind": "user", "algorithm": "fixed_window",
        "window_seconds": 3600
    });
    app.define("plans/plan", json!({ "limits": [local(hour)] })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    let call = json!({ "tenant": "acme", "operation": "call", "subject": "ada" });
    let (other, callers) = with_shares(&app, CHECK, &call).await;
    let frozen = app.redis.freeze();
    let mut admitted = 6;
    for caller in &callers {
        admitted += admits(caller, CHECK, "away", &call, CAPACITY).await;
        caller.post(CHECK, call.clone()).await.is_problem(503, "gate_unavailable");
        let another = call.clone().with("subject", "bob");
        caller.post(CHECK, another).await.is_problem(503, "gate_unavailable");
    }
    assert!((22..=24).contains(&admitted), "{admitted}");
    drop(frozen);
    let total = std::cell::Cell::new(admitted);
    wait_for("all of it is used, and no share is left", PATIENCE, async || {
        let look = app.post(CHECK, call.clone().with("peek", true)).await;
        (look.status == 200).then_some(())?;
        total.set(total.get() + admits(&callers[0], CHECK, "after", &call, CAPACITY).await);
        let look = app.post(CHECK, call.clone().with("peek", true)).await;
        (look.text("/limits/0/consumed") == CAPACITY.to_string()).then_some(())
    })
    .await;
    assert_eq!(total.get(), CAPACITY, "each unit is admitted once");
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_gate_answers_a_share_stands_in_no_ones_way_and_a_stopped_instance_leaves_none() {
    let app = impatient().start().await;
    let day = json!({ "id": "day", "meter": "page", "window": "day" });
    app.with_plan(json!([local(day)]), json!([])).await;
    app.post_keyed(USAGE, "first", pages("4")).await.expect(201);
    app.app().operations.outage.renew_shares().await;
    let held = app.post(RESERVATIONS, pages("1").with("dry_run", true)).await.expect(200);
    assert_eq!(held.text("/limits/0/reserved"), "18");
    let dry = app.post(RESERVATIONS, pages("36").with("dry_run", true)).await.expect(200);
    assert_eq!(dry.body["allowed"], json!(false));
    app.post_keyed(RESERVATIONS, "more", pages("37")).await.is_problem(429, "rate_limited");
    app.post_keyed(RESERVATIONS, "never", pages("41")).await.is_problem(402, "exceeds_plan");
    let still = app.post(RESERVATIONS, pages("1").with("dry_run", true)).await.expect(200);
    assert_eq!(
        still.text("/limits/0/reserved"),
        "18",
        "a share goes back for nothing that does not fit anyway"
    );
    let mut app = app;
    app.restart().await;
    let after = app.post(RESERVATIONS, pages("1").with("dry_run", true)).await.expect(200);
    assert_eq!(after.text("/limits/0/reserved"), "0");
    app.app().operations.outage.renew_shares().await;
    let large = app.post_keyed(RESERVATIONS, "large", pages("36")).await.expect(201);
    assert_eq!(large.text("/limits/0/reserved"), "36");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_and_dry_runs_ask_for_no_share() {
    let app = impatient().start().await;
    app.define("meters/call", json!({ "unit": "call", "booked": false })).await;
    app.define("operations/call", json!({ "costs": [{ "meter": "call", "base": "1" }] })).await;
    let hour = json!({ "id": "hour", "meter": "call", "window": "hour" });
    let day = json!({ "id": "day", "meter": "page", "window": "day" });
    app.with_plan(json!([local(day), local(hour)]), json!([])).await;
    let call = json!({ "tenant": "acme", "operation": "call" });
    let dry_run = pages("1").with("dry_run", true);
    let reserved = async || {
        let look = app.post(CHECK, call.clone().with("peek", true)).await.expect(200);
        let dry = app.post(RESERVATIONS, dry_run.clone()).await.expect(200);
        [look, dry].map(|answer| answer.text("/limits/0/reserved").to_owned())
    };
    reserved().await;
    app.app().operations.outage.renew_shares().await;
    assert_eq!(reserved().await, ["0", "0"]);
    app.post(CHECK, call.clone()).await.expect(200);
    app.post_keyed(USAGE, "used", pages("1")).await.expect(201);
    app.app().operations.outage.renew_shares().await;
    assert_eq!(reserved().await, ["19", "19"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_memory_may_be_lost_an_instance_has_no_share() {
    let app = impatient().start().await;
    app.define("meters/call", json!({ "unit": "call", "booked": false })).await;
    app.define("operations/call", json!({ "costs": [{ "meter": "call", "base": "1" }] })).await;
    let hour = json!({ "id": "hour", "meter": "call", "window": "hour" });
    app.define("plans/plan", json!({ "limits": [local(hour)] })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    let call = json!({ "tenant": "acme", "operation": "call" });
    app.post(CHECK, call.clone()).await.expect(200);
    app.app().operations.outage.renew_shares().await;
    let frozen = app.redis.freeze();
    let by_its_share = app.post(CHECK, call.clone()).await.expect(200);
    assert_eq!((&by_its_share.body["allowed"], &by_its_share.body["degraded"]), (&json!(true), &json!(true)));
    drop(frozen);
    wait_for("the gate answers", PATIENCE, async || {
        let answer = app.post(CHECK, call.clone()).await;
        (answer.status == 200 && answer.body["degraded"] != json!(true)).then_some(())
    })
    .await;
    app.app().operations.outage.renew_shares().await;
    // Nobody can tell what of its memory is left.
    app.database.close().await;
    app.redis.flush().await;
    app.post(CHECK, call.clone()).await.is_problem(503, "gate_unavailable");
    app.database.open().await;
    wait_for("the memory is checked", PATIENCE, async || {
        (app.post(CHECK, call.clone()).await.status == 200).then_some(())
    })
    .await;
    app.finish().await;
}

/// An instance that had used four of its day, and has a share of eighteen.
async fn with_a_share(app: &TestApp) {
    let day = json!({ "id": "day", "meter": "page", "window": "day" });
    app.with_plan(json!([local(day)]), json!([])).await;
    app.post_keyed(USAGE, "first", pages("4")).await.expect(201);
    app.app().operations.outage.renew_shares().await;
    assert_eq!(counted(app).await, ["4", "18"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capacity_that_is_lowered_during_an_outage_holds_for_shares_too() {
    let app = impatient().start().await;
    with_a_share(&app).await;
    let frozen = app.redis.freeze();
    app.post_keyed(USAGE, "away", pages("3")).await.expect(201);
    let day = json!({ "id": "day", "meter": "page", "window": "day" });
    app.define("plans/plan", json!({ "limits": [local(day).with("capacity", "4")] })).await;
    app.post_keyed(USAGE, "beyond", pages("2")).await.is_problem(503, "gate_unavailable");
    app.post_keyed(USAGE, "last", pages("1")).await.expect(201);
    drop(frozen);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_used_stays_held_while_it_is_being_parked() {
    let app = impatient().start().await;
    with_a_share(&app).await;
    let (client, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let frozen = app.redis.freeze();
    client.batch_execute("BEGIN; LOCK TABLE parked IN EXCLUSIVE MODE").await.unwrap();
    let caller = app.caller();
    let slow = tokio::spawn(async move { caller.post_keyed(USAGE, "slow", pages("10")).await });
    wait_for("the call waits for the ledger", PATIENCE, async || {
        let waiting = "SELECT 1 FROM pg_locks JOIN pg_database d ON d.oid = database \
            WHERE NOT granted AND relation = 'parked'::regclass AND datname = current_database()";
        (!rows(&app.database, waiting).await.is_empty()).then_some(())
    })
    .await;
    drop(frozen);
    counted(&app).await;
    app.app().operations.outage.give_shares_back().await;
    let [consumed, reserved] = counted(&app).await;
    assert!(consumed == "4" && reserved.parse::<i64>().unwrap() >= 10, "{consumed} {reserved}");
    client.batch_execute("COMMIT").await.unwrap();
    slow.await.unwrap().expect(201);
    replayed(&app).await;
    wait_for("it is counted, and held no more", PATIENCE, async || {
        app.app().operations.outage.give_shares_back().await;
        (counted(&app).await == ["14", "0"]).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shares_are_renewed_while_parked_calls_wait_to_be_redelivered() {
    let patient =
        impatient().with("http.request_timeout_ms", 130_000).with("ledger.restore_wait_ms", 120_000);
    let app = patient.start().await;
    with_a_share(&app).await;
    let frozen = app.redis.freeze();
    let of_another =
        "INSERT INTO leases SELECT format('replay/p%s', lpad(number::text, 2, '0')), 'another', 1,
        now() + interval '1 hour' FROM generate_series(0, 99) AS number
        ON CONFLICT (name) DO UPDATE SET owner = 'another', expires_at = excluded.expires_at";
    as_owner(&app.database, of_another).await.unwrap();
    app.post_keyed(USAGE, "away", pages("3")).await.expect(201);
    drop(frozen);
    wait_for("the gate answers", PATIENCE, async || {
        let renewed =
            tokio::time::timeout(Duration::from_secs(30), app.app().operations.outage.renew_shares());
        renewed.await.expect("a renewal waits for no redelivery");
        (app.app().gate.breaker_state() == tollgate::gate::BreakerState::Closed).then_some(())
    })
    .await;
    let renewal = tokio::time::timeout(Duration::from_secs(30), app.app().operations.outage.renew_shares());
    renewal.await.expect("a renewal waits for no redelivery");
    as_owner(&app.database, "DELETE FROM leases WHERE owner = 'another'").await.unwrap();
    replayed(&app).await;
    app.finish().await;
}
