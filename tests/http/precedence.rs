//! Which definition of a limit wins: emergency, subject, tenant, plan, default; and what belongs to whom.

use serde_json::{Value, json};

use crate::support::app::*;

const DAY: &str = "day";

fn user_day_of(capacity: &str) -> Value {
    json!({ "id": "user-day", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day", "capacity": capacity })
}

/// Capacity and level of a limit as a dry run for this user finds them.
async fn in_force(app: &TestApp, limit: &str, user: &str) -> (String, String) {
    let tried = app.post(RESERVATIONS, pages("1").by(user).with("dry_run", true)).await.expect(200);
    let limits = tried.body["limits"].as_array().unwrap();
    let found = limits.iter().find(|one| one["id"] == limit).unwrap_or_else(|| panic!("{limit}: {tried:?}"));
    (found["capacity"].as_str().unwrap().to_owned(), found["level"].as_str().unwrap().to_owned())
}

fn is(capacity: &str, level: &str) -> (String, String) {
    (capacity.to_owned(), level.to_owned())
}

async fn put_override(app: &TestApp, id: &str, mut body: Value) {
    body["tenant"] = json!("acme");
    body["limit"] = json!(if body["level"] == "subject" { "user-day" } else { DAY });
    app.define(&format!("overrides/{id}"), body).await;
}

#[tokio::test]
async fn the_nearest_level_wins_and_the_answer_names_it() {
    let app = spawn_app().await;
    app.without_limits().await;
    app.define("limits/day", day_of("10")).await;
    assert_eq!(in_force(&app, DAY, "ada").await, is("10", "default"));
    app.define("plans/plan", json!({ "limits": [day_of("20"), user_day_of("5")] })).await;
    assert_eq!(in_force(&app, DAY, "ada").await, is("20", "plan"));
    app.define("tenants/acme", json!({ "plan": "plan", "limits": [day_of("30")] })).await;
    assert_eq!(in_force(&app, DAY, "ada").await, is("30", "tenant"));
    put_override(&app, "wider", json!({ "level": "tenant", "capacity": "40", "reason": "migration" })).await;
    assert_eq!(in_force(&app, DAY, "ada").await, is("40", "tenant"));
    put_override(&app, "storm", json!({ "level": "emergency", "capacity": "7", "reason": "overload" })).await;
    assert_eq!(in_force(&app, DAY, "ada").await, is("7", "emergency"));
    assert_eq!(in_force(&app, "user-day", "ada").await, is("5", "plan"));
    let for_ada = json!({ "level": "subject", "subject": { "kind": "user", "id": "ada" }, "capacity": "6", "reason": "trial" });
    put_override(&app, "ada", for_ada).await;
    assert_eq!(in_force(&app, "user-day", "ada").await, is("6", "subject"));
    assert_eq!(in_force(&app, "user-day", "bob").await, is("5", "plan"));
    app.finish().await;
}

#[tokio::test]
async fn a_factor_multiplies_what_would_win_without_it() {
    let app = spawn_app().await;
    app.with_day_of("25").await;
    put_override(&app, "half", json!({ "level": "emergency", "factor": "0.5", "reason": "overload" })).await;
    assert_eq!(in_force(&app, DAY, "ada").await, is("12", "emergency"));
    app.finish().await;
}

#[tokio::test]
async fn a_subject_on_a_plan_of_its_own_has_only_its_subject_limits() {
    let app = spawn_app().await;
    app.with_plan(json!([day_of("100"), user_day_of("5")]), json!([quota_of("90")])).await;
    app.define("plans/premium", json!({ "limits": [day_of("9999"), user_day_of("50")], "quotas": [{ "meter": "page", "included": "9999" }] })).await;
    app.define(
        "tenants/acme",
        json!({ "plan": "plan", "subjects": [{ "kind": "user", "id": "vip", "plan": "premium" }] }),
    )
    .await;
    assert_eq!(in_force(&app, "user-day", "vip").await, is("50", "subject"));
    assert_eq!(in_force(&app, "user-day", "ada").await.0, "5");
    assert_eq!(in_force(&app, DAY, "vip").await, is("100", "plan"));
    assert_eq!(in_force(&app, "quota:page", "vip").await.0, "90");
    app.finish().await;
}

#[tokio::test]
async fn each_subject_counts_for_itself_and_up_to_four_kinds_at_once() {
    let app = spawn_app().await;
    let of_kind = |kind: &str, capacity: &str| json!({ "id": kind, "meter": "page", "scope": "subject", "subject_kind": kind, "window": "day", "capacity": capacity });
    let limits =
        json!([of_kind("user", "5"), of_kind("ip", "7"), of_kind("device", "8"), of_kind("project", "9")]);
    app.with_plan(limits, json!([])).await;
    let body = |user: &str, amount: &str| json!({ "tenant": "acme", "meter": "page", "amount": amount, "subjects": { "user": user, "ip": "192.0.2.1", "device": "d", "project": "p" } });
    let reserved = app.post(RESERVATIONS, body("ada", "5")).await.expect(201);
    assert_eq!(reserved.body["limits"].as_array().unwrap().len(), 4);
    let refused = app.post(RESERVATIONS, body("bob", "3")).await;
    refused.is_problem(429, "quota_exceeded");
    assert_eq!(refused.body["refused_by"].as_array().unwrap().len(), 1, "{refused:?}");
    assert_eq!(refused.text("/refused_by/0/id"), "ip");
    app.post(RESERVATIONS, body("bob", "2")).await.expect(201);
    let mut five = body("eve", "1");
    five["subjects"]["session"] = json!("s");
    app.post(RESERVATIONS, five).await.is_problem(422, "validation_failed");
    app.finish().await;
}

#[tokio::test]
async fn a_changed_capacity_goes_on_counting() {
    let app = spawn_app().await;
    app.with_day_of("10").await;
    let used = |key: &'static str, amount: &'static str| app.use_pages(key, amount);
    used("a", "8").await.expect(201);
    used("b", "3").await.is_problem(429, "quota_exceeded");
    app.define("plans/plan", json!({ "limits": [day_of("11")] })).await;
    let raised = used("b", "3").await.expect(201);
    assert_eq!((raised.text("/limits/0/consumed"), raised.text("/limits/0/remaining")), ("11", "0"));
    app.define("plans/plan", json!({ "limits": [day_of("5")] })).await;
    used("c", "1").await.is_problem(429, "quota_exceeded");
    app.finish().await;
}

#[tokio::test]
async fn an_override_is_read_by_its_id_and_its_tenant() {
    let app = spawn_app().await;
    app.with_day_of("25").await;
    put_override(&app, "wider", json!({ "level": "tenant", "capacity": "40", "reason": "migration" })).await;
    let read = app.get("/v1/admin/overrides/wider?tenant=acme").await.expect(200);
    assert_eq!(
        (read.text("/id"), read.text("/tenant"), read.text("/capacity")),
        ("wider", "acme", "40"),
        "{read:?}"
    );
    let version = app.get("/v1/admin/tenants/acme").await.expect(200).body["version"].clone();
    assert_eq!((&read.body["version"], read.header("etag")), (&version, format!("\"{version}\"").as_str()));
    app.get("/v1/admin/overrides/other?tenant=acme").await.is_problem(404, "not_found");
    app.get("/v1/admin/overrides/wider?tenant=nobody").await.is_problem(404, "not_found");
    app.get("/v1/admin/overrides/wider").await.is_problem(400, "invalid_request");
    let delete = async |tenant: &str| app.delete(&format!("/v1/admin/overrides/wider?tenant={tenant}")).await;
    delete("nobody").await.is_problem(404, "not_found");
    delete("acme").await.expect(204);
    app.finish().await;
}
