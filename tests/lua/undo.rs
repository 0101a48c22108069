use rstest::rstest;
use tollgate::domain::event::Change;
use tollgate::domain::ids::{Epoch, OutboxId};
use tollgate::domain::reservation::{Record, ReservationState};
use tollgate::gate::{
    CounterCheck, ReserveMode, ReserveOutcome, ResolveOutcome, UndoCall, UndoOutcome, WarmState,
};

use crate::gate::server::Mode;
use crate::gate::world::*;

fn counter() -> CounterCheck {
    limit(b"day-----", 100)
}

fn job(mode: ReserveMode) -> Ask {
    Ask { mode, ..ask("job", vec![line("ocr.page", 6)], vec![counter()]) }
}

/// The job's first life, as the ledger has it: reserved, and resolved by `resolve`; the gate then forgets it.
async fn first_life(world: &World, resolve: impl AsyncFnOnce(&World)) -> Record {
    world.hold(&Ask { now_ms: START_MS - 5_000, ..job(ReserveMode::AllOrNothing) }).await;
    let whole = world.record("job").await.unwrap();
    resolve(world).await;
    let now = world.record("job").await.unwrap();
    world.server.command(&["DEL", &world.key(&format!("rsv:{}", world.id("job").to_hex()))]);
    Record { head: now.head, units: now.units, body: whole.body }
}

/// The place and record of the latest reserve or usage in the outbox.
async fn latest_begin(world: &World) -> (OutboxId, Record) {
    let begins = world.events().await.into_iter().filter_map(|event| match event.change {
        Change::Reserve(record) | Change::Usage(record) => Some((event.outbox_id, record)),
        _ => None,
    });
    begins.last().unwrap()
}

pub(super) async fn undo(world: &World, begin: &(OutboxId, Record), booked: &Record) -> UndoOutcome {
    let (place, again) = (begin.0, &begin.1);
    let call = UndoCall { id: world.id("job"), place, again, booked, now_ms: Some(START_MS) };
    world.gate.undo(&call).await.unwrap()
}

#[rstest]
#[case::a_hold(ReserveMode::AllOrNothing, (2, 6))]
#[case::usage(ReserveMode::Usage, (8, 0))]
#[tokio::test]
async fn a_resolved_operation_that_comes_again_is_given_back_once_and_answers_as_the_ledger_has_it(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
    #[case] again: ReserveMode,
    #[case] doubled: (i64, i64),
) {
    let world = World::warm(mode).await;
    let booked = first_life(&world, async |world| drop(world.consume("job", total("2"), true).await)).await;
    assert_eq!(world.counts(&counter()).await, (2, 0));
    world.hold(&job(again)).await;
    assert_eq!(world.counts(&counter()).await, doubled);
    let begin = latest_begin(&world).await;
    let last = OutboxId { epoch: Epoch(1), sequence: 2 };
    for outcome in [UndoOutcome::Done(last), UndoOutcome::Kept(last), UndoOutcome::Kept(last)] {
        assert_eq!(undo(&world, &begin, &booked).await, outcome);
        assert_eq!(world.counts(&counter()).await, (2, 0));
    }
    let replay = world.reserve(&job(again)).await;
    let ReserveOutcome::Replayed { record, .. } = replay else { panic!("{replay:?}") };
    assert_eq!((record.head.state, record.units[0].consumed.get()), (ReservationState::Consumed, 2));
    assert_eq!(world.events().await.len(), 3, "an undo is no event");
    assert_eq!(world.sweep(START_MS + TTL_MS + 2 * BUCKET_MS).await, 0, "its hold is gone");
}

#[rstest]
#[tokio::test]
async fn a_repeat_that_was_used_meanwhile_is_given_back_whole(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    for resolves in [false, true] {
        let world = World::warm(mode).await;
        let booked =
            first_life(&world, async |world| drop(world.consume("job", total("2"), true).await)).await;
        world.hold(&job(ReserveMode::AllOrNothing)).await;
        let begin = latest_begin(&world).await;
        world.consume("job", total("5"), resolves).await;
        assert_eq!(world.counts(&counter()).await, (7, if resolves { 0 } else { 1 }));
        assert!(matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_)));
        assert!(matches!(undo(&world, &begin, &booked).await, UndoOutcome::Kept(_)));
        assert_eq!(world.counts(&counter()).await, (2, 0));
        let again = world.consume("job", total("2"), true).await;
        assert!(matches!(again, ResolveOutcome::Replayed { .. }), "{again:?}");
    }
}

#[rstest]
#[tokio::test]
async fn a_hold_that_is_open_in_the_ledger_is_held_once_again_and_still_expires(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let booked = first_life(&world, async |world| drop(world.consume("job", total("1"), false).await)).await;
    world.hold(&job(ReserveMode::AllOrNothing)).await;
    assert_eq!(world.counts(&counter()).await, (1, 11));
    let begin = latest_begin(&world).await;
    for _ in 0..2 {
        undo(&world, &begin, &booked).await;
        assert_eq!(world.counts(&counter()).await, (1, 5));
    }
    let record = world.record("job").await.unwrap();
    assert_eq!((record.head.step, record.units), (booked.head.step, booked.units));
    assert_eq!(world.sweep(START_MS + TTL_MS + 2 * BUCKET_MS).await, 1);
    assert_eq!(world.counts(&counter()).await, (1, 0));
}

#[rstest]
#[tokio::test]
async fn a_hold_that_goes_on_in_the_books_is_left_to_it(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    let booked = first_life(&world, async |_| ()).await;
    world.hold(&job(ReserveMode::AllOrNothing)).await;
    let begin = latest_begin(&world).await;
    world.consume("job", total("3"), true).await;
    assert!(matches!(undo(&world, &begin, &booked).await, UndoOutcome::Kept(_)));
    assert_eq!(world.state("job").await, Some(ReservationState::Consumed));
}

#[rstest]
#[tokio::test]
async fn what_the_ledger_told_since_or_another_window_holds_is_not_touched(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let booked = first_life(&world, async |world| drop(world.consume("job", total("2"), true).await)).await;
    world.hold(&job(ReserveMode::AllOrNothing)).await;
    let begin = latest_begin(&world).await;
    world.server.command(&["DEL", &world.key(&format!("state:{}", world.tenant))]);
    let told = restored_counter(b"day-----", 12, 9);
    world.warm_up(WarmState { counters: vec![told], ..WarmState::default() }).await;
    assert!(matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_)));
    assert_eq!(world.counts(&counter()).await, (12, 9), "the ledger's figures never had it");
    assert_eq!(world.state("job").await, Some(ReservationState::Consumed));

    let world = World::warm(mode).await;
    let booked = first_life(&world, async |world| drop(world.consume("job", total("2"), true).await)).await;
    world.hold(&job(ReserveMode::AllOrNothing)).await;
    let begin = latest_begin(&world).await;
    let mut next = ask("next", vec![line("ocr.page", 1)], vec![counter()]);
    next.checks[0].place.window_start_ms += 1;
    world.hold(&next).await;
    assert!(matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_)));
    let mut moved = counter();
    moved.place.window_start_ms += 1;
    assert_eq!(world.counts(&moved).await, (0, 1));
}

#[rstest]
#[tokio::test]
async fn the_repeat_of_an_older_epoch_is_gone_with_it(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    let booked = first_life(&world, async |world| drop(world.consume("job", total("2"), true).await)).await;
    world.hold(&job(ReserveMode::AllOrNothing)).await;
    let begin = latest_begin(&world).await;
    world.gate.adopt(world.partition, Epoch(2), 0, Some(START_MS)).await.unwrap();
    assert_eq!(undo(&world, &begin, &booked).await, UndoOutcome::EpochOver);
}
