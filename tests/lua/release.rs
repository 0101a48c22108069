use rstest::rstest;
use tollgate::domain::event::Change;
use tollgate::domain::reservation::{OnExcess, OnLate, ReservationState};
use tollgate::gate::{ReleaseCall, ResolveOutcome, Totals};

use crate::gate::server::Mode;
use crate::gate::world::*;

fn pages(key: &str, amount: i64) -> Ask {
    ask(key, vec![line("ocr.page", amount)], vec![limit(b"day-----", 100)])
}

async fn release_at(world: &World, now_ms: i64, key: &str, incurred: Totals) -> ResolveOutcome {
    let call = ReleaseCall { id: world.id(key), bound: None, incurred, now_ms: Some(now_ms) };
    world.gate.release(&call).await.unwrap()
}

#[rstest]
#[case::nothing_incurred(Totals::Default, 1)]
#[case::what_is_consumed(total("1"), 1)]
#[case::less_than_held(total("3"), 3)]
#[case::more_than_held(total("8"), 8)]
#[tokio::test]
async fn a_release_charges_what_was_incurred_and_returns_the_rest(
    #[case] incurred: Totals,
    #[case] charged: i64,
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.consume("a", total("1"), false).await;
    let outcome = world.release("a", incurred.clone()).await;
    let ResolveOutcome::Done { record, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.head.state, ReservationState::Released);
    assert_eq!(world.counts(&limit(b"day-----", 100)).await, (charged, 0));
    let events = world.events().await;
    let Change::Release { head, units } = &events[2].change else { panic!("not a release") };
    assert_eq!((head, units), (&record.head, &record.units));
    assert_eq!(world.record("a").await.unwrap().body.rest, None);
    assert!(matches!(world.release("a", incurred).await, ResolveOutcome::Replayed { .. }));
    assert!(matches!(world.consume("a", total("1"), true).await, ResolveOutcome::AlreadyResolved { .. }));
    assert!(matches!(world.extend_at(START_MS, "a", TTL_MS).await, ResolveOutcome::AlreadyResolved { .. }));
    assert_eq!(world.events().await.len(), 3);
}

#[rstest]
#[tokio::test]
async fn a_release_again_with_another_part_incurred_is_refused_and_changes_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.release("a", total("2")).await;
    for other in ["0", "1", "3"] {
        let outcome = world.release("a", total(other)).await;
        let ResolveOutcome::AlreadyResolved { record } = &outcome else { panic!("{outcome:?}") };
        assert_eq!((record.head.state, record.units[0].consumed.get()), (ReservationState::Released, 2));
    }
    for same in [Totals::Default, total("2")] {
        assert!(matches!(world.release("a", same).await, ResolveOutcome::Replayed { .. }));
    }
    assert_eq!((world.counts(&limit(b"day-----", 100)).await, world.events().await.len()), ((2, 0), 2));
}

#[rstest]
#[tokio::test]
async fn incurring_less_than_is_consumed_is_refused(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.consume("a", total("2"), false).await;
    let outcome = world.release("a", total("1")).await;
    assert!(matches!(outcome, ResolveOutcome::AmountDecreased { line: 0, .. }), "{outcome:?}");
    assert_eq!(world.state("a").await, Some(ReservationState::Reserved));
}

#[rstest]
#[tokio::test]
async fn releasing_what_has_expired_changes_nothing_and_says_expired(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let now_ms = START_MS + TTL_MS + BUCKET_MS;
    world.sweep(now_ms).await;
    let outcome = release_at(&world, now_ms, "a", Totals::Default).await;
    assert!(matches!(outcome, ResolveOutcome::Expired { .. }), "{outcome:?}");
    assert_eq!(world.events().await.len(), 2);
}

#[rstest]
#[tokio::test]
async fn an_incurred_part_after_expiry_is_a_late_consume(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let now_ms = START_MS + TTL_MS + BUCKET_MS;
    world.sweep(now_ms).await;
    let outcome = release_at(&world, now_ms, "a", total("2")).await;
    let ResolveOutcome::Done { record, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((record.head.state, record.head.late), (ReservationState::Consumed, true));
    assert_eq!(world.counts(&limit(b"day-----", 100)).await, (2, 0));
    assert!(matches!(world.events().await[2].change, Change::Consume { is_final: true, .. }));
    let again = release_at(&world, now_ms, "a", total("2")).await;
    assert!(matches!(again, ResolveOutcome::Replayed { .. }), "{again:?}");
    let other = release_at(&world, now_ms, "a", total("3")).await;
    assert!(matches!(other, ResolveOutcome::AlreadyResolved { .. }), "{other:?}");
}

#[rstest]
#[tokio::test]
async fn an_incurred_part_after_expiry_obeys_the_meters_rules_for_late(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let mut rejects = pages("a", 6);
    rejects.lines[0].rule = (0, OnExcess::Record, OnLate::Reject, 100);
    world.hold(&rejects).await;
    let mut strict = pages("b", 6);
    strict.lines[0].rule = (0, OnExcess::Reject, OnLate::Charge, 100);
    world.hold(&strict).await;
    let now_ms = START_MS + TTL_MS + BUCKET_MS;
    world.sweep(now_ms).await;
    let outcome = release_at(&world, now_ms, "a", total("2")).await;
    assert!(matches!(outcome, ResolveOutcome::Expired { .. }), "{outcome:?}");
    let outcome = release_at(&world, now_ms, "b", total("7")).await;
    assert!(matches!(outcome, ResolveOutcome::ExcessRejected { line: 0, .. }), "{outcome:?}");
}
