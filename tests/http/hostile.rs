//! Malformed and hostile bodies: a 4xx problem document, and nothing has changed.

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use super::{Answer, World};

async fn post(world: &World, path: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = world.admin.request(Method::POST, path);
    world.admin.send(request.header("content-type", "application/json").body(body)).await
}

async fn changes_nothing(world: &World) {
    let quota = world.admin.get(&format!("/v1/tenants/{}/quota", world.tenant())).await;
    let limit = &quota.body["limits"][0];
    assert_eq!((&limit["consumed"], &limit["reserved"]), (&json!("0"), &json!("0")), "{quota:?}");
}

#[tokio::test]
async fn a_malformed_body_is_400_and_changes_nothing() {
    let world = World::with_policy().await;
    let (tenant, meter) = (world.tenant(), world.meter());
    let deep = format!("{{\"metadata\":{}1{}}}", "{\"a\":".repeat(100), "}".repeat(100));
    for body in [
        String::new(),
        "nonsense".into(),
        "{".into(),
        format!("{{\"tenant\":\"{tenant}\",\"meter\":\"{meter}\",\"amount\":NaN}}"),
        format!("{{\"tenant\":\"{tenant}\",\"meter\":\"{meter}\",\"amount\":1e999}}"),
        format!("{{\"tenant\":\"{tenant}\",\"meter\":\"{meter}\",\"amount\":\"1\",\"amount\":\"2\"}}"),
        format!(
            "{{\"tenant\":\"{tenant}\",\"meter\":\"{meter}\",\"amount\":\"1\",\"metadata\":{{\"a\":1,\"a\":2}}}}"
        ),
        format!(
            "{{\"tenant\":\"{tenant}\",\"meter\":\"{meter}\",\"amount\":\"1\",\"metadata\":{{\"a\":\"\\u0000\"}}}}"
        ),
        deep,
        "[".repeat(60_000),
    ] {
        for path in ["/v1/reservations", "/v1/usage", "/v1/batch"] {
            post(&world, path, body.clone()).await.is_problem(400, "invalid_request");
        }
    }
    let mut bytes =
        format!("{{\"tenant\":\"{tenant}\",\"meter\":\"{meter}\",\"amount\":\"1\",\"subject\":\"")
            .into_bytes();
    bytes.extend_from_slice(b"\xff\xfe\"}");
    post(&world, "/v1/reservations", bytes).await.is_problem(400, "invalid_request");
    changes_nothing(&world).await;
}

#[tokio::test]
async fn a_wrong_value_is_422_names_its_field_and_changes_nothing() {
    let world = World::with_policy().await;
    for (field, value) in [
        ("amount", json!("NaN")),
        ("amount", json!("1e999")),
        ("amount", json!("-1")),
        ("amount", json!(-1)),
        ("amount", json!("0")),
        ("amount", json!(1.5)),
        ("amount", json!("1.5")),
        ("amount", json!("٣")),
        ("amount", json!(" 5")),
        ("amount", json!("0x10")),
        ("amount", json!("9".repeat(400))),
        ("amount", json!(9_007_199_254_740_993_u64)),
        ("amount", json!(true)),
        ("amount", json!([])),
        ("amount", json!({})),
        ("tenant", json!("{p00}")),
        ("tenant", json!("a\r\nb")),
        ("tenant", json!("x".repeat(65))),
        ("meter", json!("{}")),
        ("subject", json!("user{1}")),
        ("subject", json!("\u{202e}resu")),
        ("operation", json!("*{")),
        ("ttl_seconds", json!(-1)),
        ("ttl_seconds", json!(1e30)),
        ("colour", json!("red")),
    ] {
        let mut body = world.hold("1");
        body[field] = value;
        let answer = world.admin.post("/v1/reservations", body.clone()).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers()[0], format!("/{field}"), "{body}");
    }
    changes_nothing(&world).await;
}

#[rstest]
#[case(json!([]))]
#[case(json!(null))]
#[case(json!("text"))]
#[case(json!(["acme", "user-42", null]))]
#[tokio::test]
async fn a_body_that_is_no_object_is_422(#[case] body: serde_json::Value) {
    let world = World::empty().await;
    for path in ["/v1/reservations", "/v1/usage", "/v1/batch", "/v1/admin/keys"] {
        world.admin.post(path, body.clone()).await.is_problem(422, "validation_failed");
    }
    let answer = world.admin.put("/v1/admin/plans/p", body).await;
    assert!((400..500).contains(&answer.status), "{answer:?}");
}

#[tokio::test]
async fn a_large_body_is_413() {
    let world = World::empty().await;
    for (path, bytes) in [
        ("/v1/reservations", 64 * 1024 + 1),
        ("/v1/reservations", 10 * 1024 * 1024),
        ("/v1/batch", 1024 * 1024 + 1),
        ("/v1/batch", 10 * 1024 * 1024),
    ] {
        post(&world, path, vec![b' '; bytes]).await.is_problem(413, "payload_too_large");
    }
    let answer = post(&world, "/v1/batch", format!("{{\"items\":[]}}{}", " ".repeat(100_000))).await;
    answer.is_problem(422, "validation_failed");
}

#[tokio::test]
async fn a_body_that_is_not_plain_json_is_415() {
    let world = World::empty().await;
    for (name, value) in
        [("content-type", "text/plain"), ("content-encoding", "gzip"), ("content-encoding", "br")]
    {
        let request = world.admin.request(Method::POST, "/v1/reservations").body("{}");
        let request =
            if name == "content-type" { request } else { request.header("content-type", "application/json") };
        world.admin.send(request.header(name, value)).await.is_problem(415, "unsupported_media_type");
    }
    let bare = world.admin.request(Method::POST, "/v1/reservations").body("{}");
    world.admin.send(bare).await.is_problem(415, "unsupported_media_type");
}

#[tokio::test]
async fn a_parameter_on_a_call_without_parameters_is_400() {
    let world = World::with_policy().await;
    let answer = world.admin.post("/v1/reservations?dry_run=true", world.hold("1")).await;
    answer.is_problem(400, "invalid_request");
    changes_nothing(&world).await;
}
