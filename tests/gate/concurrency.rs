use std::collections::HashMap;
use std::sync::Arc;

use tollgate::domain::algorithms::LineHold;
use tollgate::domain::algorithms::cell::{Cell, Loaded, Moment};
use tollgate::domain::counter::Counter;
use tollgate::domain::event::Change;
use tollgate::gate::{ReserveOutcome, Totals};

use super::server::Mode;
use super::world::*;
use crate::properties::gate::algorithms::rows;

const CALLERS: usize = 64;
const ATTEMPTS: usize = 10_000;
/// Of each algorithm; less than is asked for.
const CAPACITY: i64 = 300;

/// A limit for each algorithm.
fn limits() -> Vec<Counter> {
    let of_row = |(number, parameters)| Counter { parameters, ..limit(&name_of(number), CAPACITY) };
    rows().into_iter().map(|row| row.lasting).enumerate().map(of_row).collect()
}

fn name_of(number: usize) -> [u8; 8] {
    format!("limit-{number:02}").into_bytes().try_into().unwrap()
}

/// One caller's share: every kind of end that a hold can have, some of it twice. Returns the units it was admitted and
/// consumed.
async fn call(world: &World, caller: usize) -> i64 {
    let (limits, mut consumed) = (limits(), 0);
    for attempt in 0..ATTEMPTS / CALLERS {
        let key = format!("{caller}-{attempt}");
        let amount = i64::try_from(attempt % 3 + 1).unwrap();
        let checks = vec![limits[attempt % limits.len()].clone(), day(CAPACITY * 100)];
        let hold = pages(&key, amount).under(checks);
        if !matches!(world.reserve(&hold).await, ReserveOutcome::Admitted { .. }) {
            continue;
        }
        match attempt % 4 {
            0 => drop(world.release(&key, Totals::Default).await),
            1 => {}
            _ => {
                let named = total(&amount.to_string());
                let (first, second) =
                    tokio::join!(world.consume(&key, named.clone(), true), world.consume(&key, named, true));
                drop((first, second));
                consumed += amount;
            }
        }
    }
    consumed
}

/// A limit as the events say one after the other.
struct Replayed {
    limit: Counter,
    cell: Option<Cell>,
    admitted: usize,
}

impl Replayed {
    fn load(&self, moment: Moment) -> Loaded {
        self.limit.parameters.load(self.cell.as_ref(), moment)
    }

    /// A hold that no limit may have admitted beyond its capacity.
    fn admits(&mut self, units: i64) {
        let parameters = self.limit.parameters;
        let mut loaded = self.load(Moment::new_work(START_MS));
        let room = parameters.room_for_new_work(&loaded, CAPACITY);
        assert!(parameters.need(units, false) <= room, "{parameters:?} admits {units} with {room} left");
        parameters.hold(&mut loaded, self.held(units), START_MS + TTL_MS);
        self.cell = Some(loaded.cell);
        self.admitted += 1;
    }

    /// The end of a hold of so many units, of which so many were used.
    fn ends(&mut self, units: i64, used: i64) {
        let (parameters, freed) = (self.limit.parameters, self.held(units));
        let mut loaded = self.load(Moment::work_of(START_MS, START_MS));
        let settled = used.min(freed);
        parameters.settle(&mut loaded, settled);
        parameters.charge(&mut loaded, used - settled);
        parameters.give_back(&mut loaded, freed - settled);
        self.cell = Some(loaded.cell);
    }

    fn held(&self, units: i64) -> i64 {
        self.limit.parameters.held(&[LineHold { weight: 1, held: units, consumed: 0 }])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_never_exceed_a_limit_and_strand_no_unit() {
    let world = Arc::new(World::warm(Mode::Alone).await);
    let callers = (0..CALLERS).map(|caller| {
        let world = Arc::clone(&world);
        tokio::spawn(async move { call(&world, caller).await })
    });
    let mut consumed = 0;
    for caller in callers.collect::<Vec<_>>() {
        consumed += caller.await.unwrap();
    }
    let (mut used, mut held) = (0, 0);
    let replayed = |limit| Replayed { limit, cell: None, admitted: 0 };
    let mut replays: Vec<_> = limits().into_iter().map(replayed).collect();
    let mut of_reservation = HashMap::new();
    for event in world.events().await {
        match &event.change {
            Change::Reserve(record) => {
                let field = record.body.rest.as_ref().unwrap().counters[0].field;
                let number = replays.iter().position(|replay| replay.limit.field == field).unwrap();
                of_reservation.insert(event.reservation, number);
                held += record.units[0].held.get();
                replays[number].admits(record.units[0].held.get());
            }
            Change::Consume { units, .. } | Change::Release { units, .. } => {
                let (line, number) = (units[0], of_reservation[&event.reservation]);
                used += line.consumed.get();
                held -= line.held.get();
                replays[number].ends(line.held.get(), line.consumed.get());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(used, consumed, "what was consumed twice counts once");
    assert_eq!(world.day().await, (used, held));
    for replay in &replays {
        let cell = replay.load(Moment::new_work(START_MS)).cell;
        let counts = world.counts(&replay.limit).await;
        assert_eq!(counts, (cell.consumed, cell.reserved), "{:?}", replay.limit.parameters);
        assert!(replay.admitted < ATTEMPTS / replays.len(), "{:?} refuses nobody", replay.limit.parameters);
    }
    world.sweep(DUE_MS).await;
    for replay in &replays {
        assert_eq!(world.counts(&replay.limit).await.1, 0);
    }
    assert_eq!(world.day().await, (used, 0));
}
