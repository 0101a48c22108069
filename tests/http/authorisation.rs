//! Every documented call with every kind of key: who may and who may not.

use reqwest::Method;
use serde_json::{Value, json};

use super::with_policy;
use crate::support::app::*;

/// Whether the contract lets this key call; a path that no rule covers fails the test.
fn may(role: &str, bound: bool, method: &str, path: &str) -> bool {
    let read = method == "get";
    let gate = path.starts_with(RESERVATIONS) || path == USAGE || matches!(path, "/v1/batch" | "/v1/events");
    let gate = gate || path.starts_with("/v1/ratelimit/") || path.starts_with("/v1/decisions/");
    let own = path.starts_with("/v1/tenants/");
    let report = path.starts_with("/v1/reports/");
    let books = path.starts_with("/v1/reconciliations") || path.starts_with("/v1/adjustments");
    let admin = path.starts_with("/v1/admin/") || books;
    let asks = own && !read;
    assert!(gate || own || report || admin, "no rule says who may call {path}");
    match (role, bound) {
        ("admin", _) => true,
        ("finance", false) => read || books || path.starts_with("/v1/admin/grants"),
        ("finance", true) => read && !admin,
        ("service", _) => gate || own && !asks,
        ("tenant", _) => own,
        _ => false,
    }
}

async fn call(caller: &Caller, method: &str, path: &str, tenant: &str) -> Answered {
    let path = path.replace("{tenant}", tenant).replace("{id}", "no-such-thing");
    let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
    let request = caller.request(method.clone(), &path);
    let request =
        if matches!(method, Method::POST | Method::PUT) { request.json(&json!({})) } else { request };
    caller.send(request).await
}

async fn documented_calls(app: &TestApp) -> Vec<(String, String)> {
    let contract = app.get("/openapi.json").await.body;
    let paths = contract["paths"].as_object().unwrap();
    let calls = paths.iter().filter(|(path, _)| path.starts_with("/v1/"));
    calls.flat_map(|(path, item)| methods(item).map(move |method| (method, path.clone()))).collect()
}

fn methods(item: &Value) -> impl Iterator<Item = String> {
    item.as_object().unwrap().keys().cloned()
}

#[tokio::test]
async fn each_key_calls_what_its_role_may_and_nothing_else() {
    let app = with_policy().await;
    let own = "acme";
    let mut keys = vec![("admin", false, app.caller())];
    for (role, bound) in
        [("finance", false), ("finance", true), ("service", false), ("service", true), ("tenant", true)]
    {
        keys.push((role, bound, app.make_key(role, bound.then_some(own)).await));
    }
    // An address without a key that works has to wait after a hundred calls.
    let keyless = [30, 31].map(|last| app.with_key(None).at_address([127, 0, 0, last]));
    for ((method, path), keyless) in documented_calls(&app).await.into_iter().zip(keyless.iter().cycle()) {
        call(keyless, &method, &path, own).await.is_problem(401, "unauthenticated");
        for (role, bound, caller) in &keys {
            let answer = call(caller, &method, &path, own).await;
            let admitted = answer.status != 401 && answer.status != 403;
            assert_eq!(
                admitted,
                may(role, *bound, &method, &path),
                "{role} (bound: {bound}) {method} {path}: {answer:?}"
            );
            assert!(answer.status < 500, "{role} {method} {path}: {answer:?}");
            if !admitted {
                answer.is_problem(403, "forbidden");
            }
        }
    }
    app.finish().await;
}

#[tokio::test]
async fn another_tenant_is_403_with_the_same_words_whether_it_exists_or_not() {
    let app = with_policy().await;
    let (own, other) = ("acme", "other");
    for role in ["service", "tenant", "finance"] {
        let bound = app.make_key(role, Some(own)).await;
        for (method, path) in
            documented_calls(&app).await.iter().filter(|(_, path)| path.contains("{tenant}"))
        {
            let existing = call(&bound, method, path, other).await;
            let absent = call(&bound, method, path, "nobody-at-all").await;
            existing.is_problem(403, "forbidden");
            absent.is_problem(403, "forbidden");
            assert_eq!(existing.body["detail"], absent.body["detail"]);
        }
    }
    let bound = app.make_key("service", Some(own)).await;
    for tenant in [other, "nobody-at-all"] {
        let mut body = pages("1");
        body["tenant"] = json!(tenant);
        bound.post(RESERVATIONS, body.clone()).await.is_problem(403, "forbidden");
        bound.post_keyed(USAGE, "k", body).await.is_problem(403, "forbidden");
    }
    app.finish().await;
}

#[tokio::test]
async fn a_bound_key_may_leave_its_tenant_out() {
    let app = with_policy().await;
    let bound = app.make_key("service", Some("acme")).await;
    let held = bound.post(RESERVATIONS, json!({ "meter": "page", "amount": "1" })).await;
    assert_eq!((held.status, &held.body["tenant"]), (201, &json!("acme")), "{held:?}");
    let answer = app.post(RESERVATIONS, json!({ "meter": "page", "amount": "1" })).await;
    assert_eq!((answer.status, answer.pointers()), (422, vec!["/tenant"]));
    app.finish().await;
}

#[tokio::test]
async fn guessing_keys_is_slowed_down_and_a_good_key_is_not() {
    let app = spawn_app().await;
    let guesser = app.at_address([127, 0, 0, 9]);
    let mut refused = 0;
    for guess in 0..1000 {
        let answer = guesser.with_key(Some(&format!("tg_{guess}_guess"))).get("/v1/admin/plans").await;
        if answer.status == 429 {
            answer.is_problem(429, "rate_limited");
            assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
            refused += 1;
        } else {
            answer.is_problem(401, "unauthenticated");
            assert_eq!(answer.header("www-authenticate"), "Bearer");
        }
    }
    assert!(refused > 500, "{refused}");
    assert_eq!(guesser.get("/v1/admin/plans").await.status, 200);
    app.finish().await;
}
