//! `/v1/admin/policy`: a file applied at once, or not at all.

use serde_json::{Value, json};

use crate::support::app::*;

const PATH: &str = "/v1/admin/policy";

fn limit(id: &str, capacity: &str) -> Value {
    json!({ "id": id, "meter": "page", "window": "day", "capacity": capacity })
}

async fn spawn() -> TestApp {
    let app = spawn_app().await;
    app.with_plan(json!([limit("day", "10"), limit("more", "20")]), json!([])).await;
    app
}

#[tokio::test]
async fn a_file_with_one_good_and_one_forbidden_change_keeps_nothing() {
    let app = spawn().await;
    let usage = pages("1").with("ack", "ledger");
    app.post_keyed(USAGE, "k", usage).await.expect(201);
    let before = app.post(PATH, json!({ "policy": {}, "dry_run": true })).await.expect(200);
    let file = json!({
        "meters": [{ "id": "fresh", "unit": "page" }, { "id": "page", "unit": "sheet" }],
        "plans": [{ "id": "good" }, { "id": "plan", "limits": [limit("day", "11")] }],
        "tenants": [{ "id": "beta", "plan": "none" }],
    });
    for dry_run in [true, false] {
        let answer = app.post(PATH, json!({ "policy": file, "dry_run": dry_run })).await;
        answer.is_problem(422, "validation_failed");
        let expected = ["/policy/plans/1/limits", "/policy/tenants/0/plan", "/policy/meters/1/unit"];
        assert_eq!(answer.pointers(), expected, "each refusal is named before anything is tried");
    }
    assert_eq!(app.get("/v1/admin/meters/fresh").await.status, 404);
    assert_eq!(app.get("/v1/admin/plans/good").await.status, 404);
    let after = app.post(PATH, json!({ "policy": {}, "dry_run": true })).await.expect(200);
    assert_eq!(before.body["version"], after.body["version"]);
    app.finish().await;
}

#[tokio::test]
async fn a_file_is_applied_under_one_version() {
    let app = spawn().await;
    let file = json!({
        "meters": [{ "id": "fresh", "unit": "page" }],
        "plans": [{ "id": "plan", "limits": [limit("day", "11")], "quotas": [{ "meter": "fresh", "included": "5" }] }],
        "tenants": [{ "id": "acme", "plan": "plan" }, { "id": "beta", "plan": "plan" }],
    });
    let body = |dry_run: bool| json!({ "policy": file, "prune": ["limits"], "dry_run": dry_run });
    let asked = app.post(PATH, body(true)).await.expect(200);
    let shown: Vec<_> = asked.body["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| {
            (
                change["action"].as_str().unwrap(),
                change["kind"].as_str().unwrap(),
                change["id"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [("create", "meter", "fresh"), ("change", "plan", "plan"), ("create", "tenant", "beta")]
    );
    let removal = &asked.body["changes"][1]["fields"][1];
    assert_eq!(
        (removal["action"].as_str(), removal["pointer"].as_str()),
        (Some("delete"), Some("/limits/more"))
    );
    let applied = app.post(PATH, body(false)).await.expect(200);
    assert_eq!(applied.body["changes"], asked.body["changes"]);
    let version = asked.body["version"].as_u64().unwrap() + 1;
    assert_eq!(applied.body["version"], version);
    let quota = app.get("/v1/tenants/beta/quota").await.expect(200);
    assert_eq!((quota.text("/limits/0/capacity"), quota.text("/quotas/0/included")), ("11", "5"));
    assert_eq!(quota.body["limits"].as_array().unwrap().len(), 1);
    let again = app.post(PATH, body(false)).await.expect(200);
    assert_eq!((&again.body["changes"], &again.body["version"]), (&json!([]), &json!(version)));
    app.finish().await;
}

#[tokio::test]
async fn an_apply_makes_exactly_the_changes_of_its_diff_or_none() {
    let app = spawn().await;
    let body = |more: Value| {
        let mut body =
            json!({ "policy": { "tenants": [{ "id": "acme", "plan": "plan", "anchor_day": 5 }] } });
        more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        body
    };
    let asked = app.post(PATH, body(json!({ "dry_run": true }))).await.expect(200);
    let digest = asked.text("/digest").to_owned();
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    app.define("tenants/acme", json!({ "plan": "plan", "anchor_day": 3 })).await;
    app.post(PATH, body(json!({ "expected_digest": digest }))).await.is_problem(412, "precondition_failed");
    assert_eq!(app.get("/v1/admin/tenants/acme").await.body["anchor_day"], 3);
    let asked = app.post(PATH, body(json!({ "dry_run": true }))).await.expect(200);
    app.define("tenants/third", json!({ "plan": "plan" })).await;
    let applied = app.post(PATH, body(json!({ "expected_digest": asked.text("/digest") }))).await.expect(200);
    assert_eq!(applied.body["changes"], asked.body["changes"], "other tenants change nothing about it");
    app.finish().await;
}

#[tokio::test]
async fn a_prune_that_meets_something_in_use_names_it_and_changes_nothing() {
    let app = spawn().await;
    let usage = pages("1").with("ack", "ledger");
    app.post_keyed(USAGE, "k", usage).await.expect(201);
    let answer = app.post(PATH, json!({ "policy": {}, "prune": ["plans", "meters"] })).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/policy/tenants/acme/plan", "/policy/meters/page"]);
    assert_eq!(app.get("/v1/admin/meters/token").await.status, 200);
    app.post(PATH, json!({ "policy": {}, "prune": ["tenants"] })).await.is_problem(422, "validation_failed");
    app.finish().await;
}

#[tokio::test]
async fn a_thousand_tenants_are_applied_at_once() {
    let app = spawn().await;
    let tenants: Vec<_> = (0..1_500).map(|n| json!({ "id": format!("t-{n}"), "plan": "plan" })).collect();
    let applied = app.post(PATH, json!({ "policy": { "tenants": tenants } })).await.expect(200);
    assert_eq!(applied.body["changes"].as_array().unwrap().len(), 1_500);
    assert_eq!(app.get("/v1/tenants/t-1499/quota").await.expect(200).text("/limits/0/capacity"), "10");
    app.finish().await;
}

#[tokio::test]
async fn a_limit_by_address_alone_is_applied_with_a_warning() {
    let app = spawn().await;
    let by = |kind: &str| {
        limit(kind, "5").with("scope", "subject").with("subject_kind", kind).with("class", "rate")
    };
    let file = |limits: Value| json!({ "policy": { "plans": [{ "id": "other", "limits": limits }] } });
    for dry_run in [true, false] {
        let answer = app.post(PATH, file(json!([by("ip")])).with("dry_run", dry_run)).await.expect(200);
        let warnings = answer.body["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 1, "{answer:?}");
        assert_eq!(answer.text("/warnings/0/pointer"), "/policy/plans/0/limits/0/subject_kind");
        assert!(answer.text("/warnings/0/message").contains("IP address alone"), "{answer:?}");
    }
    let answer = app.post(PATH, file(json!([by("ip"), by("user")]))).await.expect(200);
    assert_eq!(answer.body["warnings"], json!([]));
    app.finish().await;
}
