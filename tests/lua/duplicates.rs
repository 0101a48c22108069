//! The guard against the same work twice: what is a duplicate, of which reservation, and for how long.

use std::sync::Arc;

use rstest::rstest;
use tollgate::domain::guard::GuardSeconds;
use tollgate::domain::ids::{OperationId, Subject};
use tollgate::gate::{GuardedWork, ReserveCall, ReserveMode, ReserveOutcome, Totals};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

const WITHIN_MS: i64 = 5_000;

/// A payload sent by these subjects under this operation.
pub(super) fn work(world: &World, operation: &str, subjects: &[Subject], payload: &str) -> GuardedWork {
    let hashes: Vec<_> = subjects.iter().map(|subject| world.hash(subject)).collect();
    let operation = OperationId::parse(operation).unwrap();
    let within = GuardSeconds::try_from(5).unwrap();
    world.gate.guarded_work(&world.tenant, &operation, hashes.iter(), payload, within)
}

async fn submit_work(world: &World, ask: &Ask, work: GuardedWork) -> ReserveOutcome {
    let body = world.body(ask);
    let call = ReserveCall { work: Some(&work), ..world.reserve_call(ask, &body) };
    world.gate.reserve(&call).await.unwrap()
}

/// The same payload each time.
async fn submit(world: &World, ask: &Ask) -> ReserveOutcome {
    submit_work(world, ask, work(world, "scan", &[], "payload")).await
}

fn of_day(key: &str) -> Ask {
    pages(key, 3).under([day(10)]).lasting(500_000)
}

async fn is_admitted(world: &World, ask: &Ask) -> bool {
    match submit(world, ask).await {
        ReserveOutcome::Admitted { .. } | ReserveOutcome::Allowed { .. } => true,
        ReserveOutcome::Duplicate { .. } => false,
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[tokio::test]
async fn the_same_work_names_the_first_reservation_until_the_time_is_over(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    assert!(is_admitted(&world, &of_day("first")).await);
    let before = (world.day().await, world.events().await.len());
    let again = submit(&world, &of_day("second").at(START_MS + WITHIN_MS - 1)).await;
    assert_eq!(again, ReserveOutcome::Duplicate { first: world.id("first") });
    assert_eq!((world.day().await, world.events().await.len()), before, "nothing is written");
    assert_eq!(world.record("second").await, None);
    assert!(is_admitted(&world, &of_day("second").at(START_MS + WITHIN_MS)).await);
    let third = submit(&world, &of_day("third").at(START_MS + WITHIN_MS + 1)).await;
    assert_eq!(third, ReserveOutcome::Duplicate { first: world.id("second") });
}

#[tokio::test]
async fn a_repeat_of_the_same_call_is_a_replay_and_a_duplicate_comes_before_any_limit() {
    let world = World::warm(Mode::Alone).await;
    assert!(is_admitted(&world, &of_day("first")).await);
    assert_matches!(submit(&world, &of_day("first")).await, ReserveOutcome::Replayed { .. });
    let much = pages("second", 11).under([day(10)]);
    assert_matches!(submit(&world, &much).await, ReserveOutcome::Duplicate { .. });
    assert_matches!(
        submit(&world, &much.clone().by(ReserveMode::DryRun)).await,
        ReserveOutcome::Duplicate { .. }
    );
    assert_matches!(submit(&world, &much.by(ReserveMode::Usage)).await, ReserveOutcome::Duplicate { .. });
}

#[tokio::test]
async fn other_work_is_no_duplicate() {
    let world = World::warm(Mode::Alone).await;
    let (ada, ben) = (user("ada"), user("ben"));
    let all = [
        work(&world, "scan", &[], "payload"),
        work(&world, "scan", &[], "other"),
        work(&world, "print", &[], "payload"),
        work(&world, "scan", std::slice::from_ref(&ada), "payload"),
        work(&world, "scan", std::slice::from_ref(&ben), "payload"),
        work(&world, "scan", &[ada.clone(), ben.clone()], "payload"),
    ];
    for (number, work) in all.into_iter().enumerate() {
        let ask = pages(&number.to_string(), 1).under([day(100)]);
        assert_matches!(submit_work(&world, &ask, work).await, ReserveOutcome::Admitted { .. });
    }
    let turned = work(&world, "scan", &[ben, ada], "payload");
    let again = submit_work(&world, &pages("turned", 1), turned).await;
    assert_eq!(
        again,
        ReserveOutcome::Duplicate { first: world.id("5") },
        "the same subjects in another order"
    );
}

#[tokio::test]
async fn work_that_was_given_up_may_come_again_and_work_that_was_done_may_not() {
    for (given_up, is_admitted_again) in
        [("released", true), ("expired", true), ("swept", true), ("used", false)]
    {
        let world = World::warm(Mode::Alone).await;
        assert!(is_admitted(&world, &of_day("first").lasting(1_000)).await);
        let now_ms = START_MS + 2_000;
        match given_up {
            "released" => drop(done(world.release("first", Totals::Default).await)),
            "used" => drop(done(world.consume("first", total("1"), true).await)),
            "swept" => assert_eq!(world.sweep(now_ms).await, 1),
            _ => {}
        }
        assert_eq!(is_admitted(&world, &of_day("second").at(now_ms)).await, is_admitted_again, "{given_up}");
    }
}

#[tokio::test]
async fn what_was_refused_or_only_asked_for_is_not_remembered() {
    let world = World::warm(Mode::Alone).await;
    let much = pages("much", 11).under([day(10)]);
    assert_matches!(submit(&world, &much).await, ReserveOutcome::Refused { .. });
    assert!(is_admitted(&world, &of_day("looks").by(ReserveMode::DryRun)).await);
    assert!(is_admitted(&world, &of_day("first")).await);
}

#[tokio::test]
async fn by_a_clock_that_went_back_by_more_than_the_time_nothing_is_a_duplicate() {
    let world = World::warm(Mode::Alone).await;
    assert!(is_admitted(&world, &of_day("first")).await);
    assert!(!is_admitted(&world, &of_day("second").at(START_MS - WITHIN_MS + 1)).await);
    assert!(is_admitted(&world, &of_day("second").at(START_MS - WITHIN_MS)).await);
}

#[tokio::test]
async fn what_an_ended_epoch_remembers_is_forgotten() {
    let world = World::warm(Mode::Alone).await;
    assert!(is_admitted(&world, &of_day("first")).await);
    world.lose_and_restore("first", START_MS + 1).await;
    assert!(is_admitted(&world, &of_day("second").at(START_MS + 2)).await);
}

#[tokio::test]
async fn of_many_submissions_at_once_one_is_admitted_and_all_others_name_it() {
    let world = Arc::new(World::warm(Mode::Alone).await);
    let submitting = (0..64).map(|caller| {
        let world = world.clone();
        tokio::spawn(async move {
            let key = caller.to_string();
            match submit(&world, &pages(&key, 1).under([day(100)])).await {
                ReserveOutcome::Admitted { .. } => (true, world.id(&key)),
                ReserveOutcome::Duplicate { first } => (false, first),
                other => panic!("{other:?}"),
            }
        })
    });
    let told: Vec<_> = futures::future::join_all(submitting).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(told.iter().filter(|(is_admitted, _)| *is_admitted).count(), 1);
    assert!(told.iter().all(|(_, id)| *id == told[0].1));
}

#[tokio::test]
async fn by_the_clock_of_redis_a_submission_is_forgotten_with_its_time() {
    let world = World::warm(Mode::Alone).await;
    let ask = Ask { valid: (0, i64::MAX), ..pages("first", 1).under([]) };
    let (body, guarded) = (world.body(&ask), work(&world, "scan", &[], "payload"));
    let call = ReserveCall { work: Some(&guarded), now_ms: None, ..world.reserve_call(&ask, &body) };
    assert_matches!(world.gate.reserve(&call).await.unwrap(), ReserveOutcome::Admitted { .. });
    let key = world.key(&format!("work:{}:{}", world.tenant, guarded.hash.as_str()));
    let lives_ms: i64 = redis::from_redis_value(world.server.command(&["PTTL", &key])).unwrap();
    assert!((1..=WITHIN_MS).contains(&lives_ms), "{lives_ms}");
}
