//! Counters by a log: entries slide out, are rewritten or taken out; the log is full, lost, or ends by Redis's clock.

use rstest::rstest;
use tollgate::domain::algorithms::{Parameters, sliding_log};
use tollgate::domain::counter::Counter;
use tollgate::gate::{ReserveCall, ReserveMode, ReserveOutcome, Totals};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

const SECOND_MS: i64 = 1_000;
const LENGTH_MS: i64 = 10 * SECOND_MS;
const DAY_MS: i64 = 86_400_000;

/// A thousand pages within ten seconds, in at most so many entries.
fn log_of(entries_max: i64) -> Counter {
    let parameters = Parameters::SlidingLog(sliding_log::Parameters { length_ms: LENGTH_MS, entries_max });
    Counter { parameters, ..limit(b"log-----", 1_000) }
}

fn log() -> Counter {
    Counter { capacity: units(10), ..log_of(1_000) }
}

fn ask_for(key: &str, amount: i64) -> Ask {
    pages(key, amount).under([log()]).lasting(500_000)
}

fn key(world: &World) -> String {
    world.key(&format!("log:{}:log-----", world.tenant))
}

/// How many members the log has: its entries, and their sums.
fn members(world: &World) -> i64 {
    redis::from_redis_value(world.server.command(&["ZCARD", &key(world)])).unwrap()
}

/// In how many ms the log ends by itself; -1 for never.
fn left_ms(world: &World) -> i64 {
    redis::from_redis_value(world.server.command(&["PTTL", &key(world)])).unwrap()
}

/// Holds by Redis's own clock.
async fn hold_by_redis_clock(world: &World, ask: &Ask) {
    let ask = Ask { valid: (0, i64::MAX), ..ask.clone() };
    let body = world.body(&ask);
    let call = ReserveCall { now_ms: None, ..world.reserve_call(&ask, &body) };
    assert_matches!(world.gate.reserve(&call).await.unwrap(), ReserveOutcome::Admitted { .. });
}

/// How long such work has to wait before it may fit.
async fn wait_ms(world: &World, ask: &Ask) -> Option<i64> {
    let ReserveOutcome::Refused { refusing, .. } = world.reserve(ask).await else { panic!("not refused") };
    refusing[0].1
}

async fn counts(world: &World, after_ms: i64) -> (i64, i64) {
    let reading = world.reading_at(START_MS + after_ms, &log()).await;
    assert_eq!(reading.room, Some(10 - reading.consumed.get() - reading.reserved.get()));
    (reading.consumed.get(), reading.reserved.get())
}

#[rstest]
#[tokio::test]
async fn what_was_admitted_leaves_to_the_millisecond_and_returns_nothing_after_that(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 4)).await;
    world.hold(&ask_for("b", 6).at(START_MS + 3 * SECOND_MS)).await;
    done(world.consume_at(START_MS + 4 * SECOND_MS, "b", total("5"), true).await);
    assert_eq!(counts(&world, LENGTH_MS - 1).await, (5, 4));
    assert_eq!(counts(&world, LENGTH_MS).await, (5, 0), "held or not, it slides out");
    let reading = world.reading_at(START_MS + LENGTH_MS, &log()).await;
    assert_eq!(reading.resets_at_ms, Some(START_MS + LENGTH_MS + 3 * SECOND_MS));
    done(world.consume_at(START_MS + LENGTH_MS, "a", total("9"), true).await);
    assert_eq!(counts(&world, LENGTH_MS).await, (5, 0), "it charges no excess either");
    assert_eq!(counts(&world, LENGTH_MS + 3 * SECOND_MS).await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn an_entry_is_rewritten_and_taken_out_with_all_that_it_counts(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 4)).await;
    world.hold(&ask_for("b", 4)).await;
    for (total_so_far, left) in [("1", (1, 7)), ("3", (3, 5))] {
        done(world.consume_at(START_MS + 1, "a", total(total_so_far), false).await);
        assert_eq!(counts(&world, 1).await, left);
        assert_eq!(members(&world), 3);
    }
    done(world.release_at(START_MS + 2, "b", Totals::Default).await);
    assert_eq!((counts(&world, 2).await, members(&world)), ((3, 1), 2));
    done(world.consume_at(START_MS + 3, "a", total("7"), true).await);
    assert_eq!((counts(&world, 3).await, members(&world)), ((7, 0), 2));
    world.hold(&ask_for("c", 3).at(START_MS + 4)).await;
    assert_matches!(world.reserve(&ask_for("d", 1).at(START_MS + 5)).await, ReserveOutcome::Refused { .. });
    assert_eq!(members(&world), 3, "who is refused writes nothing");
}

#[rstest]
#[tokio::test]
async fn a_log_of_which_all_came_back_is_gone_and_an_expired_hold_is_charged_late_in_it(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 4).lasting(SECOND_MS)).await;
    assert_eq!(world.sweep(START_MS + 3 * SECOND_MS).await, 1);
    assert_eq!((counts(&world, 3 * SECOND_MS).await, members(&world)), ((0, 0), 0));
    done(world.consume_at(START_MS + 4 * SECOND_MS, "a", total("6"), true).await);
    assert_eq!(counts(&world, LENGTH_MS - 1).await, (6, 0));
    assert_eq!(counts(&world, LENGTH_MS).await, (0, 0), "counted at the time of its work");
}

#[rstest]
#[tokio::test]
async fn a_full_log_refuses_until_its_oldest_entry_slides_out(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask =
        |key: &str, at_ms: i64| pages(key, 1).under([log_of(3)]).by(ReserveMode::Usage).at(START_MS + at_ms);
    for number in 0..3 {
        world.hold(&ask(&number.to_string(), number * 100)).await;
    }
    let ReserveOutcome::Refused { refusing, readings, .. } = world.reserve(&ask("next", 300)).await else {
        panic!("not refused")
    };
    assert_eq!((refusing, readings[0].room), (vec![(0, Some(LENGTH_MS - 300))], Some(0)));
    assert_matches!(world.reserve(&ask("next", LENGTH_MS - 1)).await, ReserveOutcome::Refused { .. });
    world.hold(&ask("next", LENGTH_MS)).await;
    assert_eq!(members(&world), 4);
}

#[rstest]
#[tokio::test]
async fn an_admission_takes_out_a_page_of_what_slid_out_and_counts_none_of_it(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask = |key: String, amount: i64, at_ms: i64| {
        pages(&key, amount).under([log_of(1_000)]).by(ReserveMode::Usage).at(START_MS + at_ms)
    };
    for number in 0..150 {
        world.hold(&ask(number.to_string(), 6, number / 100 * SECOND_MS)).await;
    }
    // A hundred have slid out; fifty are left.
    world.hold(&ask("first".into(), 700, LENGTH_MS)).await;
    assert_eq!(members(&world), 1 + 150 - 64 + 1);
    assert_matches!(world.reserve(&ask("second".into(), 1, LENGTH_MS)).await, ReserveOutcome::Refused { .. });
    assert_eq!(members(&world), 88, "who is refused takes nothing out");
    let reading = world.reading_at(START_MS + LENGTH_MS, &log_of(1_000)).await;
    assert_eq!((reading.consumed, reading.room), (units(1_000), Some(0)));
    world.hold(&ask("third".into(), 300, LENGTH_MS + SECOND_MS)).await;
    assert_eq!(members(&world), 88 - 64 + 1);
    world.hold(&ask("last".into(), 1_000, 3 * LENGTH_MS)).await;
    assert_eq!(members(&world), 2, "a log that is over goes whole");
}

#[rstest]
#[tokio::test]
async fn a_resolve_takes_out_a_page_too_unless_its_own_work_has_slid_out(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask =
        |key: String, at_ms: i64| pages(&key, 2).under([log_of(1_000)]).lasting(500_000).at(START_MS + at_ms);
    for number in 0..100 {
        world.hold(&ask(number.to_string(), 0)).await;
    }
    world.hold(&ask("late".into(), SECOND_MS)).await;
    let counts = async |after_ms: i64| {
        let reading = world.reading_at(START_MS + after_ms, &log_of(1_000)).await;
        (reading.consumed.get(), reading.reserved.get())
    };
    let before = world.server.command(&["DUMP", &key(&world)]);
    for key in ["0", "1"] {
        done(world.consume_at(START_MS + LENGTH_MS, key, total("1"), true).await);
    }
    assert_eq!(world.server.command(&["DUMP", &key(&world)]), before, "they read none of it, and write none");
    for (total_so_far, left) in [("1", 37), ("2", 1)] {
        done(world.consume_at(START_MS + LENGTH_MS, "late", total(total_so_far), false).await);
        let used: i64 = total_so_far.parse().unwrap();
        assert_eq!((counts(LENGTH_MS).await, members(&world)), ((used, 2 - used), 1 + left));
    }
    assert_eq!(counts(LENGTH_MS + SECOND_MS).await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn a_log_of_an_older_version_is_read_and_goes_on(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 4)).await;
    world.hold(&ask_for("b", 3).at(START_MS + SECOND_MS)).await;
    // Its sums end after the next end.
    let sums: Vec<Vec<u8>> =
        redis::from_redis_value(world.server.command(&["ZRANGE", &key(&world), "0", "0"])).unwrap();
    let shorten = "redis.call('ZREM', KEYS[1], ARGV[1]) redis.call('ZADD', KEYS[1], -1, ARGV[1]:sub(1, 32))";
    let mut command = redis::cmd("EVAL");
    command.arg(shorten).arg(1).arg(key(&world)).arg(&sums[0]);
    command.exec(&mut world.server.connection()).unwrap();
    assert_eq!(counts(&world, SECOND_MS).await, (0, 7));
    done(world.consume_at(START_MS + 2 * SECOND_MS, "b", total("2"), true).await);
    assert_eq!((counts(&world, 2 * SECOND_MS).await, members(&world)), ((2, 4), 3));
    let reading = world.reading_at(START_MS + LENGTH_MS, &log()).await;
    assert_eq!((reading.consumed, reading.reserved), (units(2), units(0)));
    assert_eq!(reading.resets_at_ms, Some(START_MS + LENGTH_MS + SECOND_MS));
}

#[rstest]
#[tokio::test]
async fn a_log_is_over_with_what_is_newest_of_what_is_left(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 4)).await;
    world.hold(&ask_for("b", 3).at(START_MS + SECOND_MS)).await;
    done(world.release_at(START_MS + 2 * SECOND_MS, "b", Totals::Default).await);
    let reading = world.reading_at(START_MS + 2 * SECOND_MS, &log()).await;
    assert_eq!((reading.reserved, reading.resets_at_ms), (units(4), Some(START_MS + LENGTH_MS)));
}

#[rstest]
#[tokio::test]
async fn a_log_takes_work_of_a_clock_that_went_back_and_not_that_of_one_that_had_leapt_ahead(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 10)).await;
    let back = |key: &str, by_ms: i64| ask_for(key, 1).at(START_MS - by_ms);
    assert_matches!(world.reserve(&back("b", LENGTH_MS - 1)).await, ReserveOutcome::Refused { .. });
    world.hold(&back("c", LENGTH_MS)).await;
    assert_eq!(members(&world), 2);
}

#[rstest]
#[tokio::test]
async fn what_was_held_before_a_loss_moves_nothing_in_the_log_made_since(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("before", 8)).await;
    world.lose_and_restore("before", START_MS + 1).await;
    assert_eq!(counts(&world, 1).await, (0, 0), "the log of another epoch is none");
    world.hold(&ask_for("since", 9).at(START_MS + 2)).await;
    done(world.consume_at(START_MS + 3, "before", total("9"), true).await);
    assert_eq!((counts(&world, 3).await, members(&world)), ((0, 9), 2), "neither its hold nor its excess");
}

#[rstest]
#[tokio::test]
async fn a_log_ends_by_itself_behind_its_newest_entry_and_a_read_makes_none(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    counts(&world, 0).await;
    assert_eq!(members(&world), 0);
    let of_a_day = sliding_log::Parameters { length_ms: DAY_MS, entries_max: 1_000 };
    let ask = ask_for("a", 4).under([Counter { parameters: Parameters::SlidingLog(of_a_day), ..log() }]);
    hold_by_redis_clock(&world, &ask).await;
    let left_ms = left_ms(&world);
    assert!((DAY_MS..DAY_MS + 2 * 3_600_000).contains(&left_ms), "{left_ms}");
}

#[rstest]
#[tokio::test]
async fn a_log_that_a_parked_consume_makes_ends_by_itself_too(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    hold_by_redis_clock(&world, &ask_for("a", 4).lasting(SECOND_MS)).await;
    let born_at_ms = world.record("a").await.unwrap().head.born_at_ms;
    assert_eq!(world.sweep(born_at_ms + 3 * SECOND_MS).await, 1);
    assert_eq!(members(&world), 0);
    let call = world.consume_call(born_at_ms + 1, "a", total("6"), true);
    done(world.gate.consume_parked(&call, false).await.unwrap());
    assert_eq!(members(&world), 2);
    let left_ms = left_ms(&world);
    assert!((1..2 * 3_600_000).contains(&left_ms), "{left_ms}");
}

#[rstest]
#[tokio::test]
async fn a_late_consume_is_counted_in_the_log_of_a_tenant_that_waited_for_a_new_counter(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 4).lasting(SECOND_MS)).await;
    assert_eq!(world.sweep(START_MS + 3 * SECOND_MS).await, 1);
    world.wait_for_ledger(START_MS + 4 * SECOND_MS).await;
    done(world.consume_at(START_MS + 5 * SECOND_MS, "a", total("6"), true).await);
    assert_eq!(counts(&world, 5 * SECOND_MS).await, (6, 0));
}

#[rstest]
#[tokio::test]
async fn work_that_comes_again_with_the_same_figures_counts_twice_each_as_long_as_its_own(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let used = |at_ms: i64| ask_for("a", 5).by(ReserveMode::Usage).at(START_MS + at_ms);
    for at_ms in [0, SECOND_MS] {
        world.hold(&used(at_ms)).await;
        world.server.command(&["DEL", &world.record_key("a")]);
    }
    assert_eq!(counts(&world, SECOND_MS).await, (10, 0));
    assert_eq!(counts(&world, LENGTH_MS).await, (5, 0));
    assert_eq!(counts(&world, LENGTH_MS + SECOND_MS).await, (0, 0));
    // The first has slid out, and the third is entered where it still stands.
    world.hold(&used(LENGTH_MS)).await;
    assert_eq!((counts(&world, LENGTH_MS).await, members(&world)), ((10, 0), 3));
    assert_eq!(counts(&world, 2 * LENGTH_MS - 1).await, (5, 0));
    assert_eq!(counts(&world, 2 * LENGTH_MS).await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn work_that_comes_again_within_a_millisecond_counts_as_often_as_it_came(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    for _ in 0..4 {
        world.hold(&ask_for("a", 2).by(ReserveMode::Usage)).await;
        world.server.command(&["DEL", &world.record_key("a")]);
    }
    assert_eq!((counts(&world, LENGTH_MS - 1).await, members(&world)), ((8, 0), 5));
    assert_eq!(counts(&world, LENGTH_MS).await, (0, 0), "none of it stays in the sums");
    world.hold(&ask_for("b", 10).at(START_MS + LENGTH_MS)).await;
    assert_eq!(members(&world), 2);
}

#[rstest]
#[tokio::test]
async fn an_entry_that_the_sums_do_not_know_of_stays_counted_when_the_others_are_gone(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 4)).await;
    world.hold(&ask_for("b", 3).at(START_MS + SECOND_MS)).await;
    let sums: Vec<Vec<u8>> =
        redis::from_redis_value(world.server.command(&["ZRANGE", &key(&world), "0", "0"])).unwrap();
    let with_one_entry = "redis.call('ZREM', KEYS[1], ARGV[1]) \
        redis.call('ZADD', KEYS[1], -1, ARGV[1]:sub(1, 40) .. struct.pack('<i8', 1) .. ARGV[1]:sub(49))";
    let mut command = redis::cmd("EVAL");
    command.arg(with_one_entry).arg(1).arg(key(&world)).arg(&sums[0]);
    command.exec(&mut world.server.connection()).unwrap();
    done(world.release_at(START_MS + 2 * SECOND_MS, "a", Totals::Default).await);
    assert_eq!((counts(&world, 2 * SECOND_MS).await, members(&world)), ((0, 3), 2));
    done(world.release_at(START_MS + 3 * SECOND_MS, "b", Totals::Default).await);
    assert_eq!((counts(&world, 3 * SECOND_MS).await, members(&world)), ((0, 0), 0));
}

#[rstest]
#[tokio::test]
async fn a_window_that_is_longer_than_all_time_takes_no_sums_for_an_entry(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let length_ms = 2 * START_MS;
    let log = Counter {
        parameters: Parameters::SlidingLog(sliding_log::Parameters { length_ms, entries_max: 10 }),
        ..log()
    };
    let ask = |key: &str, amount: i64| pages(key, amount).under([log.clone()]).by(ReserveMode::Usage);
    world.hold(&ask("a", 10)).await;
    assert_eq!(wait_ms(&world, &ask("b", 1)).await, Some(length_ms));
}

#[rstest]
#[tokio::test]
async fn where_holds_stand_in_the_way_of_a_log_the_next_end_is_the_earliest_that_can_help(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("used", 4).by(ReserveMode::Usage)).await;
    world.hold(&ask_for("held", 5).lasting(2_500)).await;
    assert_eq!(wait_ms(&world, &ask_for("asks", 5)).await, Some(2_500), "when the hold has ended");
    assert_eq!(wait_ms(&world, &ask_for("asks", 7)).await, Some(LENGTH_MS), "when what is used has slid out");
    assert_eq!(wait_ms(&world, &ask_for("asks", 11)).await, None);

    let full = World::warm(mode).await;
    full.hold(&pages("used", 1).under([log_of(2)]).by(ReserveMode::Usage)).await;
    full.hold(&pages("held", 1).under([log_of(2)]).lasting(2_500)).await;
    let next = pages("next", 1).under([log_of(2)]);
    assert_eq!(wait_ms(&full, &next).await, Some(2_500), "its entry is taken out when the hold ends");
}
