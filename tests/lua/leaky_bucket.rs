//! Counters by a queue, where work has to wait, is given up, comes again, or meets a clock that went back and a loss.

use rstest::rstest;
use tollgate::domain::algorithms::bucket::Drain;
use tollgate::domain::algorithms::{Parameters, leaky_bucket};
use tollgate::domain::counter::Counter;
use tollgate::domain::limit::Kind;
use tollgate::gate::{ReserveCall, ReserveMode, ReserveOutcome, Totals};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

const SECOND_MS: i64 = 1_000;

/// Ten pages, of which one drains each second; nobody waits for longer than five seconds.
fn queue() -> Counter {
    let drain = Drain { units: 1, per_ms: SECOND_MS };
    let parameters = Parameters::LeakyBucket(leaky_bucket::Parameters { drain, max_wait_ms: 5 * SECOND_MS });
    Counter { parameters, ..limit(b"queue---", 10) }
}

fn ask_for(key: &str, amount: i64) -> Ask {
    pages(key, amount).under([queue()]).lasting(500_000)
}

/// How long the work has to wait that is admitted so.
async fn delay(world: &World, ask: &Ask) -> i64 {
    match world.reserve(ask).await {
        ReserveOutcome::Admitted { start_after_ms, .. } | ReserveOutcome::Allowed { start_after_ms, .. } => {
            start_after_ms
        }
        ReserveOutcome::Replayed { record, .. } => record.head.start_after_ms,
        other => panic!("{other:?}"),
    }
}

/// How long such work has to wait before it is admitted.
async fn wait(world: &World, ask: &Ask) -> Option<i64> {
    let ReserveOutcome::Refused { refusing, .. } = world.reserve(ask).await else { panic!("not refused") };
    refusing[0].1
}

#[rstest]
#[tokio::test]
async fn work_starts_when_what_stands_before_it_has_drained_and_a_repeat_is_told_the_same(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    assert_eq!(delay(&world, &ask_for("first", 4)).await, 0);
    let second = ask_for("second", 3);
    assert_eq!(delay(&world, &second.clone().by(ReserveMode::DryRun)).await, 4 * SECOND_MS);
    assert_eq!(delay(&world, &second).await, 4 * SECOND_MS);
    let later = second.at(START_MS + 1_500);
    assert_eq!(delay(&world, &later).await, 4 * SECOND_MS, "as it was told first");
    assert_eq!(delay(&world, &ask_for("third", 1).at(START_MS + 2_500)).await, 4_500);
    for is_final in [false, true] {
        done(world.consume("second", total("2"), is_final).await);
        assert_eq!(delay(&world, &later).await, 4 * SECOND_MS);
    }
    let told: Vec<_> = world.events().await.iter().map(|event| event.head().start_after_ms).collect();
    assert_eq!(told, [0, 4_000, 4_500, 4_000, 4_000]);
}

#[rstest]
#[tokio::test]
async fn whoever_would_have_to_wait_for_too_long_is_refused_until_that_is_over(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("first", 7)).await;
    let reading = world.reading_at(START_MS, &queue()).await;
    assert_eq!((reading.consumed, reading.room), (units(7), Some(0)));
    assert_eq!(wait(&world, &ask_for("next", 1)).await, Some(2 * SECOND_MS));
    assert_eq!(wait(&world, &ask_for("next", 10)).await, Some(7 * SECOND_MS));
    assert_eq!(wait(&world, &ask_for("next", 11)).await, None);
    let next = ask_for("next", 1);
    assert_eq!(wait(&world, &next.clone().at(START_MS + 1_999)).await, Some(1));
    assert_eq!(delay(&world, &next.at(START_MS + 2_000)).await, 5 * SECOND_MS);
}

#[rstest]
#[tokio::test]
async fn nothing_comes_back_and_what_is_used_beyond_a_hold_is_put_in(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("released", 2)).await;
    world.hold(&ask_for("expired", 2)).await;
    world.hold(&ask_for("used", 1)).await;
    done(world.release("released", Totals::Default).await);
    done(world.consume("used", total("4"), true).await);
    let reading = world.reading_at(START_MS, &queue()).await;
    assert_eq!((reading.consumed, reading.reserved), (units(8), units(2)));
    assert_eq!(reading.resets_at_ms, Some(START_MS + 8 * SECOND_MS));
    assert_eq!(world.sweep(START_MS + 600_000).await, 1);
    let reading = world.reading_at(START_MS + 600_000, &queue()).await;
    assert_eq!((reading.consumed, reading.reserved, reading.room), (units(0), units(0), Some(10)));
}

#[rstest]
#[tokio::test]
async fn a_queue_takes_work_of_a_clock_that_went_back_and_not_that_of_one_that_had_leapt_ahead(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 4)).await;
    assert_eq!(delay(&world, &ask_for("b", 1).at(START_MS - 500)).await, 4_500);
    done(world.consume_at(START_MS - 400, "b", total("2"), true).await);
    let reading = world.reading_at(START_MS, &queue()).await;
    assert_eq!(
        (reading.consumed, reading.reserved),
        (units(6), units(4)),
        "it is counted where it was put in"
    );
    assert_eq!(delay(&world, &ask_for("c", 1).at(START_MS - 6_001)).await, 0);
}

#[rstest]
#[tokio::test]
async fn what_was_held_before_a_loss_moves_nothing_in_the_queue_made_since(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("before", 4)).await;
    world.hold(&ask_for("waits", 1)).await;
    world.lose_and_restore("waits", START_MS + 1).await;
    world.hold(&ask_for("since", 3).at(START_MS + 2)).await;
    assert_eq!(
        delay(&world, &ask_for("waits", 1).at(START_MS + 2)).await,
        4 * SECOND_MS,
        "told by the ledger"
    );
    done(world.consume_at(START_MS + 2, "waits", total("9"), true).await);
    let reading = world.reading_at(START_MS + 2, &queue()).await;
    assert_eq!((reading.consumed, reading.reserved), (units(3), units(3)));
    assert_matches!(
        world.reserve(&ask_for("later", 8).at(START_MS + 2)).await,
        ReserveOutcome::Refused { .. }
    );
}

#[tokio::test]
async fn a_subjects_queue_that_refuses_nothing_is_kept_until_it_has_drained() {
    let (world, ada) = (World::warm(Mode::Alone).await, user("ada"));
    let soft = of_subject(1, Counter { kind: Kind::Soft, ..queue() });
    let ask = Ask { valid: (0, i64::MAX), ..ask_for("a", 86_400).of(&ada).under([soft]) };
    let body = world.body(&ask);
    let call = ReserveCall { now_ms: None, subject_windows_end_ms: 0, ..world.reserve_call(&ask, &body) };
    assert_matches!(world.gate.reserve(&call).await.unwrap(), ReserveOutcome::Admitted { .. });
    let key = world.key(&format!("state:{}:{}", world.tenant, world.hash(&ada).as_str()));
    let lives_ms: i64 = redis::from_redis_value(world.server.command(&["PTTL", &key])).unwrap();
    assert!(lives_ms > 86_400_000, "{lives_ms}");
}
