//! `/v1/admin`: policy with versions, overrides, keys, the clock.

use reqwest::Method;
use serde_json::{Value, json};

use super::with_policy;
use crate::support::app::*;

#[tokio::test]
async fn a_policy_object_has_versions() {
    let app = spawn_app().await;
    let path = "/v1/admin/meters/page";
    let definition =
        |max_life: u32| json!({ "id": "page", "unit": "page", "decimals": 0, "max_life_seconds": max_life });
    let created = app.put(path, definition(3600)).await;
    assert_eq!(created.status, 201, "{created:?}");
    let tag = created.header("etag").to_owned();
    assert_eq!(tag, format!("\"{}\"", created.body["version"]));
    let read = app.get(path).await;
    assert_eq!((read.status, read.header("etag")), (200, tag.as_str()));
    let replace = |tag: &str, max_life| {
        app.send(app.request(Method::PUT, path).header("if-match", tag).json(&definition(max_life)))
    };
    let replaced = replace(&tag, 7200).await;
    assert_eq!(replaced.status, 200, "{replaced:?}");
    replace(&tag, 9000).await.is_problem(412, "precondition_failed");
    replace("\"*\"", 9000).await.is_problem(400, "invalid_request");
    let deletion = app.request(Method::DELETE, path).header("if-match", tag);
    app.send(deletion).await.is_problem(412, "precondition_failed");
    assert_eq!(app.delete(path).await.status, 204);
    app.get(path).await.is_problem(404, "not_found");
    app.delete(path).await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn what_is_referred_to_is_not_deleted() {
    let app = with_policy().await;
    let operation = "/operations/submit/costs/0/meter and in 1 more place;";
    for (kind, id, named_in) in [("meter", "page", operation), ("plan", "plan", "/tenants/")] {
        let answer = app.delete(&format!("/v1/admin/{kind}s/{id}")).await;
        answer.is_problem(409, "in_use");
        let detail = answer.text("/detail");
        let expected = format!("the {kind} {id} is in use: it is named in {named_in}");
        assert!(detail.starts_with(&expected) && detail.ends_with("change that first"), "{detail}");
    }
    app.finish().await;
}

#[tokio::test]
async fn an_invalid_number_is_refused_with_its_field_and_the_allowed_range() {
    let app = spawn_app().await;
    for wrong in [json!(null), json!(7), json!("2"), json!(-1)] {
        let answer = app.put("/v1/admin/meters/page", json!({ "unit": "page", "decimals": wrong })).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), ["/decimals"]);
        let detail = answer.text("/detail");
        assert!(detail.ends_with("expected a whole number from 0 to 6"), "{detail}");
    }
    app.finish().await;
}

#[tokio::test]
async fn a_field_that_is_not_served_is_422_and_named() {
    let app = spawn_app().await;
    let path = "/v1/admin/meters/page";
    let answer = app.put(path, json!({ "id": "page", "unit": "page", "decimals": 0, "colour": "red" })).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/colour"]);
    let answer = app.put(path, json!({ "id": "another", "unit": "page", "decimals": 0 })).await;
    assert_eq!((answer.status, answer.pointers()), (422, vec!["/id"]));
    app.get(path).await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn lists_go_on_where_the_cursor_points() {
    let app = with_policy().await;
    let mut found = false;
    let mut cursor = String::new();
    loop {
        let page = app.get(&format!("/v1/admin/tenants?limit=1{cursor}")).await;
        assert_eq!(page.status, 200, "{page:?}");
        found |= page.body["data"][0]["id"] == json!("acme");
        let Some(next) = page.body["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert!(found);
    app.finish().await;
}

#[tokio::test]
async fn an_override_changes_a_limit_at_once_and_goes_away() {
    let app = with_policy().await;
    let path = "/v1/admin/overrides/ov-day";
    let body =
        json!({ "tenant": "acme", "level": "tenant", "limit": "day", "capacity": "500", "reason": "test" });
    assert_eq!(app.put(path, body.clone()).await.status, 201);
    assert_eq!(app.put(path, body).await.status, 200);
    let quota = "/v1/tenants/acme/quota";
    let raised = until(|| app.get(quota), |answer| answer.body["limits"][0]["capacity"] == "500").await;
    assert_eq!(raised.body["limits"][0]["level"], "tenant");
    let listed = app.get("/v1/admin/overrides?tenant=acme").await;
    assert_eq!(listed.body["data"][0]["tenant"], "acme", "{listed:?}");
    app.delete(path).await.is_problem(400, "invalid_request");
    assert_eq!(app.delete(&format!("{path}?tenant={}", "acme")).await.status, 204);
    until(|| app.get(quota), |answer| answer.body["limits"][0]["capacity"] == "100").await;
    app.finish().await;
}

#[tokio::test]
async fn a_key_is_shown_once_and_revoked_within_a_second() {
    let app = with_policy().await;
    let made = app.post("/v1/admin/keys", json!({ "name": "worker", "role": "service" })).await;
    let (id, key) = (made.body["id"].as_str().unwrap(), made.body["key"].as_str().unwrap());
    assert!(key.starts_with("tg_"));
    let listed = app.get("/v1/admin/keys?limit=1000").await;
    let rows = listed.body["data"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["id"] == id) && !listed.body.to_string().contains(key));
    let worker = app.with_key(Some(key));
    assert_eq!(worker.post(RESERVATIONS, pages("1")).await.status, 201);
    assert_eq!(app.delete(&format!("/v1/admin/keys/{id}")).await.status, 204);
    let refused = until(|| worker.get("/v1/reservations/x"), |answer| answer.status == 401).await;
    refused.is_problem(401, "unauthenticated");
    app.finish().await;
}

#[tokio::test]
async fn a_rotated_key_works_beside_the_new_one_for_as_long_as_is_said() {
    let app = with_policy().await;
    let body = json!({ "name": "worker", "role": "service", "tenant": "acme" });
    let first = app.post("/v1/admin/keys", body).await.expect(201);
    let rotate = async |id: &str, body| app.post(&format!("/v1/admin/keys/{id}/rotate"), body).await;
    let second = rotate(first.text("/id"), json!({})).await.expect(201);
    let same = ["/name", "/role", "/tenant"];
    assert_eq!(same.map(|field| second.text(field)), same.map(|field| first.text(field)));
    let reads = async |key: &str| app.with_key(Some(key)).get("/v1/tenants/acme/quota").await.status;
    assert_eq!((reads(first.text("/key")).await, reads(second.text("/key")).await), (200, 200));
    let bare = app.request(Method::POST, &format!("/v1/admin/keys/{}/rotate", second.text("/id")));
    assert_eq!(app.send(bare).await.expect(201).text("/name"), "worker", "without a body");
    let third = rotate(second.text("/id"), json!({ "overlap_seconds": 0 })).await.expect(201);
    assert_eq!((reads(second.text("/key")).await, reads(third.text("/key")).await), (401, 200));
    assert_eq!(reads(first.text("/key")).await, 200, "its own day has not passed");

    let listed = app.get("/v1/admin/keys?limit=1000").await;
    let of = |id: &str| {
        let rows = listed.body["data"].as_array().unwrap();
        rows.iter().find(|row| row["id"] == id).unwrap().clone()
    };
    let ends = |key: &Value| key["expires_at"].as_str().map(|at| at.parse::<jiff::Timestamp>().unwrap());
    let [old, new] = [&first, &second].map(|key| of(key.text("/id")));
    let made: jiff::Timestamp = new["created_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(ends(&old), Some(made + jiff::SignedDuration::from_hours(24)));
    assert_eq!(ends(&of(third.text("/id"))), None);

    let soon = rotate(first.text("/id"), json!({ "overlap_seconds": 31_536_000 })).await.expect(201);
    let kept = app.get("/v1/admin/keys?limit=1000").await.body["data"].to_string();
    assert!(kept.contains(old["expires_at"].as_str().unwrap()), "a rotation never prolongs a key: {kept}");
    assert!(!kept.contains(soon.text("/key")));
    app.delete(&format!("/v1/admin/keys/{}", soon.text("/id"))).await.expect(204);
    for id in [soon.text("/id"), second.text("/id"), "missing"] {
        rotate(id, json!({})).await.is_problem(404, "not_found");
    }
    let long = rotate(third.text("/id"), json!({ "overlap_seconds": 31_536_001 })).await;
    assert_eq!((long.status, long.pointers()), (422, vec!["/overlap_seconds"]));
    let audit = app.get("/v1/admin/audit?limit=1000").await.body["data"].to_string();
    assert!(audit.contains("rotate") && audit.contains(second.text("/id")), "{audit}");
    app.finish().await;
}

#[tokio::test]
async fn a_key_for_a_role_that_needs_a_tenant_names_one() {
    let app = spawn_app().await;
    for body in
        [json!({ "name": "n", "role": "tenant" }), json!({ "name": "n", "role": "admin", "tenant": "acme" })]
    {
        let answer = app.post("/v1/admin/keys", body).await;
        assert_eq!((answer.status, answer.pointers()), (422, vec!["/tenant"]));
    }
    let expired = json!({ "name": "n", "role": "service", "expires_at": "soon" });
    assert_eq!(app.post("/v1/admin/keys", expired).await.pointers(), ["/expires_at"]);
    app.finish().await;
}
