//! Counters by a bucket, where they meet stockpiled holds, a clock that went back, a loss and excess.

use rstest::rstest;
use tollgate::domain::algorithms::bucket::Drain;
use tollgate::domain::algorithms::{Parameters, token_bucket};
use tollgate::domain::counter::Counter;
use tollgate::gate::{ReserveOutcome, Totals};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

const SECOND_MS: i64 = 1_000;

/// Ten pages, of which one comes back each second.
fn bucket() -> Counter {
    let refill = Drain { units: 1, per_ms: SECOND_MS };
    let parameters = Parameters::TokenBucket(token_bucket::Parameters { refill });
    Counter { parameters, ..limit(b"bucket--", 10) }
}

fn ask_for(key: &str, amount: i64) -> Ask {
    pages(key, amount).under([bucket()]).lasting(500_000)
}

/// Level and open holds then.
async fn level(world: &World, after_ms: i64) -> (i64, i64) {
    let reading = world.reading_at(START_MS + after_ms, &bucket()).await;
    assert_eq!(reading.room, Some(10 - reading.consumed.get()));
    (reading.consumed.get(), reading.reserved.get())
}

#[rstest]
#[tokio::test]
async fn whoever_stockpiles_holds_gets_no_second_burst(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("first", 10)).await;
    let full_ms = 10 * SECOND_MS;
    world.hold(&ask_for("second", 10).at(START_MS + full_ms)).await;
    done(world.release_at(START_MS + full_ms, "first", Totals::Default).await);
    assert_eq!(level(&world, full_ms).await, (10, 10), "it would have been full without the first as well");
    done(world.release_at(START_MS + full_ms + 400, "second", Totals::Default).await);
    assert_eq!(level(&world, full_ms + SECOND_MS).await, (0, 0), "but for the second it would be full now");
}

#[rstest]
#[tokio::test]
async fn what_returns_is_what_would_be_there_if_it_had_not_been_taken(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("kept", 4)).await;
    world.hold(&ask_for("returned", 5)).await;
    let later_ms = 6 * SECOND_MS;
    assert_eq!(level(&world, later_ms).await, (3, 9));
    done(world.consume_at(START_MS + later_ms, "returned", total("2"), true).await);
    assert_eq!(level(&world, later_ms).await, (0, 4), "four and two are refilled after six seconds");
}

#[rstest]
#[tokio::test]
async fn excess_raises_the_level_at_the_instant_of_the_consume(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 2)).await;
    let later_ms = 60 * SECOND_MS;
    done(world.consume_at(START_MS + later_ms, "a", total("15"), true).await);
    let reading = world.reading_at(START_MS + later_ms, &bucket()).await;
    assert_eq!((reading.consumed, reading.room), (units(13), Some(-3)));
    assert_eq!(reading.resets_at_ms, Some(START_MS + later_ms + 13 * SECOND_MS));
}

#[rstest]
#[tokio::test]
async fn a_bucket_takes_work_of_a_clock_that_went_back_and_not_that_of_one_that_had_leapt_ahead(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 10)).await;
    let back = ask_for("b", 1).at(START_MS - 1);
    assert_matches!(world.reserve(&back).await, ReserveOutcome::Refused { .. });
    assert_eq!(level(&world, -1).await, (10, 10), "nothing comes back while the clock is behind");
    world.hold(&ask_for("c", 1).at(START_MS - 10 * SECOND_MS - 1)).await;

    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 4)).await;
    world.hold(&ask_for("b", 2).at(START_MS - 500)).await;
    done(world.consume_at(START_MS - 400, "b", total("3"), true).await);
    assert_eq!(level(&world, 0).await, (7, 4), "it is counted where it was taken");
}

#[rstest]
#[tokio::test]
async fn what_was_held_before_a_loss_moves_nothing_in_the_bucket_made_since(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("before", 8)).await;
    let lost_ms = START_MS + 1;
    world.lose_and_restore("before", lost_ms).await;
    world.hold(&ask_for("since", 9).at(lost_ms + 1)).await;
    done(world.consume_at(lost_ms + 2, "before", total("9"), true).await);
    assert_eq!(level(&world, 3).await, (9, 9), "neither its hold nor its excess");
}

#[rstest]
#[tokio::test]
async fn a_tenant_that_waited_for_a_new_counter_gets_back_what_its_buckets_hold(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 10)).await;
    world.wait_for_ledger(START_MS + 20).await;
    assert_eq!(level(&world, 20).await, (10, 10));
    done(world.release_at(START_MS + 20, "a", Totals::Default).await);
    assert_eq!(level(&world, SECOND_MS).await, (0, 0));
}
