//! Counters by windows of one length, where they meet what happens to a hash and to a window that is over.

use rstest::rstest;
use tollgate::domain::algorithms::{Parameters, fixed_window};
use tollgate::domain::counter::Counter;
use tollgate::domain::reservation::{OnExcess, OnLate};
use tollgate::gate::ReserveOutcome;

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

const MINUTE_MS: i64 = 60_000;

fn minute(aligned: bool) -> Counter {
    let parameters = Parameters::FixedWindow(fixed_window::Parameters { length_ms: MINUTE_MS, aligned });
    Counter { parameters, ..limit(b"minute--", 10) }
}

#[rstest]
#[tokio::test]
async fn a_tenant_that_waited_for_a_new_counter_gets_back_what_its_fixed_windows_hold(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
    #[values(false, true)] aligned: bool,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 10).under([minute(aligned)])).await;
    let restored_ms = START_MS + 20;
    world.wait_for_ledger(restored_ms).await;
    assert_eq!(world.reading_at(restored_ms, &minute(aligned)).await.reserved, units(10));
    done(world.release("a", tollgate::gate::Totals::Default).await);
    assert_eq!(world.reading_at(restored_ms, &minute(aligned)).await.reserved, units(0));
}

#[rstest]
#[tokio::test]
async fn a_fixed_window_that_is_over_cuts_nothing(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    let capped = |key: &str, amount| {
        pages(key, amount).ruled(OnExcess::Cap, OnLate::Charge).under([minute(false)]).lasting(500_000)
    };
    world.hold(&capped("a", 8)).await;
    world.hold(&capped("b", 2)).await;
    let record = done(world.consume_at(START_MS + MINUTE_MS - 1, "b", total("5"), true).await);
    assert_eq!((record.units[0].consumed, record.units[0].uncharged), (units(2), units(3)));
    let record = done(world.consume_at(START_MS + MINUTE_MS, "a", total("20"), true).await);
    assert_eq!((record.units[0].consumed, record.units[0].uncharged), (units(20), units(0)));
}

#[rstest]
#[tokio::test]
async fn a_fixed_window_takes_work_of_a_clock_that_went_back_and_not_that_of_one_that_had_leapt_ahead(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 10).under([minute(false)])).await;
    let back = pages("b", 1).under([minute(false)]).at(START_MS - 1);
    assert_matches!(world.reserve(&back).await, ReserveOutcome::Refused { .. });
    let long_before = pages("c", 1).under([minute(false)]).at(START_MS - MINUTE_MS - 1);
    world.hold(&long_before).await;
}
