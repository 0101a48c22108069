//! `/v1/admin`: policy with versions, overrides, keys, the clock.

use reqwest::Method;
use serde_json::json;

use super::{World, until};

#[tokio::test]
async fn a_policy_object_has_versions() {
    let world = World::empty().await;
    let path = format!("/v1/admin/meters/{}", world.meter());
    let definition = |max_life: u32| json!({ "id": world.meter(), "unit": "page", "decimals": 0, "max_life_seconds": max_life });
    let created = world.admin.put(&path, definition(3600)).await;
    assert_eq!(created.status, 201, "{created:?}");
    let tag = created.header("etag").to_owned();
    assert_eq!(tag, format!("\"{}\"", created.body["version"]));
    let read = world.admin.get(&path).await;
    assert_eq!((read.status, read.header("etag")), (200, tag.as_str()));
    let replace = |tag: &str, max_life| {
        world
            .admin
            .send(world.admin.request(Method::PUT, &path).header("if-match", tag).json(&definition(max_life)))
    };
    let replaced = replace(&tag, 7200).await;
    assert_eq!(replaced.status, 200, "{replaced:?}");
    replace(&tag, 9000).await.is_problem(412, "precondition_failed");
    replace("\"*\"", 9000).await.is_problem(400, "invalid_request");
    let deletion = world.admin.request(Method::DELETE, &path).header("if-match", tag);
    world.admin.send(deletion).await.is_problem(412, "precondition_failed");
    assert_eq!(world.admin.delete(&path).await.status, 204);
    world.admin.get(&path).await.is_problem(404, "not_found");
    world.admin.delete(&path).await.is_problem(404, "not_found");
}

#[tokio::test]
async fn what_is_referred_to_is_not_deleted() {
    let world = World::with_policy().await;
    let operation = format!("/operations/{}/costs/0/meter and in 1 more place;", world.operation());
    for (kind, id, named_in) in
        [("meter", world.meter(), operation), ("plan", world.plan(), "/tenants/".to_owned())]
    {
        let answer = world.admin.delete(&format!("/v1/admin/{kind}s/{id}")).await;
        answer.is_problem(409, "in_use");
        let detail = answer.text("/detail");
        let expected = format!("the {kind} {id} is in use: it is named in {named_in}");
        assert!(detail.starts_with(&expected) && detail.ends_with("change that first"), "{detail}");
    }
}

#[tokio::test]
async fn a_number_that_is_none_is_told_its_field_and_which_ones_there_are() {
    let world = World::empty().await;
    let path = format!("/v1/admin/meters/{}", world.meter());
    for wrong in [json!(null), json!(7), json!("2"), json!(-1)] {
        let answer = world.admin.put(&path, json!({ "unit": "page", "decimals": wrong })).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), ["/decimals"]);
        let detail = answer.text("/detail");
        assert!(detail.ends_with("expected a whole number from 0 to 6"), "{detail}");
    }
}

#[tokio::test]
async fn a_field_that_is_not_served_is_422_and_named() {
    let world = World::empty().await;
    let path = format!("/v1/admin/meters/{}", world.meter());
    let answer = world
        .admin
        .put(&path, json!({ "id": world.meter(), "unit": "page", "decimals": 0, "colour": "red" }))
        .await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/colour"]);
    let answer = world.admin.put(&path, json!({ "id": "another", "unit": "page", "decimals": 0 })).await;
    assert_eq!((answer.status, answer.pointers()), (422, vec!["/id"]));
    world.admin.get(&path).await.is_problem(404, "not_found");
}

#[tokio::test]
async fn lists_go_on_where_the_cursor_points() {
    let world = World::with_policy().await;
    let mut found = false;
    let mut cursor = String::new();
    loop {
        let page = world.admin.get(&format!("/v1/admin/tenants?limit=1{cursor}")).await;
        assert_eq!(page.status, 200, "{page:?}");
        found |= page.body["data"][0]["id"] == json!(world.tenant());
        let Some(next) = page.body["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert!(found);
}

#[tokio::test]
async fn an_override_changes_a_limit_at_once_and_goes_away() {
    let world = World::with_policy().await;
    let path = format!("/v1/admin/overrides/ov-{}", world.limit());
    let body = json!({ "tenant": world.tenant(), "level": "tenant", "limit": world.limit(), "capacity": "500", "reason": "test" });
    assert_eq!(world.admin.put(&path, body.clone()).await.status, 201);
    assert_eq!(world.admin.put(&path, body).await.status, 200);
    let quota = format!("/v1/tenants/{}/quota", world.tenant());
    let raised =
        until(|| world.admin.get(&quota), |answer| answer.body["limits"][0]["capacity"] == "500").await;
    assert_eq!(raised.body["limits"][0]["level"], "tenant");
    let listed = world.admin.get(&format!("/v1/admin/overrides?tenant={}", world.tenant())).await;
    assert_eq!(listed.body["data"][0]["tenant"], world.tenant(), "{listed:?}");
    world.admin.delete(&path).await.is_problem(400, "invalid_request");
    assert_eq!(world.admin.delete(&format!("{path}?tenant={}", world.tenant())).await.status, 204);
    until(|| world.admin.get(&quota), |answer| answer.body["limits"][0]["capacity"] == "100").await;
}

#[tokio::test]
async fn a_key_is_shown_once_and_revoked_within_a_second() {
    let world = World::with_policy().await;
    let made = world.admin.post("/v1/admin/keys", json!({ "name": "worker", "role": "service" })).await;
    let (id, key) = (made.body["id"].as_str().unwrap(), made.body["key"].as_str().unwrap());
    assert!(key.starts_with("tg_"));
    let listed = world.admin.get("/v1/admin/keys?limit=1000").await;
    let rows = listed.body["data"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["id"] == id) && !listed.body.to_string().contains(key));
    let worker = world.admin.with_key(Some(key));
    assert_eq!(worker.post("/v1/reservations", world.hold("1")).await.status, 201);
    assert_eq!(world.admin.delete(&format!("/v1/admin/keys/{id}")).await.status, 204);
    let refused = until(|| worker.get("/v1/reservations/x"), |answer| answer.status == 401).await;
    refused.is_problem(401, "unauthenticated");
}

#[tokio::test]
async fn a_key_for_a_role_that_needs_a_tenant_names_one() {
    let world = World::empty().await;
    for body in
        [json!({ "name": "n", "role": "tenant" }), json!({ "name": "n", "role": "admin", "tenant": "acme" })]
    {
        let answer = world.admin.post("/v1/admin/keys", body).await;
        assert_eq!((answer.status, answer.pointers()), (422, vec!["/tenant"]));
    }
    let expired = json!({ "name": "n", "role": "service", "expires_at": "soon" });
    assert_eq!(world.admin.post("/v1/admin/keys", expired).await.pointers(), ["/expires_at"]);
}
