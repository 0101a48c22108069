use tollgate::domain::ids::{Epoch, OutboxId};
use tollgate::gate::{GateError, MetaFacts, ReserveOutcome, WarmState};

use super::server::{Mode, Server};
use super::world::*;
use crate::support::matching::assert_matches;

async fn own_world() -> World {
    let world = World::over(Server::own()).await;
    world.warm_up(WarmState::default()).await;
    world
}

async fn alarm(world: &World) -> String {
    match world.try_reserve(&pages("alarm", 1)).await {
        Err(GateError::Alarm { partition, reason }) if partition == world.partition => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn nothing_runs_before_scripts_are_loaded_and_they_are_never_loaded_silently() {
    let world = own_world().await;
    world.server.command(&["SCRIPT", "FLUSH", "SYNC"]);
    assert_eq!(alarm(&world).await, "the node does not know the scripts");
    assert_eq!(alarm(&world).await, "the node does not know the scripts");
    let run_id = world.gate.meet().await.unwrap();
    world.gate.load_scripts(&run_id).await.unwrap();
    world.hold(&pages("a", 1)).await;
}

#[tokio::test]
async fn an_emptied_server_alarms_although_it_kept_its_scripts() {
    let world = own_world().await;
    world.hold(&pages("a", 1)).await;
    world.server.command(&["FLUSHALL"]);
    assert_eq!(alarm(&world).await, "its memory is missing");
    assert_eq!(world.gate.meta_facts(world.partition).await.unwrap(), MetaFacts::default());
    assert_eq!(world.gate.last_event(world.partition).await.unwrap(), None);
    world.adopt(2).await;
    assert_matches!(world.reserve(&pages("a", 1)).await, ReserveOutcome::Cold(cold) if cold.tenant);
    world.warm_up(WarmState::default()).await;
    let ReserveOutcome::Admitted { event, .. } = world.reserve(&pages("a", 1)).await else {
        panic!("not admitted")
    };
    assert_eq!(event, OutboxId { epoch: Epoch(2), sequence: 0 });
}

#[tokio::test]
async fn a_partition_of_another_epoch_alarms() {
    let world = own_world().await;
    world.server.command(&["HSET", &world.key("meta"), "epoch", "7"]);
    assert_eq!(alarm(&world).await, "it is of epoch 7");
}

#[tokio::test]
async fn an_outbox_that_went_back_alarms_although_the_epoch_is_the_same() {
    let world = own_world().await;
    world.hold(&pages("a", 1)).await;
    world.hold(&pages("b", 1)).await;
    world.server.command(&["DEL", &world.key("outbox")]);
    assert_eq!(alarm(&world).await, "its outbox is at 1-0 and was at 1-1");
}

#[tokio::test]
async fn a_published_position_beyond_the_outbox_alarms() {
    let world = own_world().await;
    world.hold(&pages("a", 1)).await;
    world.gate.note_cursor(world.partition, OutboxId { epoch: Epoch(1), sequence: 40 });
    assert_eq!(alarm(&world).await, "its outbox is at 1-1 and was at 1-40");
}

#[tokio::test]
async fn a_key_of_the_wrong_type_fails_before_anything_is_written() {
    let world = World::warm(Mode::Alone).await;
    world.hold(&pages("a", 1)).await;
    let due = world.key(&format!("due:{}", (START_MS + 90_000) / BUCKET_MS));
    world.server.command(&["SET", &due, "not a list"]);
    let other = pages("b", 1).lasting(90_000);
    assert_matches!(world.try_reserve(&other).await, Err(GateError::Script { .. }));
    assert_eq!(world.events().await.len(), 1);
    assert_eq!(world.record("b").await, None);
}

#[tokio::test]
async fn a_call_without_an_epoch_from_the_ledger_is_not_sent() {
    let world = World::warm(Mode::Alone).await;
    let other = world.gate.partitions().find(|partition| world.gate.epoch(*partition).is_none()).unwrap();
    let failed = world.gate.expire(other, None, 10).await;
    assert_matches!(failed, Err(GateError::NoEpoch(partition)) if partition == other);
}
