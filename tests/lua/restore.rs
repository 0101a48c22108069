use rstest::rstest;
use tollgate::domain::amount::Units;
use tollgate::domain::ids::{Epoch, OutboxId, ReservationId, Subject, SubjectKind, TenantId};
use tollgate::domain::reservation::{Record, ReservationState};
use tollgate::gate::{
    GateError, HoldOutcome, QuotaCapacity, ReserveOutcome, RestoreOutcome, RestorePage, WarmState,
};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

async fn restore(
    world: &World,
    records: &[(ReservationId, Record)],
    last: Option<WarmState>,
) -> Result<RestoreOutcome, GateError> {
    world.gate.restore_page(&world.page(records, last)).await
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
    world.adopt(2).await;
    assert_eq!(world.record("a").await, None, "a record of another epoch is not known");
    let warm = told(&[(b"day-----", 10, 9)]);
    for _ in 0..2 {
        assert_eq!(restore(&world, &records[..1], None).await.unwrap(), RestoreOutcome::Done);
    }
    assert_eq!(restore(&world, &records[1..], Some(warm.clone())).await.unwrap(), RestoreOutcome::Done);
    let again = restore(&world, &records[..1], Some(warm)).await.unwrap();
    assert_eq!(again, RestoreOutcome::AlreadyWarm, "a second restore cannot count twice");
    assert_eq!(world.day().await, (10, 9));
    world.consume("a", total("1"), true).await;
    assert_eq!(world.day().await, (11, 3));
    assert_eq!(world.sweep(DUE_MS).await, 1);
    assert_eq!(world.day().await, (11, 0));
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
    world.adopt(2).await;
    let id = world.id("a");
    let refused = restore(&world, &[(id, resolved.clone())], None).await;
    assert_matches!(refused, Err(GateError::Malformed { .. }));
    let refused = world.gate.restore_record(id, world.epoch(), &open, Some(START_MS)).await;
    assert_matches!(refused, Err(GateError::Malformed { .. }));
    let tell = || world.gate.restore_record(id, world.epoch(), &resolved, Some(START_MS));
    assert_eq!(tell().await.unwrap(), RestoreOutcome::Done);
    assert_eq!(tell().await.unwrap(), RestoreOutcome::AlreadyWarm);
    assert_eq!(world.state("a").await, Some(ReservationState::Consumed));
    assert_matches!(world.reserve(&pages("a", 6)).await, ReserveOutcome::Replayed { .. });
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
    world.adopt(2).await;
    let (gate, partition, tenant, now_ms) = (&world.gate, world.partition, &world.tenant, Some(START_MS));
    let told = || told(&[(b"day-----", 7, 0)]);
    let records = [(id, open)];
    let page = RestorePage { epoch: old, ..world.page(&records, Some(told())) };
    let answers = [
        gate.restore_page(&page).await,
        gate.restore_subject(partition, old, tenant, hash, told(), now_ms).await,
        gate.restore_counters(partition, old, tenant, &told(), now_ms).await,
        gate.restore_record(id, old, &resolved, now_ms).await,
    ];
    for answer in answers {
        assert_matches!(answer, Err(GateError::Alarm { .. }));
    }
    assert_eq!(cold(world.reserve(&pages("b", 1)).await).epoch, Epoch(2));
}

#[rstest]
#[tokio::test]
async fn single_counters_and_capacities_are_told_to_a_warm_tenant_only_and_never_replace_what_is_known(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let told = told(&[(b"day-----", 7, 0)]);
    assert_eq!(world.tell(&told).await, RestoreOutcome::StillCold);
    world.warm_up(WarmState::default()).await;
    assert_eq!(world.tell(&told).await, RestoreOutcome::Done);
    world.hold(&pages("a", 1)).await;
    assert_eq!(world.tell(&told).await, RestoreOutcome::AlreadyWarm);
    assert_eq!(world.counts(&kept(day(100))).await, (7, 1));
}

#[rstest]
#[tokio::test]
async fn a_capacity_of_a_lower_or_equal_version_is_ignored(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let told = |version, amount| capacity(b"quota---", version, amount, i64::MAX / 4096);
    assert_eq!(world.tell_capacity(told(2, 20)).await, RestoreOutcome::StillCold);
    world.warm_up(WarmState { capacities: vec![told(2, 20)], ..WarmState::default() }).await;
    assert_eq!(world.tell_capacity(told(1, 10)).await, RestoreOutcome::AlreadyWarm);
    assert_eq!(world.tell_capacity(told(2, 10)).await, RestoreOutcome::AlreadyWarm);
    assert_eq!(world.tell_capacity(told(3, 30)).await, RestoreOutcome::Done);
    assert_eq!(world.reading_at(START_MS, &quota(b"quota---")).await.room, Some(30));
}

#[rstest]
#[tokio::test]
async fn capacities_of_several_tenants_are_told_in_one_call_and_each_counts_by_itself(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let told = |version, amount| capacity(b"quota---", version, amount, i64::MAX / 4096);
    assert_eq!(world.tell_capacity(told(2, 20)).await, RestoreOutcome::Done);
    let tenants = (0..).map(|number| TenantId::parse(&format!("neighbour-{number}")).unwrap());
    let neighbours = tenants.filter(|tenant| world.gate.partition_of(tenant) == world.partition);
    let [warm, cold] = neighbours.take(2).collect::<Vec<_>>().try_into().unwrap();
    let page = RestorePage { tenant: &warm, ..world.page(&[], Some(WarmState::default())) };
    world.gate.restore_page(&page).await.unwrap();
    let (old, new, parts) = (told(2, 5), told(7, 70), vec![(START_MS, Units::ZERO); 17]);
    let tell = async |all: Vec<(&TenantId, &QuotaCapacity)>| {
        world.gate.set_capacities(world.partition, &all, Some(START_MS)).await
    };
    let outcomes = tell(vec![(&cold, &new), (&world.tenant, &old), (&warm, &new)]).await.unwrap();
    use RestoreOutcome::{AlreadyWarm, Done, StillCold};
    assert_eq!(outcomes, [StillCold, AlreadyWarm, Done]);
    assert_eq!(world.reading_at(START_MS, &quota(b"quota---")).await.room, Some(20));
    assert_eq!(tell(vec![(&warm, &old), (&world.tenant, &new)]).await.unwrap(), [AlreadyWarm, Done]);
    assert_eq!(world.reading_at(START_MS, &quota(b"quota---")).await.room, Some(70));
    let unsound = QuotaCapacity { parts, ..told(9, 0) };
    assert_matches!(tell(vec![(&world.tenant, &unsound)]).await, Err(GateError::Malformed { .. }));
    assert_matches!(tell(vec![(&warm, &new); 33]).await, Err(GateError::Malformed { .. }));
}

#[rstest]
#[tokio::test]
async fn an_epoch_and_the_writers_position_only_rise(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    assert_eq!(world.adopt(3).await, Epoch(3));
    assert_eq!(world.adopt(2).await, Epoch(3));
    assert_eq!(world.gate.meta_facts(world.partition).await.unwrap().epoch, Some(Epoch(3)));
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
        assert_matches!(&error, GateError::Unavailable(why) if why.contains("closed period"));
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
    let ada = user("ada");
    world.tell_subject(&ada, WarmState::default()).await;
    let checks = [day(100), of_subject(1, limit(b"users---", 100))];
    world.hold(&pages("a", 6).of(&ada).under(checks)).await;
    world.consume("a", total("2"), false).await;
    let open = world.record("a").await.unwrap();
    world.adopt(2).await;
    let tell = async |told: &[u8]| world.tell_hold("a", &open, told).await;
    assert_eq!(tell(&[]).await, HoldOutcome::TenantCold);
    world.warm_up(told(&[(b"day-----", 2, 0)])).await;
    assert_eq!(tell(&[]).await, HoldOutcome::SubjectsCold(vec![1]));
    world.tell_subject(&ada, told(&[(b"users---", 2, 4)])).await;
    assert_eq!(tell(&[1]).await, HoldOutcome::Done);
    assert_eq!(tell(&[1]).await, HoldOutcome::Known);
    assert_eq!(world.day().await, (2, 4));
    assert_eq!(world.sweep(DUE_MS).await, 1);
    assert_eq!(world.day().await, (2, 0));
    assert_eq!(world.state("a").await, Some(ReservationState::Expired));
}

#[tokio::test]
async fn a_hold_that_is_told_alone_begins_a_counter_that_no_ledger_restores() {
    let world = World::warm(Mode::Alone).await;
    world.hold(&pages("a", 6)).await;
    let open = world.record("a").await.unwrap();
    world.adopt(2).await;
    world.warm_up(WarmState::default()).await;
    assert_eq!(world.tell_hold_afresh("a", &open, &[], &[0]).await, HoldOutcome::Done);
    assert_eq!(world.day().await, (0, 6));
    world.hold(&pages("b", 1)).await;
    done(world.consume("a", total("2"), true).await);
    assert_eq!(world.day().await, (2, 1));
}

#[tokio::test]
async fn after_a_loss_of_memory_a_restored_hold_moves_no_counter_of_an_anonymous_subject_any_more() {
    let world = World::warm(Mode::Alone).await;
    let caller = Subject { kind: SubjectKind::parse("anonymous").unwrap(), ..user("192.0.2.1") };
    let of_slot = of_subject(1, limit(b"of-slot-", 10));
    let ask = |key, amount| pages(key, amount).of(&caller).under([of_slot.clone()]).lasting(2 * TTL_MS);
    world.hold(&ask("old", 6).lasting(TTL_MS)).await;
    world.lose_and_restore("old", START_MS).await;
    world.hold(&ask("new", 5)).await;
    assert_eq!(world.sweep(DUE_MS).await, 1);
    assert_eq!(refusing(world.reserve(&ask("more", 6).at(DUE_MS)).await), [0]);
    done(world.consume_at(DUE_MS, "old", total("6"), true).await);
    done(world.consume_at(DUE_MS, "new", total("1"), true).await);
    world.hold(&ask("last", 9).at(DUE_MS)).await;
}
