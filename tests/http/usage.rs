//! `/v1/usage`: reserve and consume in one.

use serde_json::json;

use super::World;

#[tokio::test]
async fn usage_needs_a_key_and_happens_once() {
    let world = World::with_policy().await;
    world.admin.post("/v1/usage", world.hold("2")).await.is_problem(400, "idempotency_key_required");
    let first = world.admin.post_keyed("/v1/usage", "page-7", world.hold("2")).await;
    let again = world.admin.post_keyed("/v1/usage", "page-7", world.hold("2")).await;
    assert_eq!((first.status, again.status), (201, 200), "{first:?}");
    assert_eq!(first.body["status"], "consumed");
    assert_eq!(first.body["lines"][0]["consumed"], "2");
    assert_eq!(again.body["id"], first.body["id"]);
    assert_eq!(again.body["limits"][0]["consumed"], "2");
    world
        .admin
        .post_keyed("/v1/usage", "page-7", world.hold("3"))
        .await
        .is_problem(422, "idempotency_key_reused");
}

#[tokio::test]
async fn usage_is_refused_like_a_reserve() {
    let world = World::with_policy().await;
    assert_eq!(world.admin.post_keyed("/v1/usage", "a", world.hold("99")).await.status, 201);
    let refused = world.admin.post_keyed("/v1/usage", "b", world.hold("2")).await;
    refused.is_problem(429, "quota_exceeded");
    assert_eq!(refused.body["refused_by"][0]["cause"], "consumed");
    assert_eq!(world.admin.post_keyed("/v1/usage", "b", world.hold("1")).await.status, 201);
}

#[tokio::test]
async fn usage_acknowledged_by_the_ledger_is_in_the_books() {
    let world = World::with_policy().await;
    let mut body = world.hold("2");
    body["ack"] = json!("ledger");
    let recorded = world.admin.post_keyed("/v1/usage", "page-7", body).await;
    assert_eq!((recorded.status, &recorded.body["ack"]), (201, &json!("ledger")), "{recorded:?}");
    let entries = world.admin.get(&format!("/v1/tenants/{}/entries", world.tenant())).await;
    assert_eq!(entries.body["data"][0]["operation_id"], recorded.body["id"], "{entries:?}");
}

#[tokio::test]
async fn usage_has_no_ttl() {
    let world = World::with_policy().await;
    let mut body = world.hold("2");
    body["ttl_seconds"] = json!(60);
    let answer = world.admin.post_keyed("/v1/usage", "k", body).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/ttl_seconds"]);
}
