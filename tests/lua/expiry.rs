//! What is kept of a subject ends by itself, whatever algorithm counts: its hash, and the log that is a key of its own.

use rstest::rstest;
use tollgate::domain::algorithms::Parameters;
use tollgate::domain::counter::Counter;
use tollgate::gate::{CheckAsk, ReserveCall, ReserveOutcome};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::properties::gate::algorithms::{Row, all_rows, anomaly, checked_rows};
use crate::support::matching::assert_matches;

const CAPACITY: i64 = 20;
/// A window of the calendar in which Redis's clock is.
pub(super) const CENTURY: (i64, i64) = (0, 4_102_444_800_000);
const HOUR_MS: i64 = 3_600_000;
/// Ends are rounded up to these.
const STEP_MS: i64 = 600_000;

/// A counter of the call's subject, over a window that is not over yet.
fn counter(row: &Row) -> Counter {
    let parameters = match row.lasting {
        Parameters::Calendar(_) => in_window(CENTURY.0, CENTURY.1),
        uncut => uncut,
    };
    of_subject(1, Counter { parameters, ..limit(b"counter-", CAPACITY) })
}

pub(super) fn redis_ms(world: &World) -> i64 {
    let (seconds, micros): (String, String) =
        redis::from_redis_value(world.server.command(&["TIME"])).unwrap();
    seconds.parse::<i64>().unwrap() * 1_000 + micros.parse::<i64>().unwrap() / 1_000
}

/// Asserts that each key that is kept of the subject ends an hour after it is needed, by Redis's clock. It was written
/// between `from_ms` and now, and needed until so long after that.
fn ends_by_itself(world: &World, row: &Row, from_ms: i64, needed_until_ms: impl Fn(i64) -> i64) {
    let to_ms = redis_ms(world);
    let keys: Vec<String> =
        redis::from_redis_value(world.server.command(&["KEYS", &world.key("*")])).unwrap();
    let hash = world.hash(&user("ada"));
    let of_subject: Vec<_> = keys.iter().filter(|key| key.contains(hash.as_str())).collect();
    assert!(!of_subject.is_empty(), "{}", row.name);
    for key in of_subject {
        let ends_at_ms: i64 = redis::from_redis_value(world.server.command(&["PEXPIRETIME", key])).unwrap();
        let (least, most) = (needed_until_ms(from_ms) + HOUR_MS, needed_until_ms(to_ms) + HOUR_MS + STEP_MS);
        assert!((least..=most).contains(&ends_at_ms), "{}, {key}: {least} {ends_at_ms} {most}", row.name);
    }
}

#[rstest]
#[tokio::test]
async fn what_a_reservation_counts_of_a_subject_ends_behind_its_windows_and_its_hold(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    for row in all_rows().into_iter().chain([anomaly()]) {
        let world = World::warm(mode).await;
        let counter = counter(&row);
        let ask = pages("a", 4).of(&user("ada")).under([counter.clone()]);
        let (ask, from_ms) = (Ask { valid: CENTURY, ..ask }, redis_ms(&world));
        let (body, subject_windows_end_ms) = (world.body(&ask), counter.ends_at_ms(from_ms));
        let call = ReserveCall { now_ms: None, subject_windows_end_ms, ..world.reserve_call(&ask, &body) };
        assert_matches!(world.gate.reserve(&call).await.unwrap(), ReserveOutcome::Admitted { .. });
        ends_by_itself(&world, &row, from_ms, |at_ms| counter.ends_at_ms(at_ms).max(at_ms + TTL_MS));
    }
}

#[rstest]
#[tokio::test]
async fn what_a_check_counts_of_a_subject_ends_behind_its_windows(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    for row in checked_rows().chain([anomaly()]) {
        let world = World::cold(mode).await;
        let (counters, amounts, hashes) = ([counter(&row)], [units(4)], [world.hash(&user("ada"))]);
        let from_ms = redis_ms(&world);
        let ask = CheckAsk {
            tenant: Some(&world.tenant),
            subjects: &hashes,
            amounts: &amounts,
            counters: &counters,
            valid: CENTURY,
            needed_until_ms: counters[0].ends_at_ms(from_ms),
            peeks: false,
        };
        world.gate.check(world.partition, &[ask], false, None).await.unwrap();
        ends_by_itself(&world, &row, from_ms, |at_ms| counters[0].ends_at_ms(at_ms));
    }
}
