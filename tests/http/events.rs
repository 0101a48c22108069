//! `/v1/events`: usage after the fact, as CloudEvents.

use reqwest::Method;
use serde_json::{Value, json};

use super::with_policy;
use crate::support::app::*;
use crate::support::process::not_tried;

const EVENTS: &str = "/v1/events";
const EVENT: &str = "application/cloudevents+json";
const BATCH: &str = "application/cloudevents-batch+json";

/// An event with this id of so many pages of tenant `acme`, done at a time or now.
pub fn event(id: &str, amount: u32, time: Option<&str>) -> Value {
    let event =
        json!({ "specversion": "1.0", "id": id, "source": "/ocr/worker-3", "type": "tollgate.usage" });
    let event = event.with("data", pages(amount));
    time.map_or(event.clone(), |time| event.with("time", time))
}

/// The same event with another value of one field of its data.
fn with_data(event: &Value, field: &str, value: impl Into<Value>) -> Value {
    let mut event = event.clone();
    event["data"][field] = value.into();
    event
}

async fn send_as(caller: &Caller, content_type: &str, body: impl Into<String>) -> Answered {
    let request = caller.request(Method::POST, EVENTS).header("content-type", content_type);
    caller.send(request.body(body.into())).await
}

pub async fn send(caller: &Caller, event: &Value) -> Answered {
    send_as(caller, EVENT, event.to_string()).await.expect(202)
}

pub async fn send_batch(caller: &Caller, events: &[Value]) -> Answered {
    send_as(caller, BATCH, json!(events).to_string()).await.expect(202)
}

/// What each event came to, with the code of its problem.
pub fn outcomes(answer: &Answered) -> Vec<(&str, &str)> {
    let results = answer.body["results"].as_array().unwrap().iter();
    results
        .map(|result| (result["status"].as_str().unwrap(), result["problem"]["code"].as_str().unwrap_or("")))
        .collect()
}

/// The pointers of what is wrong with each event.
fn named(answer: &Answered) -> Vec<Vec<&str>> {
    let results = answer.body["results"].as_array().unwrap().iter();
    results
        .map(|result| {
            let errors = result["problem"]["errors"].as_array();
            errors.into_iter().flatten().map(|error| error["pointer"].as_str().unwrap()).collect()
        })
        .collect()
}

pub const ACCEPTED: (&str, &str) = ("accepted", "");
pub const DUPLICATE: (&str, &str) = ("duplicate", "");
pub const REUSED: (&str, &str) = ("rejected", "idempotency_key_reused");
const INVALID: (&str, &str) = ("rejected", "validation_failed");

/// A service at this time, for a tenant in Berlin with limits by hour, day and month, and a quota.
async fn in_berlin_at(now: &str) -> TestApp {
    let app = an_app().at(now).without_jobs().start().await;
    let limits = json!([
        { "id": "hour", "meter": "page", "window": "hour", "capacity": "20" },
        { "id": "day", "meter": "page", "window": "day", "capacity": "40" },
        { "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day", "capacity": "30" }
    ]);
    app.with_plan(limits, json!([quota_of("50")])).await;
    app.define("tenants/acme", json!({ "plan": "plan", "time_zone": "Europe/Berlin", "anchor_day": 1 }))
        .await;
    app
}

/// What the limits and the quota have consumed, by the gate.
async fn consumed(app: &TestApp) -> Vec<String> {
    let quota = app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await.expect(200);
    assert_eq!(quota.body["source"], "gate");
    let limit = |id: &str| {
        let limits = quota.body["limits"].as_array().unwrap();
        limits.iter().find(|limit| limit["id"] == id).unwrap()["consumed"].as_str().unwrap().to_owned()
    };
    let of_quota = quota.text("/quotas/0/consumed").to_owned();
    ["hour", "day", "user"].map(limit).into_iter().chain([of_quota]).collect()
}

/// Hours with usage in the books: when they begin and what was consumed.
async fn hours(app: &TestApp, from: &str) -> Vec<(String, String)> {
    app.drained().await;
    let usage = app.get(&format!("/v1/tenants/acme/usage?granularity=hour&from={from}")).await.expect(200);
    let rows = usage.body["data"].as_array().unwrap().iter();
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    let mut hours: Vec<_> = rows.map(|row| (text(row, "start"), text(row, "consumed"))).collect();
    hours.sort_unstable();
    hours
}

#[tokio::test]
async fn an_event_comes_structured_in_a_batch_or_binary_and_is_recorded_once() {
    let app = with_policy().await;
    let one = send(&app, &event("page 7 €", 2, None)).await;
    assert_eq!(outcomes(&one), [ACCEPTED], "{one:?}");
    assert_eq!(one.body["results"][0]["id"], "page 7 €");
    let binary = app
        .request(Method::POST, EVENTS)
        .header("ce-specversion", "1.0")
        .header("ce-id", "page%207%20%E2%82%AC")
        .header("ce-source", "/ocr/worker-3")
        .header("ce-type", "tollgate.usage")
        .header("ce-traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .json(&pages("2"));
    assert_eq!(outcomes(&app.send(binary).await.expect(202)), [DUPLICATE]);
    let costed = event("costed", 1, None)
        .with("type", "submit")
        .with("data", json!({ "tenant": "acme", "attributes": { "pages": 3, "handwriting": true } }))
        .with("subject", "scan.pdf")
        .with("sampledrate", 7)
        .with("datacontenttype", "application/json");
    let events = [event("page 7 €", 2, None), costed, event("page-8", 1, None).with("source", "urn:other")];
    let batch = send_batch(&app, &events).await;
    assert_eq!(outcomes(&batch), [DUPLICATE, ACCEPTED, ACCEPTED], "{batch:?}");
    assert_eq!(app.quota().await.text("/limits/0/consumed"), "9");
    app.drained().await;
    let usage = app.get("/v1/tenants/acme/usage?group_by=operation").await.expect(200);
    let rows = usage.body["data"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["operation"] == "submit" && row["consumed"] == "6"), "{usage:?}");
    app.finish().await;
}

#[tokio::test]
async fn an_event_from_the_past_is_booked_in_its_own_hour_and_counts_in_no_window_of_now() {
    // 11:30 in Berlin; the month began two days ago.
    let app = in_berlin_at("2026-03-03T10:30:00Z").await;
    app.use_pages("now", 1).await.expect(201);
    let february = event("a", 70, Some("2026-02-27T15:20:00.123456+01:00"));
    assert_eq!(outcomes(&send(&app, &with_data(&february, "subject", "ada")).await), [ACCEPTED]);
    assert_eq!(consumed(&app).await, ["1", "1", "0", "1"], "nothing of now counts it");
    let hours = hours(&app, "2026-02-01T00:00:00Z").await;
    let hour = |start: &str, consumed: &str| (start.to_owned(), consumed.to_owned());
    assert_eq!(hours, [hour("2026-02-27T14:00:00Z", "70"), hour("2026-03-03T10:00:00Z", "1")]);
    let entries = app.get("/v1/tenants/acme/entries").await.expect(200);
    let rows = entries.body["data"].as_array().unwrap();
    let late = rows.iter().find(|row| row["amount"] == "70").unwrap();
    assert_eq!(
        (&late["happened_at"], &late["period_start"], &late["credit"], &late["debit"]),
        (
            &json!("2026-02-27T14:20:00.123Z"),
            &json!("2026-02-28T23:00:00Z"),
            &json!("available"),
            &json!("consumed")
        ),
        "February is closed: {late}"
    );
    assert_eq!((&late["class"], &late["flags"]), (&json!("correction"), &json!([])));
    app.finish().await;
}

#[tokio::test]
async fn an_event_counts_in_each_window_that_is_still_the_one_of_its_time_also_above_the_limit() {
    let app = in_berlin_at("2026-03-03T10:30:00Z").await;
    app.use_pages("now", 5).await.expect(201);
    // Today and two hours ago: only the hour is over.
    let today = with_data(&event("a", 45, Some("2026-03-03T08:10:00Z")), "subject", "ada");
    assert_eq!(outcomes(&send(&app, &today).await), [ACCEPTED]);
    assert_eq!(consumed(&app).await, ["5", "50", "45", "50"], "45 are above the limits of 40 and of 30");
    app.use_pages("refused", 1).await.is_problem(429, "quota_exceeded");
    // Nor does what was refused as a reserve keep an event out, in the current hour or in yesterday's.
    let events = [event("b", 30, None), event("c", 10, Some("2026-03-02T12:00:00Z"))];
    assert_eq!(outcomes(&send_batch(&app, &events).await), [ACCEPTED, ACCEPTED]);
    assert_eq!(consumed(&app).await, ["35", "80", "45", "90"]);
    app.move_clock("2026-03-03T11:00:00Z").await;
    assert_eq!(outcomes(&send(&app, &event("d", 1, Some("2026-03-03T10:59:59.999Z"))).await), [ACCEPTED]);
    assert_eq!(consumed(&app).await, ["0", "81", "45", "91"]);
    app.finish().await;
}

#[tokio::test]
async fn a_plan_that_has_no_room_for_a_meter_refuses_no_event_of_it() {
    let app = with_policy().await;
    app.define("meters/rare", json!({ "unit": "page", "without_limit": "deny" })).await;
    let rare = with_data(&event("a", 7, None), "meter", "rare");
    app.post_keyed(USAGE, "a", pages(7).with("meter", "rare")).await.is_problem(402, "exceeds_plan");
    assert_eq!(outcomes(&send(&app, &rare).await), [ACCEPTED]);
    app.finish().await;
}

#[tokio::test]
async fn an_event_lies_at_most_35_days_back_and_five_minutes_ahead() {
    let app = in_berlin_at("2026-03-31T10:00:00Z").await;
    let events = [
        event("oldest", 1, Some("2026-02-24T10:00:00Z")),
        event("older", 1, Some("2026-02-24T09:59:59.999Z")),
        event("ahead", 1, Some("2026-03-31T10:05:00Z")),
        event("too far ahead", 1, Some("2026-03-31T10:05:00.001Z")),
    ];
    let answer = send_batch(&app, &events).await;
    assert_eq!(outcomes(&answer), [ACCEPTED, INVALID, ACCEPTED, INVALID], "{answer:?}");
    assert_eq!(named(&answer), [vec![], vec!["/time"], vec![], vec!["/time"]]);
    assert_eq!(consumed(&app).await, ["1", "1", "0", "1"], "what is ahead counts as of now");
    app.move_clock("2026-03-31T10:06:00Z").await;
    let again = send_batch(&app, &events).await;
    assert_eq!(outcomes(&again), [DUPLICATE, INVALID, DUPLICATE, ACCEPTED], "{again:?}");
    app.finish().await;
}

#[tokio::test]
async fn an_event_of_a_clock_that_is_ahead_counts_before_the_turn_of_the_month() {
    let app = in_berlin_at("2026-03-31T21:59:00Z").await;
    let ahead = event("ahead", 3, Some("2026-03-31T22:01:00Z"));
    assert_eq!(outcomes(&send(&app, &ahead).await), [ACCEPTED]);
    assert_eq!(consumed(&app).await, ["3", "3", "0", "3"]);
    app.move_clock("2026-03-31T22:02:00Z").await;
    assert_eq!(outcomes(&send(&app, &ahead).await), [DUPLICATE]);
    assert_eq!(consumed(&app).await, ["0", "0", "0", "0"]);
    assert_eq!(hours(&app, "2026-03-01T00:00:00Z").await, [("2026-03-31T21:00:00Z".into(), "3".into())]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_events_are_known_whenever_they_happened() {
    let app = in_berlin_at("2026-03-03T10:30:00Z").await;
    let events = [
        event("long ago", 7, Some("2026-02-10T10:00:00Z")),
        event("yesterday", 6, Some("2026-03-02T11:00:00Z")),
        event("today", 5, Some("2026-03-03T09:00:00Z")),
        event("now", 4, None),
    ];
    assert_eq!(outcomes(&send_batch(&app, &events).await), [ACCEPTED; 4]);
    // February is closed: its seven count in March once the gate has the lower capacity.
    app.drained().await;
    app.app().operations.grants.follow().await.unwrap();
    let before = consumed(&app).await;
    assert_eq!(before[3], "22");
    for _ in 0..2 {
        app.drained().await;
        app.redis.flush().await;
        assert_eq!(outcomes(&send_batch(&app, &events).await), [DUPLICATE; 4]);
        assert_eq!(consumed(&app).await, before);
    }
    app.redis.flush().await;
    let others = events.clone().map(|event| with_data(&event, "amount", "9"));
    let answer = send_batch(&app, &others).await;
    assert_eq!(outcomes(&answer), [REUSED; 4], "{answer:?}");
    let moved = [("long ago", "2026-02-10T10:00:01Z"), ("yesterday", "2026-02-10T10:00:00Z")];
    let moved = moved.map(|(id, time)| event(id, if id == "yesterday" { 6 } else { 7 }, Some(time)));
    assert_eq!(outcomes(&send_batch(&app, &moved).await), [REUSED; 2], "another time is another event");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_a_tenants_only_event_is_known_although_it_happened_long_ago_and_comes_without_its_time()
 {
    let app = in_berlin_at("2026-03-03T10:30:00Z").await;
    let old = event("old", 7, Some("2026-02-10T10:00:00Z"));
    assert_eq!(outcomes(&send(&app, &old).await), [ACCEPTED]);
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(outcomes(&send(&app, &event("old", 7, None)).await), [REUSED]);
    app.drained().await;
    let told = "SELECT amount::bigint::text FROM entries WHERE debit = 'consumed'";
    let booked = crate::ledger::rows(&app.database, told).await;
    assert_eq!(booked, ["7"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_from_before_the_gates_memory_is_looked_up_in_the_ledger_first() {
    let app = in_berlin_at("2026-03-03T10:30:00Z").await;
    let old = event("old", 7, Some("2026-02-10T10:00:00Z"));
    assert_eq!(outcomes(&send(&app, &old).await), [ACCEPTED]);
    app.drained().await;
    // The gate forgets the key, as after a day, and no filter has it yet.
    let mut redis = app.redis.connection().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("tg1:*:rsv:*").query_async(&mut redis).await.unwrap();
    redis::cmd("DEL").arg(&keys).exec_async(&mut redis).await.unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!(outcomes(&send(&app, &old).await), [DUPLICATE]);
    app.drained().await;
    let repeats = crate::ledger::rows(&app.database, "SELECT count(*)::text FROM repeats").await;
    assert_eq!(repeats, ["0"], "the gate did not count it again");
    app.finish().await;
}

#[tokio::test]
async fn a_repeat_that_lies_too_far_back_by_now_is_still_a_duplicate() {
    let app = in_berlin_at("2026-03-03T10:30:00Z").await;
    let old = event("old", 7, Some("2026-01-28T00:00:00Z"));
    assert_eq!(outcomes(&send(&app, &old).await), [ACCEPTED]);
    app.move_clock("2026-03-04T01:00:00Z").await;
    let again = [old, event("new", 7, Some("2026-01-28T00:00:00Z"))];
    assert_eq!(outcomes(&send_batch(&app, &again).await), [DUPLICATE, INVALID]);
    app.finish().await;
}

#[tokio::test]
async fn what_is_wrong_with_an_event_is_named_and_the_others_are_recorded() {
    let app = with_policy().await;
    let good = event("good", 1, None);
    let mut without_id = good.clone();
    without_id.as_object_mut().unwrap().remove("id");
    let submit = |data: Value| event("x", 1, None).with("type", "submit").with("data", data);
    let cases: Vec<(Value, &[&str])> = vec![
        (without_id, &["/id"]),
        (json!(7), &[""]),
        (json!({}), &["/specversion", "/id", "/source", "/type", "/data"]),
        (event("x", 1, Some("today")).with("specversion", "0.3"), &["/specversion", "/time"]),
        (event("x", 1, None).with("type", "tollgate usage"), &["/type"]),
        (event("x", 1, None).with("type", "unknown.operation"), &["/type"]),
        (event("x", 1, None).with("myExtension", "a"), &["/myExtension"]),
        (event("x", 1, None).with("datacontenttype", "text/xml"), &["/datacontenttype"]),
        (event("x", 1, None).with("data", json!([])), &["/data"]),
        (event("x", 1, None).with("data", json!({ "tenant": "acme" })), &["/data"]),
        (event("x", 1, None).with("data_base64", "e30="), &["/data_base64"]),
        (with_data(&good, "colour", "red"), &["/data/colour"]),
        (with_data(&good, "amount", "0"), &["/data/amount"]),
        (with_data(&good, "amount", "1.5"), &["/data/amount"]),
        (with_data(&good, "amount", -3), &["/data/amount"]),
        (with_data(&good, "meter", "unknown"), &["/data/meter"]),
        (with_data(&good, "tenant", "nobody"), &["/data/tenant"]),
        (with_data(&good, "tenant", json!(null)), &["/data/tenant"]),
        (with_data(&good, "attributes", json!({ "pages": 1 })), &["/data/attributes"]),
        (submit(json!({ "tenant": "acme", "attributes": { "pages": 1.5 } })), &["/data/attributes/pages"]),
        (submit(json!({ "tenant": "acme", "attributes": { "colour": true } })), &["/data/attributes/colour"]),
        (with_data(&good, "lines", json!([{ "meter": "page", "amount": "1" }])), &["/data/lines"]),
    ];
    let events: Vec<_> = cases.iter().map(|(event, _)| event.clone()).chain([good]).collect();
    let answer = send_batch(&app, &events).await;
    let outcomes = outcomes(&answer);
    for (((event, pointers), named), outcome) in cases.iter().zip(named(&answer)).zip(&outcomes) {
        assert_eq!((&named[..], *outcome), (*pointers, INVALID), "{event}");
    }
    assert_eq!(outcomes.last(), Some(&ACCEPTED));
    let problem = &answer.body["results"][0]["problem"];
    assert_eq!(problem["request_id"], answer.header("x-request-id"));
    assert_eq!(app.quota().await.text("/limits/0/consumed"), "1");
    app.finish().await;
}

#[tokio::test]
async fn what_is_wrong_is_named_in_a_short_answer_however_much_is_wrong() {
    let app = in_berlin_at("2026-03-10T12:00:00Z").await;
    let mut wrong = event("a", 1, None);
    for number in 0..50_000 {
        wrong[format!("Wrong{number}")] = json!(1);
    }
    let answer = send(&app, &wrong).await;
    assert_eq!(named(&answer)[0].len(), 20, "{answer:?}");
    let mut wrong = event("a", 1, None);
    wrong["a".repeat(500_000) + "B"] = json!(1);
    wrong["data"]["c".repeat(300_000)] = json!(1);
    let answer = send(&app, &wrong).await;
    assert!(answer.body.to_string().len() < 16_384, "{}", answer.body.to_string().len());
    let long = send(&app, &event(&"i".repeat(1_025), 1, None)).await;
    assert_eq!(named(&long), [["/id"]]);
    assert!(long.body.to_string().len() < 4_096, "{long:?}");
    assert_eq!(outcomes(&send(&app, &event(&"i".repeat(1_024), 1, None)).await), [ACCEPTED]);
    let unknown = app.post(RESERVATIONS, pages(1).with(&"u".repeat(50_000), 1)).await;
    assert!((400..500).contains(&unknown.status), "{unknown:?}");
    assert!(unknown.body.to_string().len() < 8_192, "{}", unknown.body.to_string().len());
    app.finish().await;
}

#[tokio::test]
async fn events_that_are_alike_in_one_batch_are_recorded_once_and_in_order() {
    let app = with_policy().await;
    let mut events = vec![event("same", 2, None); 40];
    events.push(event("same", 3, None));
    events.push(event("same", 3, None).with("source", "/ocr/worker-4"));
    events.push(with_data(&event("same", 2, None), "tenant", "other"));
    let answer = send_batch(&app, &events).await;
    let outcomes = outcomes(&answer);
    assert_eq!(outcomes[0], ACCEPTED);
    assert!(outcomes[1..40].iter().all(|outcome| *outcome == DUPLICATE), "{answer:?}");
    assert_eq!(outcomes[40..], [REUSED, ACCEPTED, ACCEPTED]);
    assert_eq!(app.quota().await.text("/limits/0/consumed"), "5");
    app.finish().await;
}

#[tokio::test]
async fn a_bound_key_leaves_its_tenant_out_and_reaches_no_other() {
    let app = with_policy().await;
    let bound = app.make_key("service", Some("acme")).await;
    let mut own = event("own", 1, None);
    own["data"].as_object_mut().unwrap().remove("tenant");
    let events = [own, event("named", 1, None), with_data(&event("other", 1, None), "tenant", "other")];
    let absent = with_data(&event("absent", 1, None), "tenant", "nobody-at-all");
    let answer = send_batch(&bound, &[&events[..], &[absent]].concat()).await;
    let forbidden = ("rejected", "forbidden");
    assert_eq!(outcomes(&answer), [ACCEPTED, ACCEPTED, forbidden, forbidden], "{answer:?}");
    assert_eq!(answer.body["results"][2]["problem"]["status"], 403);
    app.drained().await;
    let others = app.get("/v1/tenants/other/entries").await.expect(200);
    assert_eq!(others.body["data"], json!([]));
    app.finish().await;
}

#[tokio::test]
async fn a_body_that_is_no_event_is_refused_whole() {
    let app = with_policy().await;
    let event = event("x", 1, None).to_string();
    for (content_type, body, status) in [
        ("application/json", event.as_str(), 415),
        ("text/plain", event.as_str(), 415),
        ("application/cloudevents+avro", event.as_str(), 415),
        (EVENT, "{", 400),
        (EVENT, "{\"id\":\"a\",\"id\":\"b\"}", 400),
        (BATCH, event.as_str(), 422),
        (BATCH, "[]", 202),
    ] {
        assert_eq!(send_as(&app, content_type, body).await.status, status, "{content_type} {body}");
    }
    let large = format!("[{}\"\"]", " ".repeat(1024 * 1024));
    send_as(&app, BATCH, large).await.is_problem(413, "payload_too_large");
    let one = json!({ "specversion": "1.0" });
    send_as(&app, BATCH, json!(vec![one.clone(); 1_001]).to_string())
        .await
        .is_problem(422, "validation_failed");
    let most = send_as(&app, BATCH, json!(vec![one; 1_000]).to_string()).await.expect(202);
    assert_eq!(outcomes(&most), [INVALID; 1_000]);
    app.finish().await;
}

/// Sends events in each content mode as the CloudEvents SDK for Python writes them, and prints what they came to.
const SDK: &str = r#"
import json, os, urllib.request
from datetime import datetime, timezone
from cloudevents.core.bindings import http
from cloudevents.core.v1.event import CloudEvent

def event(id):
    attributes = {"id": id, "source": "/ocr/worker-3", "type": "tollgate.usage", "datacontenttype": "application/json"}
    attributes["time"] = datetime.fromtimestamp(int(os.environ["NOW"]), timezone.utc)
    return CloudEvent(attributes, {"tenant": "acme", "meter": "page", "amount": "2"})

def send(headers, body):
    headers = {**headers, "authorization": "Bearer " + os.environ["KEY"]}
    request = urllib.request.Request(os.environ["URL"] + "/v1/events", body, headers)
    with urllib.request.urlopen(request) as answer:
        print(*(result["status"] for result in json.load(answer)["results"]))

structured = [http.to_structured_event(event(id)) for id in ("page 7 €", "8", "9")]
send(structured[0].headers, structured[0].body)
for binary in [http.to_binary_event(event(id)) for id in ("page 7 €", "8")]:
    send(binary.headers, binary.body)
batch = b"[" + b",".join(one.body for one in structured) + b"]"
send({"content-type": "application/cloudevents-batch+json"}, batch)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn events_of_the_sdk_for_python_are_recorded_once_in_each_mode() {
    let python = |program: &str| {
        let mut python = std::process::Command::new("python3");
        python.args(["-c", program]);
        python
    };
    let imports = python("import cloudevents.core.bindings.http").output();
    if !imports.is_ok_and(|imported| imported.status.success()) {
        return not_tried("the CloudEvents SDK for Python (`pip install cloudevents==2.2.0`)");
    }
    let app = with_policy().await;
    let mut sender = python(SDK);
    let now = app.app().operations.now_ms() / 1000;
    sender.env("URL", app.url()).env("KEY", app.key()).env("NOW", now.to_string());
    let sent = tokio::task::spawn_blocking(move || sender.output().unwrap()).await.unwrap();
    let came_to = String::from_utf8_lossy(&sent.stdout);
    assert_eq!(came_to, "accepted\nduplicate\naccepted\nduplicate duplicate accepted\n", "{sent:?}");
    assert_eq!(app.quota().await.text("/limits/0/consumed"), "6");
    app.finish().await;
}
