//! Limits whose capacity follows the load: what is pushed, by how much it scales, and what it leaves alone.

use std::time::Duration;

use serde_json::{Value, json};

use super::ratelimit::{CHECK, minute, of, started};
use crate::support::app::*;
use crate::support::wait::wait_for;

const LOAD: &str = "/v1/admin/load";
const HOUR: &str = "/v1/tenants/acme/quota";

/// At most so many pages a day, fewer while the installation is busy.
fn scaled_day_of(capacity: &str) -> Value {
    day_of(capacity).with("class", "rate").with("load_scaled", true)
}

fn at(factor: &str, ttl_seconds: u32) -> Value {
    json!({ "factor": factor, "ttl_seconds": ttl_seconds })
}

async fn app_with(limits: Value) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(limits, json!([])).await;
    app
}

/// The limit's capacity, what remains of it, and its factor.
fn shown(limit: &Value) -> [String; 3] {
    ["capacity", "remaining", "load_factor"].map(|field| match &limit[field] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

#[tokio::test]
async fn a_pushed_load_scales_the_limits_that_ask_for_it_and_every_answer_says_so() {
    let other = day_of("10").with("id", "other").with("class", "rate");
    let app = app_with(json!([scaled_day_of("10"), other])).await;
    let first = app.post_keyed(RESERVATIONS, "first", pages(6)).await.expect(201);
    assert_eq!(shown(&first.body["limits"][0]), ["10", "4", "null"]);
    let pushed = app.put(&format!("{LOAD}/ocr-workers"), at("0.6", 3_600)).await.expect(200);
    assert_eq!((pushed.text("/name"), pushed.text("/factor")), ("ocr-workers", "0.6"));
    // 7.5 is rounded down.
    let quota = app.get(HOUR).await.expect(200);
    assert_eq!(shown(&quota.body["limits"][0]), ["7", "1", "0.75"]);
    assert_eq!(shown(&quota.body["limits"][1]), ["10", "4", "null"], "another limit is as it was");
    let refused = app.post(RESERVATIONS, pages(2)).await;
    refused.is_problem(429, "rate_limited");
    assert_eq!(shown(&refused.body["refused_by"][0]), ["7", "1", "0.75"]);
    assert_eq!(refused.header("retry-after"), "60", "until the hold that stands in the way ends");
    assert_eq!(refused.body["refused_by"].as_array().unwrap().len(), 1);
    app.put(&format!("{LOAD}/ocr-workers"), at("0.8", 3_600)).await.expect(200);
    let quota = app.get(HOUR).await.expect(200);
    assert_eq!(shown(&quota.body["limits"][0]), ["5", "0", "0.5"], "what is held stays held");
    // What was admitted is used as it was admitted, and more of it where the limit alone has room.
    let used = app.resolve(first.text("/id"), "consume", json!({ "amount": "4" })).await.expect(200);
    assert_eq!(shown(&used.body["limits"][0]), ["5", "1", "0.5"]);
    let last = app.post(RESERVATIONS, pages(1)).await.expect(201);
    assert_eq!(last.header("ratelimit-policy"), "\"day\";q=5;w=86400, \"other\";q=10;w=86400");
    app.finish().await;
}

#[tokio::test]
async fn what_only_the_load_leaves_no_room_for_is_to_be_tried_again_and_what_never_fits_is_not() {
    let app = app_with(json!([scaled_day_of("10")])).await;
    app.put(&format!("{LOAD}/gpu"), at("1", 3_600)).await.expect(200);
    let refused = app.post(RESERVATIONS, pages(6)).await;
    refused.is_problem(429, "rate_limited");
    assert_eq!(
        refused.body["retry_after_ms"],
        json!(10_000),
        "capacities grow after ten seconds at the earliest"
    );
    assert!(refused.text("/detail").contains("the load leaves it 5 of 10"), "{refused:?}");
    app.post(RESERVATIONS, pages(11)).await.is_problem(402, "exceeds_plan");
    let best = app.post(RESERVATIONS, pages(6).with("mode", "best_effort")).await.expect(201);
    assert_eq!(best.text("/lines/0/amount"), "5");
    app.finish().await;
}

#[tokio::test]
async fn the_largest_load_counts_and_each_name_has_one() {
    let app = app_with(json!([scaled_day_of("100")])).await;
    for (name, factor) in [("b", "0.65"), ("a", "0.9"), ("a", "0.3")] {
        app.put(&format!("{LOAD}/{name}"), at(factor, 600)).await.expect(200);
    }
    let listed = app.get(LOAD).await.expect(200);
    let names: Vec<_> =
        listed.body["data"].as_array().unwrap().iter().map(|one| (&one["name"], &one["factor"])).collect();
    assert_eq!(names, [(&json!("a"), &json!("0.3")), (&json!("b"), &json!("0.65"))]);
    assert_eq!(
        shown(&app.quota().await.body["limits"][0])[2],
        "0.5",
        "from 0.9 it rises after ten seconds only"
    );
    let metrics = app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for line in ["tollgate_load_factor 0.65", "tollgate_load_level 2"] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    let audited = app.get("/v1/admin/audit?object_kind=load&object_id=a").await.expect(200);
    let details: Vec<_> = audited.body["data"].as_array().unwrap().iter().map(|row| &row["detail"]).collect();
    assert_eq!(details, [&at("0.3", 600), &at("0.9", 600)]);
    app.finish().await;
}

#[tokio::test]
async fn a_pushed_load_reaches_another_instance_within_a_second_and_ends_there_by_itself() {
    let app = app_with(json!([scaled_day_of("100")])).await;
    let other = app.another_instance().await;
    let there = app.caller().at(other.url());
    let scaled_there = async |factor: &str, within: Duration| {
        let asked = async || (shown(&there.get(HOUR).await.body["limits"][0])[2] == factor).then_some(());
        wait_for("the other instance has the load", within, asked).await;
    };
    scaled_there("null", Duration::from_secs(5)).await;
    app.put(&format!("{LOAD}/gpu"), at("0.75", 1)).await.expect(200);
    scaled_there("0.75", Duration::from_secs(1)).await;
    // It ends after a second, and ten seconds later capacities are whole again.
    scaled_there("null", Duration::from_secs(30)).await;
    assert_eq!(app.get(LOAD).await.expect(200).body["data"], json!([]));
    other.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn an_instance_that_starts_later_knows_what_is_pushed_and_another_memory_of_redis_changes_nothing() {
    let app = app_with(json!([scaled_day_of("100")])).await;
    app.put(&format!("{LOAD}/gpu"), at("0.9", 3_600)).await.expect(200);
    app.redis.flush().await;
    assert_eq!(shown(&app.quota().await.body["limits"][0]), ["50", "50", "0.5"]);
    let other = app.another_instance().await;
    let there = app.caller().at(other.url());
    let asked = async || (shown(&there.get(HOUR).await.body["limits"][0])[2] == "0.5").then_some(());
    wait_for("the new instance has the load", Duration::from_secs(5), asked).await;
    other.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn a_check_of_what_is_not_booked_is_scaled_too() {
    let app = started(json!([minute("10").with("load_scaled", true)])).await;
    app.put(&format!("{LOAD}/gpu"), at("0.8", 3_600)).await.expect(200);
    let first = app.post(CHECK, of("write")).await.expect(200);
    assert_eq!(
        (&first.body["allowed"], first.text("/limit"), first.text("/remaining")),
        (&json!(true), "5", "0")
    );
    let refused = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!((&refused.body["allowed"], refused.text("/refused_by/0/load_factor")), (&json!(false), "0.5"));
    app.finish().await;
}

#[tokio::test]
async fn a_load_is_pushed_by_admins_with_a_share_and_an_end() {
    let app = app_with(json!([])).await;
    for (name, body, pointer) in [
        ("gpu", at("1.01", 60), "/factor"),
        ("gpu", at("-0.1", 60), "/factor"),
        ("gpu", at("0.12345", 60), "/factor"),
        ("gpu", json!({ "factor": 0.5, "ttl_seconds": 60 }), "/factor"),
        ("gpu", json!({ "factor": 2, "ttl_seconds": 60 }), "/factor"),
        ("gpu", json!({ "factor": -1, "ttl_seconds": 60 }), "/factor"),
        ("gpu", at("0.5", 0), "/ttl_seconds"),
        ("gpu", at("0.5", 86_401), "/ttl_seconds"),
        ("gpu", at("0.5", 60).with("until", "2027-01-01T00:00:00Z"), "/until"),
        ("-gpu", at("0.5", 60), "/name"),
    ] {
        let refused = app.put(&format!("{LOAD}/{name}"), body).await;
        refused.is_problem(422, "validation_failed");
        assert_eq!(refused.pointers(), [pointer], "{refused:?}");
    }
    let finance = app.make_key("finance", None).await;
    finance.get(LOAD).await.expect(200);
    finance.put(&format!("{LOAD}/gpu"), at("0.5", 60)).await.is_problem(403, "forbidden");
    assert_eq!(app.get(LOAD).await.expect(200).body["data"], json!([]));
    for number in 0..100 {
        app.put(&format!("{LOAD}/load-{number}"), at("0.1", 600)).await.expect(200);
    }
    let refused = app.put(&format!("{LOAD}/gpu"), at("0.9", 60)).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), ["/name"]);
    app.put(&format!("{LOAD}/load-7"), at("0.2", 600)).await.expect(200);
    for (sent, shown) in [(json!(1), "1"), (json!("1"), "1"), (json!(0), "0")] {
        let body = json!({ "factor": sent, "ttl_seconds": 600 });
        assert_eq!(app.put(&format!("{LOAD}/load-7"), body).await.expect(200).text("/factor"), shown);
    }
    app.finish().await;
}

#[tokio::test]
async fn what_is_paid_for_is_never_scaled() {
    let app = app_with(json!([])).await;
    let promised = day_of("10").with("load_scaled", true);
    let refused = app.put("/v1/admin/limits/day", promised).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), ["/load_scaled"]);
    app.put("/v1/admin/limits/day", scaled_day_of("10")).await.expect(201);
    let read = app.get("/v1/admin/limits/day").await.expect(200);
    assert_eq!(read.body["load_scaled"], json!(true));
    app.finish().await;
}

#[tokio::test]
async fn an_instance_measures_its_own_load() {
    let app = an_app().with("load.measured", true).start().await;
    let measured = async || {
        let metrics = app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap();
        let metrics = metrics.text().await.unwrap();
        let load = metrics.lines().find_map(|line| line.strip_prefix("tollgate_load_factor ")).unwrap();
        (load != "0.0" && load.parse::<f64>().unwrap() <= 1.0).then_some(())
    };
    wait_for("processors that are busy with this test", Duration::from_secs(60), measured).await;
    app.finish().await;
}
