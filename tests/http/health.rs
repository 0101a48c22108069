//! Health without a key; metrics nowhere public.

use serde_json::json;

use super::{Caller, World, until};
use crate::support::app::spawn_app;

#[tokio::test]
async fn health_needs_no_key() {
    let world = World::empty().await;
    let anyone = world.admin.with_key(None);
    let live = anyone.get("/livez").await;
    assert_eq!((live.status, &live.body), (200, &json!({ "status": "ok" })));
    let ready = anyone.get("/readyz").await;
    assert_eq!((ready.status, &ready.body), (200, &json!({ "status": "ok" })));
    let verbose = anyone.get("/readyz?verbose").await;
    assert!(
        verbose.body["checks"].as_array().unwrap().iter().all(|check| check["ok"] == true),
        "{verbose:?}"
    );
    anyone.get("/readyz?loud").await.is_problem(400, "invalid_request");
}

#[tokio::test]
async fn metrics_are_not_on_the_public_listener() {
    let world = World::empty().await;
    world.admin.get("/metrics").await.is_problem(404, "not_found");
}

#[tokio::test]
async fn metrics_are_on_the_operators_listener_and_name_no_tenant() {
    let app = spawn_app().await;
    app.with_plan(json!([]), json!([])).await;
    let body = json!({ "tenant": "acme", "subject": "ada", "meter": "page", "amount": "1", "ack": "ledger" });
    app.post_keyed("/v1/usage", "k", body).await.expect(201);
    let operator = Caller::admin(&app).at(app.ops_url()).with_key(None);
    let metrics = operator.get("/metrics").await.expect(200);
    let text = metrics.body.as_str().unwrap();
    assert!(text.contains("tollgate_"), "{text}");
    assert!(!text.contains("acme") && !text.contains("\"ada\""), "{text}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_tells_that_redis_takes_no_writes() {
    let app = spawn_app().await;
    let anyone = Caller::admin(&app).with_key(None);
    let mut redis = app.redis.connection().await;
    let mut memory = async |bytes: &str| {
        redis::cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec_async(&mut redis).await.unwrap();
    };
    let ask = || anyone.get("/readyz?verbose");
    memory("1").await;
    let full = until(ask, |answer| answer.text("/status") == "degraded").await.expect(200);
    let checks = full.body["checks"].as_array().unwrap();
    let gate = checks.iter().find(|check| check["name"] == "gate").unwrap();
    assert_eq!(gate["ok"], false);
    assert!(gate["detail"].as_str().unwrap().contains("takes no writes"), "{gate}");
    memory("0").await;
    until(ask, |answer| answer.text("/status") == "ok").await;
    app.finish().await;
}
