//! Made-up subjects by the thousand: what they cost in Redis and in the ledger, and that they go away.
//!
//! Short in every run of the tests; `make flood` makes up five million anonymous subjects and a million named ones, and
//! half a million more whose use is booked.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::StreamExt;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use tollgate::clock::Clock;

use super::ratelimit::{CHECK, minute, with_limits};
use crate::ledger::rows;
use crate::support::app::*;
use crate::support::process::from_environment;

/// What an anonymous slot with one limit may cost in Redis by `MEMORY USAGE`.
const SLOT_BYTES_MAX: u64 = 200;
/// The same with its share of Redis's tables of keys and ends, which double as they fill.
const SLOT_AND_TABLES_BYTES_MAX: u64 = 256;
/// What the buffers of Redis's clients may take meanwhile, however many slots there are.
const BUFFERS_BYTES_MAX: u64 = 128 << 10;
/// The window of the limits.
const WINDOW_MS: i64 = 60_000;
/// Checks of one call.
const TOGETHER: u64 = 100;
const DAY_MS: i64 = 86_400_000;

fn of_each(id: &str, kind: &str) -> Value {
    minute("1000000").with("id", id).with("scope", "subject").with("subject_kind", kind)
}

/// Checks this many subjects of a kind, each once.
async fn check_each(app: &TestApp, kind: &str, subjects: u64) {
    let began = Instant::now();
    let calls = (0..subjects.div_ceil(TOGETHER)).map(|call| async move {
        let numbers = (call * TOGETHER..subjects).take(usize::try_from(TOGETHER).unwrap());
        let check = |number| json!({ "tenant": "acme", "operation": "read", "subjects": { kind: format!("made-up-{number}") } });
        let checks: Vec<_> = numbers.map(check).collect();
        let answer = app.post(CHECK, json!({ "checks": checks, "atomic": false })).await.expect(200);
        assert_eq!(answer.body["allowed"], true, "{answer:?}");
    });
    futures::stream::iter(calls).buffer_unordered(16).collect::<()>().await;
    let rate = u128::from(subjects) * 1000 / began.elapsed().as_millis().max(1);
    println!("{subjects} subjects of the kind {kind} checked, {rate} a second");
}

/// The bytes of Redis without its buffers, tables of keys included.
async fn bytes(redis: &mut MultiplexedConnection) -> u64 {
    let info: String = redis::cmd("INFO").arg("memory").query_async(redis).await.unwrap();
    let field = |name: &str| -> u64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).expect("a field of INFO");
        line.trim().parse().unwrap()
    };
    field("used_memory:") - field("mem_clients_normal:") - field("mem_aof_buffer:")
}

/// What is found of all keys of a pattern.
#[derive(Debug, Default)]
struct Found {
    keys: u64,
    /// By `MEMORY USAGE`.
    bytes: u64,
    /// How many have no end.
    endless: u64,
    /// The latest end (unix ms).
    latest_end_ms: i64,
}

async fn find(redis: &mut MultiplexedConnection, pattern: &str) -> Found {
    let (mut cursor, mut found) = (0_u64, Found::default());
    loop {
        let scan = ("MATCH", pattern, "COUNT", 1000);
        let (next, keys): (u64, HashSet<String>) =
            redis::cmd("SCAN").arg(cursor).arg(scan).query_async(redis).await.unwrap();
        let mut pipe = redis::pipe();
        for key in &keys {
            pipe.cmd("PEXPIRETIME").arg(key).cmd("MEMORY").arg("USAGE").arg(key);
        }
        let read: Vec<Option<i64>> =
            if keys.is_empty() { Vec::new() } else { pipe.query_async(redis).await.unwrap() };
        for pair in read.chunks(2) {
            let [Some(end), Some(bytes)] = pair else { continue };
            found.keys += 1;
            found.bytes += u64::try_from(*bytes).unwrap();
            found.endless += u64::from(*end < 0);
            found.latest_end_ms = found.latest_end_ms.max(*end);
        }
        cursor = next;
        if cursor == 0 {
            return found;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_subjects_cost_bounded_memory_and_no_rows_and_are_gone_a_day_later() {
    let anonymous = from_environment("TOLLGATE_FLOOD_SUBJECTS").unwrap_or(10_000);
    let named = anonymous / 5;
    let slots = (anonymous / 10).min(65_536);
    let app = an_app().with("gate.anonymous_slots", slots).start().await;
    with_limits(&app, json!([of_each("address", "anonymous"), of_each("user", "user")])).await;
    let mut redis = app.redis.connection().await;
    check_each(&app, "anonymous", 1).await;

    let before = bytes(&mut redis).await;
    check_each(&app, "anonymous", anonymous).await;
    let grown = bytes(&mut redis).await.saturating_sub(before);
    let found = find(&mut redis, "tg1:*:light:acme:*").await;
    println!(
        "{anonymous} anonymous subjects, {slots} slots: {found:?}; {} bytes a slot all in",
        grown / slots
    );
    assert!(found.keys <= slots && found.endless == 0, "{found:?}");
    assert!(found.bytes <= slots * SLOT_BYTES_MAX, "{found:?}");
    let most = slots * SLOT_AND_TABLES_BYTES_MAX + BUFFERS_BYTES_MAX;
    assert!(grown <= most, "{grown} bytes in {slots} slots");

    check_each(&app, "user", named).await;
    let now_ms = Clock::system().now_ms();
    let found = find(&mut redis, "tg1:*:light:acme:*").await;
    println!("{named} named subjects, at {now_ms}: {found:?}");
    assert!(
        found.endless == 0 && found.latest_end_ms <= now_ms + WINDOW_MS + DAY_MS,
        "{found:?} at {now_ms}"
    );

    app.drained().await;
    assert_eq!(rows(&app.database, "SELECT count(*) FROM subjects").await, ["0"]);
    assert_eq!(rows(&app.database, "SELECT count(*) FROM usage_hourly").await, ["0"]);
    app.finish().await;
}

/// Uses a page in the name of each of this many anonymous subjects, the last one beside a user.
async fn use_for_each(app: &TestApp, subjects: u64) {
    let usage = |number: u64| {
        let mut who = json!({ "anonymous": format!("made-up-{number}") });
        if number + 1 == subjects {
            who["user"] = json!("ada");
        }
        let body = pages(1).with("subjects", who);
        json!({ "call": "usage", "idempotency_key": format!("use-{number}"), "body": body })
    };
    let calls = (0..subjects.div_ceil(TOGETHER)).map(|call| async move {
        let numbers = (call * TOGETHER..subjects).take(usize::try_from(TOGETHER).unwrap());
        let items: Vec<_> = numbers.map(usage).collect();
        let answer = app.post("/v1/batch", json!({ "items": items })).await.expect(200);
        let results = answer.body["results"].as_array().unwrap();
        assert!(results.iter().all(|result| result["status"] == 201), "{answer:?}");
    });
    futures::stream::iter(calls).buffer_unordered(4).collect::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn booked_use_of_made_up_subjects_is_in_the_books_in_nobodys_name_and_costs_bounded_memory() {
    let subjects = from_environment("TOLLGATE_FLOOD_SUBJECTS").unwrap_or(10_000) / 10;
    let slots = (subjects / 10).min(65_536);
    let app = an_app().with("gate.anonymous_slots", slots).start().await;
    let limit = of_each("address", "anonymous").with("meter", "page").with("class", "rate");
    with_limits(&app, json!([limit])).await;
    use_for_each(&app, subjects).await;

    let now_ms = Clock::system().now_ms();
    let found = find(&mut app.redis.connection().await, "tg1:*:state:acme:=*").await;
    println!("{subjects} anonymous subjects of booked use, {slots} slots, at {now_ms}: {found:?}");
    assert!(found.keys > slots / 2 && found.keys <= slots, "{found:?}");
    assert!(found.bytes <= found.keys * SLOT_BYTES_MAX, "{found:?}");
    assert!(
        found.endless == 0 && found.latest_end_ms <= now_ms + WINDOW_MS + DAY_MS,
        "{found:?} at {now_ms}"
    );

    app.drained_within(Duration::from_secs(600)).await;
    let books = async |query: &str| rows(&app.database, query).await;
    assert_eq!(
        books("SELECT kind, id FROM subjects ORDER BY kind, id LIMIT 3").await,
        ["user ada"],
        "who is named has a row"
    );
    let by_subject =
        "SELECT sum(consumed)::bigint AS pages FROM usage_hourly GROUP BY subject ORDER BY subject";
    assert_eq!(books(by_subject).await, [subjects.to_string(), "1".to_owned()], "all of it, and the user's");
    let booked =
        "SELECT sum(amount)::bigint AS pages FROM entries WHERE debit = 'consumed' OR credit = 'consumed'";
    assert_eq!(books(booked).await, [subjects.to_string()]);
    app.finish().await;
}
