//! The contract as served, the headers of every answer, and what is not there.

use reqwest::Method;

use super::World;

#[tokio::test]
async fn the_contract_is_served_and_browsable_without_anything_from_elsewhere() {
    let world = World::empty().await;
    let anyone = world.admin.with_key(None);
    let contract = anyone.get("/openapi.json").await;
    assert_eq!((contract.status, contract.body["openapi"].as_str()), (200, Some("3.1.0")));
    let page = anyone.get("/docs/").await;
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe-eval") && !policy.contains("http"), "{policy}");
    let html = page.body.as_str().unwrap();
    let foreign: Vec<_> =
        html.split(['"', '\'']).filter(|text| text.starts_with("http") || text.starts_with("//")).collect();
    assert!(foreign.is_empty(), "the page loads {foreign:?}");
    for file in html
        .split('"')
        .filter(|text| text.starts_with("./") || text.ends_with(".js") || text.ends_with(".css"))
    {
        let path = format!("/docs/{}", file.trim_start_matches("./"));
        assert_eq!(anyone.get(&path).await.status, 200, "{path}");
    }
    assert!(anyone.get("/docs/swagger-initializer.js").await.body.to_string().contains("/openapi.json"));
    anyone.get("/docs/../../etc/passwd").await.is_problem(404, "not_found");
    anyone.get("/docs/nothing.js").await.is_problem(404, "not_found");
}

#[tokio::test]
async fn every_answer_carries_security_headers_and_a_request_id() {
    let world = World::empty().await;
    for path in ["/livez", "/v1/admin/plans", "/nowhere", "/docs/"] {
        let answer = world.admin.get(path).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert!(answer.header("content-security-policy").contains("frame-ancestors 'none'"), "{path}");
        assert!(!answer.header("x-request-id").is_empty(), "{path}");
        assert_eq!(answer.header("server"), "", "{path}");
    }
    let asked = |id: &'static str| {
        world.admin.send(world.admin.request(Method::GET, "/nowhere").header("x-request-id", id))
    };
    assert_eq!(asked("trace-1").await.header("x-request-id"), "trace-1");
    assert_ne!(asked("a b;c").await.header("x-request-id"), "a b;c");
}

#[tokio::test]
async fn what_is_not_served_is_404_and_a_wrong_method_405() {
    let world = World::empty().await;
    for (method, path) in [
        (Method::POST, "/v1/events"),
        (Method::POST, "/v1/ratelimit/check"),
        (Method::POST, "/v1/adjustments"),
        (Method::POST, "/v1/admin/grants"),
        (Method::GET, "/v1/tenants/acme/statements"),
        (Method::GET, "/v1/reports/revenue"),
        (Method::GET, "/v1/reservations/a/b/c"),
        (Method::GET, "/v1/admin/plans/"),
        (Method::GET, "/%76%31/admin/plans"),
    ] {
        world.admin.send(world.admin.request(method, path)).await.is_problem(404, "not_found");
    }
    let answer = world.admin.send(world.admin.request(Method::PATCH, "/v1/admin/plans/free")).await;
    answer.is_problem(405, "method_not_allowed");
    assert_eq!(answer.header("allow"), "GET, HEAD, PUT, DELETE");
}
