use rstest::rstest;
use tollgate::domain::event::Change;
use tollgate::domain::reservation::ReservationState;
use tollgate::gate::{ReserveOutcome, RestoreOutcome, RestorePage, WarmState};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

#[rstest]
#[tokio::test]
async fn what_is_not_resolved_in_time_returns_with_an_event_and_keeps_its_whole_record(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.consume("a", total("2"), false).await;
    assert_eq!(world.sweep(START_MS + TTL_MS - 1).await, 0, "not before its time");
    assert_eq!(world.sweep(DUE_MS).await, 1);
    assert_eq!(world.day().await, (2, 0));
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
    let sweep = || world.sweep_once(DUE_MS, 3);
    let first = sweep().await;
    assert_eq!((first.expired, first.skipped, first.more), (2, 1, true));
    let second = sweep().await;
    assert_eq!((second.expired, second.more), (3, true));
    let third = sweep().await;
    assert_eq!((third.expired, third.more, third.swept), (1, false, DUE_MS / BUCKET_MS));
}

#[rstest]
#[tokio::test]
async fn days_of_downtime_are_leapt_over_and_what_was_due_in_them_expires(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let now_ms = START_MS + 86_400_000;
    let sweep = || world.sweep_once(now_ms, 100);
    let leapt = sweep().await;
    assert_eq!((leapt.expired, leapt.more, leapt.swept), (0, false, now_ms / BUCKET_MS));
    assert_eq!(sweep().await.leap, Some(leapt.swept), "it stands until somebody has looked behind");
    // What comes meanwhile, with an expiry long past, lands in a bucket that is still to come.
    world.hold(&pages("meanwhile", 1)).await;
    assert_eq!(world.sweep_behind(now_ms, leapt.swept).await, 1);
    assert_eq!(sweep().await.leap, None);
    assert_eq!(world.sweep(now_ms + BUCKET_MS).await, 1, "a hold never lands in a bucket that is finished");
}

#[rstest]
#[tokio::test]
async fn a_look_behind_one_leap_does_not_settle_a_later_one(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let sweep = |days: i64| world.sweep_once(START_MS + days * 86_400_000, 100);
    let first = sweep(1).await.leap.unwrap();
    world.hold(&pages("b", 1)).await;
    let second = sweep(2).await.leap.unwrap();
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
    world.server.command(&["DEL", &world.record_key("a")]);
    let report = world.sweep_once(DUE_MS, 100).await;
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
    world.adopt(2).await;
    let report = world.sweep_once(DUE_MS, 100).await;
    assert_eq!((report.expired, report.skipped), (0, 1));
    assert_matches!(world.reserve(&pages("b", 1)).await, ReserveOutcome::Cold(_));
    let records = [(world.id("a"), record)];
    let page = |last| RestorePage { now_ms: Some(DUE_MS), ..world.page(&records, last) };
    assert_eq!(world.gate.restore_page(&page(None)).await.unwrap(), RestoreOutcome::Done);
    let report = world.sweep_once(DUE_MS + BUCKET_MS, 100).await;
    assert_eq!((report.expired, report.postponed), (0, 1), "its tenant is still cold");
    let warm = Some(told(&[(b"day-----", 0, 6)]));
    assert_eq!(world.gate.restore_page(&page(warm)).await.unwrap(), RestoreOutcome::Done);
    assert_eq!(world.sweep(DUE_MS + 10_000).await, 1);
    assert_eq!(world.day().await, (0, 0));
}

#[tokio::test]
async fn a_hold_of_an_older_epoch_leaves_redis_unless_its_tenant_is_restored() {
    let world = World::warm(Mode::Alone).await;
    world.hold(&pages("a", 6)).await;
    let record = world.record("a").await.unwrap();
    let ends_in_ms = || world.expires_in_ms(&world.record_key("a"));
    world.adopt(2).await;
    assert_eq!(ends_in_ms(), -1, "it has no end");
    world.sweep_once(DUE_MS, 100).await;
    assert!((1..=86_400_000).contains(&ends_in_ms()), "{}", ends_in_ms());
    let (records, warm) = ([(world.id("a"), record)], told(&[(b"day-----", 0, 6)]));
    let page = RestorePage { now_ms: Some(DUE_MS), ..world.page(&records, Some(warm)) };
    assert_eq!(world.gate.restore_page(&page).await.unwrap(), RestoreOutcome::Done);
    assert_eq!(ends_in_ms(), -1, "it is open again");
    assert_eq!(world.sweep(DUE_MS + BUCKET_MS).await, 1);
    assert_eq!(world.day().await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn a_counter_that_holds_too_little_is_reported_and_never_goes_below_zero(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.server.command(&["HDEL", &world.state_key(), "day-----"]);
    world.hold(&pages("b", 1)).await;
    let report = world.sweep_once(DUE_MS, 1).await;
    assert_eq!((report.inconsistent, report.expired), (1, 0));
    assert_eq!(world.day().await, (0, 1));
    assert_eq!(world.state("a").await, Some(ReservationState::Reserved));
}

/// Damages something of the hold `a`, which counts in a field and for a subject of its own.
fn damage(world: &World, what: &str) {
    let reservation = world.record_key("a");
    let state = world.state_key();
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
    world.tell_subject(&user("ada"), WarmState::default()).await;
    let checks = [limit(b"own-----", 100), of_subject(1, limit(b"users---", 100))];
    world.hold(&pages("a", 6).of(&user("ada")).under(checks)).await;
    world.hold(&pages("b", 1)).await;
    world.hold(&pages("later", 1).lasting(TTL_MS + 5 * BUCKET_MS)).await;
    damage(&world, what);
    let now_ms = START_MS + TTL_MS + 10 * BUCKET_MS;
    let report = world.sweep_once(now_ms, 100).await;
    let expected = if what == "due list" { 1 } else { 2 };
    assert_eq!((report.expired, report.damaged, report.more), (expected, 1, false), "{report:?}");
    let named = if what == "due list" { "due:" } else { &world.id("a").to_string() };
    assert!(report.unreadable[0].item.contains(named), "{report:?}");
    let again = world.sweep_once(now_ms + 62_000, 100).await;
    let tried_again = u32::from(what != "due list");
    assert_eq!((again.expired, again.damaged), (0, tried_again), "{again:?}");
    assert_eq!(world.state("later").await, Some(ReservationState::Expired));
}
