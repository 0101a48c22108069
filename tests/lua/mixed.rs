//! Booked reservations that light counters count too: where these stand, for how long, and what a restore and an undo
//! leave of them.

use rstest::rstest;
use tollgate::domain::algorithms::{Parameters, concurrency};
use tollgate::domain::counter::Counter;
use tollgate::domain::event::Change;
use tollgate::gate::{ReserveCall, ReserveMode, ReserveOutcome, UndoOutcome};

use super::undo::undo;
use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

fn light(counter: Counter) -> Counter {
    Counter { is_light: true, ..counter }
}

/// The day, and beside it, in the light counters, another day and what runs at once.
fn beside() -> [Counter; 2] {
    let parameters = Parameters::Concurrency(concurrency::Parameters { each: 1 });
    [light(limit(b"light---", 10)), light(Counter { parameters, ..limit(b"slots---", 2) })]
}

fn mixed(key: &str, amount: i64) -> Ask {
    let [other_day, slots] = beside();
    pages(key, amount).under([day(100), other_day, slots])
}

/// Consumed and reserved of the three counters.
async fn counts(world: &World) -> [(i64, i64); 3] {
    let [other_day, slots] = beside();
    [world.day().await, world.counts(&other_day).await, world.counts(&slots).await]
}

#[rstest]
#[tokio::test]
async fn what_it_counts_stands_where_checks_and_light_reservations_count(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let mut world = World::warm(mode).await;
    let ada = user("ada");
    let of_ada = light(of_subject(1, limit(b"of-ada--", 10)));
    let [other_day, slots] = beside();
    let ask = pages("job", 5).of(&ada).under([day(100), other_day.clone(), slots, of_ada.clone()]);
    world.hold(&ask).await;
    assert_eq!(counts(&world).await, [(0, 5), (0, 5), (0, 1)]);
    assert_matches!(world.reserve(&ask).await, ReserveOutcome::Replayed { .. });
    assert_matches!(world.reserve(&mixed("more", 6)).await, ReserveOutcome::Refused { refusing, .. } if refusing[0].0 == 1);
    assert_eq!(counts(&world).await, [(0, 5), (0, 5), (0, 1)], "all of it or nothing");
    world.is_light = true;
    let as_light = Counter { is_light: false, ..other_day };
    assert_eq!(world.counts(&as_light).await, (0, 5));
    world.hold(&pages("light", 5).of(&ada).under([as_light.clone()])).await;
    assert_matches!(world.reserve(&pages("over", 1).under([as_light])).await, ReserveOutcome::Refused { .. });
    world.is_light = false;
    done(world.consume("job", total("3"), true).await);
    assert_eq!(counts(&world).await, [(3, 0), (3, 5), (0, 0)]);
    assert_eq!(world.events().await.len(), 2);
}

#[tokio::test]
async fn their_hash_outlives_what_it_counts() {
    let world = World::warm(Mode::Alone).await;
    let (ask, valid) = (mixed("job", 5), (0, i64::MAX));
    let body = world.body(&ask);
    let call = ReserveCall { now_ms: None, valid, ..world.reserve_call(&ask, &body) };
    assert_matches!(world.gate.reserve(&call).await.unwrap(), ReserveOutcome::Admitted { .. });
    let left = world.expires_in_ms(&world.key(&format!("light:{}", world.tenant)));
    assert!(left >= 3_600_000, "{left}");
}

#[tokio::test]
async fn after_a_restore_the_reservation_moves_no_light_counter_any_more() {
    let world = World::warm(Mode::Alone).await;
    world.hold(&pages("job", 5).under(beside())).await;
    world.lose_and_restore("job", START_MS).await;
    let [_, other_day, slots] = counts(&world).await;
    assert_eq!([other_day, slots], [(0, 0), (0, 0)]);
    world.hold(&mixed("new", 4)).await;
    done(world.consume("job", total("3"), true).await);
    let [_, other_day, slots] = counts(&world).await;
    assert_eq!([other_day, slots], [(0, 4), (0, 1)]);
}

#[tokio::test]
async fn a_repeat_of_what_is_booked_gives_back_what_it_held_of_both_kinds() {
    let world = World::warm(Mode::Alone).await;
    world.hold(&mixed("job", 5)).await;
    let booked = world.record("job").await.unwrap();
    drop(world.release("job", tollgate::gate::Totals::Default).await);
    let released = world.record("job").await.unwrap();
    let booked = tollgate::domain::reservation::Record { head: released.head, ..booked };
    world.server.command(&["DEL", &world.record_key("job")]);
    world.hold(&Ask { mode: ReserveMode::AllOrNothing, ..mixed("job", 5).at(START_MS + 1) }).await;
    assert_eq!(counts(&world).await, [(0, 5), (0, 5), (0, 1)]);
    let begins = world.events().await.into_iter().filter_map(|event| match event.change {
        Change::Reserve(record) => Some((event.outbox_id, record)),
        _ => None,
    });
    let begin = begins.last().unwrap();
    assert_matches!(undo(&world, &begin, &booked).await, UndoOutcome::Done(_));
    assert_eq!(counts(&world).await, [(0, 0), (0, 0), (0, 0)]);
}
