use rstest::rstest;
use tollgate::domain::counter::Counter;
use tollgate::domain::ids::{Epoch, OutboxId, Subject};
use tollgate::gate::{
    Cold, KnownSubjects, ReserveOutcome, ResolveOutcome, RestoreOutcome, RestorePage, RestoredCounter,
    SubjectFilter, WarmState,
};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

/// The window that began after the tenant's restore.
const LATER: (i64, i64) = (START_MS + 10, WINDOW.1);

fn of_user(name: &[u8; 8], window_start_ms: i64) -> Counter {
    from_ms(window_start_ms, of_subject(1, kept(limit(name, 10))))
}

/// One page of this user, under these counters.
fn page_of(key: &str, subject: &Subject, checks: Vec<Counter>) -> Ask {
    let now_ms = checks.iter().map(|check| check.window().unwrap().start_ms).fold(START_MS, i64::max);
    pages(key, 1).of(subject).under(checks).at(now_ms)
}

fn known(world: &World, subjects: &[Subject]) -> WarmState {
    let hashes: Vec<_> = subjects.iter().map(|subject| world.hash(subject)).collect();
    let filter = SubjectFilter::of(&hashes);
    let subjects = KnownSubjects::Some { filter, until_ms: WINDOW.1 };
    WarmState { subjects, ..WarmState::default() }
}

fn counter(name: &[u8; 8], window_start_ms: i64, consumed: i64, reserved: i64) -> RestoredCounter {
    RestoredCounter { window_start_ms, ..restored_counter(name, consumed, reserved) }
}

async fn tell(world: &World, subject: &Subject, counters: Vec<RestoredCounter>) -> RestoreOutcome {
    world.tell_subject(subject, WarmState { counters, ..WarmState::default() }).await
}

/// What the reserve counted before this call: consumed and reserved.
async fn counted(world: &World, ask: &Ask) -> Vec<(i64, i64)> {
    let readings = admitted(world.reserve(ask).await);
    readings.iter().map(|reading| (reading.consumed.get(), reading.reserved.get())).collect()
}

async fn is_cold(world: &World, ask: &Ask) -> bool {
    match world.reserve(ask).await {
        ReserveOutcome::Cold(Cold { tenant: false, holders, counters, .. }) => {
            assert_eq!((holders, counters), (vec![1], vec![]));
            true
        }
        _ => false,
    }
}

#[rstest]
#[tokio::test]
async fn of_a_new_subject_of_a_warm_tenant_nobody_is_asked(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    let checks = || vec![of_user(b"day-----", WINDOW.0)];
    for held in 1..=10 {
        let counted = counted(&world, &page_of(&format!("{held}"), &user("ada"), checks())).await;
        assert_eq!(counted, [(0, held)]);
    }
    assert_matches!(
        world.reserve(&page_of("above", &user("ada"), checks())).await,
        ReserveOutcome::Refused { .. }
    );
    assert_eq!(counted(&world, &page_of("ben", &user("ben"), checks())).await, [(0, 1)]);
    let both = page_of("both", &user("ben"), vec![of_user(b"day-----", WINDOW.0), of_user(b"month---", 0)]);
    assert_eq!(counted(&world, &both).await, [(0, 2), (0, 1)], "another counter of the same subject");
    world.consume("both", total("1"), true).await;
    let after = page_of("after", &user("ben"), vec![of_user(b"day-----", WINDOW.0)]);
    assert_eq!(counted(&world, &after).await, [(1, 2)]);
}

#[rstest]
#[tokio::test]
async fn a_subject_that_had_use_before_the_restore_is_asked_for_and_no_other(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let had_use: Vec<_> = (0..40).map(|number| user(&format!("user-{number}"))).collect();
    world.warm_up(known(&world, &had_use)).await;
    let today = || vec![of_user(b"day-----", WINDOW.0)];
    for subject in &had_use {
        assert!(is_cold(&world, &page_of("a", subject, today())).await, "{subject:?}");
    }
    let mut asked = 0;
    for number in 0..200 {
        let ask = page_of(&format!("new-{number}"), &user(&format!("new-{number}")), today());
        asked += usize::from(is_cold(&world, &ask).await);
    }
    assert!(asked < 20, "{asked} of 200 new subjects were asked for");
    let told = tell(&world, &had_use[0], vec![counter(b"day-----", WINDOW.0, 9, 0)]).await;
    assert_eq!(told, RestoreOutcome::Done);
    assert_eq!(counted(&world, &page_of("a", &had_use[0], today())).await, [(9, 1)]);
    let again = tell(&world, &had_use[0], vec![counter(b"day-----", WINDOW.0, 9, 0)]).await;
    assert_eq!(again, RestoreOutcome::AlreadyWarm, "what was held since is not told away");
}

#[rstest]
#[tokio::test]
async fn without_a_filter_every_subject_is_asked_for(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    world.warm_up(known(&world, &[user("ada")])).await;
    let ask = |key: &str, id: &str| page_of(key, &user(id), vec![of_user(b"day-----", WINDOW.0)]);
    assert!(!is_cold(&world, &ask("a", "ben")).await);
    world.server.command(&["DEL", &world.key(&format!("known:{}", world.tenant))]);
    assert!(is_cold(&world, &ask("b", "cleo")).await);
    let world = World::cold(mode).await;
    world.warm_up(WarmState { subjects: KnownSubjects::Everybody, ..WarmState::default() }).await;
    assert!(is_cold(&world, &ask("c", "ben")).await);
}

#[rstest]
#[tokio::test]
async fn in_a_window_that_began_since_the_restore_a_subject_starts_at_zero_and_older_ones_are_told_beside_it(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let ada = user("ada");
    world.warm_up(known(&world, std::slice::from_ref(&ada))).await;
    let hour = || of_user(b"hour----", LATER.0);
    let month = || of_user(b"month---", WINDOW.0);
    assert_eq!(counted(&world, &page_of("a", &ada, vec![hour()])).await, [(0, 1)]);
    assert!(is_cold(&world, &page_of("b", &ada, vec![hour(), month()])).await);
    // The booked figures, read before the hold above was made.
    let told = vec![counter(b"hour----", LATER.0, 0, 0), counter(b"month---", WINDOW.0, 4, 2)];
    assert_eq!(tell(&world, &ada, told).await, RestoreOutcome::Done);
    assert_eq!(counted(&world, &page_of("b", &ada, vec![hour(), month()])).await, [(0, 2), (4, 3)]);
}

#[rstest]
#[tokio::test]
async fn a_counter_made_since_the_restore_is_asked_for(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    let ada = user("ada");
    let made = || Counter { since_ms: START_MS + 1, ..of_user(b"made----", WINDOW.0) };
    assert!(is_cold(&world, &page_of("a", &ada, vec![made()])).await, "no hash yet");
    world.hold(&page_of("b", &ada, vec![of_user(b"day-----", WINDOW.0)])).await;
    assert!(is_cold(&world, &page_of("a", &ada, vec![made()])).await, "a hash without it");
    tell(&world, &ada, vec![counter(b"made----", WINDOW.0, 3, 0), counter(b"day-----", WINDOW.0, 8, 8)])
        .await;
    let both = page_of("a", &ada, vec![made(), of_user(b"day-----", WINDOW.0)]);
    assert_eq!(counted(&world, &both).await, [(3, 1), (0, 2)], "what was counted stays");
}

#[rstest]
#[tokio::test]
async fn a_subjects_hash_of_another_epoch_is_replaced_whole(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ada = user("ada");
    let checks = || vec![of_user(b"day-----", WINDOW.0), of_user(b"month---", WINDOW.0)];
    world.hold(&page_of("a", &ada, checks())).await;
    world.adopt(2).await;
    world.warm_up(WarmState::default()).await;
    assert_eq!(counted(&world, &page_of("b", &ada, vec![of_user(b"day-----", WINDOW.0)])).await, [(0, 1)]);
    assert_eq!(counted(&world, &page_of("c", &ada, checks())).await, [(0, 2), (0, 1)]);
}

#[rstest]
#[tokio::test]
async fn what_was_held_before_the_restore_ends_only_once_its_subject_is_told(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ada = user("ada");
    let day = || vec![of_user(b"day-----", WINDOW.0)];
    for key in ["a", "b", "c"] {
        world.hold(&page_of(key, &ada, day())).await;
    }
    let mut records = Vec::new();
    for key in ["a", "b", "c"] {
        records.push((world.id(key), world.record(key).await.unwrap()));
    }
    world.adopt(2).await;
    let restored_ms = START_MS + 5;
    let page = world.page(&records, Some(known(&world, std::slice::from_ref(&ada))));
    world.gate.restore_page(&RestorePage { now_ms: Some(restored_ms), ..page }).await.unwrap();
    let cold = world.consume_at(restored_ms, "a", total("1"), true).await;
    let ResolveOutcome::Cold(cold) = cold else { panic!("{cold:?}") };
    assert_eq!(cold.subjects, [(ada.clone(), world.hash(&ada))]);
    assert!(!cold.tenant_cold);
    assert_eq!(world.sweep(DUE_MS).await, 0, "it waits for its subject");
    // A hold of a newer window does not make the subject known.
    let newer = page_of("d", &ada, vec![of_user(b"hour----", LATER.0)]);
    world.hold(&newer).await;
    assert_matches!(world.consume("a", total("1"), true).await, ResolveOutcome::Cold(_));
    tell(&world, &ada, vec![counter(b"day-----", WINDOW.0, 0, 3)]).await;
    assert_matches!(world.consume("a", total("1"), true).await, ResolveOutcome::Done { .. });
    let after = page_of("e", &ada, day());
    assert_eq!(counted(&world, &after).await, [(1, 3)]);
}

/// By a clock that is stopped, as a test clock may be, a hold and the restore after it may have one time.
#[rstest]
#[tokio::test]
async fn what_was_made_at_the_very_time_of_the_restore_is_asked_for_too(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask = page_of("a", &user("ada"), vec![of_user(b"hour----", WINDOW.0)]);
    world.hold(&ask).await;
    let records = [(world.id("a"), world.record("a").await.unwrap())];
    world.adopt(2).await;
    let page = world.page(&records, Some(known(&world, &[user("ada")])));
    world.gate.restore_page(&page).await.unwrap();
    let outcome = world.consume("a", total("1"), true).await;
    let ResolveOutcome::Cold(cold) = outcome else { panic!("{outcome:?}") };
    assert_eq!((cold.tenant_cold, cold.subjects.len()), (false, 1));
    let of_now = page_of("b", &user("ada"), vec![of_user(b"now-----", START_MS)]);
    assert!(is_cold(&world, &of_now).await, "its window began at that time");
}

#[rstest]
#[tokio::test]
async fn a_subject_is_told_of_a_warm_tenant_in_its_epoch_only(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    assert_eq!(tell(&world, &user("ada"), vec![]).await, RestoreOutcome::StillCold);
    let asked = world.reserve(&page_of("a", &user("ada"), vec![of_user(b"day-----", WINDOW.0)])).await;
    let (epoch, last_id, nobody) = (Epoch(1), OutboxId::default(), Vec::new());
    let tenant_first =
        Cold { epoch, last_id, tenant: true, holders: nobody, counters: vec![], only_bounds: false };
    assert_eq!(cold(asked), tenant_first, "it says who is to be asked for");
}

#[rstest]
#[tokio::test]
async fn a_hash_that_a_script_made_counts_as_warm_only_once_the_ledger_has_told_it(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ada = user("ada");
    world.hold(&page_of("a", &ada, vec![of_user(b"hour----", LATER.0)])).await;
    let asked =
        [(world.partition, &world.tenant, Some(world.hash(&ada))), (world.partition, &world.tenant, None)];
    assert_eq!(world.gate.are_warm(&asked).await.unwrap(), [false, true]);
    assert_eq!(tell(&world, &ada, vec![counter(b"hour----", LATER.0, 0, 0)]).await, RestoreOutcome::Done);
    assert_eq!(world.gate.are_warm(&asked).await.unwrap(), [true, true]);
}
