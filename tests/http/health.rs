//! Health without a key; metrics nowhere public.

use serde_json::json;

use super::World;

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
