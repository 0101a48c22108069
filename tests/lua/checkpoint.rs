use rstest::rstest;
use tollgate::domain::amount::Decimals;
use tollgate::domain::checkpoint::{Checkpoint, CounterDescription, Description, Figures};
use tollgate::domain::counter::Counter;
use tollgate::domain::ids::{Epoch, MeterId, OutboxId, Subject};
use tollgate::gate::{CheckpointCall, CheckpointOutcome, GateError, WarmState};
use uuid::Uuid;

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

fn known(name: &[u8; 8]) -> Counter {
    kept(limit(name, 0))
}

fn description(world: &World, checks: &[Counter], subject: Option<&Subject>) -> Description {
    let counter = |check: &Counter| CounterDescription {
        name: check.field.as_str().to_owned(),
        field: check.field,
        subject: subject.filter(|_| check.scope_index > 0).cloned(),
        meter: MeterId::parse("ocr.page").unwrap(),
        decimals: Decimals::default(),
        budgeted: None,
        operations: None,
        is_quota: false,
        is_new: false,
        window_ms: WINDOW,
    };
    Description {
        tenant: world.tenant.clone(),
        tenant_version: 1,
        policy_version: 2,
        counters: checks.iter().map(counter).collect(),
    }
}

pub(super) async fn take(
    world: &World,
    checks: &[Counter],
    subject: Option<&Subject>,
    now_ms: i64,
) -> CheckpointOutcome {
    let hashes: Vec<_> = subject.iter().map(|subject| world.hash(subject)).collect();
    let call = CheckpointCall {
        id: Uuid::from_bytes([9; 16]),
        partition: world.partition,
        tenant: &world.tenant,
        subjects: &hashes,
        counters: checks,
        valid: WINDOW,
        description: description(world, checks, subject).encode(),
        now_ms: Some(now_ms),
    };
    world.gate.checkpoint(&call).await.unwrap()
}

async fn last_checkpoint(world: &World) -> Checkpoint {
    let from = [(world.partition, OutboxId::default())];
    let (_, events) = world.gate.read_outbox(&from, 100).await.unwrap().remove(0);
    let (place, bytes) = events.last().unwrap();
    Checkpoint::decode(*place, bytes).unwrap()
}

#[rstest]
#[tokio::test]
async fn a_checkpoint_tells_in_order_what_the_counters_held_at_its_place(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    world.warm_up(told(&[(b"day-----", 7, 0)])).await;
    let ada = user("ada");
    world.tell_subject(&ada, told(&[(b"day-----", 2, 0)])).await;
    world.hold(&pages("a", 4).under([kept(day(100))])).await;
    let checks = [known(b"day-----"), known(b"unknown-"), of_subject(1, known(b"day-----"))];
    let outcome = take(&world, &checks, Some(&ada), START_MS).await;
    assert_eq!(outcome, CheckpointOutcome::Told(OutboxId { epoch: Epoch(1), sequence: 1 }));
    let checkpoint = last_checkpoint(&world).await;
    assert_eq!(checkpoint.id, Uuid::from_bytes([9; 16]));
    assert_eq!(checkpoint.gate_time_ms, START_MS);
    assert_eq!(checkpoint.description, description(&world, &checks, Some(&ada)));
    let figures = |consumed, reserved| Some(Figures { consumed, reserved });
    assert_eq!(checkpoint.figures, [figures(7, 4), None, figures(2, 0)]);
    assert_eq!(world.day().await, (7, 4), "it moves nothing");
}

#[rstest]
#[tokio::test]
async fn a_counter_of_an_earlier_window_reads_zero_and_one_of_a_later_is_left_out(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let mut state = told(&[(b"earlier-", 7, 0), (b"later---", 7, 0)]);
    state.counters[0].window_start_ms -= 1;
    state.counters[1].window_start_ms += 1;
    world.warm_up(state).await;
    take(&world, &[known(b"earlier-"), known(b"later---")], None, START_MS).await;
    assert_eq!(last_checkpoint(&world).await.figures, [Some(Figures::default()), None]);
}

#[rstest]
#[tokio::test]
async fn a_checkpoint_refuses_in_order_of_precedence_and_then_writes_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let nothing_known = [known(b"unknown-")];
    let stale = take(&world, &nothing_known, None, WINDOW.1).await;
    assert_eq!(stale, CheckpointOutcome::StaleWindow { now_ms: WINDOW.1 });
    assert_eq!(take(&world, &nothing_known, None, START_MS).await, CheckpointOutcome::Cold);
    world.warm_up(WarmState::default()).await;
    assert_eq!(take(&world, &nothing_known, None, START_MS).await, CheckpointOutcome::NothingKnown);
    assert_eq!(world.events().await.len(), 0);
    world.gate.set_epoch(world.partition, Epoch(2));
    let call = CheckpointCall {
        id: Uuid::nil(),
        partition: world.partition,
        tenant: &world.tenant,
        subjects: &[],
        counters: &nothing_known,
        valid: (0, 1),
        description: Vec::new(),
        now_ms: Some(START_MS),
    };
    let alarm = world.gate.checkpoint(&call).await.unwrap_err();
    assert_matches!(alarm, GateError::Alarm { .. });
}

#[rstest]
#[tokio::test]
async fn the_warm_tenants_are_those_of_the_epoch_in_force(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let tenants = [world.tenant.clone()];
    assert_eq!(world.gate.warm_tenants(&tenants).await.unwrap(), [false]);
    world.warm_up(WarmState::default()).await;
    assert_eq!(world.gate.warm_tenants(&tenants).await.unwrap(), [true]);
    world.adopt(2).await;
    assert_eq!(world.gate.warm_tenants(&tenants).await.unwrap(), [false]);
}

#[rstest]
#[tokio::test]
async fn a_counter_is_read_whichever_of_many_meters_it_counts(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 4).under([day(10)])).await;
    let of_a_later_meter = Counter { lines: vec![(u8::MAX, 1)], ..day(10) };
    assert_eq!(world.counts(&of_a_later_meter).await, (0, 4));
}
