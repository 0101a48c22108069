//! The contract as served, the headers of every answer, and unknown paths.

use super::with_policy;
use crate::support::app::*;
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn the_contract_is_served_and_browsable_without_anything_from_elsewhere() {
    let app = spawn_app().await;
    let anyone = app.with_key(None);
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
    app.finish().await;
}

#[tokio::test]
async fn every_answer_carries_security_headers_and_a_request_id() {
    let app = spawn_app().await;
    for path in ["/livez", "/v1/admin/plans", "/nowhere", "/docs/"] {
        let answer = app.get(path).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert!(answer.header("content-security-policy").contains("frame-ancestors 'none'"), "{path}");
        assert!(!answer.header("x-request-id").is_empty(), "{path}");
        assert_eq!(answer.header("server"), "", "{path}");
    }
    let asked = |id: &'static str| app.send(app.request(Method::GET, "/nowhere").header("x-request-id", id));
    assert_eq!(asked("trace-1").await.header("x-request-id"), "trace-1");
    assert_ne!(asked("a b;c").await.header("x-request-id"), "a b;c");
    app.finish().await;
}

#[tokio::test]
async fn what_is_not_served_is_404_and_a_wrong_method_405() {
    let app = spawn_app().await;
    for (method, path) in [
        (Method::POST, "/v1/ratelimit/forget"),
        (Method::POST, "/v1/adjustments/a/book"),
        (Method::GET, "/v1/tenants/acme/statements"),
        (Method::GET, "/v1/reports/breakage"),
        (Method::GET, "/v1/reservations/a/b/c"),
        (Method::GET, "/v1/admin/plans/"),
        (Method::GET, "/%76%31/admin/plans"),
    ] {
        app.send(app.request(method, path)).await.is_problem(404, "not_found");
    }
    let answer = app.send(app.request(Method::PATCH, "/v1/admin/plans/free")).await;
    answer.is_problem(405, "method_not_allowed");
    assert_eq!(answer.header("allow"), "GET, HEAD, PUT, DELETE");
    app.finish().await;
}

/// The document as it is served.
async fn contract() -> Value {
    let app = spawn_app().await;
    let contract = app.with_key(None).get("/openapi.json").await.expect(200).body;
    app.finish().await;
    contract
}

/// Every parameter, with the path of its call.
fn parameters(contract: &Value) -> Vec<(&str, &Value)> {
    let calls = contract["paths"].as_object().unwrap().iter();
    calls
        .flat_map(|(path, item)| item.as_object().unwrap().values().map(move |call| (path, call)))
        .flat_map(|(path, call)| {
            call["parameters"].as_array().into_iter().flatten().map(move |it| (path.as_str(), it))
        })
        .collect()
}

#[tokio::test]
async fn the_contract_says_that_amounts_may_be_integers() {
    let contract = contract().await;
    let schemas = &contract["components"]["schemas"];
    assert_eq!(schemas["Line"]["properties"]["amount"]["$ref"], "#/components/schemas/Amount");
    for (body, field) in [
        ("ReserveBody", "amount"),
        ("UsageBody", "amount"),
        ("ConsumeBody", "amount"),
        ("ReleaseBody", "incurred"),
    ] {
        let schema = &schemas[body]["properties"][field];
        assert_eq!(schema["oneOf"][0]["$ref"], "#/components/schemas/Amount", "{body}.{field}: {schema}");
    }
}

#[tokio::test]
async fn the_contract_bounds_every_parameter_that_is_a_text() {
    let contract = contract().await;
    for (path, parameter) in parameters(&contract) {
        let schema = &parameter["schema"];
        let bounded = ["pattern", "format", "enum", "maxLength"].iter().any(|word| !schema[word].is_null());
        let is_text = schema["type"] == "string";
        assert!(!is_text || bounded, "{path}: {parameter}");
    }
    let key = parameters(&contract).into_iter().find(|(_, it)| it["name"] == "Idempotency-Key").unwrap().1;
    assert!(key["schema"]["pattern"].as_str().unwrap().contains("{1,255}"), "{key}");
}

#[tokio::test]
async fn the_contract_names_exactly_the_words_by_which_each_report_can_be_split() {
    let app = with_policy().await;
    let contract = contract().await;
    let split = parameters(&contract).into_iter().filter(|(_, parameter)| parameter["name"] == "group_by");
    let split: Vec<_> = split.map(|(path, it)| (path, it["schema"]["pattern"].as_str().unwrap())).collect();
    assert_eq!(split.len(), 3, "{split:?}");
    let words_of = |pattern: &str| -> Vec<String> {
        let first = pattern.trim_start_matches("^(").split(')').next().unwrap();
        first.split('|').map(str::to_owned).collect()
    };
    let mut all: Vec<_> = split.iter().flat_map(|(_, pattern)| words_of(pattern)).collect();
    all.sort();
    all.dedup();
    assert_eq!(all, ["meter", "operation", "period", "plan", "subject", "tenant"]);
    for (path, pattern) in split {
        let (call, named) = (path.replace("{tenant}", "acme"), words_of(pattern));
        for word in &all {
            let expected = if named.contains(word) { 200 } else { 400 };
            assert_eq!(app.get(&format!("{call}?group_by={word}")).await.status, expected, "{call}: {word}");
        }
        app.get(&format!("{call}?group_by={}", named.join(","))).await.expect(200);
    }
    app.finish().await;
}

#[tokio::test]
async fn the_contract_promises_the_newest_first_only_where_a_list_is_sorted_so() {
    let contract = contract().await;
    let schemas = contract["components"]["schemas"].as_object().unwrap();
    let lists: Vec<_> = schemas.iter().filter(|(name, _)| name.starts_with("List_")).collect();
    assert!(lists.len() > 10, "{lists:?}");
    for (name, list) in lists {
        let text = list["description"].as_str().unwrap();
        assert!(text.contains("newest first, unless the call says"), "{name}: {text}");
    }
}

#[tokio::test]
async fn the_contract_lets_the_id_of_a_put_stand_in_its_path_alone() {
    let contract = contract().await;
    for kind in ["meters", "operations", "plans", "limits", "tenants"] {
        let put = &contract["paths"][format!("/v1/admin/{kind}/{{id}}")]["put"];
        let reference = put["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str().unwrap();
        let body = contract.pointer(reference.trim_start_matches('#')).unwrap();
        let required = body["required"].as_array().cloned().unwrap_or_default();
        assert!(!required.contains(&json!("id")), "{kind}: {required:?}");
        assert!(body["properties"]["id"].is_object(), "{kind}");
    }
    let file = &contract["components"]["schemas"];
    assert!(file["Meter"]["required"].as_array().unwrap().contains(&json!("id")), "in a file it is needed");
}

#[tokio::test]
async fn the_contract_bounds_lists_marks_times_and_names_every_word() {
    let contract = contract().await;
    let schemas = &contract["components"]["schemas"];
    let items = &schemas["BatchBody"]["properties"]["items"];
    assert_eq!((&items["minItems"], &items["maxItems"]), (&json!(1), &json!(1_000)));
    for body in ["ReserveBody", "UsageBody", "ConsumeBody", "ReleaseBody"] {
        let lines = &schemas[body]["properties"]["lines"];
        assert_eq!((&lines["minItems"], &lines["maxItems"]), (&json!(1), &json!(8)), "{body}");
    }
    for (schema, field) in [
        ("EntryRow", "period_start"),
        ("JobAnswer", "next_due"),
        ("JobRunAnswer", "scheduled_for"),
        ("DifferenceAnswer", "window_start"),
    ] {
        assert_eq!(schemas[schema]["properties"][field]["format"], "date-time", "{schema}.{field}");
    }
    let refused = schemas["RefusedBy"]["allOf"].as_array().unwrap();
    let refused = refused.iter().find(|part| part["properties"]["cause"].is_object()).unwrap();
    assert_eq!(refused["properties"]["next_hold_ends_at"]["format"], "date-time");
    let words = |name: &str| &schemas[name]["enum"];
    assert_eq!(refused["properties"]["cause"]["$ref"], "#/components/schemas/Cause");
    assert_eq!(words("Cause"), &json!(["consumed", "reserved", "interval", "anomaly", "banned"]));
    let answer = &schemas["ReservationAnswer"]["properties"];
    assert_eq!(answer["status"]["$ref"], "#/components/schemas/ReservationState");
    assert_eq!(words("ReservationState"), &json!(["reserved", "consumed", "released", "expired"]));
    assert_eq!(answer["ack"]["$ref"], "#/components/schemas/Ack");
    assert_eq!(words("Ack"), &json!(["gate", "ledger"]));
    let told = &schemas["ReserveAnswer"]["properties"]["status"];
    assert_eq!(told["oneOf"][0]["$ref"], "#/components/schemas/ReservationState", "{told}");
}

#[tokio::test]
async fn a_filter_by_a_tenant_that_is_not_there_is_404_everywhere() {
    let app = with_policy().await;
    let contract = contract().await;
    let mut asked = 0;
    for (path, item) in contract["paths"].as_object().unwrap() {
        let takes = |name: &str| {
            let mut parameters = item["get"]["parameters"].as_array().into_iter().flatten();
            parameters.any(|parameter| parameter["in"] == "query" && parameter["name"] == name)
        };
        if takes("tenant") {
            let named = path.replace("{id}", "any").replace("{subject}", "ada");
            let meter = if takes("meter") { "&meter=page" } else { "" };
            let answer = app.get(&format!("{named}?tenant=nobody{meter}")).await;
            assert_eq!((answer.status, answer.text("/code")), (404, "not_found"), "{path}: {answer:?}");
            assert!(item["get"]["responses"]["404"].is_object(), "the contract has it: {path}");
            asked += 1;
        }
    }
    assert!(asked >= 19, "{asked}");
    app.finish().await;
}

#[tokio::test]
async fn the_contract_names_what_is_answered_and_does_not_ask_for_what_is_not_checked() {
    let app = spawn_app().await;
    let contract = contract().await;
    for (path, query) in
        [("/v1/reports/usage", "tenant=nobody&granularity=month"), ("/v1/admin/overrides", "tenant=nobody")]
    {
        app.get(&format!("{path}?{query}")).await.is_problem(404, "not_found");
        assert!(contract["paths"][path]["get"]["responses"]["404"].is_object(), "{path}");
    }
    let of = |method: &str, path: &str, status: &str| &contract["paths"][path][method]["responses"][status];
    assert!(of("post", "/v1/admin/policy", "409").is_object(), "a plan that an upgrade request waits for");
    let draft = "/v1/tenants/{tenant}/statements/draft";
    assert!(of("get", draft, "422").is_object(), "a bill that is too large");
    let twice = json!({ "policy": {}, "prune": ["limits", "limits"], "dry_run": true });
    app.post("/v1/admin/policy", twice).await.expect(200);
    let prune = &contract["components"]["schemas"]["ApplyBody"]["properties"]["prune"];
    assert_eq!((&prune["type"], &prune["uniqueItems"]), (&json!("array"), &Value::Null), "{prune}");
    app.finish().await;
}
