use rstest::rstest;
use tollgate::domain::event::Change;
use tollgate::domain::rejection::Rejection;
use tollgate::domain::reservation::{OnExcess, OnLate, ReservationState};
use tollgate::gate::{ResolveOutcome, Totals};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

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
    let record = done(world.release("a", incurred.clone()).await);
    assert_eq!(record.head.state, ReservationState::Released);
    assert_eq!(world.day().await, (charged, 0));
    let events = world.events().await;
    let Change::Release { head, units } = &events[2].change else { panic!("not a release") };
    assert_eq!((head, units), (&record.head, &record.units));
    assert_eq!(world.record("a").await.unwrap().body.rest, None);
    assert_matches!(world.release("a", incurred).await, ResolveOutcome::Replayed { .. });
    assert_matches!(
        world.consume("a", total("1"), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, .. }
    );
    assert_matches!(
        world.extend_at(START_MS, "a", TTL_MS).await,
        ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, .. }
    );
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
        let ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, record } = &outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((record.head.state, record.units[0].consumed.get()), (ReservationState::Released, 2));
    }
    for same in [Totals::Default, total("2")] {
        assert_matches!(world.release("a", same).await, ResolveOutcome::Replayed { .. });
    }
    assert_eq!((world.day().await, world.events().await.len()), ((2, 0), 2));
}

#[rstest]
#[tokio::test]
async fn incurring_less_than_is_consumed_is_refused(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.consume("a", total("2"), false).await;
    assert_matches!(
        world.release("a", total("1")).await,
        ResolveOutcome::Rejected { rejection: Rejection::AmountDecreased(0), .. }
    );
    assert_eq!(world.state("a").await, Some(ReservationState::Reserved));
}

#[rstest]
#[tokio::test]
async fn releasing_what_has_expired_changes_nothing_and_says_expired(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.sweep(DUE_MS).await;
    assert_matches!(
        world.release_at(DUE_MS, "a", Totals::Default).await,
        ResolveOutcome::Rejected { rejection: Rejection::Expired, .. }
    );
    assert_eq!(world.events().await.len(), 2);
}

#[rstest]
#[tokio::test]
async fn an_incurred_part_after_expiry_is_a_late_consume(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.sweep(DUE_MS).await;
    let record = done(world.release_at(DUE_MS, "a", total("2")).await);
    assert_eq!((record.head.state, record.head.late), (ReservationState::Consumed, true));
    assert_eq!(world.day().await, (2, 0));
    assert_matches!(world.events().await[2].change, Change::Consume { is_final: true, .. });
    assert_matches!(world.release_at(DUE_MS, "a", total("2")).await, ResolveOutcome::Replayed { .. });
    assert_matches!(
        world.release_at(DUE_MS, "a", total("3")).await,
        ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, .. }
    );
}

#[rstest]
#[tokio::test]
async fn an_incurred_part_after_expiry_obeys_the_meters_rules_for_late(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6).ruled(OnExcess::Record, OnLate::Reject)).await;
    world.hold(&pages("b", 6).ruled(OnExcess::Reject, OnLate::Charge)).await;
    world.sweep(DUE_MS).await;
    assert_matches!(
        world.release_at(DUE_MS, "a", total("2")).await,
        ResolveOutcome::Rejected { rejection: Rejection::Expired, .. }
    );
    assert_matches!(
        world.release_at(DUE_MS, "b", total("7")).await,
        ResolveOutcome::Rejected { rejection: Rejection::ExcessRejected(0), .. }
    );
}
