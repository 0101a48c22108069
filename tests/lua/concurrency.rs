//! Counters of what runs at once, where they meet the ledger: a hold that is restored alone, a repeat, a wait, an
//! extension.

use rstest::rstest;
use tollgate::domain::algorithms::{Parameters, concurrency};
use tollgate::domain::counter::Counter;
use tollgate::domain::event::Change;
use tollgate::domain::parked::CounterLife;
use tollgate::domain::reservation::Record;
use tollgate::gate::{
    HoldOutcome, IdCheck, RecordCall, RecordOutcome, RestorePage, RestoredCounter, Totals, UndoOutcome,
    WarmState,
};

use super::record::{TAKEN_MS, admitted};
use super::undo::undo;
use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

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
    let record = admitted(&world, &ask);
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
    let ask = ask_for("job", 6);
    world.hold(&ask.clone().at(START_MS - 5_000)).await;
    let whole = world.record("job").await.unwrap();
    done(world.consume("job", total("2"), true).await);
    let resolved = world.record("job").await.unwrap();
    let booked = Record { head: resolved.head, units: resolved.units, body: whole.body };
    world.server.command(&["DEL", &world.record_key("job")]);
    world.hold(&ask).await;
    assert_eq!(held(&world).await, 6);
    let begins = world.events().await.into_iter().filter_map(|event| match event.change {
        Change::Reserve(record) => Some((event.outbox_id, record)),
        _ => None,
    });
    let begin = begins.last().unwrap();
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_));
    assert_eq!(held(&world).await, 0);
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Kept(_));
    assert_eq!(held(&world).await, 0);
}
