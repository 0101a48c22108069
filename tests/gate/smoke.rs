use tollgate::domain::reservation::ReservationState;
use tollgate::gate::{ResolveOutcome, Totals};

use super::world::*;

#[tokio::test]
async fn what_is_reserved_is_consumed_released_or_expires() {
    let world = World::warm().await;
    let day = limit(b"day-----", 10);
    let pages = |key, amount| ask(key, vec![line("ocr.page", amount)], vec![day.clone()]);
    world.hold(&pages("a", 4)).await;
    world.hold(&pages("b", 3)).await;
    world.hold(&pages("c", 2)).await;
    assert_eq!(world.counts(&day).await, (0, 9));
    let done = world.consume("a", total("1"), true).await;
    assert!(matches!(done, ResolveOutcome::Done { .. }), "{done:?}");
    assert_eq!(world.counts(&day).await, (1, 5));
    let done = world.release("b", Totals::Default).await;
    assert!(matches!(done, ResolveOutcome::Done { .. }), "{done:?}");
    assert_eq!(world.counts(&day).await, (1, 2));
    assert_eq!(world.sweep(START_MS + TTL_MS + BUCKET_MS).await, 1);
    assert_eq!(world.counts(&day).await, (1, 0));
    assert_eq!(world.state("c").await, Some(ReservationState::Expired));
    assert_eq!(world.events().await.len(), 6);
}
