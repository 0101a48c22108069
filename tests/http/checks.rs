//! What else a check says and names: when work may start, warnings, the fields that were sent, and who is in a share.

use reqwest::Method;
use serde_json::{Value, json};

use super::ratelimit::{CHECK, minute, of, started, with_limits};
use crate::support::app::*;

fn submit(count: u32) -> Value {
    of("submit").with("attributes", json!({ "pages": count }))
}

fn queue(meter: &str) -> Value {
    json!({ "id": format!("queue-{meter}"), "meter": meter, "algorithm": "leaky_bucket", "drain": "1", "per_seconds": 1,
        "max_wait_seconds": 120, "capacity": "5" })
}

#[tokio::test]
async fn every_light_limit_of_a_tenant_is_shown_beside_those_of_other_meters() {
    let app = started(json!([])).await;
    app.define("meters/api", json!({ "unit": "call", "booked": false })).await;
    app.define("operations/list", json!({ "costs": [{ "meter": "api", "base": "3" }] })).await;
    let limits =
        json!([minute("11").with("id", "of-api").with("meter", "api"), minute("10").with("id", "of-call")]);
    app.define("plans/plan", json!({ "limits": limits, "quotas": [quota_of("100")] })).await;
    app.post(CHECK, of("list")).await.expect(200);
    app.post(CHECK, of("read").with("cost", "4")).await.expect(200);
    app.use_pages("one", 5).await.expect(201);
    let consumed = |answer: &Answered, list: &str| {
        let all = answer.body[list].as_array().unwrap().clone();
        all.iter().map(|limit| limit["consumed"].clone()).collect::<Vec<_>>()
    };
    let quota = app.quota().await;
    assert_eq!(consumed(&quota, "limits"), ["3", "4"], "{quota:?}");
    assert_eq!(consumed(&quota, "quotas"), ["5"], "{quota:?}");
    let status = app.get("/v1/ratelimit/status/ada?tenant=acme").await.expect(200);
    assert_eq!(consumed(&status, "limits"), ["3", "4"], "{status:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_look_at_a_booked_meter_without_any_limit_is_refused_as_the_check_is() {
    let app = started(json!([])).await;
    app.define("meters/page", json!({ "unit": "page", "without_limit": "deny" })).await;
    let check = app.post_keyed(CHECK, "k", submit(1)).await.expect(200);
    let look = app.post(CHECK, submit(1).with("peek", true)).await.expect(200);
    assert_eq!((&check.body["allowed"], &look.body["allowed"]), (&json!(false), &json!(false)));
    app.finish().await;
}

#[tokio::test]
async fn a_look_at_a_booked_meter_says_what_the_check_does_while_all_slots_are_taken() {
    let slots = json!({ "id": "slots", "meter": "page", "algorithm": "concurrency", "capacity": "2" });
    let app = started(json!([slots, day_of("1000")])).await;
    app.held(pages(2).lasting(3600)).await;
    let told = |answer: Answered| ["allowed", "remaining_calls"].map(|field| answer.body[field].clone());
    let look = told(app.post(CHECK, submit(4).with("peek", true)).await.expect(200));
    assert_eq!(look, [json!(true), json!(249)], "a usage takes no slot");
    let check = told(app.post_keyed(CHECK, "k", submit(4)).await.expect(200));
    assert_eq!(check, [json!(true), json!(248)]);
    app.finish().await;
}

#[tokio::test]
async fn a_check_under_a_queue_says_when_the_work_may_start() {
    let app = started(json!([queue("call"), queue("page")])).await;
    let start = |answer: &Answered| answer.body.get("start_after_ms").cloned();
    for (number, expected) in [None, Some(1000), Some(2000)].into_iter().enumerate() {
        let expected = expected.map(Value::from);
        assert_eq!(start(&app.post(CHECK, of("read")).await.expect(200)), expected, "{number}");
        let keyed = app.post_keyed(CHECK, &number.to_string(), submit(1)).await.expect(200);
        assert_eq!(start(&keyed), expected, "{number}");
    }
    for look in [of("read"), submit(1)] {
        let look = app.post(CHECK, look.with("peek", true)).await.expect(200);
        assert_eq!(start(&look), Some(json!(3000)), "{look:?}");
    }
    let checks = json!([of("read"), of("read"), of("read")]);
    let results = app.post(CHECK, json!({ "checks": checks })).await.expect(200).body["results"].clone();
    assert_eq!(results[0]["start_after_ms"], 3000);
    assert_eq!(results[1]["start_after_ms"], 4000);
    assert_eq!((&results[2]["allowed"], &results[2]["start_after_ms"]), (&json!(false), &Value::Null));
    app.finish().await;
}

#[tokio::test]
async fn a_soft_limit_warns_and_is_not_the_one_that_is_shown() {
    let soft = minute("1").with("id", "soft").with("kind", "soft");
    let app = started(json!([soft.clone(), minute("10")])).await;
    let codes = |answer: &Answered| {
        let warnings = answer.body["warnings"].as_array().cloned().unwrap_or_default();
        warnings.iter().map(|w| (w["limit"].clone(), w["code"].clone())).collect::<Vec<_>>()
    };
    let near = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!(codes(&near), [(json!("soft"), json!("near_limit"))]);
    let look = app.post(CHECK, of("read").with("peek", true)).await.expect(200);
    assert_eq!(codes(&look), [(json!("soft"), json!("over_limit"))], "what it would come to");
    let over = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!(codes(&over), [(json!("soft"), json!("over_limit"))]);
    assert_eq!((over.text("/limit"), over.text("/remaining")), ("10", "8"));
    let refused = app.post(CHECK, of("read").with("cost", "9")).await.expect(200);
    assert_eq!(codes(&refused), [], "nothing new is used");
    app.define("plans/plan", json!({ "limits": [soft] })).await;
    let alone = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!((alone.body["allowed"].clone(), alone.body.get("remaining")), (json!(true), None));
    app.finish().await;
}

#[tokio::test]
async fn a_repeat_of_a_check_of_booked_meters_says_so() {
    let app = started(json!([day_of("10")])).await;
    let replayed = async || {
        let answer = app.post_keyed(CHECK, "once", submit(6)).await.expect(200);
        answer.headers.get("idempotency-replayed").map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(replayed().await, None);
    assert_eq!(replayed().await.as_deref(), Some("true"));
    app.finish().await;
}

#[tokio::test]
async fn who_is_outside_a_share_is_not_denied_for_want_of_a_limit() {
    let app = started(json!([minute("1").with("rollout_percent", 0)])).await;
    app.define("meters/call", json!({ "unit": "call", "booked": false, "without_limit": "deny" })).await;
    for _ in 0..2 {
        assert_eq!(app.post(CHECK, of("read")).await.expect(200).body["allowed"], true);
    }
    app.define("plans/plan", json!({ "limits": [] })).await;
    assert_eq!(app.post(CHECK, of("read")).await.expect(200).body["allowed"], false);
    app.finish().await;
}

#[tokio::test]
async fn a_fault_of_a_check_is_named_by_what_was_sent() {
    let app = started(json!([])).await;
    for (body, pointer) in [
        (of("read").with("cost", "1").with("attributes", json!({ "a/b~c": 1 })), "/attributes/a~1b~0c"),
        (json!({ "tenant": "acme", "method": "GET", "attributes": { "a/b~c": 1 } }), "/attributes/a~1b~0c"),
    ] {
        assert_eq!(app.post(CHECK, body.clone()).await.expect(422).pointers(), [pointer], "{body}");
    }
    app.define("meters/gone", json!({ "unit": "call", "booked": false, "archived": true })).await;
    app.define("cost_defaults/default", json!({ "meter": "gone", "other": "1" })).await;
    let by_method = json!({ "tenant": "acme", "method": "GET" });
    assert_eq!(app.post(CHECK, by_method).await.expect(422).pointers(), ["/method"]);
    app.finish().await;
}

#[tokio::test]
async fn an_archived_operation_gives_its_patterns_away() {
    let app = started(json!([minute("100")])).await;
    let costing = |base: &str, archived: bool| {
        json!({ "costs": [{ "meter": "call", "base": base }], "archived": archived,
            "match": [{ "method": "GET", "path": "/v1/pages" }] })
    };
    app.define("operations/old", costing("3", true)).await;
    app.define("operations/new", costing("7", false)).await;
    let call = json!({ "tenant": "acme", "method": "GET", "endpoint": "/v1/pages" });
    assert_eq!(app.post(CHECK, call).await.expect(200).text("/limits/0/consumed"), "7");
    let again = app.put("/v1/admin/operations/old", costing("3", false)).await.expect(422);
    assert!(again.pointers().contains(&"/match/0"), "{again:?}");
    app.finish().await;
}

#[tokio::test]
async fn one_check_is_as_small_as_any_call_and_several_have_a_key_each() {
    let app = started(json!([minute("100")])).await;
    let long = of("read").with("attributes", json!({ "text": "a".repeat(70_000) }));
    app.post(CHECK, long).await.is_problem(413, "payload_too_large");
    let checks = json!({ "checks": [of("read")] });
    app.post_keyed(CHECK, "k", checks.clone()).await.is_problem(400, "invalid_request");
    let padded = checks.to_string() + &" ".repeat(70_000);
    let request = app.request(Method::POST, CHECK).header("content-type", "application/json").body(padded);
    assert_eq!(app.send(request).await.expect(200).text("/results/0/remaining"), "99");
    app.finish().await;
}

#[tokio::test]
async fn an_archived_tenant_is_checked_no_more_and_a_look_makes_no_tenant() {
    let app = an_app().with("policy.unknown_tenant", "plan").start().await;
    with_limits(&app, json!([minute("5")])).await;
    app.post(CHECK, of("read").of("newcomer").with("peek", true)).await.expect(422);
    app.get("/v1/admin/tenants/newcomer").await.is_problem(404, "not_found");
    app.post(CHECK, of("read").of("newcomer")).await.expect(200);
    app.get("/v1/admin/tenants/newcomer").await.expect(200);
    app.define("tenants/acme", json!({ "plan": "plan", "archived": true })).await;
    assert_eq!(app.post(CHECK, of("read")).await.expect(422).pointers(), ["/tenant"]);
    app.finish().await;
}
