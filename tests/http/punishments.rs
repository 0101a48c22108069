//! Limits that warn and ban whom they refuse again and again: what callers read, and what admins list and lift.

use std::time::Duration;

use serde_json::{Value, json};

use super::ratelimit::{CHECK, minute, of, with_limits};
use crate::support::app::*;
use crate::support::wait::wait_for;

const BANS: &str = "/v1/admin/bans";
const VIOLATIONS: &str = "/v1/admin/violations";

fn three_strikes() -> Value {
    json!({ "memory_seconds": 600, "warn_at": 2, "ban_at": 3, "ban_seconds": 60, "ban_factor": "2" })
}

/// Ten pages an hour for each user, and three strikes.
fn per_user() -> Value {
    json!({
        "id": "user-hour", "meter": "page", "window": "hour", "capacity": "10", "scope": "subject",
        "subject_kind": "user", "class": "rate", "punishment": three_strikes()
    })
}

async fn on_a_clock() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([per_user(), day_of("1000")]), json!([])).await;
    app
}

fn warnings(answer: &Answered) -> Vec<String> {
    let list = answer.body["warnings"].as_array().cloned().unwrap_or_default();
    list.iter().map(|warning| warning["code"].as_str().unwrap().to_owned()).collect()
}

/// Asks for eleven pages and expects the refusal of the limit itself.
async fn violate(app: &TestApp, user: &str, keys: &[&str]) -> Answered {
    let mut last = None;
    for key in keys {
        let refused = app.post_keyed(RESERVATIONS, key, pages(11).by(user)).await;
        refused.is_problem(402, "exceeds_plan");
        last = Some(refused);
    }
    last.unwrap()
}

/// The tenant's violations, once they are written.
async fn written(app: &TestApp, filters: &str, expected: Value) {
    let found = async || {
        let rows = app.get(&format!("{VIOLATIONS}?tenant=acme{filters}")).await.expect(200);
        let figures = |row: &Value| json!([row["limit"], row["violations"], row["bans"], row["under_ban"]]);
        let all: Vec<_> = rows.body["data"].as_array().unwrap().iter().map(figures).collect();
        (json!(all) == expected).then_some(())
    };
    wait_for("the violations are written", Duration::from_secs(40), found).await;
}

#[tokio::test]
async fn who_is_refused_again_and_again_is_warned_then_banned_and_for_longer_the_next_time() {
    let app = on_a_clock().await;
    let held = app.post_keyed(RESERVATIONS, "held", pages(8).by("ada").lasting(30)).await.expect(201);
    assert_eq!(warnings(&violate(&app, "ada", &["1"]).await), [""; 0]);
    let second = violate(&app, "ada", &["2", "2", "2"]).await;
    assert_eq!(warnings(&second), ["violations"]);
    assert_eq!(second.text("/warnings/0/limit"), "user-hour");
    assert!(second.text("/warnings/0/detail").contains("at 3 it is banned for 60 s"), "{second:?}");
    // While it is remembered, what is admitted is warned too; other users are not.
    let admitted = app.post(RESERVATIONS, pages(1).by("ada")).await.expect(201);
    assert_eq!(warnings(&admitted), ["near_limit", "violations"]);
    assert_eq!(warnings(&app.post(RESERVATIONS, pages(1).by("ben")).await.expect(201)), [""; 0]);
    let third = app.post(RESERVATIONS, pages(3).by("ada")).await;
    // A hold ends in half a minute; the ban lasts longer.
    third.is_problem(429, "rate_limited");
    assert_eq!(
        (warnings(&third), &third.body["retry_after_ms"]),
        (vec!["banned".to_owned()], &json!(60_000))
    );

    let banned = app.post(RESERVATIONS, pages(1).by("ada")).await;
    banned.is_problem(429, "banned");
    assert_eq!((banned.header("retry-after"), &banned.body["retry_after_ms"]), ("60", &json!(60_000)));
    assert_eq!(
        (banned.text("/refused_by/0/id"), banned.text("/refused_by/0/cause")),
        ("user-hour", "banned")
    );
    assert!(
        banned.text("/detail").contains("user-hour has banned this user until 2026-03-10T12:01:00"),
        "{banned:?}"
    );
    app.post_keyed(USAGE, "used", pages(1).by("ada")).await.is_problem(429, "banned");
    let dry = app.post(RESERVATIONS, pages(1).by("ada").with("dry_run", true)).await.expect(200);
    assert_eq!((&dry.body["allowed"], dry.text("/refused_by/0/cause")), (&json!(false), "banned"));
    // Others go on, and so does what was admitted.
    app.post(RESERVATIONS, pages(1).by("ben")).await.expect(201);
    app.post_keyed(RESERVATIONS, "held", pages(8).by("ada").lasting(30)).await.expect(200);
    app.resolve(held.text("/id"), "extend", json!({ "ttl_seconds": 600 })).await.expect(200);
    app.resolve(held.text("/id"), "consume", json!({})).await.expect(200);

    app.move_clock("2026-03-10T12:01:00Z").await;
    app.post(RESERVATIONS, pages(1).by("ada")).await.expect(201);
    violate(&app, "ada", &["4", "5", "6"]).await;
    let longer = app.post(RESERVATIONS, pages(1).by("ada")).await;
    longer.is_problem(429, "banned");
    assert_eq!(longer.body["retry_after_ms"], 120_000);
    written(&app, "", json!([["user-hour", 3, 1, 1], ["user-hour", 3, 1, 2]])).await;
    app.finish().await;
}

#[tokio::test]
async fn a_ban_of_a_tenant_stops_its_calls_under_that_limit_and_no_other_tenant() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([day_of("10").with("punishment", three_strikes())]), json!([])).await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    for user in ["ada", "ben", "eve"] {
        app.post(RESERVATIONS, pages(11).by(user)).await.is_problem(402, "exceeds_plan");
    }
    let banned = app.post(RESERVATIONS, pages(1).by("joe")).await;
    banned.is_problem(429, "banned");
    assert!(banned.text("/detail").contains("day has banned this tenant"), "{banned:?}");
    app.post(RESERVATIONS, pages(1).of("other").by("ada")).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn a_ban_holds_at_every_instance_and_so_does_its_end_when_it_is_lifted() {
    let app = on_a_clock().await;
    let other = app.another_instance().await;
    let there = app.caller().at(other.url());
    violate(&app, "ada", &["1", "2"]).await;
    there.post_keyed(RESERVATIONS, "3", pages(11).by("ada")).await.is_problem(402, "exceeds_plan");
    app.post(RESERVATIONS, pages(1).by("ada")).await.is_problem(429, "banned");
    there.post(RESERVATIONS, pages(1).by("ada")).await.is_problem(429, "banned");

    app.define("bans/fraud", json!({ "tenant": "acme", "subject": { "kind": "user", "id": "eve" } })).await;
    let listed = there.get(&format!("{BANS}?tenant=acme&placed_by=limit")).await.expect(200);
    let [ban] = listed.body["data"].as_array().unwrap().as_slice() else { panic!("{listed:?}") };
    let told = ["tenant", "placed_by", "limit", "until"].map(|field| ban[field].as_str().unwrap());
    assert_eq!(told, ["acme", "limit", "user-hour", "2026-03-10T12:01:00Z"]);
    assert_eq!(ban["subject"]["kind"], "user");
    assert!(!listed.body.to_string().contains("ada"), "no name is shown: {listed:?}");
    let both = app.get(&format!("{BANS}?tenant=acme")).await.expect(200);
    assert_eq!((both.text("/data/0/id"), &both.body["data"][1]), ("fraud", ban));
    let of_admins = app.get(&format!("{BANS}?tenant=acme&placed_by=admin")).await.expect(200);
    assert_eq!(of_admins.body["data"].as_array().unwrap().len(), 1);
    app.get(&format!("{BANS}?placed_by=limit")).await.is_problem(400, "invalid_request");

    let path = format!("{BANS}/{}?tenant=acme", ban["id"].as_str().unwrap());
    assert_eq!(&app.get(&path).await.expect(200).body, ban);
    there.delete(&path).await.expect(204);
    app.delete(&path).await.is_problem(404, "not_found");
    app.get(&path).await.is_problem(404, "not_found");
    app.post(RESERVATIONS, pages(1).by("ada")).await.expect(201);
    there.post(RESERVATIONS, pages(1).by("ada")).await.expect(201);
    violate(&app, "ada", &["4", "5"]).await;
    app.post(RESERVATIONS, pages(1).by("ada")).await.expect(201);
    let audited = app.get("/v1/admin/audit?object_kind=ban").await.expect(200);
    let told = ["/data/0/action", "/data/0/detail/tenant"].map(|pointer| audited.text(pointer));
    assert_eq!(told, ["delete", "acme"]);
    other.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn when_redis_loses_its_memory_everybody_starts_afresh() {
    let app = on_a_clock().await;
    violate(&app, "ada", &["1", "2", "3"]).await;
    app.post(RESERVATIONS, pages(1).by("ada")).await.is_problem(429, "banned");
    app.redis.flush().await;
    app.post(RESERVATIONS, pages(1).by("ada")).await.expect(201);
    let listed = app.get(&format!("{BANS}?tenant=acme")).await.expect(200);
    assert_eq!(listed.body["data"], json!([]));
    violate(&app, "ada", &["4", "5"]).await;
    app.post(RESERVATIONS, pages(1).by("ada")).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn checks_and_batches_count_too_and_anonymous_subjects_are_never_named() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    let anonymous = minute("4").with("scope", "subject").with("subject_kind", "anonymous");
    let of_pages = json!({
        "id": "pages", "meter": "page", "window": "hour", "capacity": "4", "class": "rate", "punishment": three_strikes()
    });
    with_limits(&app, json!([anonymous.with("punishment", three_strikes()), of_pages])).await;
    let by = |name: &str| of("write").with("subjects", json!({ "anonymous": name }));
    let refused = app.post(CHECK, by("192.0.2.7")).await.expect(200);
    assert_eq!((&refused.body["allowed"], warnings(&refused)), (&json!(false), Vec::new()));
    let several = json!({ "checks": [by("192.0.2.7"), by("192.0.2.7"), by("192.0.2.7")] });
    let all = app.post(CHECK, several).await.expect(200);
    let codes: Vec<_> = (0..3).map(|at| all.text(&format!("/results/{at}/code")).to_owned()).collect();
    assert_eq!(codes, ["exceeds_plan", "exceeds_plan", "banned"]);
    assert_eq!(all.body["results"][2]["retry_after_seconds"], 60);
    let read = of("read").with("subjects", json!({ "anonymous": "192.0.2.7" }));
    assert_eq!(app.post(CHECK, read).await.expect(200).text("/code"), "banned");

    let item = |key: &str| json!({ "call": "reserve", "idempotency_key": key, "body": pages(5) });
    let batch = json!({ "items": [item("1"), item("2"), item("3"), item("4")] });
    let answered = app.post("/v1/batch", batch).await.expect(200).body.to_string();
    let counts = ["\"exceeds_plan\"", "\"code\":\"banned\",\"decision_id\""]
        .map(|code| answered.matches(code).count());
    assert_eq!(counts, [3, 1], "{answered}");

    written(&app, "&limit_id=minute", json!([["minute", 3, 1, 2]])).await;
    written(&app, "&limit_id=pages", json!([["pages", 3, 1, 1]])).await;
    written(&app, "&subject=192.0.2.7&kind=anonymous", json!([["minute", 3, 1, 2]])).await;
    written(&app, "&subject=192.0.2.8&kind=anonymous", json!([])).await;
    written(&app, "&to=2026-03-10T12:00:00Z", json!([])).await;
    let all = app.get(VIOLATIONS).await.expect(200);
    assert!(!all.body.to_string().contains("192.0.2.7"), "{all:?}");
    let first = app.get(&format!("{VIOLATIONS}?limit=1")).await.expect(200);
    let next =
        app.get(&format!("{VIOLATIONS}?limit=1&cursor={}", first.text("/next_cursor"))).await.expect(200);
    assert_eq!([first.text("/data/0/limit"), next.text("/data/0/limit")], ["pages", "minute"]);
    let metrics = app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for line in [
        "tollgate_limits_violated_total{limit=\"minute\"} 3",
        "tollgate_limits_banned_total{limit=\"minute\"} 1",
        "tollgate_limits_under_ban_total{limit=\"minute\"} 2",
        "tollgate_violations_dropped_total 0",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    app.finish().await;
}

#[tokio::test]
async fn a_limit_that_no_longer_punishes_neither_bans_nor_counts() {
    let app = on_a_clock().await;
    violate(&app, "ada", &["1", "2", "3"]).await;
    app.post(RESERVATIONS, pages(1).by("ada")).await.is_problem(429, "banned");
    let mut lenient = per_user();
    lenient.as_object_mut().unwrap().remove("punishment");
    app.define("plans/plan", json!({ "limits": [lenient, day_of("1000")] })).await;
    app.post(RESERVATIONS, pages(1).by("ada")).await.expect(201);
    let wrong = json!({ "memory_seconds": 0, "ban_at": 3, "ban_seconds": 60 });
    let refused =
        app.put("/v1/admin/plans/plan", json!({ "limits": [per_user().with("punishment", wrong)] })).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.text("/errors/0/pointer"), "/limits/0/punishment/memory_seconds");
    app.finish().await;
}

#[tokio::test]
async fn where_a_subject_stands_says_what_limits_remember_of_it_on_meters_of_both_kinds() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    let light = minute("4").with("scope", "subject").with("subject_kind", "user");
    with_limits(&app, json!([light.with("punishment", three_strikes()), per_user()])).await;
    let status = async |user: &str| {
        let status = app.get(&format!("/v1/ratelimit/status/{user}?tenant=acme")).await.expect(200);
        let list = status.body["warnings"].as_array().cloned().unwrap_or_default();
        let told = |warning: &Value| json!([warning["limit"], warning["code"]]);
        list.iter().map(told).collect::<Vec<_>>()
    };
    let check = async || app.post(CHECK, of("write").by("ada")).await.expect(200);
    check().await;
    violate(&app, "ada", &["1"]).await;
    assert_eq!(status("ada").await, Vec::<Value>::new(), "it warns from the second on");
    check().await;
    assert_eq!(status("ada").await, [json!(["minute", "violations"])]);
    violate(&app, "ada", &["2"]).await;
    assert_eq!(status("ada").await, [json!(["minute", "violations"]), json!(["user-hour", "violations"])]);
    check().await;
    assert_eq!(status("ada").await, [json!(["minute", "banned"]), json!(["user-hour", "violations"])]);
    assert_eq!(status("ben").await, Vec::<Value>::new());
    app.move_clock("2026-03-10T12:01:00Z").await;
    assert_eq!(status("ada").await, [json!(["user-hour", "violations"])]);
    app.finish().await;
}
