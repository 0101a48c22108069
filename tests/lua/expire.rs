use rstest::rstest;
use tollgate::domain::event::Change;
use tollgate::domain::ids::{Epoch, OutboxId};
use tollgate::domain::reservation::ReservationState;
use tollgate::gate::{ReserveOutcome, RestoreOutcome, RestorePage, WarmState};

use crate::gate::server::Mode;
use crate::gate::world::*;

fn pages(key: &str, amount: i64) -> Ask {
    ask(key, vec![line("ocr.page", amount)], vec![limit(b"day-----", 100)])
}

#[rstest]
#[tokio::test]
async fn what_is_not_resolved_in_time_returns_with_an_event_and_keeps_its_whole_record(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.consume("a", total("2"), false).await;
    assert_eq!(world.sweep(START_MS + TTL_MS - 1).await, 0, "not before its time");
    assert_eq!(world.sweep(START_MS + TTL_MS + BUCKET_MS).await, 1);
    assert_eq!(world.counts(&limit(b"day-----", 100)).await, (2, 0));
    let record = world.record("a").await.unwrap();
    assert_eq!(record.head.state, ReservationState::Expired);
    assert!(record.body.rest.is_some(), "a late consume needs it");
    let event = world.events().await.pop().unwrap();
    assert_eq!(event.reservation, world.id("a"));
    let Change::Expire { head, units } = event.change else { panic!("not an expire") };
    assert_eq!((head, units), (record.head, record.units));
    assert_eq!(world.sweep(START_MS + 10 * TTL_MS).await, 0, "once");
}

#[rstest]
#[tokio::test]
async fn a_sweep_is_bounded_goes_on_where_it_stopped_and_passes_over_what_is_resolved(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    for number in 0..7 {
        world.hold(&pages(&format!("a{number}"), 1)).await;
    }
    world.consume("a0", total("1"), true).await;
    let now_ms = START_MS + TTL_MS + BUCKET_MS;
    let sweep = || world.gate.expire(world.partition, Some(now_ms), 3);
    let first = sweep().await.unwrap();
    assert_eq!((first.expired, first.skipped, first.more), (2, 1, true));
    let second = sweep().await.unwrap();
    assert_eq!((second.expired, second.more), (3, true));
    let third = sweep().await.unwrap();
    assert_eq!((third.expired, third.more, third.swept), (1, false, now_ms / BUCKET_MS));
}

#[rstest]
#[tokio::test]
async fn days_of_downtime_are_leapt_over_and_what_was_due_in_them_expires(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let now_ms = START_MS + 86_400_000;
    let sweep = || world.gate.expire(world.partition, Some(now_ms), 100);
    let leapt = sweep().await.unwrap();
    assert_eq!((leapt.expired, leapt.more, leapt.swept), (0, false, now_ms / BUCKET_MS));
    assert_eq!(sweep().await.unwrap().leap, Some(leapt.swept), "it stands until somebody has looked behind");
    // What comes meanwhile, with an expiry long past, lands in a bucket that is still to come.
    let mut meanwhile = pages("meanwhile", 1);
    meanwhile.now_ms = START_MS;
    world.hold(&meanwhile).await;
    assert_eq!(world.sweep_behind(now_ms, leapt.swept).await, 1);
    assert_eq!(sweep().await.unwrap().leap, None);
    assert_eq!(world.sweep(now_ms + BUCKET_MS).await, 1, "a hold never lands in a bucket that is finished");
}

#[rstest]
#[tokio::test]
async fn a_look_behind_one_leap_does_not_settle_a_later_one(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let sweep = |days: i64| world.gate.expire(world.partition, Some(START_MS + days * 86_400_000), 100);
    let first = sweep(1).await.unwrap().leap.unwrap();
    let mut second_hold = pages("b", 1);
    second_hold.now_ms = START_MS;
    world.hold(&second_hold).await;
    let second = sweep(2).await.unwrap().leap.unwrap();
    // The lists that a look saw before the second leap: none of them.
    let now_ms = START_MS + 2 * 86_400_000;
    let report = world.gate.expire_behind(world.partition, Some(now_ms), first, &[]).await.unwrap();
    assert_eq!((report.expired, report.leap), (0, Some(second)));
    assert_eq!(world.sweep_behind(now_ms, second).await, 2);
}

#[rstest]
#[tokio::test]
async fn a_due_entry_without_a_record_is_counted_and_holds_nobody_up(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.hold(&pages("b", 1)).await;
    world.server.command(&["DEL", &world.key(&format!("rsv:{}", world.id("a").to_hex()))]);
    let report = world.gate.expire(world.partition, Some(START_MS + TTL_MS + BUCKET_MS), 100).await.unwrap();
    assert_eq!((report.missing, report.expired), (1, 1));
}

#[rstest]
#[tokio::test]
async fn holds_of_an_older_epoch_are_passed_over_and_come_back_with_their_tenant(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let record = world.record("a").await.unwrap();
    world.gate.adopt(world.partition, Epoch(2), 0, Some(START_MS)).await.unwrap();
    let now_ms = START_MS + TTL_MS + BUCKET_MS;
    let report = world.gate.expire(world.partition, Some(now_ms), 100).await.unwrap();
    assert_eq!((report.expired, report.skipped), (0, 1));
    assert!(matches!(world.reserve(&pages("b", 1)).await, ReserveOutcome::Cold(_)));
    let records = [(world.id("a"), record)];
    let page = |last| RestorePage {
        as_of: OutboxId::default(),
        partition: world.partition,
        epoch: world.epoch(),
        tenant: &world.tenant,
        records: &records,
        last,
        now_ms: Some(now_ms),
    };
    assert_eq!(world.gate.restore_page(&page(None)).await.unwrap(), RestoreOutcome::Done);
    let report = world.gate.expire(world.partition, Some(now_ms + BUCKET_MS), 100).await.unwrap();
    assert_eq!((report.expired, report.postponed), (0, 1), "its tenant is still cold");
    let counter = restored_counter(b"day-----", 0, 6);
    let warm = WarmState { counters: vec![counter], ..WarmState::default() };
    assert_eq!(world.gate.restore_page(&page(Some(warm))).await.unwrap(), RestoreOutcome::Done);
    assert_eq!(world.sweep(now_ms + 10_000).await, 1);
    assert_eq!(world.counts(&limit(b"day-----", 100)).await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn a_counter_that_holds_too_little_is_reported_and_never_goes_below_zero(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let state = world.key(&format!("state:{}", world.tenant));
    world.server.command(&["HDEL", &state, "day-----"]);
    world.hold(&pages("b", 1)).await;
    let report = world.gate.expire(world.partition, Some(START_MS + TTL_MS + BUCKET_MS), 1).await.unwrap();
    assert_eq!((report.inconsistent, report.expired), (1, 0));
    assert_eq!(world.counts(&limit(b"day-----", 100)).await, (0, 1));
    assert_eq!(world.state("a").await, Some(ReservationState::Reserved));
}

/// Damages something of the hold `a`, which counts in a field and for a subject of its own.
fn damage(world: &World, what: &str) {
    let reservation = world.key(&format!("rsv:{}", world.id("a").to_hex()));
    let state = world.key(&format!("state:{}", world.tenant));
    let subject = world.key(&format!("state:{}:{}", world.tenant, world.hash(&user("ada")).as_str()));
    let due = world.key(&format!("due:{}", (START_MS + TTL_MS) / BUCKET_MS));
    let commands: &[&[&str]] = match what {
        "record" => &[&["SET", &reservation, "torn"]],
        "record's type" => &[&["DEL", &reservation], &["LPUSH", &reservation, "x"]],
        "counter" => &[&["HSET", &state, "own-----", "torn"]],
        "subject's type" => &[&["SET", &subject, "torn"]],
        _ => &[&["SET", &due, "torn"]],
    };
    for command in commands {
        world.server.command(command);
    }
}

#[rstest]
#[tokio::test]
async fn what_is_damaged_is_passed_over_told_and_tried_again_and_the_rest_expires(
    #[values("record", "record's type", "counter", "subject's type", "due list")] what: &str,
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let hash = world.hash(&user("ada"));
    let (partition, epoch) = (world.partition, world.epoch());
    let warm = WarmState::default();
    world.gate.restore_subject(partition, epoch, &world.tenant, hash, warm, Some(START_MS)).await.unwrap();
    let mut own = limit(b"users---", 100);
    own.place.holder = 1;
    let checks = vec![limit(b"own-----", 100), own];
    world.hold(&Ask { subjects: vec![user("ada")], checks, ..pages("a", 6) }).await;
    world.hold(&pages("b", 1)).await;
    world.hold(&Ask { ttl_ms: TTL_MS + 5 * BUCKET_MS, ..pages("later", 1) }).await;
    damage(&world, what);
    let now_ms = START_MS + TTL_MS + 10 * BUCKET_MS;
    let report = world.gate.expire(world.partition, Some(now_ms), 100).await.unwrap();
    let expected = if what == "due list" { 1 } else { 2 };
    assert_eq!((report.expired, report.damaged, report.more), (expected, 1, false), "{report:?}");
    let named = if what == "due list" { "due:" } else { &world.id("a").to_string() };
    assert!(report.unreadable[0].item.contains(named), "{report:?}");
    let again = world.gate.expire(world.partition, Some(now_ms + 62_000), 100).await.unwrap();
    let tried_again = u32::from(what != "due list");
    assert_eq!((again.expired, again.damaged), (0, tried_again), "{again:?}");
    assert_eq!(world.state("later").await, Some(ReservationState::Expired));
}
