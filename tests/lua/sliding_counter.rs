//! Counters by a window that slides in steps, where they meet a clock that went back, a loss and a wait for the ledger.

use rstest::rstest;
use tollgate::domain::algorithms::{Parameters, sliding_counter};
use tollgate::domain::counter::Counter;
use tollgate::domain::reservation::{OnExcess, OnLate};
use tollgate::gate::{ReserveOutcome, Totals};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

/// The test begins at a whole second.
const SECOND_MS: i64 = 1_000;

/// Ten pages within ten seconds, in steps of a second.
fn sliding() -> Counter {
    let parameters = sliding_counter::Parameters { slot_ms: SECOND_MS, slot_count: 11 };
    Counter { parameters: Parameters::SlidingCounter(parameters), ..limit(b"sliding-", 10) }
}

fn ask_for(key: &str, amount: i64) -> Ask {
    pages(key, amount).under([sliding()]).lasting(500_000)
}

/// What is consumed and held then, in all slots.
async fn counts(world: &World, after_ms: i64) -> (i64, i64) {
    let reading = world.reading_at(START_MS + after_ms, &sliding()).await;
    (reading.consumed.get(), reading.reserved.get())
}

#[rstest]
#[tokio::test]
async fn what_was_counted_leaves_with_its_step(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 4)).await;
    world.hold(&ask_for("b", 6).at(START_MS + 3 * SECOND_MS)).await;
    done(world.consume_at(START_MS + 4 * SECOND_MS, "b", total("5"), true).await);
    assert_eq!(counts(&world, 11 * SECOND_MS - 1).await, (5, 4));
    assert_eq!(counts(&world, 11 * SECOND_MS).await, (5, 0), "held or not, it slides out");
    let reading = world.reading_at(START_MS + 11 * SECOND_MS, &sliding()).await;
    assert_eq!(reading.resets_at_ms, Some(START_MS + 14 * SECOND_MS));
    assert_eq!(reading.next_hold_ends_at_ms, None);
    done(world.release_at(START_MS + 12 * SECOND_MS, "a", Totals::Default).await);
    assert_eq!(counts(&world, 12 * SECOND_MS).await, (5, 0), "what slid out returns nothing");
    assert_eq!(counts(&world, 14 * SECOND_MS).await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn what_slid_out_is_cut_by_nothing_and_charges_no_excess(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let capped = ask_for("a", 8).ruled(OnExcess::Cap, OnLate::Charge);
    world.hold(&capped).await;
    world.hold(&ask_for("b", 8).at(START_MS + 11 * SECOND_MS)).await;
    let record = done(world.consume_at(START_MS + 11 * SECOND_MS, "a", total("20"), true).await);
    assert_eq!((record.units[0].consumed, record.units[0].uncharged), (units(20), units(0)));
    assert_eq!(counts(&world, 11 * SECOND_MS).await, (0, 8));
}

#[rstest]
#[tokio::test]
async fn a_sliding_counter_takes_work_of_a_clock_that_went_back_and_not_that_of_one_that_had_leapt_ahead(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 9)).await;
    world.hold(&ask_for("b", 1).at(START_MS - 5 * SECOND_MS)).await;
    let back = ask_for("c", 1).at(START_MS - 10 * SECOND_MS);
    assert_matches!(world.reserve(&back).await, ReserveOutcome::Refused { .. });
    assert_eq!(counts(&world, 6 * SECOND_MS).await, (0, 9), "it slides out by the time of its own");
    done(world.consume_at(START_MS - 4 * SECOND_MS, "b", total("2"), true).await);
    assert_eq!(counts(&world, 0).await, (2, 9), "it is counted in the step of its time");
    world.hold(&ask_for("d", 1).at(START_MS - 11 * SECOND_MS)).await;
}

#[rstest]
#[tokio::test]
async fn what_was_held_before_a_loss_moves_nothing_in_the_sliding_counter_made_since(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("before", 8)).await;
    let lost_ms = START_MS + 1;
    world.lose_and_restore("before", lost_ms).await;
    world.hold(&ask_for("since", 9).at(lost_ms + 1)).await;
    done(world.consume_at(lost_ms + 2, "before", total("9"), true).await);
    assert_eq!(counts(&world, 3).await, (0, 9), "neither its hold nor its excess");
}

#[rstest]
#[tokio::test]
async fn a_tenant_that_waited_for_a_new_counter_gets_back_what_its_sliding_counters_hold(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 10)).await;
    world.wait_for_ledger(START_MS + 20).await;
    assert_eq!(counts(&world, 20).await, (0, 10));
    done(world.release_at(START_MS + 20, "a", Totals::Default).await);
    assert_eq!(counts(&world, 20).await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn where_holds_stand_in_the_way_the_next_end_is_the_earliest_that_can_help(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("used", 4).under([sliding()]).by(tollgate::gate::ReserveMode::Usage)).await;
    world.hold(&ask_for("held", 5).lasting(2_500)).await;
    let wait_ms = async |amount: i64| {
        let ReserveOutcome::Refused { refusing, .. } = world.reserve(&ask_for("asks", amount)).await else {
            panic!("not refused")
        };
        refusing[0].1
    };
    assert_eq!(wait_ms(5).await, Some(2_500), "when the hold has ended");
    assert_eq!(wait_ms(7).await, Some(11 * SECOND_MS), "when what is used has slid out");
    assert_eq!(wait_ms(11).await, None);
}
