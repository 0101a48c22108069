use rstest::rstest;
use tollgate::domain::ids::{Epoch, OutboxId, ReservationId};
use tollgate::domain::reservation::{Record, ReservationState};
use tollgate::gate::{
    CounterClass, GateError, HoldOutcome, QuotaCapacity, ReserveOutcome, RestoreOutcome, RestorePage,
    WarmState,
};

use crate::gate::server::Mode;
use crate::gate::world::*;

fn pages(key: &str, amount: i64) -> Ask {
    ask(key, vec![line("ocr.page", amount)], vec![limit(b"day-----", 100)])
}

async fn restore(
    world: &World,
    records: &[(ReservationId, Record)],
    last: Option<WarmState>,
) -> Result<RestoreOutcome, GateError> {
    let page = RestorePage {
        as_of: OutboxId::default(),
        partition: world.partition,
        epoch: world.epoch(),
        tenant: &world.tenant,
        records,
        last,
        now_ms: Some(START_MS),
    };
    world.gate.restore_page(&page).await
}

#[rstest]
#[tokio::test]
async fn pages_bring_the_holds_back_and_the_last_one_makes_the_tenant_warm_once(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.hold(&pages("b", 3)).await;
    let records = [("a", world.record("a").await.unwrap()), ("b", world.record("b").await.unwrap())]
        .map(|(key, record)| (world.id(key), record));
    world.gate.adopt(world.partition, Epoch(2), 0, Some(START_MS)).await.unwrap();
    assert_eq!(world.record("a").await, None, "a record of another epoch is not known");
    let warm = WarmState { counters: vec![restored_counter(b"day-----", 10, 9)], ..WarmState::default() };
    for _ in 0..2 {
        assert_eq!(restore(&world, &records[..1], None).await.unwrap(), RestoreOutcome::Done);
    }
    assert_eq!(restore(&world, &records[1..], Some(warm.clone())).await.unwrap(), RestoreOutcome::Done);
    let again = restore(&world, &records[..1], Some(warm)).await.unwrap();
    assert_eq!(again, RestoreOutcome::AlreadyWarm, "a second restore cannot count twice");
    assert_eq!(world.counts(&limit(b"day-----", 100)).await, (10, 9));
    world.consume("a", total("1"), true).await;
    assert_eq!(world.counts(&limit(b"day-----", 100)).await, (11, 3));
    assert_eq!(world.sweep(START_MS + TTL_MS + BUCKET_MS).await, 1);
    assert_eq!(world.counts(&limit(b"day-----", 100)).await, (11, 0));
}

#[rstest]
#[tokio::test]
async fn a_page_carries_open_reservations_and_a_record_alone_is_resolved(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let open = world.record("a").await.unwrap();
    world.consume("a", total("2"), true).await;
    let resolved = world.record("a").await.unwrap();
    world.gate.adopt(world.partition, Epoch(2), 0, Some(START_MS)).await.unwrap();
    let id = world.id("a");
    let refused = restore(&world, &[(id, resolved.clone())], None).await;
    assert!(matches!(refused, Err(GateError::Malformed { .. })));
    let refused = world.gate.restore_record(id, world.epoch(), &open, Some(START_MS)).await;
    assert!(matches!(refused, Err(GateError::Malformed { .. })));
    let tell = || world.gate.restore_record(id, world.epoch(), &resolved, Some(START_MS));
    assert_eq!(tell().await.unwrap(), RestoreOutcome::Done);
    assert_eq!(tell().await.unwrap(), RestoreOutcome::AlreadyWarm);
    assert_eq!(world.state("a").await, Some(ReservationState::Consumed));
    assert!(matches!(world.reserve(&pages("a", 6)).await, ReserveOutcome::Replayed { .. }));
}

#[rstest]
#[tokio::test]
async fn what_the_ledger_read_for_one_epoch_is_not_taken_in_another(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let open = world.record("a").await.unwrap();
    world.consume("a", total("2"), true).await;
    let resolved = world.record("a").await.unwrap();
    let (old, id, hash) = (world.epoch(), world.id("a"), world.hash(&user("ada")));
    world.gate.adopt(world.partition, Epoch(2), 0, Some(START_MS)).await.unwrap();
    let (gate, partition, tenant, now_ms) = (&world.gate, world.partition, &world.tenant, Some(START_MS));
    let told = || WarmState { counters: vec![restored_counter(b"day-----", 7, 0)], ..WarmState::default() };
    let records = [(id, open)];
    let page = RestorePage {
        as_of: OutboxId::default(),
        partition,
        epoch: old,
        tenant,
        records: &records,
        last: Some(told()),
        now_ms,
    };
    let answers = [
        gate.restore_page(&page).await,
        gate.restore_subject(partition, old, tenant, hash, told(), now_ms).await,
        gate.restore_counters(partition, old, tenant, &told(), now_ms).await,
        gate.restore_record(id, old, &resolved, now_ms).await,
    ];
    for answer in answers {
        assert!(matches!(answer, Err(GateError::Alarm { .. })), "{answer:?}");
    }
    assert!(
        matches!(world.reserve(&pages("b", 1)).await, ReserveOutcome::Cold(cold) if cold.epoch == Epoch(2))
    );
}

#[rstest]
#[tokio::test]
async fn single_counters_and_capacities_are_told_to_a_warm_tenant_only_and_never_replace_what_is_known(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let told = WarmState { counters: vec![restored_counter(b"day-----", 7, 0)], ..WarmState::default() };
    let tell = |told: WarmState| {
        let world = &world;
        async move {
            world
                .gate
                .restore_counters(world.partition, world.epoch(), &world.tenant, &told, Some(START_MS))
                .await
                .unwrap()
        }
    };
    assert_eq!(tell(told.clone()).await, RestoreOutcome::StillCold);
    world.warm_up(WarmState::default()).await;
    assert_eq!(tell(told.clone()).await, RestoreOutcome::Done);
    world.hold(&pages("a", 1)).await;
    assert_eq!(tell(told).await, RestoreOutcome::AlreadyWarm);
    let mut check = limit(b"day-----", 100);
    check.class = CounterClass::Quota;
    assert_eq!(world.counts(&check).await, (7, 1));
}

#[rstest]
#[tokio::test]
async fn a_capacity_of_a_lower_or_equal_version_is_ignored(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let told = |version, amount| QuotaCapacity {
        field: field(b"quota---"),
        version,
        parts: vec![(0, units(amount))],
        until_ms: i64::MAX / 4096,
    };
    let tell = |capacity| {
        let world = &world;
        async move {
            world.gate.set_capacity(world.partition, &world.tenant, &capacity, Some(START_MS)).await.unwrap()
        }
    };
    assert_eq!(tell(told(2, 20)).await, RestoreOutcome::StillCold);
    world.warm_up(WarmState { capacities: vec![told(2, 20)], ..WarmState::default() }).await;
    assert_eq!(tell(told(1, 10)).await, RestoreOutcome::AlreadyWarm);
    assert_eq!(tell(told(2, 10)).await, RestoreOutcome::AlreadyWarm);
    assert_eq!(tell(told(3, 30)).await, RestoreOutcome::Done);
    let mut quota = limit(b"quota---", 0);
    quota.capacity = tollgate::gate::CheckCapacity::Quota { field: field(b"quota---") };
    assert_eq!(world.reading_at(START_MS, &quota).await.capacity, Some(units(30)));
}

#[rstest]
#[tokio::test]
async fn an_epoch_and_the_writers_position_only_rise(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    let adopt = |epoch| world.gate.adopt(world.partition, Epoch(epoch), 0, Some(START_MS));
    assert_eq!(adopt(3).await.unwrap(), Epoch(3));
    assert_eq!(adopt(2).await.unwrap(), Epoch(3));
    assert_eq!(world.gate.partition_facts(world.partition).await.unwrap().epoch, Some(Epoch(3)));
    let writer = || format!("{:?}", world.server.command(&["HGET", &world.key("meta"), "writer"]));
    for (epoch, sequence, published) in [(2, 9, "2-9"), (2, 8, "2-9"), (3, 0, "3-0"), (2, 10, "3-0")] {
        let position = OutboxId { epoch: Epoch(epoch), sequence };
        world.gate.publish(world.partition, position).await.unwrap();
        assert!(writer().contains(published), "{} after {position}", writer());
    }
}

#[rstest]
#[tokio::test]
async fn nothing_is_written_before_the_floor_and_the_floor_only_rises(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    /// Later than any clock.
    const FAR_MS: i64 = 9_000_000_000_000;
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let floor = || world.server.command(&["HGET", &world.key("meta"), "floor"]);
    let raise = |epoch, floor_ms| world.gate.adopt(world.partition, Epoch(epoch), floor_ms, Some(START_MS));
    raise(2, FAR_MS + 10).await.unwrap();
    raise(3, FAR_MS + 5).await.unwrap();
    assert!(format!("{:?}", floor()).contains(&(FAR_MS + 10).to_string()), "{:?}", floor());
    world.warm_up(WarmState::default()).await;
    let too_early = |error: GateError| {
        assert!(matches!(&error, GateError::Unavailable(why) if why.contains("closed period")), "{error}");
    };
    too_early(world.try_reserve(&pages("b", 1)).await.unwrap_err());
    too_early(world.gate.expire(world.partition, Some(START_MS), 100).await.unwrap_err());
    let outbox = world.server.command(&["XLEN", &world.key("outbox")]);
    assert_eq!(outbox, redis::Value::Int(1));
}

#[rstest]
#[tokio::test]
async fn a_hold_that_a_warm_tenant_does_not_know_is_told_alone_once_and_ends_as_any_other(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let hash = world.hash(&user("ada"));
    let mut own = limit(b"users---", 100);
    own.place.holder = 1;
    let checks = vec![limit(b"day-----", 100), own.clone()];
    let subject = WarmState::default;
    let (partition, epoch, tenant) = (world.partition, world.epoch(), &world.tenant);
    world.gate.restore_subject(partition, epoch, tenant, hash, subject(), Some(START_MS)).await.unwrap();
    world.hold(&Ask { subjects: vec![user("ada")], checks, ..pages("a", 6) }).await;
    world.consume("a", total("2"), false).await;
    let (id, open) = (world.id("a"), world.record("a").await.unwrap());
    world.gate.adopt(partition, Epoch(2), 0, Some(START_MS)).await.unwrap();
    let tell = async |told: &[u8]| {
        world.gate.restore_hold(id, world.epoch(), &open, told, Some(START_MS)).await.unwrap()
    };
    assert_eq!(tell(&[]).await, HoldOutcome::TenantCold);
    let warm = WarmState { counters: vec![restored_counter(b"day-----", 2, 0)], ..WarmState::default() };
    world.warm_up(warm).await;
    assert_eq!(tell(&[]).await, HoldOutcome::SubjectsCold(vec![1]));
    let told = WarmState { counters: vec![restored_counter(b"users---", 2, 4)], ..WarmState::default() };
    world.gate.restore_subject(partition, world.epoch(), tenant, hash, told, Some(START_MS)).await.unwrap();
    assert_eq!(tell(&[1]).await, HoldOutcome::Done);
    assert_eq!(tell(&[1]).await, HoldOutcome::Known);
    assert_eq!(world.counts(&limit(b"day-----", 100)).await, (2, 4));
    assert_eq!(world.sweep(START_MS + TTL_MS + BUCKET_MS).await, 1);
    assert_eq!(world.counts(&limit(b"day-----", 100)).await, (2, 0));
    assert_eq!(world.state("a").await, Some(ReservationState::Expired));
}
