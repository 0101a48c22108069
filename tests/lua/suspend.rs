use rstest::rstest;
use tollgate::domain::amount::{Decimals, UNITS_MAX};
use tollgate::domain::counted_meter::CountedMeter;
use tollgate::domain::holds::NewCounter;
use tollgate::domain::ids::{MeterId, OutboxId};
use tollgate::domain::reservation::ReservationState;
use tollgate::gate::{HoldOutcome, ReserveOutcome, ResolveOutcome, RestoreOutcome, RestorePage, WarmState};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

fn counted(meter: &str, factor: i64) -> CountedMeter {
    CountedMeter { meter: MeterId::parse(meter).unwrap(), decimals: Decimals::default(), factor }
}

fn new_counter(name: &[u8; 8]) -> NewCounter {
    NewCounter {
        subject: None,
        field: field(name),
        meters: vec![counted("ocr.page", 1)],
        operations: None,
        window_ms: WINDOW,
    }
}

/// A state that has the month for the first time.
fn with_new_month(state: WarmState) -> WarmState {
    WarmState { new_counters: vec![new_counter(b"month---")], ..state }
}

#[rstest]
#[tokio::test]
async fn nothing_of_a_tenant_that_waits_moves_or_reaches_the_outbox(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let before = world.events().await.len();
    assert!(world.suspend(None).await.is_some());
    assert!(world.suspend(None).await.is_none(), "it waits already: whoever meets it restores it");
    assert_matches!(world.reserve(&pages("b", 1)).await, ReserveOutcome::Cold(_));
    for outcome in [
        world.consume("a", total("2"), false).await,
        world.consume("a", total("2"), true).await,
        world.release("a", total("0")).await,
        world.extend_at(START_MS, "a", TTL_MS * 2).await,
    ] {
        assert_matches!(outcome, ResolveOutcome::Cold(_));
    }
    let report = world.sweep_once(DUE_MS, 100).await;
    assert_eq!((report.expired, report.postponed), (0, 1));
    assert_eq!(world.events().await.len(), before);
}

#[rstest]
#[tokio::test]
async fn what_a_waiting_tenant_is_not_told_stays_and_holds_from_before_move_its_new_counters(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    for (key, amount) in [("a", 6), ("b", 3), ("c", 1)] {
        world.hold(&pages(key, amount)).await;
    }
    world.suspend(None).await;
    let held_only = vec![restored_counter(b"day-----", 0, 10)];
    let month = with_new_month(told(&[(b"month---", 0, 10)]));
    world.warm_up(WarmState { held_only, ..month }).await;
    world.consume("a", total("4"), true).await;
    let (day, month) = (day(100), limit(b"month---", 100));
    assert_eq!((world.counts(&day).await, world.counts(&month).await), ((4, 4), (4, 4)));
    // A second one, restored by an instance that no longer has the first in its policy.
    world.suspend(None).await;
    let new_counters = vec![new_counter(b"week----")];
    world.warm_up(WarmState { new_counters, ..told(&[(b"week----", 4, 4)]) }).await;
    world.hold(&pages("d", 5).under([limit(b"week----", 100)])).await;
    world.release("b", total("1")).await;
    assert_eq!(world.sweep(DUE_MS).await, 2);
    for check in [&day, &month] {
        assert_eq!(world.counts(check).await, (5, 0));
    }
    assert_eq!(world.counts(&limit(b"week----", 100)).await, (5, 0));
}

#[rstest]
#[tokio::test]
async fn holds_from_before_move_a_new_budget_by_the_factor_of_each_of_their_meters(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let both = |key: &str| {
        let lines = vec![line("ocr.page", 6), line("llm.token", 40), line("other", 5)];
        ask(key, lines, vec![day(100)])
    };
    for key in ["consumed", "released", "expired"] {
        world.hold(&both(key)).await;
    }
    world.hold(&ask("tokens", vec![line("llm.token", 10)], vec![day(100)])).await;
    world.suspend(None).await;
    // Six pages of a hundred, and forty tokens of three: 720 for each that names both.
    let budget = |name: &[u8; 8]| NewCounter {
        meters: vec![counted("llm.token", 3), counted("ocr.page", 100)],
        ..new_counter(name)
    };
    let new_counters = vec![new_counter(b"month---"), budget(b"budget--")];
    world
        .warm_up(WarmState { new_counters, ..told(&[(b"month---", 0, 18), (b"budget--", 50, 3 * 720 + 30)]) })
        .await;
    world.consume("consumed", totals(&[("ocr.page", "2"), ("llm.token", "50"), ("other", "5")]), true).await;
    let (month, budgeted) = (limit(b"month---", 100), limit(b"budget--", 10_000));
    assert_eq!(world.counts(&month).await, (2, 12));
    assert_eq!(world.counts(&budgeted).await, (50 + 350, 2 * 720 + 30));
    world.release("released", totals(&[("ocr.page", "1"), ("llm.token", "0"), ("other", "0")])).await;
    assert_eq!(world.counts(&budgeted).await, (400 + 100, 720 + 30));
    // A second restore keeps what the header lists.
    world.suspend(None).await;
    world.warm_up(WarmState::default()).await;
    assert_eq!(world.sweep(DUE_MS).await, 2);
    assert_eq!((world.counts(&month).await, world.counts(&budgeted).await), ((3, 0), (500, 0)));
}

#[rstest]
#[tokio::test]
async fn a_counter_that_is_as_full_as_can_be_when_it_begins_keeps_no_work_from_before_from_being_booked(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    for key in ["a", "b"] {
        world.hold(&pages(key, 6)).await;
    }
    world.suspend(None).await;
    world.warm_up(with_new_month(told(&[(b"month---", UNITS_MAX - 3, 12)]))).await;
    for key in ["a", "b"] {
        assert_matches!(world.consume(key, total("6"), true).await, ResolveOutcome::Done { .. });
    }
    assert_eq!(world.day().await, (12, 0));
    assert_eq!(world.counts(&limit(b"month---", UNITS_MAX)).await, (UNITS_MAX, 0));
}

#[rstest]
#[tokio::test]
async fn a_hold_made_after_a_counter_was_told_moves_only_what_it_names(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.suspend(None).await;
    world.warm_up(with_new_month(told(&[(b"month---", 0, 0)]))).await;
    world.hold(&pages("a", 6).at(START_MS + 1)).await;
    world.consume_at(START_MS + 1, "a", total("6"), true).await;
    assert_eq!(world.counts(&limit(b"month---", 100)).await, (0, 0));
    assert_eq!(world.day().await, (6, 0));
}

#[rstest]
#[tokio::test]
async fn a_hold_of_the_millisecond_in_which_a_counter_was_told_fails_none_that_names_it(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.suspend(None).await;
    world.warm_up(with_new_month(told(&[(b"month---", 0, 0)]))).await;
    let month = limit(b"month---", 100);
    world.hold(&pages("named", 1).under([day(100), month.clone()])).await;
    // Asked for by an instance that does not have the month in its policy yet.
    world.hold(&pages("other", 6)).await;
    assert_matches!(world.consume("other", total("6"), true).await, ResolveOutcome::Done { .. });
    assert_matches!(world.consume("named", total("1"), true).await, ResolveOutcome::Done { .. });
    assert_eq!(world.day().await, (7, 0));
    assert_eq!(world.counts(&month).await, (7, 0));
}

#[rstest]
#[tokio::test]
async fn who_waits_takes_no_figures_from_before_and_of_later_ones_what_it_lacks(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ada = user("ada");
    let of_ada = |key: &str| pages(key, 5).of(&ada).under([of_subject(1, day(100))]);
    world.hold(&of_ada("a")).await;
    let suspended = world.suspend(Some(&ada)).await.unwrap();
    let cold = cold(world.reserve(&of_ada("b")).await);
    assert_eq!((cold.tenant, cold.holders, cold.counters), (false, vec![1], vec![]));
    assert_matches!(world.consume("a", total("2"), true).await, ResolveOutcome::Cold(_));
    let tell = async |as_of: OutboxId, reserved: i64| {
        let told = told(&[(b"day-----", 0, reserved), (b"month---", 0, reserved)]);
        let new_counters = vec![NewCounter { subject: Some(ada.clone()), ..new_counter(b"month---") }];
        world.tell_subject(&ada, WarmState { as_of, new_counters, ..told }).await
    };
    assert_eq!(tell(OutboxId::default(), 9).await, RestoreOutcome::AlreadyWarm);
    assert_matches!(world.reserve(&of_ada("b")).await, ReserveOutcome::Cold(_));
    assert_eq!(tell(suspended, 7).await, RestoreOutcome::Done);
    let readings = admitted(world.reserve(&of_ada("b")).await);
    assert_eq!(readings[0].reserved.get(), 10, "what it counted stays");
    let asked = pages("m", 1).of(&ada).under([of_subject(1, limit(b"month---", 100))]);
    let readings = admitted(world.reserve(&asked).await);
    assert_eq!(readings[0].reserved.get(), 8, "what it lacked is told");
    world.suspend(None).await;
    let page = |as_of| RestorePage { as_of, ..world.page(&[], Some(WarmState::default())) };
    assert_eq!(world.gate.restore_page(&page(suspended)).await.unwrap(), RestoreOutcome::AlreadyWarm);
    assert_matches!(world.reserve(&of_ada("c")).await, ReserveOutcome::Cold(_));
    let all = OutboxId { sequence: suspended.sequence + 2, ..suspended };
    assert_eq!(world.gate.restore_page(&page(all)).await.unwrap(), RestoreOutcome::Done);
    world.hold(&of_ada("c")).await;
}

#[rstest]
#[tokio::test]
async fn a_tenant_that_waits_keeps_its_records_and_counts_and_takes_a_newer_capacity(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let open = world.record("a").await.unwrap();
    world.consume("a", total("4"), true).await;
    let next_day = (WINDOW.1, 2 * WINDOW.1 - WINDOW.0);
    let next = from_ms(next_day.0, limit(b"next----", 100));
    let later = pages("b", 5).under([next.clone()]).at(next_day.0);
    world.hold(&Ask { valid: next_day, ..later }).await;
    for version in [3, 2, 4] {
        let as_of = world.suspend(None).await.unwrap();
        // The booked figures while the consume waits in quarantine, read on the day before.
        let capacities = vec![capacity(b"quota---", version, i64::try_from(version).unwrap(), i64::MAX)];
        let told = with_new_month(told(&[(b"day-----", 0, 6), (b"next----", 0, 9), (b"month---", 0, 6)]));
        let records = [(world.id("a"), open.clone())];
        let page = world.page(&records, Some(WarmState { capacities, ..told }));
        let restored = world.gate.restore_page(&RestorePage { as_of, ..page }).await.unwrap();
        assert_eq!(restored, RestoreOutcome::Done);
        assert_eq!(world.state("a").await, Some(ReservationState::Consumed));
        assert_eq!(world.day().await, (4, 0));
        assert_eq!(world.counts(&limit(b"month---", 100)).await, (0, 6));
        assert_eq!(world.reading_at(next_day.0, &next).await.reserved, units(5));
        let capacity = world.reading_at(START_MS, &quota(b"quota---")).await.room.unwrap();
        assert_eq!(capacity, if version == 4 { 4 } else { 3 });
    }
}

#[rstest]
#[tokio::test]
async fn a_hold_told_alone_counts_in_what_began_before_it_was_told_and_leaves_the_holds_of_others_there(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let open = world.record("a").await.unwrap();
    world.adopt(2).await;
    world.warm_up(with_new_month(told(&[(b"day-----", 0, 3), (b"month---", 0, 3)]))).await;
    assert_eq!(world.tell_hold("a", &open, &[]).await, HoldOutcome::Done);
    let (day, month) = (day(100), limit(b"month---", 100));
    assert_eq!((world.counts(&day).await, world.counts(&month).await), ((0, 9), (0, 9)));
    world.consume("a", total("4"), true).await;
    assert_eq!((world.counts(&day).await, world.counts(&month).await), ((4, 3), (4, 3)));
}
