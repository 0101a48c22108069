use rstest::rstest;
use tollgate::domain::ids::{Epoch, OutboxId};
use tollgate::gate::scripts::Script;
use tollgate::gate::status::Status;
use tollgate::gate::{Holder, RepairCall, RepairOutcome};
use uuid::Uuid;

use crate::gate::server::Mode;
use crate::gate::world::*;

const COUNTER: &[u8; 8] = b"day-----";

fn at(sequence: u64) -> OutboxId {
    OutboxId { epoch: Epoch(1), sequence }
}

/// A tenant whose counter is (10, 0) after three events.
async fn used(mode: Mode) -> World {
    let world = World::cold(mode).await;
    world.warm_up(told(&[(COUNTER, 10, 0)])).await;
    for key in ["a", "b", "c"] {
        world.hold(&pages(key, 1)).await;
    }
    assert_eq!(world.day().await, (10, 3));
    world
}

async fn repair_at(
    world: &World,
    now_ms: i64,
    checkpoint: u8,
    place: u64,
    delta: (i64, i64),
) -> RepairOutcome {
    let call = RepairCall {
        checkpoint: Uuid::from_bytes([checkpoint; 16]),
        place: at(place),
        partition: world.partition,
        tenant: &world.tenant,
        holder: Holder::Tenant,
        field: field(COUNTER),
        window_ms: WINDOW,
        delta,
        now_ms: Some(now_ms),
    };
    world.gate.repair(&call).await.unwrap()
}

async fn repair(world: &World, checkpoint: u8, place: u64, delta: (i64, i64)) -> RepairOutcome {
    repair_at(world, START_MS, checkpoint, place, delta).await
}

#[rstest]
#[tokio::test]
async fn a_repair_adds_its_delta_once_and_another_checkpoint_of_before_adds_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = used(mode).await;
    for outcome in [RepairOutcome::Done, RepairOutcome::DoneBefore, RepairOutcome::DoneBefore] {
        assert_eq!(repair(&world, 1, 2, (-4, 2)).await, outcome);
        assert_eq!(world.day().await, (6, 5));
    }
    assert_eq!(repair(&world, 2, 2, (-4, 2)).await, RepairOutcome::RepairedSince);
    assert_eq!(repair(&world, 2, 1, (-4, 2)).await, RepairOutcome::RepairedSince);
    world.hold(&pages("d", 1)).await;
    assert_eq!(repair(&world, 3, 3, (1, 0)).await, RepairOutcome::Done, "taken after the first repair");
    assert_eq!(world.day().await, (7, 6));
    assert_eq!(world.events().await.len(), 4, "a repair is no event");
}

#[rstest]
#[tokio::test]
async fn a_counter_that_the_ledger_told_after_the_checkpoint_is_left_as_it_is(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = used(mode).await;
    let state = world.state_key();
    world.server.command(&["HDEL", &state, "day-----"]);
    world.tell(&told(&[(COUNTER, 9, 3)])).await;
    assert_eq!(repair(&world, 1, 2, (-1, 0)).await, RepairOutcome::RepairedSince);
    world.server.command(&["DEL", &state]);
    world.warm_up(told(&[(COUNTER, 8, 3)])).await;
    assert_eq!(repair(&world, 1, 2, (-1, 0)).await, RepairOutcome::RepairedSince);
    assert_eq!(world.day().await, (8, 3));
}

#[rstest]
#[tokio::test]
async fn a_missing_counter_is_made_and_one_of_another_window_is_left_alone(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    assert_eq!(repair(&world, 1, 0, (5, 0)).await, RepairOutcome::Done);
    assert_eq!(world.day().await, (5, 0));
    assert_eq!(repair_at(&world, WINDOW.1, 2, 0, (5, 0)).await, RepairOutcome::WindowMoved);
    world.hold(&pages("n", 1).under([from_ms(WINDOW.0 + 1, day(100))])).await;
    assert_eq!(repair(&world, 3, 9, (5, 0)).await, RepairOutcome::WindowMoved);
}

#[rstest]
#[tokio::test]
async fn a_repair_of_an_older_epoch_does_nothing(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = used(mode).await;
    world.adopt(2).await;
    assert_eq!(repair(&world, 1, 2, (-1, 0)).await, RepairOutcome::EpochOver);
}

#[rstest]
#[tokio::test]
async fn a_repair_refuses_in_order_of_precedence(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = used(mode).await;
    let keys = ["meta", "outbox", &format!("state:{}", world.tenant)].map(|rest| world.key(rest));
    let text = Script::Repair.text("").unwrap();
    let call = |epoch: &str, late: bool, id: &[u8], place: &str, end_ms: i64, consumed: &str| {
        let mut command = redis::cmd("EVAL");
        command.arg(&text).arg(3).arg(&keys).arg(epoch).arg(if late { "0" } else { "9000000000000000" });
        command.arg(START_MS).arg(id).arg(place).arg(COUNTER).arg(WINDOW.0).arg(end_ms);
        command.arg(consumed).arg("0");
        let values: Vec<redis::Value> = command.query(&mut world.server.connection()).unwrap();
        let redis::Value::Int(code) = values[0] else { panic!("{values:?}") };
        Status::from_code(code).unwrap()
    };
    let (first, other) = ([1_u8; 16], [2_u8; 16]);
    assert_eq!(repair(&world, 1, 2, (1, 0)).await, RepairOutcome::Done);
    assert_eq!(call("9", true, &first, "0", 0, "-99"), Status::Alarm);
    assert_eq!(call("1", true, &first, "0", 0, "-99"), Status::Replayed);
    assert_eq!(call("1", true, &other, "0", 0, "-99"), Status::TooLate);
    assert_eq!(call("1", false, &other, "0", 0, "-99"), Status::StaleWindow);
    assert_eq!(call("1", false, &other, "0", WINDOW.1, "-99"), Status::TooLarge);
    assert_eq!(call("1", false, &other, "0", WINDOW.1, "-1"), Status::Kept);
    assert_eq!(call("1", false, &other, "3", WINDOW.1, "-1"), Status::Done);
    world.server.command(&["DEL", &keys[2]]);
    assert_eq!(call("1", false, &other, "3", 0, "-99"), Status::StaleWindow);
    assert_eq!(call("1", false, &other, "3", WINDOW.1, "-99"), Status::Cold);
}
