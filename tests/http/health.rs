//! Health without a key; metrics nowhere public.

use serde_json::json;

use crate::support::app::*;

#[tokio::test]
async fn health_needs_no_key() {
    let app = spawn_app().await;
    let anyone = app.with_key(None);
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
    app.finish().await;
}

#[tokio::test]
async fn metrics_are_not_on_the_public_listener() {
    let app = spawn_app().await;
    app.get("/metrics").await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn metrics_are_on_the_operators_listener_and_name_no_tenant() {
    let app = spawn_app().await;
    app.without_limits().await;
    app.post_keyed(USAGE, "k", pages("1").by("ada").with("ack", "ledger")).await.expect(201);
    let operator = app.caller().at(app.ops_url()).with_key(None);
    let metrics = operator.get("/metrics").await.expect(200);
    let text = metrics.body.as_str().unwrap();
    assert!(text.contains("tollgate_"), "{text}");
    assert!(!text.contains("acme") && !text.contains("\"ada\""), "{text}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_reports_that_redis_takes_no_writes() {
    let app = spawn_app().await;
    let anyone = app.caller().with_key(None);
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
