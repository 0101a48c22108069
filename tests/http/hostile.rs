//! Malformed and hostile bodies: a 4xx problem document, and nothing has changed.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use super::with_policy;
use crate::support::app::*;

async fn post(app: &TestApp, path: &str, body: impl Into<reqwest::Body>) -> Answered {
    let request = app.request(Method::POST, path);
    app.send(request.header("content-type", "application/json").body(body)).await
}

async fn changes_nothing(app: &TestApp) {
    let quota = app.get("/v1/tenants/acme/quota").await;
    let limit = &quota.body["limits"][0];
    assert_eq!((&limit["consumed"], &limit["reserved"]), (&json!("0"), &json!("0")), "{quota:?}");
}

#[tokio::test]
async fn a_malformed_body_is_400_and_changes_nothing() {
    let app = with_policy().await;
    let (tenant, meter) = ("acme", "page");
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
        for path in [RESERVATIONS, USAGE, "/v1/batch"] {
            post(&app, path, body.clone()).await.is_problem(400, "invalid_request");
        }
    }
    let mut bytes =
        format!("{{\"tenant\":\"{tenant}\",\"meter\":\"{meter}\",\"amount\":\"1\",\"subject\":\"")
            .into_bytes();
    bytes.extend_from_slice(b"\xff\xfe\"}");
    post(&app, RESERVATIONS, bytes).await.is_problem(400, "invalid_request");
    changes_nothing(&app).await;
    app.finish().await;
}

#[tokio::test]
async fn a_wrong_value_is_422_names_its_field_and_changes_nothing() {
    let app = with_policy().await;
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
        let mut body = pages("1");
        body[field] = value;
        let answer = app.post(RESERVATIONS, body.clone()).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers()[0], format!("/{field}"), "{body}");
    }
    changes_nothing(&app).await;
    app.finish().await;
}

#[rstest]
#[case(json!([]))]
#[case(json!(null))]
#[case(json!("text"))]
#[case(json!(["acme", "user-42", null]))]
#[tokio::test]
async fn a_body_that_is_no_object_is_422(#[case] body: serde_json::Value) {
    let app = spawn_app().await;
    for path in [RESERVATIONS, USAGE, "/v1/batch", "/v1/admin/keys"] {
        app.post(path, body.clone()).await.is_problem(422, "validation_failed");
    }
    let answer = app.put("/v1/admin/plans/p", body).await;
    assert!((400..500).contains(&answer.status), "{answer:?}");
    app.finish().await;
}

#[tokio::test]
async fn an_array_of_the_fields_of_an_object_of_policy_is_422_and_named() {
    let app = with_policy().await;
    let limit = json!(["day", "page"]);
    let day = json!({ "tenant": "acme", "level": "tenant", "limit": "day", "capacity": "5" });
    for (path, body, pointer) in [
        ("plans/p", json!({ "quotas": [["page", "1000"]] }), "/quotas/0"),
        ("plans/p", json!({ "limits": [limit.clone()] }), "/limits/0"),
        ("operations/o", json!({ "costs": [["page", "1"]] }), "/costs/0"),
        ("tenants/acme", json!({ "plan": "plan", "subjects": [["user", "vip-7", "plan"]] }), "/subjects/0"),
        ("overrides/o", day.with("subject", json!(["user", "vip-7"])), "/subject"),
        ("bans/b", json!({ "tenant": "acme", "subject": ["user", "vip-7"] }), "/subject"),
    ] {
        let refused = app.put(&format!("/v1/admin/{path}"), body).await;
        refused.is_problem(422, "validation_failed");
        assert_eq!(refused.pointers(), [pointer], "{refused:?}");
    }
    for (policy, pointer) in [
        (json!([[], []]), "/policy"),
        (json!({ "plans": [["p", null, [], []]] }), "/policy/plans/0"),
        (json!({ "plans": [{ "id": "p", "limits": [limit] }] }), "/policy/plans/0/limits/0"),
    ] {
        for path in ["/v1/admin/policy", "/v1/admin/policy/test"] {
            let body = json!({ "policy": policy });
            let body = if path.ends_with("test") { body.with("since", "2026-01-01T00:00:00Z") } else { body };
            let refused = app.post(path, body).await;
            refused.is_problem(422, "validation_failed");
            assert_eq!(refused.pointers(), [pointer], "{refused:?}");
        }
    }
    app.finish().await;
}

#[tokio::test]
async fn a_field_of_policy_that_is_missing_or_out_of_place_is_named() {
    let app = with_policy().await;
    let limit = json!({ "meter": "page", "capacity": "1", "window": "day" });
    let without = |field: &str| {
        let mut limit = limit.clone();
        limit.as_object_mut().unwrap().remove(field);
        limit
    };
    let punished = |punishment: Value| limit.clone().with("punishment", punishment);
    let price =
        json!({ "meter": "page", "model": "flat", "currency": "EUR", "effective_from": "2026-01-01" });
    let priced = |field: &str, value: &str| json!({ "prices": [price.clone().with(field, value)] });
    for (path, body, pointer) in [
        ("limits/l", without("window"), "/window"),
        ("limits/l", without("meter"), "/meter"),
        ("limits/l", without("capacity"), "/capacity"),
        ("limits/l", limit.clone().with("refill", "1"), "/refill"),
        ("limits/l", punished(json!({ "memory_seconds": 60, "ban_at": 3 })), "/punishment/ban_seconds"),
        ("limits/l", punished(json!({ "warn_at": 3 })), "/punishment/memory_seconds"),
        ("plans/p", priced("id", "base"), "/prices/0/flat"),
        ("plans/p", priced("unit", "1"), "/prices/0/unit"),
        ("plans/p", priced("flat", "0.001"), "/prices/0/flat"),
        ("plans/p", json!({ "quotas": [{ "meter": "page" }] }), "/quotas/0/included"),
    ] {
        let refused = app.put(&format!("/v1/admin/{path}"), body).await;
        refused.is_problem(422, "validation_failed");
        assert_eq!(refused.pointers(), [pointer], "{refused:?}");
    }
    let file = json!({ "policy": { "limits": [without("window").with("id", "l")] } });
    let refused = app.post("/v1/admin/policy", file).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), ["/policy/limits/0/window"], "{refused:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_call_that_needs_no_body_reads_the_one_that_it_gets() {
    let app = spawn_app().await;
    let void = "/v1/admin/grants/00000000-0000-0000-0000-000000000001/void";
    for (path, status) in [(void, 404), ("/v1/admin/gate/accept-time", 200)] {
        let refused = app.post(path, json!({ "x": 1 })).await;
        refused.is_problem(422, "validation_failed");
        assert_eq!(refused.pointers(), ["/x"], "{path}");
        post(&app, path, "nonsense").await.is_problem(400, "invalid_request");
        let text = app.request(Method::POST, path).header("content-type", "text/plain").body("{}");
        app.send(text).await.is_problem(415, "unsupported_media_type");
        app.post(path, json!({})).await.expect(status);
        app.call(Method::POST, path, json!(null)).await.expect(status);
    }
    app.finish().await;
}

#[tokio::test]
async fn a_large_body_is_413() {
    let app = spawn_app().await;
    for (path, bytes) in [
        (RESERVATIONS, 64 * 1024 + 1),
        (RESERVATIONS, 10 * 1024 * 1024),
        ("/v1/batch", 1024 * 1024 + 1),
        ("/v1/batch", 10 * 1024 * 1024),
    ] {
        post(&app, path, vec![b' '; bytes]).await.is_problem(413, "payload_too_large");
    }
    let answer = post(&app, "/v1/batch", format!("{{\"items\":[]}}{}", " ".repeat(100_000))).await;
    answer.is_problem(422, "validation_failed");
    app.finish().await;
}

#[tokio::test]
async fn a_body_that_is_not_plain_json_is_415() {
    let app = spawn_app().await;
    for (name, value) in
        [("content-type", "text/plain"), ("content-encoding", "gzip"), ("content-encoding", "br")]
    {
        let request = app.request(Method::POST, RESERVATIONS).body("{}");
        let request =
            if name == "content-type" { request } else { request.header("content-type", "application/json") };
        app.send(request.header(name, value)).await.is_problem(415, "unsupported_media_type");
    }
    let bare = app.request(Method::POST, RESERVATIONS).body("{}");
    app.send(bare).await.is_problem(415, "unsupported_media_type");
    app.finish().await;
}

#[tokio::test]
async fn a_parameter_on_a_call_without_parameters_is_400() {
    let app = with_policy().await;
    let answer = app.post("/v1/reservations?dry_run=true", pages("1")).await;
    answer.is_problem(400, "invalid_request");
    changes_nothing(&app).await;
    app.finish().await;
}
