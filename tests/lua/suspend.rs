use rstest::rstest;
use tollgate::domain::holds::NewCounter;
use tollgate::domain::ids::{Epoch, MeterId, OutboxId};
use tollgate::domain::reservation::ReservationState;
use tollgate::gate::{
    CheckCapacity, HoldOutcome, QuotaCapacity, ReserveOutcome, ResolveOutcome, RestoreOutcome, RestorePage,
    WarmState,
};

use crate::gate::server::Mode;
use crate::gate::world::*;

fn pages(key: &str, amount: i64, name: &[u8; 8]) -> Ask {
    ask(key, vec![line("ocr.page", amount)], vec![limit(name, 100)])
}

fn new_counter(name: &[u8; 8]) -> NewCounter {
    NewCounter {
        subject: None,
        field: field(name),
        meter: MeterId::parse("ocr.page").unwrap(),
        operations: None,
        window_ms: WINDOW,
    }
}

async fn suspend(world: &World) -> bool {
    let gate = &world.gate;
    gate.suspend(world.partition, world.epoch(), &world.tenant, None, Some(START_MS)).await.unwrap().is_some()
}

#[rstest]
#[tokio::test]
async fn nothing_of_a_tenant_that_waits_moves_or_reaches_the_outbox(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6, b"day-----")).await;
    let before = world.events().await.len();
    assert!(suspend(&world).await);
    assert!(!suspend(&world).await, "it waits already: whoever meets it restores it");
    assert!(matches!(world.reserve(&pages("b", 1, b"day-----")).await, ReserveOutcome::Cold(_)));
    for outcome in [
        world.consume("a", total("2"), false).await,
        world.consume("a", total("2"), true).await,
        world.release("a", total("0")).await,
        world.extend_at(START_MS, "a", TTL_MS * 2).await,
    ] {
        assert!(matches!(outcome, ResolveOutcome::Cold(_)), "{outcome:?}");
    }
    let report = world.gate.expire(world.partition, Some(START_MS + TTL_MS + BUCKET_MS), 100).await.unwrap();
    assert_eq!((report.expired, report.postponed), (0, 1));
    assert_eq!(world.events().await.len(), before);
}

#[rstest]
#[tokio::test]
async fn what_a_waiting_tenant_is_not_told_stays_and_holds_from_before_move_its_new_counters(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    for (key, amount) in [("a", 6), ("b", 3), ("c", 1)] {
        world.hold(&pages(key, amount, b"day-----")).await;
    }
    suspend(&world).await;
    let told = WarmState {
        counters: vec![restored_counter(b"month---", 0, 10)],
        held_only: vec![restored_counter(b"day-----", 0, 10)],
        new_counters: vec![new_counter(b"month---")],
        ..WarmState::default()
    };
    world.warm_up(told).await;
    world.consume("a", total("4"), true).await;
    let (day, month) = (limit(b"day-----", 100), limit(b"month---", 100));
    assert_eq!((world.counts(&day).await, world.counts(&month).await), ((4, 4), (4, 4)));
    // A second one, told by an instance that knows the first no more.
    suspend(&world).await;
    let told = WarmState {
        counters: vec![restored_counter(b"week----", 4, 4)],
        new_counters: vec![new_counter(b"week----")],
        ..WarmState::default()
    };
    world.warm_up(told).await;
    world.hold(&pages("d", 5, b"week----")).await;
    world.release("b", total("1")).await;
    assert_eq!(world.sweep(START_MS + TTL_MS + BUCKET_MS).await, 2);
    for check in [&day, &month] {
        assert_eq!(world.counts(check).await, (5, 0));
    }
    assert_eq!(world.counts(&limit(b"week----", 100)).await, (5, 0));
}

#[rstest]
#[tokio::test]
async fn a_hold_made_after_a_counter_was_told_moves_only_what_it_names(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    suspend(&world).await;
    let told = WarmState {
        counters: vec![restored_counter(b"month---", 0, 0)],
        new_counters: vec![new_counter(b"month---")],
        ..WarmState::default()
    };
    world.warm_up(told).await;
    let mut later = pages("a", 6, b"day-----");
    later.now_ms = START_MS + 1;
    world.hold(&later).await;
    world.consume_at(START_MS + 1, "a", total("6"), true).await;
    assert_eq!(world.counts(&limit(b"month---", 100)).await, (0, 0));
    assert_eq!(world.counts(&limit(b"day-----", 100)).await, (6, 0));
}

#[rstest]
#[tokio::test]
async fn who_waits_takes_no_figures_from_before_and_of_later_ones_what_it_lacks(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let (gate, ada, epoch) = (&world.gate, user("ada"), world.epoch());
    let of_ada = |key: &str| {
        let mut check = limit(b"day-----", 100);
        check.place.holder = 1;
        Ask { subjects: vec![ada.clone()], ..ask(key, vec![line("ocr.page", 5)], vec![check]) }
    };
    world.hold(&of_ada("a")).await;
    let suspended = gate
        .suspend(world.partition, epoch, &world.tenant, Some(world.hash(&ada)), Some(START_MS))
        .await
        .unwrap()
        .unwrap();
    let ReserveOutcome::Cold(cold) = world.reserve(&of_ada("b")).await else { panic!("it waits") };
    assert_eq!((cold.tenant, cold.holders, cold.counters), (false, vec![1], vec![]));
    assert!(matches!(world.consume("a", total("2"), true).await, ResolveOutcome::Cold(_)));
    let tell = async |as_of: OutboxId, reserved: i64| {
        let counters =
            vec![restored_counter(b"day-----", 0, reserved), restored_counter(b"month---", 0, reserved)];
        let new_counters = vec![NewCounter { subject: Some(ada.clone()), ..new_counter(b"month---") }];
        let told = WarmState { as_of, counters, new_counters, ..WarmState::default() };
        let hash = world.hash(&ada);
        gate.restore_subject(world.partition, epoch, &world.tenant, hash, told, Some(START_MS)).await.unwrap()
    };
    assert_eq!(tell(OutboxId::default(), 9).await, RestoreOutcome::AlreadyWarm);
    assert!(matches!(world.reserve(&of_ada("b")).await, ReserveOutcome::Cold(_)));
    assert_eq!(tell(suspended, 7).await, RestoreOutcome::Done);
    let ReserveOutcome::Admitted { readings, .. } = world.reserve(&of_ada("b")).await else { panic!("told") };
    assert_eq!(readings[0].reserved.get(), 10, "what it counted stays");
    let mut month = limit(b"month---", 100);
    month.place.holder = 1;
    let asked = Ask { subjects: vec![ada.clone()], ..ask("m", vec![line("ocr.page", 1)], vec![month]) };
    let ReserveOutcome::Admitted { readings, .. } = world.reserve(&asked).await else { panic!("told") };
    assert_eq!(readings[0].reserved.get(), 8, "what it lacked is told");
    suspend(&world).await;
    let page = |as_of| RestorePage {
        as_of,
        partition: world.partition,
        epoch,
        tenant: &world.tenant,
        records: &[],
        last: Some(WarmState::default()),
        now_ms: Some(START_MS),
    };
    assert_eq!(gate.restore_page(&page(suspended)).await.unwrap(), RestoreOutcome::AlreadyWarm);
    assert!(matches!(world.reserve(&of_ada("c")).await, ReserveOutcome::Cold(_)));
    let all = OutboxId { sequence: suspended.sequence + 2, ..suspended };
    assert_eq!(gate.restore_page(&page(all)).await.unwrap(), RestoreOutcome::Done);
    world.hold(&of_ada("c")).await;
}

#[rstest]
#[tokio::test]
async fn a_tenant_that_waits_keeps_its_records_and_counts_and_takes_a_newer_capacity(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let gate = &world.gate;
    world.hold(&pages("a", 6, b"day-----")).await;
    let open = world.record("a").await.unwrap();
    world.consume("a", total("4"), true).await;
    let next_day = (WINDOW.1, 2 * WINDOW.1 - WINDOW.0);
    let mut next = limit(b"next----", 100);
    next.place.window_start_ms = next_day.0;
    let later = ask("b", vec![line("ocr.page", 5)], vec![next.clone()]);
    world.hold(&Ask { valid: next_day, now_ms: next_day.0, ..later }).await;
    let mut quota = limit(b"quota---", 0);
    quota.capacity = CheckCapacity::Quota { field: field(b"quota---") };
    for version in [3, 2, 4] {
        let as_of = gate
            .suspend(world.partition, world.epoch(), &world.tenant, None, Some(START_MS))
            .await
            .unwrap()
            .unwrap();
        // As the books have it while the consume waits in quarantine, read on the day before.
        let capacity = QuotaCapacity {
            field: field(b"quota---"),
            version,
            parts: vec![(0, units(i64::try_from(version).unwrap()))],
            until_ms: i64::MAX,
        };
        let told = WarmState {
            counters: vec![
                restored_counter(b"day-----", 0, 6),
                restored_counter(b"next----", 0, 9),
                restored_counter(b"month---", 0, 6),
            ],
            new_counters: vec![new_counter(b"month---")],
            capacities: vec![capacity],
            ..WarmState::default()
        };
        let page = RestorePage {
            as_of,
            partition: world.partition,
            epoch: world.epoch(),
            tenant: &world.tenant,
            records: &[(world.id("a"), open.clone())],
            last: Some(told),
            now_ms: Some(START_MS),
        };
        assert_eq!(gate.restore_page(&page).await.unwrap(), RestoreOutcome::Done);
        assert_eq!(world.state("a").await, Some(ReservationState::Consumed));
        assert_eq!(world.counts(&limit(b"day-----", 100)).await, (4, 0));
        assert_eq!(world.counts(&limit(b"month---", 100)).await, (0, 6));
        assert_eq!(world.reading_at(next_day.0, &next).await.reserved, units(5));
        let capacity = world.reading_at(START_MS, &quota).await.capacity.unwrap();
        assert_eq!(capacity.get(), if version == 4 { 4 } else { 3 });
    }
}

#[rstest]
#[tokio::test]
async fn a_hold_told_alone_counts_in_what_began_before_it_was_told_and_leaves_the_holds_of_others_there(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6, b"day-----")).await;
    let open = world.record("a").await.unwrap();
    world.gate.adopt(world.partition, Epoch(2), 0, Some(START_MS)).await.unwrap();
    let told = WarmState {
        counters: vec![restored_counter(b"day-----", 0, 3), restored_counter(b"month---", 0, 3)],
        new_counters: vec![new_counter(b"month---")],
        ..WarmState::default()
    };
    world.warm_up(told).await;
    let held =
        world.gate.restore_hold(world.id("a"), world.epoch(), &open, &[], Some(START_MS)).await.unwrap();
    assert_eq!(held, HoldOutcome::Done);
    let (day, month) = (limit(b"day-----", 100), limit(b"month---", 100));
    assert_eq!((world.counts(&day).await, world.counts(&month).await), ((0, 9), (0, 9)));
    world.consume("a", total("4"), true).await;
    assert_eq!((world.counts(&day).await, world.counts(&month).await), ((4, 3), (4, 3)));
}
