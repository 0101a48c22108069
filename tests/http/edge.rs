//! Requests at the edge of the contract: fields that are null, methods beside GET, bodies left out, formats, and errors
//! that name the field that was sent.

use reqwest::header::ACCEPT;
use reqwest::{Method, redirect};
use rstest::rstest;
use serde_json::{Value, json};

use super::with_policy;
use crate::support::app::*;

#[tokio::test]
async fn a_field_that_is_null_is_as_if_it_were_left_out() {
    let app = with_policy().await;
    let mut hold = pages("2");
    for field in ["dry_run", "mode", "ttl_seconds", "metadata", "operation", "payload_fingerprint"] {
        hold[field] = Value::Null;
    }
    let held = app.post(RESERVATIONS, hold).await.expect(201);
    let consume = reservation(held.text("/id"), "consume");
    let nothing = json!({ "amount": null, "lines": null, "attributes": null, "final": null, "ack": null });
    let consumed = app.post(&consume, nothing).await.expect(200);
    assert_eq!((consumed.text("/status"), consumed.text("/ack")), ("consumed", "gate"));
    let mut usage = pages("1");
    for field in ["dry_run", "mode", "ack"] {
        usage[field] = Value::Null;
    }
    app.post_keyed(USAGE, "nulls", usage).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn a_release_needs_no_body() {
    let app = with_policy().await;
    let path = format!("/v1/reservations/{}/release", app.hold("2").await);
    let released = app.send(app.request(Method::POST, &path)).await.expect(200);
    assert_eq!(released.text("/status"), "released");
    let path = format!("/v1/reservations/{}/release", app.hold("2").await);
    let plain = app.request(Method::POST, &path).body("{}").header("content-type", "text/plain");
    app.send(plain).await.is_problem(415, "unsupported_media_type");
    let empty = app.request(Method::POST, &path).body("").header("content-type", "application/json");
    app.send(empty).await.expect(200);
    app.finish().await;
}

#[tokio::test]
async fn a_consume_and_an_extend_need_no_body_either() {
    let app = with_policy().await;
    let path = format!("/v1/reservations/{}", app.hold("2").await);
    let bare =
        async |verb: &str| app.send(app.request(Method::POST, &format!("{path}/{verb}"))).await.expect(200);
    assert_eq!(bare("extend").await.text("/status"), "reserved");
    let consumed = bare("consume").await;
    assert_eq!((consumed.text("/status"), consumed.text("/lines/0/consumed")), ("consumed", "2"));
    let contract = app.get("/openapi.json").await.expect(200).body;
    for verb in ["consume", "release", "extend"] {
        let body = &contract["paths"][format!("/v1/reservations/{{id}}/{verb}")]["post"]["requestBody"];
        assert_eq!(body["required"], false, "{verb}");
    }
    app.finish().await;
}

#[tokio::test]
async fn metadata_comes_back_as_it_was_sent_or_is_refused() {
    let app = with_policy().await;
    for (sent, kept) in [
        ("12345678901234567890123", None),
        ("1e-400", None),
        ("0.1000000000000000055", None),
        ("1e5", Some("100000.0")),
        ("1.50", Some("1.5")),
        ("0e0", Some("0.0")),
        ("1E+2", Some("100.0")),
        ("1e-7", Some("1e-7")),
        ("18446744073709551615", Some("18446744073709551615")),
        ("-9223372036854775808", Some("-9223372036854775808")),
        ("-0.5", Some("-0.5")),
    ] {
        let mut hold = pages("1");
        hold["metadata"] = json!({ "a/b": [{ "n": 0 }] });
        let text = hold.to_string().replace("\"n\":0", &format!("\"n\":{sent}"));
        let request = app.request(Method::POST, RESERVATIONS);
        let answer = app.send(request.header("content-type", "application/json").body(text)).await;
        let Some(kept) = kept else {
            answer.is_problem(422, "validation_failed");
            assert_eq!(answer.pointers(), ["/metadata/a~1b/0/n"], "{sent}");
            continue;
        };
        let path = format!("/v1/reservations/{}", answer.expect(201).text("/id"));
        let read = app.request(Method::GET, &path).send().await.unwrap().text().await.unwrap();
        assert!(read.contains(&format!("\"n\":{kept}}}")), "{sent}: {read}");
    }
    app.finish().await;
}

#[tokio::test]
async fn if_match_with_a_star_needs_an_existing_object() {
    let app = with_policy().await;
    let path = "/v1/admin/meters/page";
    let star = async |method: Method, path: &str| {
        let request = app.request(method.clone(), path).header("if-match", "*");
        let unit = json!({ "unit": "page" });
        app.send(if method == Method::PUT { request.json(&unit) } else { request }).await
    };
    star(Method::PUT, "/v1/admin/meters/none").await.is_problem(412, "precondition_failed");
    star(Method::PUT, path).await.expect(200);
    app.put("/v1/admin/meters/spare", json!({ "unit": "page" })).await;
    star(Method::DELETE, "/v1/admin/meters/spare").await.expect(204);
    app.finish().await;
}

#[tokio::test]
async fn head_is_answered_where_get_is_and_without_a_body() {
    let app = with_policy().await;
    for path in [
        "/livez",
        "/readyz",
        "/openapi.json",
        "/docs/",
        "/v1/admin/plans",
        "/v1/admin/plans/none",
        "/v1/tenants/none/quota",
        "/nowhere",
    ] {
        let got = app.get(path).await;
        let headed = app.send(app.request(Method::HEAD, path)).await;
        assert_eq!((headed.status, headed.body), (got.status, json!("")), "{path}");
        for header in ["content-type", "etag", "content-security-policy"] {
            assert_eq!(headed.headers.get(header), got.headers.get(header), "{path}");
        }
    }
    let anyone = app.with_key(None);
    assert_eq!(anyone.send(anyone.request(Method::HEAD, "/v1/admin/plans")).await.status, 401);
    let usage = app.send(app.request(Method::HEAD, USAGE)).await;
    assert_eq!((usage.status, usage.header("allow")), (405, "POST"));
    app.finish().await;
}

#[tokio::test]
async fn the_address_alone_leads_to_the_docs() {
    let app = spawn_app().await;
    let client = reqwest::Client::builder().redirect(redirect::Policy::none()).build().unwrap();
    let answer = answered(client.get(app.url()).send().await.unwrap()).await.expect(307);
    assert_eq!(answer.header("location"), "/docs/");
    app.finish().await;
}

#[rstest]
#[case("text/plain", "text/plain; version=0.0.4")]
#[case("*/*", "text/plain; version=0.0.4")]
#[case("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text")]
#[tokio::test]
async fn metrics_come_in_the_format_that_is_asked_for(#[case] accept: &str, #[case] expected: &str) {
    let app = spawn_app().await;
    let asked = app.client().get(format!("{}/metrics", app.ops_url())).header(ACCEPT, accept);
    let answer = answered(asked.send().await.unwrap()).await.expect(200);
    assert!(answer.header("content-type").starts_with(expected), "{answer:?}");
    let text = answer.body.as_str().unwrap();
    let is_open = expected.contains("openmetrics");
    assert_eq!(text.ends_with("# EOF\n"), is_open);
    assert_eq!(text.contains("# TYPE tollgate_build info\n"), is_open);
    assert_eq!(text.contains("# TYPE tollgate_decisions_total counter\n"), !is_open);
    assert!(text.contains("\ntollgate_decisions_total{call=\"reserve\",outcome=\"admitted\"} 0\n"));
    app.finish().await;
}

/// The one pointer of a 422.
async fn wrong_field(app: &TestApp, path: &str, body: Value) -> (String, String) {
    let answer = app.post_keyed(path, "wrong", body).await;
    answer.is_problem(422, "validation_failed");
    let (pointers, detail) = (answer.pointers(), answer.text("/detail").to_owned());
    assert_eq!(pointers.len(), 1, "{answer:?}");
    (pointers[0].to_owned(), detail)
}

#[tokio::test]
async fn an_error_names_the_field_that_was_sent() {
    let app = with_policy().await;
    let id = app.hold("2").await;
    let (consume, release) = (reservation(&id, "consume"), reservation(&id, "release"));
    let lines = |amount: &str| json!({ "lines": [{ "meter": "page", "amount": amount }] });
    for (path, body, pointer) in [
        (RESERVATIONS, pages("1.5"), "/amount"),
        (USAGE, pages("1.5"), "/amount"),
        (&consume, json!({ "amount": "1.5" }), "/amount"),
        (&consume, json!({ "amount": "9000000000000001" }), "/amount"),
        (&consume, lines("1.5"), "/lines/0/amount"),
        (&consume, lines("1").with("lines", json!([{ "meter": "other", "amount": "1" }])), "/lines/0/meter"),
        (&release, json!({ "incurred": "1.5" }), "/incurred"),
        (&release, lines("1.5"), "/lines/0/amount"),
    ] {
        let (found, detail) = wrong_field(&app, path, body.clone()).await;
        assert_eq!(found, pointer, "{path} {body}");
        assert!(detail.starts_with(&format!("{pointer}: ")), "{detail}");
    }
    app.finish().await;
}

#[tokio::test]
async fn an_invalid_id_is_named_in_a_put_and_not_found_in_a_get() {
    let app = spawn_app().await;
    for kind in ["tenants", "plans", "meters", "operations", "limits", "overrides"] {
        let path = format!("/v1/admin/{kind}/{}", "x".repeat(65));
        let answer = app.put(&path, json!({})).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), ["/id"], "{kind}");
        let whose = if kind == "overrides" { "?tenant=t" } else { "" };
        app.get(&format!("{path}{whose}")).await.is_problem(404, "not_found");
    }
    app.finish().await;
}

#[tokio::test]
async fn errors_speak_of_numbers_and_times_as_callers_know_them() {
    let app = with_policy().await;
    let hold = |field: &str, value: Value| {
        let mut hold = pages("1");
        hold[field] = value;
        hold
    };
    let attributes =
        |pages: Value| json!({ "tenant": "acme", "operation": "submit", "attributes": { "pages": pages } });
    for (path, body, words) in [
        (RESERVATIONS, hold("ttl_seconds", json!(-1)), "a whole number from 1 to 86400"),
        (RESERVATIONS, hold("ttl_seconds", json!("60")), "a whole number from 1 to 86400"),
        (RESERVATIONS, hold("lines", json!({})), "expected a list"),
        (RESERVATIONS, attributes(json!(9_007_199_254_740_993_u64)), "below 2^53, or a decimal string"),
        (RESERVATIONS, attributes(json!(-1)), "must not be negative"),
        ("/v1/admin/keys", json!({ "name": "n", "role": "service", "expires_at": 5 }), "an RFC 3339 time"),
        (
            "/v1/admin/keys",
            json!({ "name": "n", "role": "service", "expires_at": "soon" }),
            "an RFC 3339 time",
        ),
    ] {
        let (_, detail) = wrong_field(&app, path, body).await;
        assert!(detail.contains(words), "{detail}");
    }
    let until = json!({ "tenant": "acme", "level": "tenant", "limit": "day", "capacity": "5", "until": 5 });
    let answer = app.put("/v1/admin/overrides/o", until).await;
    answer.is_problem(422, "validation_failed");
    assert!(answer.text("/detail").contains("an RFC 3339 time"), "{answer:?}");
    app.finish().await;
}

#[tokio::test]
async fn if_none_match_creates_only_where_there_is_none() {
    let app = spawn_app().await;
    let path = "/v1/admin/meters/page";
    let create = |unit: &str| {
        let body = json!({ "unit": unit });
        app.request(Method::PUT, path).header("if-none-match", "*").json(&body)
    };
    app.send(create("page")).await.expect(201);
    app.send(create("page")).await.is_problem(412, "precondition_failed");
    app.send(create("sheet")).await.is_problem(412, "precondition_failed");
    assert_eq!(app.get(path).await.text("/unit"), "page");
    let delete = app.request(Method::DELETE, path).header("if-none-match", "*");
    app.send(delete).await.is_problem(400, "invalid_request");
    app.delete(path).await.expect(204);
    let racing = (0..8).map(|number| app.send(create(&format!("unit-{number}"))));
    let made = futures::future::join_all(racing).await.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 1);
    app.finish().await;
}
