use rstest::rstest;
use tollgate::domain::event::Change;
use tollgate::domain::rejection::Rejection;
use tollgate::domain::reservation::ReservationState;
use tollgate::gate::ResolveOutcome;

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

#[rstest]
#[tokio::test]
async fn an_extended_hold_expires_at_its_new_time_only(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let record = done(world.extend_at(START_MS + 30_000, "a", TTL_MS).await);
    let expires_at_ms = START_MS + 30_000 + TTL_MS;
    assert_eq!((record.head.expires_at_ms, record.head.step), (expires_at_ms, 2));
    let reading = world.reading_at(START_MS, &day(100)).await;
    assert_eq!(reading.next_hold_ends_at_ms, Some(expires_at_ms), "the only hold ends then");
    let events = world.events().await;
    let Change::Extend { head, .. } = &events[1].change else { panic!("not an extend") };
    assert_eq!(head.expires_at_ms, expires_at_ms);
    assert_eq!(world.sweep(expires_at_ms - 1).await, 0);
    assert_eq!(world.state("a").await, Some(ReservationState::Reserved));
    assert_eq!(world.sweep(expires_at_ms + BUCKET_MS).await, 1);
    assert_matches!(
        world.extend_at(expires_at_ms + BUCKET_MS, "a", TTL_MS).await,
        ResolveOutcome::Rejected { rejection: Rejection::Expired, .. }
    );
}

#[rstest]
#[tokio::test]
async fn an_extended_hold_leaves_another_that_may_end_first(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.hold(&pages("b", 1).lasting(TTL_MS + 5_000)).await;
    world.extend_at(START_MS + 30_000, "a", TTL_MS).await;
    let reading = world.reading_at(START_MS, &day(100)).await;
    let next_ms = reading.next_hold_ends_at_ms.unwrap();
    assert!(next_ms <= START_MS + TTL_MS + 5_000, "{next_ms}");
}

#[rstest]
#[tokio::test]
async fn an_extend_never_shortens_a_hold_nor_passes_its_longest_life(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    assert_matches!(world.extend_at(START_MS, "a", 1000).await, ResolveOutcome::Replayed { .. });
    assert_eq!(world.events().await.len(), 1, "nothing was written");
    let record = done(world.extend_at(START_MS, "a", 86_400_000).await);
    assert_eq!(record.head.expires_at_ms, START_MS + 600_000);
    assert_matches!(world.extend_at(START_MS + 1, "a", 86_400_000).await, ResolveOutcome::Replayed { .. });
}
