//! Instances that start on a bad day: without Redis, or on one that they must not use.

use std::process::Command;

use serde_json::json;
use tollgate::app::Role;
use tollgate::domain::ids::Partition;

use super::gate_away::{PATIENCE, both, counted, hold, impatient, limited, replayed};
use crate::ledger::as_owner;
use crate::support::app::*;
use crate::support::process::tollgate;
use crate::support::services;
use crate::support::wait::wait_for;

/// From the next connection on, the time that the service asks of Postgres is 40 days ahead.
const AHEAD: &str = "CREATE SCHEMA ahead; GRANT USAGE ON SCHEMA ahead TO PUBLIC; \
    CREATE FUNCTION ahead.transaction_timestamp() RETURNS timestamptz LANGUAGE sql STABLE \
        AS 'SELECT pg_catalog.now() + interval ''40 days'''; \
    DO $$ BEGIN \
        EXECUTE format('ALTER DATABASE %I SET search_path = ahead, pg_catalog, public', current_database()); \
    END $$";

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_starts_while_redis_is_away_does_what_limits_say_until_it_is_back() {
    let mut app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    app.define("meters/denied", json!({ "unit": "page", "without_limit": "unlimited" })).await;
    let denied = json!({ "id": "denied", "meter": "denied", "window": "day", "capacity": "100" });
    app.define("plans/strict", json!({ "limits": [denied] })).await;
    app.define("tenants/strict", json!({ "plan": "strict" })).await;
    let held = hold(&app, "10").await;
    app.drained().await;
    app.stop().await;
    app.redis.kill9().unwrap();

    app.restart().await;
    let ready = app.get("/readyz?verbose").await.expect(200);
    assert_eq!(ready.text("/status"), "degraded", "{ready:?}");
    let used = app.post_keyed(USAGE, "away", pages("3")).await.expect(201);
    assert_eq!(used.body["degraded"], true, "{used:?}");
    let denied = json!({ "tenant": "strict", "meter": "denied", "amount": "1" });
    app.post_keyed(USAGE, "denied", denied.clone()).await.is_problem(503, "gate_unavailable");
    app.consume(&held, "7").await.expect(200);
    app.get("/v1/reports/usage").await.expect(200);

    app.redis.restart().unwrap();
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("10", "0"));
    app.post_keyed(USAGE, "denied", denied).await.expect(201);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_only_takes_calls_finds_redis_again_by_itself() {
    let mut app = impatient().start().await;
    limited(&app, "deny", json!([])).await;
    app.stop().await;
    app.redis.kill9().unwrap();
    let alone = app.another_instance_with(&[Role::Http]).await;
    let caller = app.caller().at(alone.url());
    caller.post_keyed(USAGE, "away", pages("3")).await.is_problem(503, "gate_unavailable");
    app.redis.restart().unwrap();
    wait_for("the gate answers", PATIENCE, async || {
        (caller.post_keyed(USAGE, "away", pages("3")).await.status == 201).then_some(())
    })
    .await;
    alone.stop().await;
    app.restart().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_may_forget_is_not_used_when_it_comes_in_the_place_of_another() {
    let app = spawn_app().await;
    limited(&app, "deny", json!([])).await;
    app.post_keyed(USAGE, "before", pages("3")).await.expect(201);
    app.drained().await;
    let mut redis = app.redis.connection().await;
    let mut policy = async |name: &str| {
        let set = redis::cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg(name).to_owned();
        set.query_async::<()>(&mut redis).await.unwrap();
    };
    policy("allkeys-lru").await;
    app.redis.flush().await;
    for _ in 0..50 {
        app.post_keyed(USAGE, "after", pages("3")).await.is_problem(503, "gate_unavailable");
    }
    let ready = app.get("/readyz?verbose").await.expect(200);
    assert_eq!(ready.text("/status"), "degraded", "{ready:?}");
    let looks = looks_at_server(&app).await;
    assert!(looks < 25, "fifty calls of a moment do not look at the server each: {looks}");
    policy("noeviction").await;
    wait_for("the gate answers", PATIENCE, async || {
        (app.post_keyed(USAGE, "after", pages("3")).await.status == 201).then_some(())
    })
    .await;
    assert_eq!(counted(&app).await, both("6", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_ledger_does_not_book_what_a_redis_has_of_another_installation() {
    let app = spawn_app().await;
    limited(&app, "deny", json!([])).await;
    app.post_keyed(USAGE, "before", pages("3")).await.expect(201);
    let other = database().await;
    let mut serve = tollgate(&["serve"]);
    serve.envs(app.variables()).env("TOLLGATE__POSTGRES__URL", &other.url);
    // Where it would go on, the port is taken: it ends in any case.
    serve.args(["--listen", app.app().url().trim_start_matches("http://")]);
    let said = fails(serve).await;
    assert!(said.contains("empty this Redis"), "{said}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_only_books_or_only_runs_jobs_finds_redis_by_itself_also_when_it_is_new() {
    for role in [Role::Writer, Role::Jobs] {
        let mut redis = services::redis();
        redis.kill9().unwrap();
        let mut app = impatient().only(role).start_on(redis, database().await).await;
        app.redis.restart().unwrap();
        let partitions: Vec<_> = app.app().gate.partitions().collect();
        wait_for("it knows every epoch", PATIENCE, async || {
            partitions.iter().all(|partition| app.app().gate.epoch(*partition).is_some()).then_some(())
        })
        .await;
        app.stop().await;
        app.leave_unbalanced("nothing has been booked");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_damaged_outbox_keeps_no_other_partition_from_being_used_and_booked() {
    let mut app = spawn_app().await;
    limited(&app, "deny", json!([])).await;
    app.post_keyed(USAGE, "before", pages("3")).await.expect(201);
    app.drained().await;
    let outbox = damaged(&app, "outbox").await;
    app.redis.restart().unwrap();
    let other = app.another_instance().await;
    let callers = [app.caller(), app.caller().at(other.url())];
    for (number, caller) in callers.iter().enumerate() {
        wait_for("the gate answers", PATIENCE, async || {
            let used = caller.post_keyed(USAGE, &format!("after {number}"), pages("3")).await;
            (used.status == 201).then_some(())
        })
        .await;
    }
    let issued = newest_epoch(&app).await;
    for number in 0..20 {
        for (which, caller) in callers.iter().enumerate() {
            let key = format!("on {which} {number}");
            let booked = json!({ "tenant": "acme", "meter": "page", "amount": "1", "ack": "ledger" });
            caller.post_keyed(USAGE, &key, booked).await.expect(201);
        }
    }
    app.app().operations.memory.check.verify_node().await.unwrap();
    other.operations.memory.check.verify_node().await.unwrap();
    assert_eq!(newest_epoch(&app).await, issued, "damage calls for no new epoch at each check");
    other.stop().await;
    let status = app.command(&["status", "--output", "json"]);
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(said.contains("outbox of"), "{said} {}", String::from_utf8_lossy(&status.stderr));
    let mut verify = tollgate(&["verify"]);
    verify.envs(app.variables());
    let said = fails(verify).await;
    assert!(said.contains("the outbox of partition p") && said.contains("is damaged"), "{said}");
    redis::cmd("DEL").arg(&outbox).exec_async(&mut app.redis.connection().await).await.unwrap();
    assert_eq!(counted(&app).await, both("49", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_partition_cannot_be_adopted_no_epoch_is_issued_and_limits_decide() {
    let mut app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    let costs = json!({ "costs": [{ "meter": "page", "weights": { "pages": "1" } }] });
    app.define("operations/read", costs).await;
    let read = json!({ "tenant": "acme", "operation": "read", "attributes": { "pages": 4 } });
    let held = app.held(read.lasting(3600)).await;
    app.drained().await;
    let issued = newest_epoch(&app).await;
    let meta = damaged(&app, "meta").await;
    app.redis.restart().unwrap();
    five_are_degraded(&app).await;
    let consumed = app.resolve(&held, "consume", json!({ "attributes": { "pages": 3 } })).await.expect(200);
    assert_eq!(consumed.body["degraded"], true, "its cost is known without the gate: {consumed:?}");
    assert_eq!(newest_epoch(&app).await, issued);
    let mut serve = tollgate(&["serve", "--listen", "127.0.0.1:0"]);
    serve.envs(app.variables());
    let said = fails(serve).await;
    assert!(said.contains("the `meta` of partition p") && said.contains("delete this key"), "{said}");
    redis::cmd("DEL").arg(&meta).exec_async(&mut app.redis.connection().await).await.unwrap();
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("8", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_takes_no_writes_after_a_restart_is_issued_no_epochs_and_no_command_works_with_it() {
    let mut app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    app.post_keyed(USAGE, "before", pages("3")).await.expect(201);
    app.drained().await;
    let issued = newest_epoch(&app).await;
    app.redis.restart().unwrap();
    let replica_of = async |app: &TestApp, of: [&str; 2]| {
        redis::cmd("REPLICAOF").arg(&of).exec_async(&mut app.redis.connection().await).await.unwrap();
    };
    // Of nobody: it stays a replica that serves what it has.
    replica_of(&app, ["127.0.0.1", "1"]).await;
    five_are_degraded(&app).await;
    assert!(app.app().operations.memory.check.verify_node().await.is_err());
    let mut verify = tollgate(&["verify"]);
    verify.envs(app.variables());
    let said = fails(verify).await;
    assert!(said.contains("read only replica"), "{said}");
    assert_eq!(newest_epoch(&app).await, issued);
    replica_of(&app, ["NO", "ONE"]).await;
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("8", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_that_has_lost_memory_goes_on_with_what_frees_it() {
    let app = spawn_app().await;
    limited(&app, "deny", json!([])).await;
    let held = hold(&app, "10").await;
    app.drained().await;
    let maxmemory = async |app: &TestApp, bytes: &str| {
        let mut redis = app.redis.connection().await;
        redis::cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec_async(&mut redis).await.unwrap();
    };
    maxmemory(&app, "1").await;
    let own = app.app().gate.partition_of(&"acme".parse().unwrap());
    let meta = key_of(&app, own, "meta").await;
    redis::cmd("DEL").arg(&meta).exec_async(&mut app.redis.connection().await).await.unwrap();
    wait_for("the memory is checked", PATIENCE, async || {
        let adopted = app.app().gate.meta_facts(own).await.ok()?.epoch;
        (adopted.is_some() && app.app().operations.memory.check.verify_node().await.is_ok()).then_some(())
    })
    .await;
    wait_for("the hold is consumed at the gate", PATIENCE, async || {
        let consumed = app.consume(&held, "7").await;
        (consumed.status == 200 && consumed.body["degraded"] != true).then_some(())
    })
    .await;
    app.post_keyed(USAGE, "more", pages("1")).await.is_problem(503, "gate_unavailable");
    maxmemory(&app, "0").await;
    wait_for("Redis is known to take writes", PATIENCE, async || {
        (app.post_keyed(USAGE, "more", pages("1")).await.status == 201).then_some(())
    })
    .await;
    assert_eq!(counted(&app).await, both("8", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_redis_was_met_nothing_is_admitted_while_the_hosts_clock_differs_from_postgres() {
    let mut app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    app.stop().await;
    app.redis.kill9().unwrap();
    as_owner(&app.database, AHEAD).await.unwrap();
    app.restart().await;
    app.post_keyed(USAGE, "away", pages("3")).await.is_problem(503, "gate_unavailable");
    let ready = app.get("/readyz?verbose").await.expect(200);
    let checks = ready.body["checks"].as_array().unwrap();
    assert!(checks.iter().any(|check| check["name"] == "clock" && check["ok"] == false), "{ready:?}");
    as_owner(&app.database, "ALTER FUNCTION ahead.transaction_timestamp() RENAME TO another").await.unwrap();
    wait_for("the clocks agree", PATIENCE, async || {
        (app.post_keyed(USAGE, "away", pages("3")).await.status == 201).then_some(())
    })
    .await;
    app.redis.restart().unwrap();
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("3", "0"));
    app.finish().await;
}

/// Uses five pages, by calls that are parked each.
async fn five_are_degraded(app: &TestApp) {
    for number in 0..5 {
        let used = app.post_keyed(USAGE, &format!("away {number}"), pages("1")).await.expect(201);
        assert_eq!(used.body["degraded"], true, "{used:?}");
    }
}

/// What a command says that cannot do its work.
async fn fails(mut command: Command) -> String {
    let ended = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success(), "{said}");
    said
}

/// Puts a text in the place of a value of a partition that is not the tenant's. Returns its key.
async fn damaged(app: &TestApp, value: &str) -> String {
    let gate = &app.app().gate;
    let own = gate.partition_of(&"acme".parse().unwrap());
    let other = gate.partitions().find(|partition| *partition != own).unwrap();
    let mut redis = app.redis.connection().await;
    let key = key_of(app, other, value).await;
    redis::cmd("DEL").arg(&key).exec_async(&mut redis).await.unwrap();
    redis::cmd("SET").arg(&key).arg("damaged").exec_async(&mut redis).await.unwrap();
    key
}

/// The key of a value of a partition.
async fn key_of(app: &TestApp, partition: Partition, value: &str) -> String {
    let pattern = format!("tg1:{{{partition}*}}:meta");
    let mut redis = app.redis.connection().await;
    let meta: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut redis).await.unwrap();
    meta[0].replace(":meta", &format!(":{value}"))
}

/// The newest epoch that the ledger has issued.
async fn newest_epoch(app: &TestApp) -> u64 {
    let epochs = app.app().ledger.epochs().await.unwrap();
    epochs.iter().map(|row| row.epoch.0).max().unwrap()
}

/// How often the server was looked at.
async fn looks_at_server(app: &TestApp) -> u64 {
    let mut redis = app.redis.connection().await;
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut redis).await.unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_info:calls=")).unwrap_or("0");
    line.split(',').next().unwrap().parse().unwrap()
}
