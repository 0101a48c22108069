//! One server away for as long as it may take to bring it back, under load: what goes on, what has to wait, and
//! that nothing is lost or counted twice afterwards.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::load::{Load, names, prepare};
use super::{Callers, PATIENCE, Storm, sized};
use crate::support::wait::wait_for;

const TENANTS: u64 = 8;
const CALLERS: u64 = 16;
/// A limit and a quota of each tenant.
const COUNTERS: usize = 2;
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(300);
/// How much later than its timeout a call may be answered.
const SLACK: Duration = Duration::from_millis(100);

/// Makes so many holds and waits until they are booked.
async fn booked_holds(storm: &Storm, caller: &Callers, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        let tenant = format!("load-{}", number as u64 % TENANTS);
        let body = json!({ "tenant": tenant, "meter": "page", "amount": "3", "ttl_seconds": 3600 });
        let key = format!("hold-{number}");
        let held = caller.insist(Method::POST, "/v1/reservations", Some(&key), body).await;
        ids.push(held["id"].as_str().unwrap().to_owned());
    }
    wait_for("the holds are booked", PATIENCE, async || {
        let booked = storm.rows("SELECT count(*) FROM reservations WHERE state = 'reserved'").await;
        (booked[0].parse::<usize>().unwrap() >= count).then_some(())
    })
    .await;
    ids
}

async fn consume(caller: &Callers, id: &str, body: Value) -> (u16, Value) {
    let answer = caller.post(&format!("/v1/reservations/{id}/consume"), body).await;
    answer.expect("an answer in time")
}

async fn is_overloaded(caller: &Callers) -> bool {
    let body = json!({ "tenant": "load-0", "meter": "page", "amount": "3" });
    let (status, answer) = caller.post("/v1/reservations", body).await.expect("an answer in time");
    if status == 503 {
        assert_eq!(answer["code"], "overloaded", "{answer}");
    }
    status == 503
}

/// How Postgres is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    Killed,
    Frozen,
}

#[rstest::rstest]
#[case::killed(Away::Killed)]
#[case::frozen(Away::Frozen)]
#[tokio::test(flavor = "multi_thread")]
async fn with_postgres_away_work_goes_on_to_the_first_bound_then_only_what_frees_and_totals_are_exact(
    #[case] away: Away,
) {
    let away_for = sized(Duration::from_secs(60), Duration::from_secs(3));
    let bound: u64 = sized(20_000, 400);
    let settings = vec![
        ("GATE__BACKLOG_EVENTS_MAX", bound.to_string()),
        ("GATE__BACKLOG_EVENTS_HARD_MAX", (100 * bound).to_string()),
    ];
    let mut storm = Storm::begin(settings).await;
    prepare(&storm, TENANTS).await;
    let caller = storm.caller();
    let mut known = booked_holds(&storm, &caller, sized(200, 20)).await;
    let load = Load::start(std::slice::from_ref(&caller), CALLERS, TENANTS, "gate");
    load.goes_on(2 * CALLERS).await;

    let began = Instant::now();
    match away {
        Away::Killed => storm.postgres.kill9().unwrap(),
        Away::Frozen => storm.postgres.pause().unwrap(),
    }
    let held = load.seen.held.load(Ordering::SeqCst);
    wait_for("reserves go on", PATIENCE, async || {
        (load.seen.held.load(Ordering::SeqCst) >= held + bound / 4).then_some(())
    })
    .await;
    let waiting = known.pop().unwrap();
    let waits = json!({ "amount": "1", "ack": "ledger" });
    let (status, told) = consume(&caller, &waiting, waits.clone()).await;
    assert_eq!((status, told["code"].as_str()), (503, Some("ledger_timeout")), "{told}");
    assert_eq!(told["applied"], "gate", "{told}");
    wait_for("the first bound is met", PATIENCE, async || is_overloaded(&caller).await.then_some(())).await;
    let (met, admitted) = (began.elapsed(), load.seen.held.load(Ordering::SeqCst) - held);
    let consumed = known.len() as u64 + 1;
    for id in known {
        assert!(is_overloaded(&caller).await, "nothing new is admitted");
        let (status, told) = consume(&caller, &id, json!({ "amount": "1" })).await;
        assert_eq!(status, 200, "a final consume passes: {told}");
    }
    wait_for("Postgres was away for long enough", 2 * away_for, async || {
        assert!(is_overloaded(&caller).await, "nothing new is admitted");
        (began.elapsed() >= away_for).then_some(())
    })
    .await;
    match away {
        Away::Killed => storm.postgres.restart().unwrap(),
        Away::Frozen => storm.postgres.resume().unwrap(),
    }
    let back = Instant::now();
    load.goes_on(CALLERS).await;
    eprintln!(
        "{away:?} for {:?}: {admitted} admitted until the bound was met after {met:?}, going on {:?} after",
        back - began,
        back.elapsed()
    );
    let (status, told) = consume(&caller, &waiting, waits).await;
    assert_eq!((status, told["replayed"].as_bool()), (200, Some(true)), "{told}");
    let done = load.end().await;
    storm.books_hold("page", done.units() + consumed).await;
    done.repeat(&caller).await;
    storm.books_hold("page", done.units() + consumed).await;
    storm.verify(&names(TENANTS), COUNTERS).await;
}

/// An hour before a day and a month turn.
const BEFORE_THE_TURN: &str = "2026-03-31T23:00:00Z";

/// A service that compares every tenant every second, at a time when every counter's window began after it was made:
/// what is made inside a window is not compared before the next.
async fn comparing_storm() -> Storm {
    let settings = vec![
        ("REDIS__RESPONSE_TIMEOUT_MS", RESPONSE_TIMEOUT.as_millis().to_string()),
        ("RECONCILIATION__INTERVAL_SECONDS", "1".to_owned()),
        ("RECONCILIATION__CHECKPOINTS_PER_SECOND", "100".to_owned()),
    ];
    let mut storm = Storm::servers(settings).await;
    storm.test_clock = Some(BEFORE_THE_TURN);
    storm.service = Some(storm.serve("127.0.0.1:0").await);
    prepare(&storm, TENANTS).await;
    storm.put("/v1/admin/clock", json!({ "now": "2026-04-01T00:10:00Z" })).await;
    storm
}

/// Checks that a new comparison of every tenant finds gate and ledger equal, and that no earlier one found a
/// difference.
async fn compared_clean(storm: &Storm) {
    let now = storm.rows("SELECT extract(epoch FROM clock_timestamp())::text AS now").await.remove(0);
    let clean = format!(
        "SELECT count(DISTINCT tenant) FROM reconciliations \
         WHERE state = 'clean' AND counters >= {COUNTERS} AND judged_at > to_timestamp({now})"
    );
    wait_for("every tenant is compared", PATIENCE, async || {
        (storm.rows(&clean).await == [TENANTS.to_string()]).then_some(())
    })
    .await;
    let other = "SELECT tenant, state, differences, detail FROM reconciliations WHERE state <> 'clean'";
    assert_eq!(storm.rows(other).await, Vec::<String>::new());
}

/// Consumes these holds, each answered as done although the gate is away.
async fn consume_frozen(caller: Callers, load: &Load, ids: &[String]) {
    for id in ids {
        let (status, told) = load.seen.time(consume(&caller, id, json!({ "amount": "1" }))).await;
        assert_eq!((status, told["degraded"].as_bool()), (200, Some(true)), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redis_frozen_every_call_is_answered_in_time_and_what_was_parked_counts_once() {
    let frozen_for = sized(Duration::from_secs(20), Duration::from_secs(2));
    let storm = comparing_storm().await;
    let caller = storm.caller();
    let known = booked_holds(&storm, &caller, sized(2_000, 80)).await;
    let load = Load::start(std::slice::from_ref(&caller), CALLERS, TENANTS, "gate");
    load.goes_on(2 * CALLERS).await;

    let began = Instant::now();
    storm.redis.pause().unwrap();
    load.seen.set_timed(true);
    join_all(known.chunks(known.len() / 4).map(|ids| consume_frozen(caller.clone(), &load, ids))).await;
    let consumed_after = began.elapsed();
    wait_for("Redis was frozen for long enough", 2 * frozen_for, async || {
        (began.elapsed() >= frozen_for).then_some(())
    })
    .await;
    load.seen.set_timed(false);
    storm.redis.resume().unwrap();
    let back = Instant::now();
    load.goes_on(CALLERS).await;
    let going_on_after = back.elapsed();
    wait_for("every parked call is replayed", PATIENCE, async || {
        let waiting = storm.rows("SELECT count(*) FROM parked WHERE state = 'waiting'").await;
        (waiting == ["0"]).then_some(())
    })
    .await;
    let replayed_after = back.elapsed();
    compared_clean(&storm).await;
    for id in &known {
        let answer = json!({ "amount": "1" });
        let path = format!("/v1/reservations/{id}/consume");
        let told = caller.insist(Method::POST, &path, None, answer).await;
        assert_eq!(told["replayed"], true, "{told}");
    }
    let seen = load.seen.clone();
    let done = load.end().await;
    eprintln!(
        "frozen for {:?}: {} calls answered, slowest {:?} (noise {:?}); {} parked consumes took {consumed_after:?}; \
         going on {going_on_after:?} after, all replayed {replayed_after:?} after",
        back - began,
        seen.timed_answers.load(Ordering::SeqCst),
        seen.slowest(),
        seen.noise(),
        known.len(),
    );
    storm.books_hold("page", done.units() + known.len() as u64).await;
    done.repeat(&caller).await;
    storm.books_hold("page", done.units() + known.len() as u64).await;
    compared_clean(&storm).await;
    let most = RESPONSE_TIMEOUT + sized(SLACK, Duration::from_secs(5)) + seen.noise();
    assert!(seen.slowest() <= most, "the slowest answer took {:?}, of {most:?}", seen.slowest());
}
