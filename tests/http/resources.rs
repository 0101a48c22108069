//! Policy objects, overrides and bans as resources: what was read is put back, versions guard changes, lists have
//! pages.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::app::*;

/// Every page of a list, with so many rows in each.
async fn in_pages(app: &TestApp, path: &str, limit: usize) -> Vec<Vec<Value>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let joint = if path.contains('?') { '&' } else { '?' };
        let page = app.get(&format!("{path}{joint}limit={limit}{cursor}")).await.expect(200);
        pages.push(page.body["data"].as_array().expect("rows").clone());
        let Some(next) = page.body["next_cursor"].as_str() else { return pages };
        assert_eq!(page.body["has_more"], json!(true));
        cursor = format!("&cursor={next}");
    }
}

fn names(rows: &[Value]) -> Vec<String> {
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    rows.iter().map(|row| format!("{} {}", text(row, "tenant"), text(row, "id"))).collect()
}

async fn with_something_of_each_kind() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_day_of("100").await;
    app.define("operations/submit", json!({ "costs": [{ "meter": "page", "base": "1" }] })).await;
    app.define("limits/hour", json!({ "meter": "page", "window": "hour", "capacity": "9" })).await;
    let wider =
        json!({ "tenant": "acme", "level": "tenant", "limit": "day", "capacity": "40", "reason": "move" });
    app.define("overrides/wider", wider).await;
    app.define("bans/spam", json!({ "tenant": "acme", "subject": { "kind": "user", "id": "ada" } })).await;
    app
}

#[rstest]
#[case("meters/page")]
#[case("operations/submit")]
#[case("limits/hour")]
#[case("plans/plan")]
#[case("tenants/acme")]
#[case("overrides/wider?tenant=acme")]
#[case("bans/spam?tenant=acme")]
#[tokio::test]
async fn what_was_read_is_put_back_as_it_is_unless_it_has_changed_since(#[case] path: &str) {
    let app = with_something_of_each_kind().await;
    let read = app.get(&format!("/v1/admin/{path}")).await.expect(200).body;
    let place = format!("/v1/admin/{}", path.split('?').next().unwrap());
    let put = app.put(&place, read.clone()).await.expect(200);
    assert_eq!(put.body, read, "nothing has changed");
    // Another version is not replaced, in whichever way it is named.
    let older = read.clone().with("version", read["version"].as_u64().unwrap() + 1);
    app.put(&place, older.clone()).await.is_problem(412, "precondition_failed");
    let tagged = |tag: &str, body: &Value| {
        app.send(app.request(Method::PUT, &place).header("if-match", tag).json(body))
    };
    let answer = tagged("\"99\"", &read).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/version"]);
    let wrong = app.put(&place, read.clone().with("version", "first")).await;
    wrong.is_problem(422, "validation_failed");
    assert_eq!(wrong.pointers(), ["/version"]);
    app.finish().await;
}

#[tokio::test]
async fn a_tenant_whose_calendar_changes_is_put_back_with_what_its_answer_shows_of_it() {
    let app = with_something_of_each_kind().await;
    app.use_pages("used", 1).await.expect(201);
    app.drained().await;
    app.define("tenants/acme", json!({ "plan": "plan", "anchor_day": 15 })).await;
    let path = "/v1/admin/tenants/acme";
    let read = app.get(path).await.expect(200).body;
    assert!(read["calendars"].is_array(), "{read}");
    assert_eq!(app.put(path, read.clone()).await.expect(200).body, read);
    let mut moved = read.clone();
    moved["calendars"][0]["anchor_day"] = json!(7);
    let answer = app.put(path, moved).await;
    answer.is_problem(422, "validation_failed");
    assert_eq!(answer.pointers(), ["/calendars"]);
    let new = app.put("/v1/admin/tenants/other", read.with("id", "other").with("version", Value::Null)).await;
    assert_eq!(new.pointers(), ["/calendars"], "another tenant has none of it: {new:?}");
    app.finish().await;
}

#[rstest]
#[case("overrides", json!({ "tenant": "acme", "level": "tenant", "limit": "day", "capacity": "40", "reason": "x" }))]
#[case("bans", json!({ "tenant": "acme" }))]
#[tokio::test]
async fn an_item_is_changed_and_deleted_only_at_the_version_that_is_named(
    #[case] kind: &str,
    #[case] body: Value,
) {
    let app = spawn_app().await;
    app.with_day_of("25").await;
    let path = format!("/v1/admin/{kind}/one");
    let guarded = |method: Method, header: &'static str, tag: String| {
        let place = if method == Method::PUT { path.clone() } else { format!("{path}?tenant=acme") };
        let request = app.request(method.clone(), &place).header(header, tag);
        app.send(if method == Method::PUT { request.json(&body) } else { request })
    };
    let star = || "*".to_owned();
    guarded(Method::PUT, "if-match", star()).await.is_problem(412, "precondition_failed");
    let made = guarded(Method::PUT, "if-none-match", star()).await.expect(201);
    guarded(Method::PUT, "if-none-match", star()).await.is_problem(412, "precondition_failed");
    let before = made.header("etag").to_owned();
    app.define("bans/other", json!({ "tenant": "acme", "subject": { "kind": "user", "id": "ben" } })).await;
    guarded(Method::PUT, "if-match", before.clone()).await.is_problem(412, "precondition_failed");
    guarded(Method::DELETE, "if-match", before).await.is_problem(412, "precondition_failed");
    let now = app.get(&format!("{path}?tenant=acme")).await.expect(200).header("etag").to_owned();
    guarded(Method::PUT, "if-match", now).await.expect(200);
    guarded(Method::DELETE, "if-match", star()).await.expect(204);
    app.finish().await;
}

#[tokio::test]
async fn overrides_and_bans_are_listed_row_by_row_over_all_tenants_and_of_one() {
    let app = spawn_app().await;
    app.with_plan(json!([day_of("25"), day_of("30").with("id", "more")]), json!([])).await;
    for tenant in ["beta", "gamma", "empty"] {
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
    }
    for (tenant, id, limit) in
        [("gamma", "g", "day"), ("acme", "b", "more"), ("beta", "z", "day"), ("acme", "a", "day")]
    {
        let of =
            json!({ "tenant": tenant, "level": "tenant", "limit": limit, "capacity": "40", "reason": "x" });
        app.define(&format!("overrides/{id}"), of).await;
        app.define(
            &format!("bans/{id}"),
            json!({ "tenant": tenant, "subject": { "kind": "user", "id": id } }),
        )
        .await;
    }
    let all = ["acme a", "acme b", "beta z", "gamma g"];
    for list in ["/v1/admin/overrides", "/v1/admin/bans"] {
        for limit in 1..=5 {
            let pages = in_pages(&app, list, limit).await;
            assert!(pages.iter().rev().skip(1).all(|page| page.len() == limit), "{list}: {pages:?}");
            assert_eq!(names(&pages.concat()), all, "{list} by {limit}");
        }
        let of_one = in_pages(&app, &format!("{list}?tenant=acme"), 1).await;
        assert_eq!(names(&of_one.concat()), all[..2], "{list}");
    }
    let of_limit = in_pages(&app, "/v1/admin/overrides?limit_id=day", 2).await;
    assert_eq!(names(&of_limit.concat()), ["acme a", "beta z", "gamma g"]);
    app.finish().await;
}

#[tokio::test]
async fn objects_are_listed_newest_first_and_jobs_and_loads_by_name_all_in_pages() {
    let app = spawn_app().await;
    for id in ["b", "c", "a"] {
        app.define(&format!("meters/{id}"), json!({ "unit": "page" })).await;
        app.put(&format!("/v1/admin/load/{id}"), json!({ "factor": "0.1", "ttl_seconds": 3600 }))
            .await
            .expect(200);
    }
    app.define("meters/b", json!({ "unit": "sheet" })).await;
    let ids = |rows: &[Value], field: &str| -> Vec<String> {
        rows.iter().map(|row| row[field].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&in_pages(&app, "/v1/admin/meters", 1).await.concat(), "id"), ["a", "c", "b"]);
    assert_eq!(ids(&in_pages(&app, "/v1/admin/load", 2).await.concat(), "name"), ["a", "b", "c"]);
    let jobs = ids(&in_pages(&app, "/v1/admin/jobs", 3).await.concat(), "name");
    let whole = ids(&in_pages(&app, "/v1/admin/jobs", 1000).await.concat(), "name");
    assert!(jobs.len() > 3 && jobs.is_sorted() && jobs == whole, "{jobs:?}");
    app.finish().await;
}

#[tokio::test]
async fn null_is_the_same_as_a_field_that_is_left_out() {
    let app = spawn_app().await;
    app.with_plan(json!([]), json!([quota_of("10")])).await;
    let grant = json!({ "tenant": "acme", "meter": "page", "amount": "5", "kind": "promotional", "priority": null,
        "recurrence": null, "reason": null, "effective_at": null, "expires_at": null, "max_rollover": null });
    let made = app.post_keyed("/v1/admin/grants", "g", grant).await.expect(201);
    assert_eq!((&made.body["priority"], made.text("/recurrence")), (&json!(50), "none"));
    let asked = json!({ "plan": "plan", "reason": null });
    app.define("plans/bigger", json!({ "quotas": [quota_of("20")] })).await;
    let asked = asked.with("plan", "bigger");
    app.post_keyed("/v1/tenants/acme/upgrade-requests", "u", asked).await.expect(201);
    app.post("/v1/admin/jobs/retention/runs", json!({ "at": null, "dry_run": null })).await.expect(202);
    app.finish().await;
}

#[tokio::test]
async fn a_subject_that_is_asked_for_without_its_kind_is_a_user() {
    let app = spawn_app().await;
    let of_user = json!({ "id": "user-day", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day", "capacity": "5" });
    app.with_plan(json!([of_user]), json!([])).await;
    app.post_keyed(USAGE, "used", pages(2).by("ada")).await.expect(201);
    let quota = app.get("/v1/tenants/acme/quota?subject=ada").await.expect(200);
    assert_eq!((quota.text("/limits/0/id"), quota.text("/limits/0/consumed")), ("user-day", "2"));
    app.finish().await;
}
