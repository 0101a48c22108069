use rstest::rstest;
use tollgate::domain::event::Change;
use tollgate::domain::ids::{Epoch, OutboxId};
use tollgate::domain::reservation::{Correction, Record, ReservationState};
use tollgate::gate::{RecordOutcome, ReserveMode, ResolveOutcome, UndoCall, UndoOutcome};

use super::record::correct;
use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

fn job(mode: ReserveMode) -> Ask {
    pages("job", 6).by(mode)
}

/// The job's first life, as the ledger has it: reserved, and resolved by `resolve`; the gate then forgets it.
async fn first_life(world: &World, resolve: impl AsyncFnOnce(&World)) -> Record {
    world.hold(&job(ReserveMode::AllOrNothing).at(START_MS - 5_000)).await;
    let whole = world.record("job").await.unwrap();
    resolve(world).await;
    let now = world.record("job").await.unwrap();
    world.server.command(&["DEL", &world.record_key("job")]);
    Record { head: now.head, units: now.units, body: whole.body }
}

/// A first life that ended with two pages consumed.
async fn consumed_before(world: &World) -> Record {
    first_life(world, async |world| drop(world.consume("job", total("2"), true).await)).await
}

/// Begins the job once more; the place and record of this in the outbox.
async fn begin_again(world: &World, mode: ReserveMode) -> (OutboxId, Record) {
    world.hold(&job(mode)).await;
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
    let booked = consumed_before(&world).await;
    assert_eq!(world.day().await, (2, 0));
    let begin = begin_again(&world, again).await;
    assert_eq!(world.day().await, doubled);
    let last = OutboxId { epoch: Epoch(1), sequence: 2 };
    for outcome in [UndoOutcome::Done(last), UndoOutcome::Kept(last), UndoOutcome::Kept(last)] {
        assert_eq!(undo(&world, &begin, &booked).await, outcome);
        assert_eq!(world.day().await, (2, 0));
    }
    let record = replayed(world.reserve(&job(again)).await);
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
        let booked = consumed_before(&world).await;
        let begin = begin_again(&world, ReserveMode::AllOrNothing).await;
        world.consume("job", total("5"), resolves).await;
        assert_eq!(world.day().await, (7, if resolves { 0 } else { 1 }));
        assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_));
        assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Kept(_));
        assert_eq!(world.day().await, (2, 0));
        assert_matches!(world.consume("job", total("2"), true).await, ResolveOutcome::Replayed { .. });
    }
}

#[rstest]
#[tokio::test]
async fn a_hold_that_is_open_in_the_ledger_is_held_once_again_and_still_expires(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let booked = first_life(&world, async |world| drop(world.consume("job", total("1"), false).await)).await;
    let begin = begin_again(&world, ReserveMode::AllOrNothing).await;
    assert_eq!(world.day().await, (1, 11));
    for _ in 0..2 {
        undo(&world, &begin, &booked).await;
        assert_eq!(world.day().await, (1, 5));
    }
    let record = world.record("job").await.unwrap();
    assert_eq!((record.head.step, record.units), (booked.head.step, booked.units));
    assert_eq!(world.sweep(START_MS + TTL_MS + 2 * BUCKET_MS).await, 1);
    assert_eq!(world.day().await, (1, 0));
}

#[rstest]
#[tokio::test]
async fn a_hold_that_goes_on_in_the_books_is_left_to_it(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    let booked = first_life(&world, async |_| ()).await;
    let begin = begin_again(&world, ReserveMode::AllOrNothing).await;
    world.consume("job", total("3"), true).await;
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Kept(_));
    assert_eq!(world.state("job").await, Some(ReservationState::Consumed));
}

#[rstest]
#[tokio::test]
async fn what_the_ledger_told_since_or_another_window_holds_is_not_touched(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let booked = consumed_before(&world).await;
    let begin = begin_again(&world, ReserveMode::AllOrNothing).await;
    world.server.command(&["DEL", &world.state_key()]);
    world.warm_up(told(&[(b"day-----", 12, 9)])).await;
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_));
    assert_eq!(world.day().await, (12, 9), "the ledger's figures never had it");
    assert_eq!(world.state("job").await, Some(ReservationState::Consumed));

    let world = World::warm(mode).await;
    let booked = consumed_before(&world).await;
    let begin = begin_again(&world, ReserveMode::AllOrNothing).await;
    let moved = from_ms(WINDOW.0 + 1, day(100));
    world.hold(&pages("next", 1).under([moved.clone()])).await;
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_));
    assert_eq!(world.counts(&moved).await, (0, 1));
}

#[rstest]
#[tokio::test]
async fn a_correction_that_took_back_twice_is_given_back_the_other_way(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("work", 6).by(ReserveMode::Usage)).await;
    let less = async || {
        assert_matches!(
            correct(&world, ("job", 2), Correction::Less, day(100)).await,
            RecordOutcome::Done(_)
        );
        let last = world.events().await.into_iter().last().unwrap();
        let Change::Usage(record) = last.change else { panic!("no usage") };
        (last.outbox_id, record)
    };
    let (_, booked) = less().await;
    world.server.command(&["DEL", &world.record_key("job")]);
    let again = less().await;
    assert_eq!(world.day().await, (2, 0));
    assert_matches!(undo(&world, &again, &booked).await, UndoOutcome::Done(_));
    assert_eq!(world.day().await, (4, 0));
}

#[rstest]
#[tokio::test]
async fn the_repeat_of_an_older_epoch_is_gone_with_it(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    let booked = consumed_before(&world).await;
    let begin = begin_again(&world, ReserveMode::AllOrNothing).await;
    world.adopt(2).await;
    assert_eq!(undo(&world, &begin, &booked).await, UndoOutcome::EpochOver);
}
