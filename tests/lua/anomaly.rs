//! How often subjects call: the script decides and learns as the pure transition does, and only from admitted calls.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rstest::rstest;
use tollgate::domain::algorithms::cell::{Cell, Moment};
use tollgate::domain::algorithms::{Parameters, anomaly};
use tollgate::domain::counter::Counter;
use tollgate::domain::limit::Kind;
use tollgate::gate::{ReserveMode, ReserveOutcome, Totals, WarmState};

use crate::gate::server::{Mode, Server};
use crate::gate::world::*;
use crate::support::matching::assert_matches;

const FIELD: &[u8; 8] = b"anomaly-";
/// How many sequences are tried for each kind.
const CASES: u32 = 30;

fn bounds(marks_from: i64, refuses_from: i64) -> anomaly::Parameters {
    anomaly::Parameters { min_samples: 3, marks_from, refuses_from }
}

fn judging(bounds: anomaly::Parameters) -> Counter {
    of_subject(1, Counter { parameters: Parameters::Anomaly(bounds), ..limit(FIELD, 1) })
}

/// A call of Ada, of as many pages as she likes.
fn call(key: &str, counter: &Counter) -> Ask {
    pages(key, 7).of(&user("ada")).under([counter.clone()])
}

/// What the gate keeps of Ada.
fn kept(world: &World) -> Option<Vec<u8>> {
    let key = format!("{}:{}", world.state_key(), world.hash(&user("ada")).as_str());
    let field = std::str::from_utf8(FIELD).unwrap();
    redis::from_redis_value(world.server.command(&["HGET", &key, field])).unwrap()
}

/// Has Ada call ten times, a second apart, and then at once until she is refused. Returns when that was, and how long
/// she has to wait.
async fn until_refused(world: &World, counter: &Counter) -> (i64, i64) {
    let mut now_ms = START_MS;
    for number in 0..10 {
        now_ms = START_MS + 1_000 * number;
        world.hold(&call(&format!("steady {number}"), counter).at(now_ms)).await;
    }
    for number in 0..100 {
        match world.reserve(&call(&format!("hasty {number}"), counter).at(now_ms)).await {
            ReserveOutcome::Refused { refusing, .. } => return (now_ms, refusing[0].1.unwrap()),
            outcome => assert_matches!(outcome, ReserveOutcome::Admitted { .. }),
        }
    }
    panic!("never refused")
}

/// Calls so long after one another, and how each is made.
fn calls() -> impl Strategy<Value = Vec<(i64, ReserveMode)>> {
    let after = prop_oneof![3 => 0..30_i64, 4 => 800..1_200_i64, 1 => 0..30_000_i64, 1 => Just(-50_i64)];
    let mode = prop_oneof![
        4 => Just(ReserveMode::AllOrNothing),
        2 => Just(ReserveMode::Usage),
        1 => Just(ReserveMode::BestEffort),
        1 => Just(ReserveMode::DryRun),
    ];
    prop::collection::vec((after, mode), 20..80)
}

async fn calls_as_the_model(world: &World, counter: &Counter, calls: &[(i64, ReserveMode)]) {
    let (mut cell, mut now_ms): (Option<Cell>, _) = (None, START_MS);
    for (step, (after_ms, mode)) in calls.iter().enumerate() {
        now_ms += after_ms;
        let mut loaded = counter.parameters.load(cell.as_ref(), Moment::new_work(now_ms));
        let lacks_room = counter.parameters.room_for_new_work(&loaded, counter.capacity.get()) == 0;
        let is_refused = lacks_room && counter.kind == Kind::Hard;
        let outcome = world.reserve(&call(&step.to_string(), counter).by(*mode).at(now_ms)).await;
        let readings = match (outcome, is_refused) {
            (ReserveOutcome::Refused { readings, refusing, .. }, true) => {
                let usual_ms =
                    loaded.cell.own[2].div_euclid(1_000) + i64::from(loaded.cell.own[2] % 1_000 > 0);
                assert_eq!(refusing, [(0, Some(usual_ms))], "step {step}");
                readings
            }
            (ReserveOutcome::Allowed { readings, .. }, false) => readings,
            (ReserveOutcome::Admitted { readings, .. }, false) => {
                if !lacks_room {
                    counter.parameters.charge(&mut loaded, 7);
                    cell = Some(loaded.cell.clone());
                }
                readings
            }
            (outcome, _) => panic!("step {step}: {outcome:?}"),
        };
        assert_eq!(readings[0].consumed.get(), loaded.cell.consumed, "step {step}");
        assert_eq!(readings[0].would_refuse, lacks_room && counter.kind == Kind::Shadow, "step {step}");
        assert_eq!(kept(world), cell.as_ref().map(Cell::encode), "step {step}: {cell:?}");
        assert!(kept(world).is_none_or(|kept| kept.len() == 64));
    }
}

#[test]
fn calls_are_judged_and_remembered_to_the_byte_as_the_pure_transition_says() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::own();
    for (kind, bounds) in [
        (Kind::Hard, bounds(2_000, 3_000)),
        (Kind::Hard, bounds(500, 700)),
        (Kind::Shadow, bounds(500, 700)),
        (Kind::Soft, bounds(500, 0)),
    ] {
        let counter = Counter { kind, ..judging(bounds) };
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let run = TestRunner::new(config).run(&calls(), |calls| {
            runtime.block_on(async {
                server.empty();
                let world = World::over(std::sync::Arc::clone(&server)).await;
                world.warm_up(WarmState::default()).await;
                calls_as_the_model(&world, &counter, &calls).await;
            });
            Ok(())
        });
        run.unwrap_or_else(|failure| panic!("{kind:?}: {failure}"));
    }
}

#[rstest]
#[tokio::test]
async fn who_is_refused_gets_in_after_the_usual_time_and_the_refusal_leaves_no_trace(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let counter = judging(bounds(2_000, 3_000));
    let (now_ms, wait_ms) = until_refused(&world, &counter).await;
    assert!((800..1_100).contains(&wait_ms), "{wait_ms}");
    let before = kept(&world);
    assert!(before.is_some());
    for number in 0..5 {
        let again = call(&format!("again {number}"), &counter).at(now_ms + number);
        assert_matches!(world.reserve(&again).await, ReserveOutcome::Refused { .. });
    }
    assert_eq!(kept(&world), before);
    world.hold(&call("patient", &counter).at(now_ms + wait_ms)).await;
}

#[tokio::test]
async fn who_was_only_watched_before_gets_in_after_the_usual_time_too() {
    let world = World::warm(Mode::Alone).await;
    let (watching, throttling) = (judging(bounds(2_000, 0)), judging(bounds(2_000, 3_000)));
    for number in 0..10 {
        world.hold(&call(&format!("steady {number}"), &watching).at(START_MS + 1_000 * number)).await;
    }
    let mut now_ms = START_MS + 9_000;
    for number in 0..100 {
        world.hold(&call(&format!("hasty {number}"), &watching).at(now_ms)).await;
    }
    for number in 0..5 {
        let refused = world.reserve(&call(&format!("throttled {number}"), &throttling).at(now_ms)).await;
        let ReserveOutcome::Refused { refusing, .. } = refused else { panic!("{number}: {refused:?}") };
        now_ms += refusing[0].1.unwrap();
        world.hold(&call(&format!("patient {number}"), &throttling).at(now_ms)).await;
    }
}

#[tokio::test]
async fn repeats_dry_runs_ends_of_work_and_what_another_limit_refuses_teach_nothing() {
    let world = World::warm(Mode::Alone).await;
    let counter = judging(bounds(2_000, 3_000));
    let held = call("held", &counter);
    world.hold(&held).await;
    world.hold(&call("next", &counter).at(START_MS + 1_000)).await;
    let before = kept(&world);
    assert!(before.is_some());
    let later_ms = START_MS + 1_500;
    assert_matches!(world.reserve(&held.clone().at(later_ms)).await, ReserveOutcome::Replayed { .. });
    for mode in [ReserveMode::DryRun, ReserveMode::DryUsage, ReserveMode::DryBestEffort] {
        let dry = call(&format!("{mode:?}"), &counter).by(mode).at(later_ms);
        assert_matches!(world.reserve(&dry).await, ReserveOutcome::Allowed { .. });
    }
    let full = pages("full", 7).of(&user("ada")).under([counter.clone(), limit(b"strict--", 1)]).at(later_ms);
    assert_eq!(refusing(world.reserve(&full).await), [1]);
    done(world.consume_at(later_ms, "held", total("9"), true).await);
    done(world.release_at(later_ms, "next", Totals::Default).await);
    assert_eq!(kept(&world), before);
}

#[tokio::test]
async fn each_subject_is_judged_by_itself() {
    let world = World::warm(Mode::Alone).await;
    let counter = judging(bounds(2_000, 3_000));
    let (now_ms, _) = until_refused(&world, &counter).await;
    for number in 0..20 {
        let of_ben = pages(&format!("ben {number}"), 1).of(&user("ben")).under([counter.clone()]).at(now_ms);
        world.hold(&of_ben).await;
    }
}

#[tokio::test]
async fn other_bounds_judge_by_what_is_known_already() {
    let world = World::warm(Mode::Alone).await;
    let (now_ms, _) = until_refused(&world, &judging(bounds(2_000, 3_000))).await;
    world.hold(&call("lenient", &judging(bounds(50_000, 50_000))).at(now_ms)).await;
    let strict = call("strict", &judging(bounds(100, 100))).at(now_ms + 500);
    assert_matches!(world.reserve(&strict).await, ReserveOutcome::Refused { .. });
}

#[tokio::test]
async fn after_a_loss_of_memory_a_subject_is_new() {
    let world = World::warm(Mode::Alone).await;
    let counter = judging(bounds(2_000, 3_000));
    let (now_ms, _) = until_refused(&world, &counter).await;
    world.lose_and_restore("steady 9", now_ms).await;
    for number in 0..20 {
        world.hold(&call(&format!("new {number}"), &counter).at(now_ms)).await;
    }
}
