//! The least time between calls: one at a time, however many ask, by a clock that may go back, and after a loss.

use std::sync::Arc;

use rstest::rstest;
use tollgate::domain::algorithms::{Parameters, interval};
use tollgate::domain::counter::Counter;
use tollgate::domain::ids::Subject;
use tollgate::gate::{ReserveMode, ReserveOutcome, Totals};

use crate::gate::server::Mode;
use crate::gate::world::*;

const LENGTH_MS: i64 = 5_000;

fn every_five_seconds() -> Counter {
    let parameters = Parameters::Interval(interval::Parameters { length_ms: LENGTH_MS });
    Counter { parameters, ..limit(b"interval", 1) }
}

fn call(key: &str) -> Ask {
    pages(key, 7).under([every_five_seconds()]).lasting(500_000)
}

/// How long until such a call is admitted; none where it is admitted now.
async fn wait(world: &World, at_ms: i64) -> Option<i64> {
    match world.reserve(&call("looks").by(ReserveMode::DryRun).at(at_ms)).await {
        ReserveOutcome::Allowed { .. } => None,
        ReserveOutcome::Refused { refusing, .. } => refusing[0].1,
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[tokio::test]
async fn the_next_call_waits_for_the_rest_of_the_length_and_no_end_of_the_last_one_shortens_it(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    assert_eq!(wait(&world, START_MS).await, None);
    world.hold(&call("first")).await;
    let reading = world.reading_at(START_MS, &every_five_seconds()).await;
    assert_eq!((reading.consumed, reading.reserved, reading.room), (units(1), units(0), Some(0)));
    assert_eq!(reading.resets_at_ms, Some(START_MS + LENGTH_MS));
    done(world.consume_at(START_MS + 1_000, "first", total("9"), true).await);
    assert_eq!(wait(&world, START_MS + 1_000).await, Some(4_000));
    assert_eq!(wait(&world, START_MS + LENGTH_MS - 1).await, Some(1));
    world.hold(&call("second").at(START_MS + LENGTH_MS)).await;
    done(world.release_at(START_MS + LENGTH_MS, "second", Totals::Default).await);
    assert_eq!(wait(&world, START_MS + LENGTH_MS).await, Some(LENGTH_MS));
}

#[tokio::test]
async fn a_refused_call_and_a_repeat_do_not_put_the_next_one_off() {
    let world = World::warm(Mode::Alone).await;
    world.hold(&call("first")).await;
    let later_ms = START_MS + 3_000;
    assert_eq!(refusing(world.reserve(&call("second").at(later_ms)).await), [0]);
    assert!(matches!(world.reserve(&call("first").at(later_ms)).await, ReserveOutcome::Replayed { .. }));
    assert_eq!(wait(&world, later_ms).await, Some(2_000));
}

#[tokio::test]
async fn a_clock_that_went_back_keeps_nobody_waiting_for_longer_than_twice_the_length() {
    let world = World::warm(Mode::Alone).await;
    world.hold(&call("first")).await;
    assert_eq!(wait(&world, START_MS - 4_999).await, Some(LENGTH_MS + 4_999));
    assert_eq!(wait(&world, START_MS - LENGTH_MS).await, None);
}

#[tokio::test]
async fn another_length_counts_from_the_same_last_call() {
    let world = World::warm(Mode::Alone).await;
    world.hold(&call("first")).await;
    let parameters = Parameters::Interval(interval::Parameters { length_ms: 2 * LENGTH_MS });
    let longer = Counter { parameters, ..every_five_seconds() };
    let ask = pages("second", 1).under([longer]).at(START_MS + LENGTH_MS);
    let ReserveOutcome::Refused { refusing, .. } = world.reserve(&ask).await else { panic!("admitted") };
    assert_eq!(refusing, [(0, Some(LENGTH_MS))]);
}

#[tokio::test]
async fn after_a_loss_of_memory_the_next_call_is_admitted() {
    let world = World::warm(Mode::Alone).await;
    world.hold(&call("first")).await;
    world.lose_and_restore("first", START_MS + 1).await;
    assert_eq!(wait(&world, START_MS + 1).await, None);
    done(world.consume_at(START_MS + 2, "first", total("9"), true).await);
    assert_eq!(wait(&world, START_MS + 2).await, None);
}

#[tokio::test]
async fn of_many_callers_at_once_one_is_admitted() {
    let world = Arc::new(World::warm(Mode::Alone).await);
    let calling = (0..64).map(|caller| {
        let world = world.clone();
        tokio::spawn(async move {
            let outcome = world.reserve(&call(&caller.to_string())).await;
            u32::from(matches!(outcome, ReserveOutcome::Admitted { .. }))
        })
    });
    let admitted: u32 = futures::future::join_all(calling).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(admitted, 1);
}

#[tokio::test]
async fn each_subject_waits_for_itself() {
    let world = World::warm(Mode::Alone).await;
    let of =
        |key: &str, subject: &Subject| pages(key, 1).of(subject).under([of_subject(1, every_five_seconds())]);
    let (ada, bob) = (user("ada"), user("bob"));
    world.hold(&of("first", &ada)).await;
    assert_eq!(refusing(world.reserve(&of("second", &ada)).await), [0]);
    world.hold(&of("third", &bob)).await;
}
