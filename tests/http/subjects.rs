//! Subjects that the gate does not know: which of them are restored from the ledger, and what stays of them in Redis.

use std::time::{Duration, Instant};

use futures::StreamExt;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use crate::support::app::*;
use crate::support::wait::wait_for;

const HOUR_MS: i64 = 3_600_000;
/// Expiries are rounded up to this.
const ROUNDED_MS: i64 = 600_000;

fn limits() -> Value {
    json!([
        { "id": "all", "meter": "page", "window": "day", "capacity": "100000000" },
        { "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "hour", "capacity": "60" }
    ])
}

fn page_of(subject: &str) -> Value {
    pages("1").by(subject)
}

async fn with_limits(app: &TestApp) {
    app.with_plan(limits(), json!([])).await;
    let everybodys = pages("1");
    app.post_keyed(USAGE, "warm", everybodys).await.expect(201);
}

/// Uses one page.
async fn uses(app: &TestApp, subject: &str) {
    app.post_keyed(USAGE, &uuid::Uuid::now_v7().to_string(), page_of(subject)).await.expect(201);
}

/// The keys of subjects' states, each with its expiry (unix ms; -1 for none).
async fn subjects_states(redis: &mut MultiplexedConnection) -> Vec<(String, i64)> {
    let keys: Vec<String> = redis.keys("tg1:*:state:acme:*").await.unwrap();
    let mut states = Vec::new();
    for key in keys {
        let at: i64 = redis::cmd("PEXPIRETIME").arg(&key).query_async(redis).await.unwrap();
        states.push((key, at));
    }
    states
}

/// When the hour's window that is open now ends, and the windows with it.
async fn window_end_ms(app: &TestApp) -> i64 {
    let read = app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await.expect(200).body;
    let limits = read["limits"].as_array().unwrap();
    let hour = limits.iter().find(|limit| limit["id"] == "user").unwrap_or_else(|| panic!("{read}"));
    hour["resets_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_subject_of_a_warm_tenant_needs_no_postgres() {
    let app = an_app().on_own_postgres().start().await;
    with_limits(&app).await;
    uses(&app, "ada").await;
    app.drained().await;
    wait_for("the instance has followed its own changes", Duration::from_secs(20), async || {
        let version = app.app().ledger.policy_version().await.ok()?;
        let line = format!("tollgate_policy_version {version}");
        app.app().operations.metrics_text().lines().any(|found| found == line).then_some(())
    })
    .await;
    uses(&app, "ben").await;
    let frozen = app.database.freeze();
    for number in 0..20 {
        app.post(RESERVATIONS, page_of(&format!("new-{number}"))).await.expect(201);
    }
    drop(frozen);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_loss_a_subject_has_what_it_used_and_a_new_one_nothing() {
    let app = an_app().at("2026-03-10T12:10:00Z").start().await;
    with_limits(&app).await;
    for subject in ["ada", "ada", "ben"] {
        uses(&app, subject).await;
    }
    let held = app.post(RESERVATIONS, page_of("ben")).await.expect(201);
    app.drained().await;
    app.redis.flush().await;
    let of = async |subject: &str| {
        let read =
            app.get(&format!("/v1/tenants/acme/quota?subject={subject}&kind=user")).await.expect(200).body;
        let limits = read["limits"].as_array().unwrap();
        let user = limits.iter().find(|limit| limit["id"] == "user").unwrap_or_else(|| panic!("{read}"));
        (user["consumed"].as_str().unwrap().to_owned(), user["reserved"].as_str().unwrap().to_owned())
    };
    let figures = |consumed: &str, reserved: &str| (consumed.to_owned(), reserved.to_owned());
    assert_eq!(of("ada").await, figures("2", "0"));
    assert_eq!(of("new").await, figures("0", "0"));
    assert_eq!(of("ben").await, figures("1", "1"));
    uses(&app, "new").await;
    app.resolve(held.text("/id"), "consume", json!({})).await.expect(200);
    assert_eq!(of("new").await, figures("1", "0"));
    assert_eq!(of("ben").await, figures("2", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_a_subject_that_never_was_leaves_nothing_behind() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let key = json!({ "name": "reads", "role": "tenant", "tenant": "acme" });
    let key = app.post("/v1/admin/keys", key).await.expect(201).text("/key").to_owned();
    let mut redis = app.redis.connection().await;
    let read = async |number: usize| {
        let path = format!("/v1/tenants/acme/quota?subject=made-up-{number}&kind=user");
        let read = app.with_key(Some(&key)).get(&path).await.expect(200);
        assert_eq!((read.text("/source"), read.body["limits"][1]["consumed"].as_str()), ("gate", Some("0")));
    };
    read(0).await;
    // With every subject asked of the ledger it leaves nothing either.
    for everybody_is_asked in [false, true] {
        if everybody_is_asked {
            uses(&app, "ada").await;
            app.drained().await;
            app.redis.flush().await;
            read(0).await;
            let filters: Vec<String> = redis.keys("tg1:*:known:acme").await.unwrap();
            assert_eq!(filters.len(), 1);
            let _: () = redis.del(&filters).await.unwrap();
        }
        let before: i64 = redis::cmd("DBSIZE").query_async(&mut redis).await.unwrap();
        for number in 0..30 {
            read(number).await;
        }
        let after: i64 = redis::cmd("DBSIZE").query_async(&mut redis).await.unwrap();
        assert!(after <= before, "{before} keys before, {after} after");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subjects_state_ends_an_hour_after_its_windows_and_its_last_hold() {
    let app = spawn_app().await;
    with_limits(&app).await;
    app.define("meters/page", json!({ "unit": "page", "max_life_seconds": 86_400 })).await;
    let mut redis = app.redis.connection().await;
    app.post(RESERVATIONS, page_of("ada")).await.expect(201);
    let ends_ms = window_end_ms(&app).await;
    let states = subjects_states(&mut redis).await;
    let [(_, expires_at_ms)] = states[..] else { panic!("{states:?}") };
    let window = ends_ms + HOUR_MS..=ends_ms + HOUR_MS + ROUNDED_MS;
    // Where the hour turned in between, the state belongs to the hour before.
    assert!(
        window.contains(&expires_at_ms) || window.contains(&(expires_at_ms + HOUR_MS)),
        "{states:?}, {ends_ms}"
    );
    let mut long = page_of("ada");
    long["ttl_seconds"] = json!(7_200);
    let held = app.post(RESERVATIONS, long).await.expect(201);
    let expiry_of =
        |answer: &Answered| answer.text("/expires_at").parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let lives_until = async |redis: &mut MultiplexedConnection, held_until_ms: i64| {
        let states = subjects_states(redis).await;
        let needed = held_until_ms + HOUR_MS;
        assert!(
            (needed..=needed + ROUNDED_MS).contains(&states[0].1),
            "{states:?}, held until {held_until_ms}"
        );
    };
    lives_until(&mut redis, expiry_of(&held)).await;
    let extend = reservation(held.text("/id"), "extend");
    let extended = app.post(&extend, json!({ "ttl_seconds": 36_000 })).await.expect(200);
    lives_until(&mut redis, expiry_of(&extended)).await;
    // Restored state ends too.
    app.drained().await;
    app.redis.flush().await;
    app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await.expect(200);
    lives_until(&mut redis, expiry_of(&extended)).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_outlives_what_was_used_beyond_a_hold() {
    let app = spawn_app().await;
    let bucket = json!({
        "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "algorithm": "token_bucket", "refill": "1",
        "per_seconds": 3600, "capacity": "10",
    });
    app.with_plan(json!([bucket]), json!([])).await;
    let held = app.post(RESERVATIONS, page_of("ada")).await.expect(201);
    let consumed = app.consume(held.text("/id"), "30").await.expect(200);
    let full_ms = consumed.text("/limits/0/resets_at").parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let states = subjects_states(&mut app.redis.connection().await).await;
    assert!(
        (full_ms + HOUR_MS..=full_ms + HOUR_MS + ROUNDED_MS).contains(&states[0].1),
        "{states:?}, {full_ms}"
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_a_test_clock_no_state_ends_by_itself() {
    let app = an_app().at_ms(1_700_000_000_000).start().await;
    with_limits(&app).await;
    let held = app.post(RESERVATIONS, page_of("ada")).await.expect(201);
    let extend = reservation(held.text("/id"), "extend");
    app.post(&extend, json!({ "ttl_seconds": 120 })).await.expect(200);
    app.post(RESERVATIONS, page_of("ben")).await.expect(201);
    let states = subjects_states(&mut app.redis.connection().await).await;
    assert!(states.len() == 2 && states.iter().all(|(_, expires_at_ms)| *expires_at_ms == -1), "{states:?}");
    app.finish().await;
}

/// How long so many calls of sixteen callers take, and the slowest of a hundred.
async fn take(app: &TestApp, calls: usize, subject: impl Fn(usize) -> String) -> (Duration, Duration) {
    let began = Instant::now();
    let work = futures::stream::iter((0..calls).map(|number| {
        let subject = subject(number);
        async move {
            let began = Instant::now();
            uses(app, &subject).await;
            began.elapsed()
        }
    }));
    let mut took: Vec<Duration> = work.buffer_unordered(16).collect().await;
    took.sort();
    (began.elapsed(), took[calls * 99 / 100])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: run it alone, with --nocapture"]
async fn measured_new_subjects_run_at_the_rate_of_known_ones() {
    let app = spawn_app().await;
    with_limits(&app).await;
    take(&app, 500, |number| format!("known-{number}")).await;
    for round in 0..5 {
        let (known, known_p99) = take(&app, 2_000, |number| format!("known-{}", number % 500)).await;
        let (new, new_p99) = take(&app, 2_000, |number| format!("new-{round}-{number}")).await;
        let percent = known.as_millis() * 100 / new.as_millis();
        println!("known {known:?}, p99 {known_p99:?}; new {new:?}, p99 {new_p99:?}: {percent} % of the rate");
    }
    app.finish().await;
}
