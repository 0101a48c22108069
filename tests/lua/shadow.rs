//! Limits in shadow: they count as if they were hard, without what they would have refused, and refuse nothing.

use rstest::rstest;
use tollgate::domain::algorithms::bucket::Drain;
use tollgate::domain::algorithms::{Parameters, concurrency, leaky_bucket, sliding_log};
use tollgate::domain::counter::Counter;
use tollgate::domain::event::Change;
use tollgate::domain::limit::Kind;
use tollgate::domain::reservation::Record;
use tollgate::gate::{HoldOutcome, ReserveMode, ReserveOutcome, Totals, UndoOutcome, WarmState};

use super::undo::undo;
use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::properties::gate::algorithms::all_rows;
use crate::support::matching::assert_matches;

const SECOND_MS: i64 = 1_000;

fn in_shadow(counter: Counter) -> Counter {
    Counter { kind: Kind::Shadow, ..counter }
}

/// Ten pages at once, which nothing is held to.
fn slots() -> Counter {
    in_shadow(Counter { parameters: concurrency_of_units(), ..limit(b"slots---", 10) })
}

fn concurrency_of_units() -> Parameters {
    Parameters::Concurrency(concurrency::Parameters { each: 0 })
}

/// Which counters would have refused what was admitted.
fn would_refuse(outcome: ReserveOutcome) -> Vec<usize> {
    let readings = admitted(outcome);
    (0..readings.len()).filter(|index| readings[*index].would_refuse).collect()
}

#[tokio::test]
async fn a_limit_turned_from_shadow_to_hard_goes_on_as_if_it_had_always_been_hard() {
    for row in all_rows() {
        let name = row.name;
        let (hard, shadow) = (World::warm(Mode::Alone).await, World::warm(Mode::Alone).await);
        let limit = Counter { parameters: row.turning, ..limit(b"limit---", 10) };
        let watched = in_shadow(limit.clone());
        let mut now_ms = START_MS;
        let mut refused = 0;
        for (number, amount) in [6, 5, 3, 8, 1, 4, 2, 9, 1, 7].into_iter().enumerate() {
            now_ms += 700;
            let key = format!("job-{number}");
            let ask = pages(&key, amount).at(now_ms);
            let is_refused = match hard.reserve(&ask.clone().under([limit.clone()])).await {
                ReserveOutcome::Admitted { .. } => false,
                ReserveOutcome::Refused { .. } => true,
                other => panic!("{name}: {other:?}"),
            };
            let would = would_refuse(shadow.reserve(&ask.under([watched.clone()])).await);
            assert_eq!(would, if is_refused { vec![0] } else { vec![] }, "{name}, {key}");
            refused += u32::from(is_refused);
            // Some of the work, also of what was not counted, ends in time, some late, some with nothing used.
            let worlds = if is_refused { vec![&shadow] } else { vec![&hard, &shadow] };
            for world in worlds {
                match number % 4 {
                    0 => drop(done(world.consume_at(now_ms + 9, &key, total("2"), true).await)),
                    1 => drop(done(world.release_at(now_ms + 9, &key, Totals::Default).await)),
                    2 => drop(done(world.extend_at(now_ms + 9, &key, 90_000).await)),
                    _ => drop(done(world.consume_at(now_ms + 9, &key, total("1"), false).await)),
                }
            }
        }
        assert!(refused > 0, "{name}");
        for at_ms in [now_ms + 10, now_ms + 200_000] {
            hard.sweep(at_ms).await;
            shadow.sweep(at_ms).await;
            let (was_hard, was_shadow) =
                (hard.reading_at(at_ms, &limit).await, shadow.reading_at(at_ms, &limit).await);
            assert_eq!(was_shadow, was_hard, "{name} at {at_ms}");
            for amount in [1, 4, 10] {
                let again = pages("again", amount).under([limit.clone()]).by(ReserveMode::DryRun).at(at_ms);
                let is_same = match (hard.reserve(&again).await, shadow.reserve(&again).await) {
                    (
                        ReserveOutcome::Refused { refusing, .. },
                        ReserveOutcome::Refused { refusing: same, .. },
                    ) => refusing == same,
                    (ReserveOutcome::Allowed { .. }, ReserveOutcome::Allowed { .. }) => true,
                    _ => false,
                };
                assert!(is_same, "{name}: {amount} at {at_ms}");
            }
        }
    }
}

#[tokio::test]
async fn a_record_says_which_counters_it_did_not_move_and_has_a_new_layout_only_then() {
    let world = World::warm(Mode::Alone).await;
    let layout = async |key: &str| -> u8 {
        let bytes: Vec<u8> =
            redis::from_redis_value(world.server.command(&["GET", &world.record_key(key)])).unwrap();
        bytes[0]
    };
    let both = [day(100), in_shadow(limit(b"watched-", 5))];
    world.hold(&pages("fits", 5).under(both.clone())).await;
    world.hold(&pages("exceeds", 6).under(both.clone())).await;
    world.hold(&pages("slots", 11).under([slots(), day(100)])).await;
    assert_eq!((layout("fits").await, layout("exceeds").await, layout("slots").await), (1, 3, 4));
    let unmoved = async |key: &str| world.record(key).await.unwrap().head.unmoved;
    assert_eq!((unmoved("fits").await, unmoved("exceeds").await, unmoved("slots").await), (0, 0b10, 0b01));
    let text = world.gate.inspect(&world.record_key("exceeds")).await.unwrap();
    let row = |name: &str| text.iter().find(|(known, _)| known == name).unwrap().1.clone();
    assert!(row("counter 1").ends_with(", not moved") && !row("counter 0").contains("not moved"), "{text:?}");
    done(world.consume("exceeds", total("6"), true).await);
    assert_eq!(unmoved("exceeds").await, 0b10, "a tombstone still says so");
    let told: Vec<u32> = world.events().await.iter().map(|event| event.head().unmoved).collect();
    assert_eq!(told, [0, 0b10, 0b01, 0b10]);
    assert_eq!(world.counts(&both[1]).await, (0, 5));
}

#[rstest]
#[tokio::test]
async fn what_a_shadow_limit_left_out_stays_out_when_the_ledger_tells_it_again(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("counted", 4).under([slots()])).await;
    world.hold(&pages("left out", 7).under([slots()])).await;
    let open = [world.record("counted").await.unwrap(), world.record("left out").await.unwrap()];
    let keys = ["counted", "left out"].map(|key| world.record_key(key));
    world.server.command(&["DEL", &keys[0], &keys[1], &world.state_key()]);
    world.warm_up(WarmState::default()).await;
    for (key, record) in ["counted", "left out"].into_iter().zip(&open) {
        assert_matches!(world.tell_hold(key, record, &[]).await, HoldOutcome::Done);
    }
    assert_eq!(world.counts(&slots()).await, (0, 4));
    done(world.release("left out", Totals::Default).await);
    assert_eq!(world.counts(&slots()).await, (0, 4));
}

#[tokio::test]
async fn an_undone_repeat_takes_nothing_from_a_shadow_limit_that_left_it_out() {
    let world = World::warm(Mode::Alone).await;
    let ask = pages("job", 7).under([slots()]);
    world.hold(&ask).await;
    let whole = world.record("job").await.unwrap();
    done(world.consume("job", total("2"), true).await);
    let resolved = world.record("job").await.unwrap();
    let booked = Record { head: resolved.head, units: resolved.units, body: whole.body };
    world.server.command(&["DEL", &world.record_key("job")]);
    world.hold(&pages("other", 8).under([slots()])).await;
    world.hold(&ask).await;
    assert_eq!(world.counts(&slots()).await, (0, 8));
    let begins = world.events().await.into_iter().filter_map(|event| match event.change {
        Change::Reserve(record) => Some((event.outbox_id, record)),
        _ => None,
    });
    let begin = begins.last().unwrap();
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_));
    assert_eq!(world.counts(&slots()).await, (0, 8));
}

#[tokio::test]
async fn a_queue_in_shadow_delays_no_work_and_a_full_log_in_shadow_takes_no_entry() {
    let world = World::warm(Mode::Alone).await;
    let drain = Drain { units: 1, per_ms: SECOND_MS };
    let queue = Parameters::LeakyBucket(leaky_bucket::Parameters { drain, max_wait_ms: SECOND_MS });
    let queue = in_shadow(Counter { parameters: queue, ..limit(b"queue---", 10) });
    let log = Parameters::SlidingLog(sliding_log::Parameters { length_ms: 60_000, entries_max: 1 });
    let log = in_shadow(Counter { parameters: log, ..limit(b"log-----", 100) });
    for (key, expected) in [("first", vec![]), ("second", vec![0, 1])] {
        let outcome = world.reserve(&pages(key, 3).under([queue.clone(), log.clone()])).await;
        assert_matches!(&outcome, ReserveOutcome::Admitted { start_after_ms: 0, .. });
        assert_eq!(would_refuse(outcome), expected, "{key}");
    }
    assert_eq!(world.counts(&queue).await.0, 3);
    assert_eq!(world.counts(&log).await, (0, 3));
}

#[tokio::test]
async fn a_shadow_limit_cuts_no_best_effort_and_judges_what_the_hard_ones_grant() {
    let world = World::warm(Mode::Alone).await;
    let limits = [limit(b"hard----", 8), in_shadow(limit(b"watched-", 5))];
    let best = |key: &str, amount| pages(key, amount).under(limits.clone()).by(ReserveMode::BestEffort);
    let outcome = world.reserve(&best("a", 4)).await;
    assert_eq!(would_refuse(outcome), [0_usize; 0]);
    let ReserveOutcome::Admitted { granted, readings, .. } = world.reserve(&best("b", 9)).await else {
        panic!("not admitted")
    };
    assert_eq!((granted, readings[1].would_refuse), (all_units(&[4]), true));
    assert_eq!(world.counts(&limits[1]).await, (0, 4));
}
