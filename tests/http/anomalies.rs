//! Limits that warn or slow down subjects who suddenly call much more often: what callers read, and which policy is
//! accepted.

use serde_json::{Value, json};

use super::ratelimit::{CHECK, minute, of, with_limits};
use crate::support::app::*;

const NOON_MS: i64 = 1_773_144_000_000;

/// A hundred pages an hour for each user, judged after ten intervals.
fn per_user(anomaly: Value) -> Value {
    json!({
        "id": "user-hour", "meter": "page", "window": "hour", "capacity": "100", "scope": "subject",
        "subject_kind": "user", "class": "rate", "anomaly": anomaly
    })
}

async fn with(limit: Value) -> TestApp {
    let app = an_app().at_ms(NOON_MS).start().await;
    app.with_plan(json!([limit, day_of("1000")]), json!([])).await;
    app
}

async fn move_to(app: &TestApp, now_ms: i64) {
    app.move_clock(&jiff::Timestamp::from_millisecond(now_ms).unwrap().to_string()).await;
}

/// Has a user call twelve times, every ten seconds. Returns when the last call was.
async fn steadily(app: &TestApp, body: &Value) -> i64 {
    for number in 0..12 {
        move_to(app, NOON_MS + 10_000 * number).await;
        let answer = app.post(RESERVATIONS, body.clone()).await.expect(201);
        assert_eq!(answer.body["warnings"], json!([]), "{number}");
    }
    NOON_MS + 110_000
}

fn warned(answer: &Answered) -> bool {
    let warnings = answer.body["warnings"].as_array().cloned().unwrap_or_default();
    warnings
        .iter()
        .any(|warning| (&warning["code"], &warning["limit"]) == (&json!("anomaly"), &json!("user-hour")))
}

#[tokio::test]
async fn who_calls_much_more_often_than_before_is_warned_then_slowed_to_the_usual_pace() {
    let app = with(per_user(json!({}))).await;
    let ada = pages(1).by("ada");
    let mut now_ms = steadily(&app, &ada).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        now_ms += 500;
        move_to(&app, now_ms).await;
        let answer = app.post(RESERVATIONS, ada.clone()).await;
        seen.push((answer.status, warned(&answer)));
    }
    assert_eq!(seen, [(201, false), (201, false), (201, true), (429, false)]);
    let refused = app.post(RESERVATIONS, ada.clone()).await;
    refused.is_problem(429, "rate_limited");
    let told = ["id", "cause", "algorithm", "scope", "level"]
        .map(|field| refused.body["refused_by"][0][field].clone());
    assert_eq!(json!(told), json!(["anomaly:user-hour", "anomaly", "anomaly", "subject", "plan"]));
    let wait_ms = refused.body["retry_after_ms"].as_i64().unwrap();
    assert!((9_000..=10_000).contains(&wait_ms), "about as long as usual: {wait_ms}");
    assert_eq!(refused.header("retry-after"), "10");
    assert!(refused.text("/detail").contains("sooner than they used to"), "{refused:?}");
    assert!(!refused.header("ratelimit").contains("anomaly"), "it has no capacity to show: {refused:?}");
    // A dry run says the same and teaches nothing; other users, and other operations, are others.
    let dry = app.post(RESERVATIONS, ada.clone().with("dry_run", true)).await.expect(200);
    assert_eq!((&dry.body["allowed"], dry.text("/refused_by/0/cause")), (&json!(false), "anomaly"));
    app.post(RESERVATIONS, pages(1).by("ben")).await.expect(201);
    let scan = json!({ "costs": [{ "meter": "page", "base": "1" }] });
    app.define("operations/scan", scan).await;
    app.post(RESERVATIONS, json!({ "tenant": "acme", "operation": "scan", "subject": "ada" }))
        .await
        .expect(201);

    move_to(&app, now_ms + wait_ms).await;
    let admitted = app.post(RESERVATIONS, ada).await.expect(201);
    assert!(warned(&admitted), "{admitted:?}");
    let shown: Vec<_> =
        admitted.body["limits"].as_array().unwrap().iter().map(|limit| limit["id"].clone()).collect();
    assert_eq!(json!(shown), json!(["day", "user-hour"]));
    let metrics = app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for line in [
        "tollgate_anomalies_monitored_total{limit=\"user-hour\"} 2",
        "tollgate_anomalies_throttled_total{limit=\"user-hour\"} 2",
        concat!(
            "tollgate_limits_refused_total{kind=\"anomaly\",algorithm=\"anomaly\",cause=\"anomaly\",",
            "code=\"rate_limited\"} 2"
        ),
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    app.finish().await;
}

#[tokio::test]
async fn where_nothing_is_to_be_throttled_calls_are_only_warned_and_a_shadow_limit_says_what_it_would_do() {
    let watched = per_user(json!({ "actions": { "throttle": "monitor" } }));
    let in_shadow = per_user(json!({})).with("kind", "shadow").with("id", "trial");
    let app = an_app().at_ms(NOON_MS).start().await;
    app.with_plan(json!([watched, in_shadow, day_of("1000")]), json!([])).await;
    let ada = pages(1).by("ada");
    let mut now_ms = steadily(&app, &ada).await;
    let mut last = Vec::new();
    for _ in 0..20 {
        now_ms += 500;
        move_to(&app, now_ms).await;
        let answer = app.post(RESERVATIONS, ada.clone()).await.expect(201);
        let warnings = answer.body["warnings"].as_array().unwrap().iter();
        last = warnings.map(|warning| (warning["code"].clone(), warning["limit"].clone())).collect();
    }
    assert_eq!(json!(last), json!([["shadow_refused", "trial"], ["anomaly", "user-hour"]]));
    app.finish().await;
}

#[tokio::test]
async fn checks_of_light_meters_are_judged_too_and_say_how_often_the_limit_still_allows() {
    let app = an_app().at_ms(NOON_MS).start().await;
    let per_ip = minute("100").with("scope", "subject").with("subject_kind", "ip").with("anomaly", json!({}));
    with_limits(&app, json!([per_ip])).await;
    let check = of("read").with("subjects", json!({ "ip": "192.0.2.7" }));
    let mut answer = app.post(CHECK, check.clone()).await.expect(200);
    for number in 1..12 {
        move_to(&app, NOON_MS + 1_000 * number).await;
        answer = app.post(CHECK, check.clone()).await.expect(200);
    }
    assert_eq!((&answer.body["allowed"], &answer.body["remaining_calls"]), (&json!(true), &json!(88)));
    assert_eq!(answer.body["limits"].as_array().unwrap().len(), 1);
    let mut tries = 0;
    while answer.body["allowed"] == true && tries < 20 {
        answer = app.post(CHECK, check.clone()).await.expect(200);
        tries += 1;
    }
    let told = ["code", "retry_after_seconds"].map(|field| answer.body[field].clone());
    assert_eq!(json!(told), json!(["rate_limited", 1]), "{answer:?}");
    assert_eq!(answer.text("/refused_by/0/cause"), "anomaly");
    let remaining = answer.body["remaining_calls"].as_i64().unwrap();
    assert!(remaining > 80, "{answer:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_subject_is_remembered_for_a_day_and_an_hour_after_its_last_call() {
    let app = spawn_app().await;
    app.with_plan(json!([per_user(json!({}))]), json!([])).await;
    app.post(RESERVATIONS, pages(1).by("ada")).await.expect(201);
    let mut redis = app.redis.connection().await;
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("tg1:*:state:acme:*").query_async(&mut redis).await.unwrap();
    let [key] = keys.as_slice() else { panic!("{keys:?}") };
    let left: i64 = redis::cmd("TTL").arg(key).query_async(&mut redis).await.unwrap();
    assert!((25 * 3_600 - 60..26 * 3_600).contains(&left), "{left}");
    app.finish().await;
}

#[tokio::test]
async fn only_a_limit_of_subjects_that_are_told_apart_may_judge_how_often_they_call() {
    let app = spawn_app().await;
    app.with_plan(json!([day_of("1000")]), json!([])).await;
    let put = async |limit: Value| app.put("/v1/admin/limits/user-hour", limit).await;
    let of_tenant = json!({ "meter": "page", "window": "hour", "capacity": "1", "anomaly": {} });
    assert_eq!(put(of_tenant).await.expect(422).pointers(), ["/anomaly"]);
    let mut limit = per_user(json!({}));
    limit.as_object_mut().unwrap().remove("id");
    let shared = limit.clone().with("subject_kind", "anonymous");
    assert_eq!(put(shared).await.expect(422).pointers(), ["/anomaly"]);
    let unordered = limit.clone().with("anomaly", json!({ "monitor_z": "4" }));
    assert_eq!(put(unordered).await.expect(422).pointers(), ["/anomaly/throttle_z"]);
    let stored = put(limit).await.expect(201);
    let whole = json!({
        "min_samples": 10, "monitor_z": "2", "throttle_z": "3",
        "actions": { "monitor": "monitor", "throttle": "throttle" }
    });
    assert_eq!(stored.body["anomaly"], whole);
    app.finish().await;
}
