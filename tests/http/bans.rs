//! Bans that admins place: whom they stop, until when, and what they leave alone.

use std::time::Duration;

use serde_json::{Value, json};

use super::events::{event, outcomes, send};
use super::ratelimit::{CHECK, minute, of, started};
use crate::support::app::*;
use crate::support::wait::wait_for;

const BANS: &str = "/v1/admin/bans";

fn of_user(user: &str) -> Value {
    json!({ "tenant": "acme", "subject": { "kind": "user", "id": user }, "reason": "spam" })
}

async fn on_a_clock() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_day_of("100").await;
    app
}

#[tokio::test]
async fn a_ban_of_a_subject_stops_only_that_subject_until_it_is_over() {
    let app = on_a_clock().await;
    let first = app.post_keyed(RESERVATIONS, "first", pages(3).by("ada")).await.expect(201);
    app.define("bans/spam", of_user("ada").with("until", "2026-03-10T12:01:00Z")).await;
    let refused = app.post(RESERVATIONS, pages(1).by("ada")).await;
    refused.is_problem(429, "banned");
    assert_eq!((refused.header("retry-after"), &refused.body["retry_after_ms"]), ("60", &json!(60_000)));
    assert!(!refused.body.to_string().contains("spam"), "callers do not see the reason: {refused:?}");
    app.post_keyed(USAGE, "used", pages(1).by("ada")).await.is_problem(429, "banned");
    app.post(RESERVATIONS, pages(1).by("ben")).await.expect(201);
    // A repeat gets its first answer, and what is held ends as it would.
    app.post_keyed(RESERVATIONS, "first", pages(3).by("ada")).await.expect(200);
    app.resolve(first.text("/id"), "consume", json!({})).await.expect(200);
    let quota = app.quota().await;
    assert_eq!((quota.text("/limits/0/consumed"), quota.text("/limits/0/reserved")), ("3", "1"));
    app.move_clock("2026-03-10T12:01:00Z").await;
    app.post(RESERVATIONS, pages(1).by("ada")).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn a_dry_run_says_that_a_ban_or_a_plan_without_the_meter_would_refuse() {
    let app = on_a_clock().await;
    let nothing = json!({ "unit": "token", "without_limit": "deny" });
    app.define("meters/token", nothing).await;
    app.define("bans/spam", of_user("ada").with("until", "2026-03-10T12:01:00Z")).await;
    let dry = |body: Value| body.with("dry_run", true);
    for (body, code) in [
        (pages(1).by("ada"), "banned"),
        (pages(1).by("ada").with("mode", "best_effort"), "banned"),
        (pages(1).by("ben").with("meter", "token"), "exceeds_plan"),
    ] {
        let said = app.post(RESERVATIONS, dry(body)).await.expect(200);
        assert_eq!((&said.body["allowed"], said.text("/code")), (&json!(false), code), "{said:?}");
        assert_eq!(said.body.get("id"), None, "{said:?}");
    }
    let part = app.post(RESERVATIONS, dry(pages(3).by("ada").with("mode", "best_effort"))).await.expect(200);
    assert_eq!((part.text("/lines/0/amount"), part.text("/lines/0/requested")), ("0", "3"));
    let used = app.post_keyed(USAGE, "used", dry(pages(1).by("ada"))).await.expect(200);
    assert_eq!((&used.body["allowed"], used.text("/code")), (&json!(false), "banned"));
    let look = json!({ "tenant": "acme", "subject": "ada", "operation": "read", "peek": true });
    app.define("operations/read", json!({ "costs": [{ "meter": "page", "base": "1" }] })).await;
    let looked = app.post(CHECK, look).await.expect(200);
    assert_eq!((looked.text("/code"), &looked.body["retry_after_seconds"]), ("banned", &json!(60)));
    app.define("bans/fraud", json!({ "tenant": "acme" })).await;
    let said = app.post(RESERVATIONS, dry(pages(1).by("ben"))).await.expect(200);
    assert_eq!((&said.body["allowed"], said.text("/code")), (&json!(false), "banned"));
    app.finish().await;
}

#[tokio::test]
async fn a_ban_of_a_tenant_outlives_the_memory_of_redis_and_ends_when_it_is_lifted() {
    let app = on_a_clock().await;
    app.define("bans/fraud", json!({ "tenant": "acme" })).await;
    app.redis.flush().await;
    let refused = app.post(RESERVATIONS, pages(1)).await;
    refused.is_problem(429, "banned");
    assert!(!refused.headers.contains_key("retry-after"), "nobody knows when it ends: {refused:?}");
    app.delete(&format!("{BANS}/fraud?tenant=acme")).await.expect(204);
    app.post(RESERVATIONS, pages(1)).await.expect(201);
    app.delete(&format!("{BANS}/fraud?tenant=acme")).await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn a_ban_holds_at_another_instance_within_a_second_and_ends_there_too() {
    let app = on_a_clock().await;
    let other = app.another_instance().await;
    let there = app.caller().at(other.url());
    there.post(RESERVATIONS, pages(1)).await.expect(201);
    let within = async |status: u16| {
        let asked = async || (there.post(RESERVATIONS, pages(1)).await.status == status).then_some(());
        wait_for("the other instance has the change", Duration::from_secs(1), asked).await;
    };
    app.define("bans/fraud", json!({ "tenant": "acme" })).await;
    within(429).await;
    app.delete(&format!("{BANS}/fraud?tenant=acme")).await.expect(204);
    within(201).await;
    other.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn a_check_under_a_ban_is_not_allowed_and_not_counted_while_events_are_still_accepted() {
    let app = started(json!([minute("10")])).await;
    app.define("bans/fraud", json!({ "tenant": "acme" })).await;
    let refused = app.post(CHECK, of("write")).await.expect(200);
    assert_eq!((&refused.body["allowed"], refused.text("/code")), (&json!(false), "banned"));
    let accepted = send(&app, &event("done", 1, None)).await;
    assert_eq!(outcomes(&accepted), [("accepted", "")], "what is done already is never refused");
    app.delete(&format!("{BANS}/fraud?tenant=acme")).await.expect(204);
    assert_eq!(app.post(CHECK, of("write")).await.expect(200).text("/remaining"), "5");
    app.finish().await;
}

#[tokio::test]
async fn bans_are_listed_and_read_and_stay_when_their_tenant_is_replaced() {
    let app = on_a_clock().await;
    app.define("bans/spam", of_user("ada")).await;
    app.define("bans/spam", of_user("ben")).await;
    let expected = of_user("ben").with("id", "spam");
    assert_eq!(app.get(&format!("{BANS}?tenant=acme")).await.expect(200).body["data"], json!([expected]));
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    let read = app.get(&format!("{BANS}/spam?tenant=acme")).await.expect(200);
    assert_eq!(read.body["subject"], expected["subject"]);
    app.get(&format!("{BANS}/other?tenant=acme")).await.is_problem(404, "not_found");
    for (wrong, pointer) in [
        (of_user("ada").with("reason", ""), "/reason"),
        (of_user("ada").with("tenant", "nobody"), "/tenant"),
        (json!({ "tenant": "acme", "subject": { "kind": "anonymous", "id": "x" } }), "/subject/kind"),
    ] {
        let refused = app.put(&format!("{BANS}/wrong"), wrong).await;
        refused.is_problem(422, "validation_failed");
        assert_eq!(refused.text("/errors/0/pointer"), pointer);
    }
    app.finish().await;
}
