use std::time::Duration;

use tollgate::domain::ids::{Epoch, OutboxId};

use super::server::Mode;
use super::world::*;

fn place(sequence: u64) -> OutboxId {
    OutboxId { epoch: Epoch(1), sequence }
}

#[tokio::test]
async fn events_are_gapless_and_read_from_their_place_on_inclusively() {
    let world = World::warm(Mode::Alone).await;
    for key in ["a", "b", "c", "d"] {
        world.hold(&pages(key, 1)).await;
    }
    let read = async |from: OutboxId, count| {
        let (_, events) = world.gate.read_outbox(&[(world.partition, from)], count).await.unwrap().remove(0);
        events.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(read(OutboxId::default(), 100).await, [0, 1, 2, 3].map(place));
    assert_eq!(read(place(2), 100).await, [2, 3].map(place));
    assert_eq!(read(place(1), 2).await, [1, 2].map(place));
    assert_eq!(world.gate.trim_outbox(world.partition, place(2)).await.unwrap(), 2);
    assert_eq!(read(OutboxId::default(), 100).await, [2, 3].map(place));
    assert_eq!(world.gate.outbox_length(world.partition).await.unwrap(), 2);
}

#[tokio::test]
async fn the_bell_rings_for_an_event_after_its_place_and_not_for_one_before() {
    let world = World::warm(Mode::Alone).await;
    world.hold(&pages("a", 1)).await;
    let wait = |after, ms| {
        let gate = &world.gate;
        async move { gate.wait_outbox(&[(world.partition, after)], Duration::from_millis(ms)).await.unwrap() }
    };
    assert_eq!(wait(OutboxId::default(), 20_000).await, [world.partition]);
    assert_eq!(wait(place(0), 20).await, []);
    let b = pages("b", 1);
    let (rang, ()) = tokio::join!(wait(place(0), 20_000), world.hold(&b));
    assert_eq!(rang, [world.partition]);
}
