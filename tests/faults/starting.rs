//! Instances that start on a bad day: without Redis, or on one that they must not use.

use serde_json::json;
use tollgate::app::Role;

use super::gate_away::{PATIENCE, both, counted, hold, impatient, limited, replayed};
use crate::support::app::*;
use crate::support::process::tollgate;
use crate::support::wait::wait_for;

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
    app.post_keyed(USAGE, "after", pages("3")).await.is_problem(503, "gate_unavailable");
    policy("noeviction").await;
    app.post_keyed(USAGE, "after", pages("3")).await.expect(201);
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
    let refused = tokio::task::spawn_blocking(move || serve.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("empty this Redis"), "{said}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_damaged_outbox_does_not_keep_a_restarted_redis_from_being_checked() {
    let mut app = spawn_app().await;
    limited(&app, "deny", json!([])).await;
    app.post_keyed(USAGE, "before", pages("3")).await.expect(201);
    app.drained().await;
    let own = app.app().gate.partition_of(&"acme".parse().unwrap());
    let damaged = app.app().gate.partitions().find(|partition| *partition != own).unwrap();
    let run = async |app: &TestApp, command: &redis::Cmd| {
        command.query_async::<redis::Value>(&mut app.redis.connection().await).await.unwrap()
    };
    let meta: Vec<String> = redis::cmd("KEYS")
        .arg(format!("tg1:{{{damaged}*}}:meta"))
        .query_async(&mut app.redis.connection().await)
        .await
        .unwrap();
    let outbox = meta[0].replace(":meta", ":outbox");
    run(&app, redis::cmd("DEL").arg(&outbox)).await;
    run(&app, redis::cmd("SET").arg(&outbox).arg("damaged")).await;
    app.redis.restart().unwrap();
    wait_for("the memory is checked", PATIENCE, async || {
        app.app().operations.memory.check.verify_node().await.ok()
    })
    .await;
    run(&app, redis::cmd("DEL").arg(&outbox)).await;
    // The writer goes on where it can read everything again.
    wait_for("the gate answers", PATIENCE, async || {
        (app.post_keyed(USAGE, "after", pages("3")).await.status == 201).then_some(())
    })
    .await;
    assert_eq!(counted(&app).await, both("6", "0"));
    app.finish().await;
}
