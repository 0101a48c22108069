//! Counters of what runs at once, where they meet the ledger: a hold that is restored alone, a repeat, a wait, an
//! extension.

use rstest::rstest;
use tollgate::domain::algorithms::{Parameters, concurrency};
use tollgate::domain::counter::Counter;
use tollgate::domain::event::Change;
use tollgate::domain::ids::OutboxId;
use tollgate::domain::parked::CounterLife;
use tollgate::domain::reservation::Record;
use tollgate::gate::{
    HoldOutcome, IdCheck, RecordCall, RecordOutcome, ReserveOutcome, RestorePage, RestoredCounter, Totals,
    UndoOutcome, WarmState,
};

use super::record::{self, TAKEN_MS, record};
use super::undo::undo;
use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

/// When the hold ends that is swept.
const SWEPT_MS: i64 = 1_000;

/// Ten pages at once.
fn slots() -> Counter {
    let parameters = Parameters::Concurrency(concurrency::Parameters { each: 0 });
    Counter { parameters, ..limit(b"slots---", 10) }
}

fn ask_for(key: &str, amount: i64) -> Ask {
    pages(key, amount).under([slots()])
}

async fn held(world: &World) -> i64 {
    world.counts(&slots()).await.1
}

/// A job that the ledger has as resolved and that begins again: the place and record of this, and what the ledger has.
async fn begun_again(world: &World) -> ((OutboxId, Record), Record) {
    let ask = ask_for("job", 6);
    world.hold(&ask.clone().at(START_MS - 5_000)).await;
    let whole = world.record("job").await.unwrap();
    done(world.consume("job", total("2"), true).await);
    let resolved = world.record("job").await.unwrap();
    let booked = Record { head: resolved.head, units: resolved.units, body: whole.body };
    world.server.command(&["DEL", &world.record_key("job")]);
    world.hold(&ask).await;
    assert_eq!(held(world).await, 6);
    let begins = world.events().await.into_iter().filter_map(|event| match event.change {
        Change::Reserve(record) => Some((event.outbox_id, record)),
        _ => None,
    });
    (begins.last().unwrap(), booked)
}

#[rstest]
#[tokio::test]
async fn what_runs_at_once_counts_the_hold_that_the_ledger_tells_alone(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 4)).await;
    let open = world.record("a").await.unwrap();
    world.server.command(&["DEL", &world.record_key("a"), &world.state_key()]);
    world.warm_up(WarmState::default()).await;
    assert_eq!(held(&world).await, 0);
    assert_matches!(world.tell_hold("a", &open, &[]).await, HoldOutcome::Done);
    assert_eq!(held(&world).await, 4);
    done(world.release("a", Totals::Default).await);
    assert_eq!(held(&world).await, 0);
}

#[rstest]
#[tokio::test]
async fn a_tenant_that_waited_keeps_what_runs_at_once(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 7)).await;
    let as_of = world.suspend(None).await.unwrap();
    let held_only = vec![RestoredCounter { window_start_ms: 0, ..restored_counter(b"slots---", 0, 7) }];
    let page = world.page(&[], Some(WarmState { held_only, ..WarmState::default() }));
    world.gate.restore_page(&RestorePage { as_of, ..page }).await.unwrap();
    assert_eq!(held(&world).await, 7, "it is not told what it has");
    done(world.release("a", Totals::Default).await);
    assert_eq!(held(&world).await, 0);
}

#[rstest]
#[tokio::test]
async fn what_is_given_back_to_a_counter_that_is_missing_leaves_nothing_behind(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 7)).await;
    world.server.command(&["HDEL", &world.state_key(), "slots---"]);
    done(world.release("a", Totals::Default).await);
    assert_matches!(world.server.command(&["HEXISTS", &world.state_key(), "slots---"]), redis::Value::Int(0));
}

#[rstest]
#[tokio::test]
async fn a_hold_whose_cell_was_lost_gives_nothing_back_to_the_cell_that_came_after_it(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("lost", 7)).await;
    world.server.command(&["HDEL", &world.state_key(), "slots---"]);
    world.hold(&ask_for("kept", 8).at(START_MS + 1)).await;
    assert_eq!(held(&world).await, 8);
    done(world.consume("lost", total("2"), false).await);
    done(world.release("lost", Totals::Default).await);
    assert_eq!(held(&world).await, 8, "its slot is another's now");
    done(world.release("kept", Totals::Default).await);
    assert_eq!(held(&world).await, 0);
}

#[rstest]
#[tokio::test]
async fn by_a_clock_that_went_back_slots_stay_taken_and_each_comes_back_once(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let before_ms = START_MS - 400_000;
    world.hold(&ask_for("a", 7)).await;
    let back = |key: &str, amount: i64| ask_for(key, amount).lasting(500_000).at(before_ms);
    assert_matches!(world.reserve(&back("b", 4)).await, ReserveOutcome::Refused { .. });
    world.hold(&back("c", 3)).await;
    assert_eq!(held(&world).await, 10);
    assert_matches!(world.reserve(&back("d", 1)).await, ReserveOutcome::Refused { .. });
    done(world.release_at(before_ms + 1, "a", Totals::Default).await);
    assert_eq!(held(&world).await, 3, "made later than the clock is now, and given back");
    done(world.release("c", Totals::Default).await);
    assert_eq!(held(&world).await, 0);
}

#[rstest]
#[tokio::test]
async fn the_next_end_of_what_runs_at_once_follows_an_extension(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("a", 7)).await;
    world.extend_at(START_MS, "a", 2 * TTL_MS).await;
    let reading = world.reading_at(START_MS, &slots()).await;
    assert_eq!(reading.next_hold_ends_at_ms, Some(START_MS + 2 * TTL_MS));
    assert_eq!(reading.resets_at_ms, Some(START_MS + 2 * TTL_MS));
}

#[rstest]
#[tokio::test]
async fn what_was_admitted_while_the_gate_was_away_takes_its_slot_and_gives_it_back(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask = ask_for("a", 4);
    let record = record::admitted(&world, &ask);
    let lives = [CounterLife { window_end_ms: TAKEN_MS, since_ms: 0, starts_fresh: true }];
    let now_ms = Some(START_MS);
    let (id, taken_at_ms, id_check) = (world.id("a"), Some(TAKEN_MS), IdCheck::Asked);
    let call = RecordCall { id, record: &record, lives: &lives, taken_at_ms, id_check, now_ms };
    assert_matches!(world.gate.record(&call).await.unwrap(), RecordOutcome::Done(_));
    assert_eq!(held(&world).await, 4);
    world.hold(&ask_for("b", 6)).await;
    done(world.release("a", Totals::Default).await);
    assert_eq!(held(&world).await, 6);
}

#[rstest]
#[tokio::test]
async fn an_operation_that_the_ledger_knew_already_gives_its_slot_back_once(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let (begin, booked) = begun_again(&world).await;
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_));
    assert_eq!(held(&world).await, 0);
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Kept(_));
    assert_eq!(held(&world).await, 0);
}

/// A subject's hash ends an hour after its last hold; a clock that leapt, or a sweep that lags, lets it end before.
#[rstest]
#[tokio::test]
async fn a_hold_of_a_counter_that_was_lost_frees_no_slot_of_the_one_made_since(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ada = user("ada");
    let of_ada = |key: &str, at_ms: i64| {
        pages(key, 4).under([of_subject(1, slots())]).of(&ada).lasting(500_000).at(START_MS + at_ms)
    };
    let subjects = world.key(&format!("state:{}:{}", world.tenant, world.hash(&ada).as_str()));
    world.hold(&of_ada("lost", 0).lasting(SWEPT_MS)).await;
    world.hold(&of_ada("lost too", 0)).await;
    assert_matches!(world.server.command(&["DEL", &subjects]), redis::Value::Int(1));
    world.hold(&of_ada("since", 1)).await;
    done(world.release_at(START_MS + 2, "lost too", Totals::Default).await);
    assert_eq!(world.sweep(START_MS + SWEPT_MS + 2 * BUCKET_MS).await, 1);
    let readings = admitted(world.reserve(&of_ada("next", 3)).await);
    assert_eq!(readings[0].reserved.get(), 8, "what runs since keeps its slots");
    done(world.release_at(START_MS + 4, "since", Totals::Default).await);
    let readings = admitted(world.reserve(&of_ada("last", 5)).await);
    assert_eq!(readings[0].reserved.get(), 8, "and gives back its own");
}

#[rstest]
#[tokio::test]
async fn a_hold_that_comes_to_the_counter_later_than_it_was_made_gives_its_slot_back(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("told", 1)).await;
    let open = world.record("told").await.unwrap();
    world.server.command(&["DEL", &world.record_key("told"), &world.state_key()]);
    world.warm_up(WarmState::default()).await;
    world.hold(&ask_for("first", 2).at(START_MS + 5)).await;
    assert_matches!(world.tell_hold("told", &open, &[]).await, HoldOutcome::Done);
    assert_matches!(record(&world, &ask_for("parked", 4)).await, RecordOutcome::Done(_));
    assert_eq!(held(&world).await, 7);
    done(world.release_at(START_MS + 6, "parked", Totals::Default).await);
    assert_eq!(held(&world).await, 3);
    done(world.release_at(START_MS + 6, "told", Totals::Default).await);
    assert_eq!(held(&world).await, 2);
}

#[rstest]
#[tokio::test]
async fn a_repeat_keeps_its_slot_while_its_tenant_waits_for_the_ledger_and_then_gives_it_back(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let (begin, booked) = begun_again(&world).await;
    let as_of = world.suspend(None).await.unwrap();
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Waits);
    let page = world.page(&[], Some(WarmState::default()));
    world.gate.restore_page(&RestorePage { as_of, ..page }).await.unwrap();
    assert_eq!(held(&world).await, 6);
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_));
    assert_eq!(held(&world).await, 0);
}

#[rstest]
#[tokio::test]
async fn a_repeat_that_was_used_in_part_gives_its_whole_slot_back(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let (begin, booked) = begun_again(&world).await;
    done(world.consume("job", total("3"), false).await);
    assert_eq!(held(&world).await, 6);
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_));
    assert_eq!(held(&world).await, 0);
}

#[rstest]
#[tokio::test]
async fn where_the_next_end_has_passed_unswept_it_is_worth_asking_again_in_a_second(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask_for("over", 4).lasting(1_000)).await;
    world.hold(&ask_for("runs", 6)).await;
    let wait_ms = async |at_ms: i64| {
        let ReserveOutcome::Refused { refusing, .. } = world.reserve(&ask_for("next", 1).at(at_ms)).await
        else {
            panic!("not refused")
        };
        refusing[0].1
    };
    assert_eq!(wait_ms(START_MS + 200).await, Some(800));
    assert_eq!(wait_ms(START_MS + 3_000).await, Some(1_000));
}
