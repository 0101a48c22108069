use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use tollgate::domain::algorithms::LineHold;
use tollgate::domain::algorithms::cell::{Cell, Loaded, Moment};
use tollgate::domain::counter::Counter;
use tollgate::domain::event::Change;
use tollgate::gate::{ReserveOutcome, Totals};

use super::server::Mode;
use super::world::*;
use crate::properties::gate::algorithms::all_rows;
use crate::support::process::from_environment;

const CALLERS: usize = 64;
/// Of each algorithm by `make behaviour`, and of all of them together in an ordinary run.
const ATTEMPTS: usize = 10_000;
/// Of each algorithm; less than is asked for.
const CAPACITY: i64 = 150;
/// The clock stands while all call at once, and moves on before they do again: windows turn, slide and drain meanwhile.
const ROUNDS: usize = 4;
const ROUND_MS: i64 = 15_000;

/// A limit for each algorithm.
fn limits() -> Vec<Counter> {
    let of_row = |(number, parameters)| Counter { parameters, ..limit(&name_of(number), CAPACITY) };
    all_rows().into_iter().map(|row| row.turning).enumerate().map(of_row).collect()
}

fn name_of(number: usize) -> [u8; 8] {
    format!("limit-{number:02}").into_bytes().try_into().unwrap()
}

/// How often each caller tries each limit.
fn turns() -> usize {
    match from_environment("TOLLGATE_BEHAVIOUR_CASES") {
        Some(_) => ATTEMPTS.div_ceil(CALLERS),
        None => ATTEMPTS / CALLERS / limits().len(),
    }
}

/// One caller's share of a round: every kind of end that a hold can have, some of it twice. Returns the units it was
/// admitted and consumed.
async fn call(world: &World, caller: usize, turns: Range<usize>, now_ms: i64) -> i64 {
    let (limits, mut consumed) = (limits(), 0);
    for (turn, number) in turns.flat_map(|turn| (0..limits.len()).map(move |number| (turn, number))) {
        let key = format!("{caller}-{turn}-{number}");
        let amount = i64::try_from(turn % 3 + 1).unwrap();
        let hold = pages(&key, amount).under([limits[number].clone(), day(1_000_000)]);
        if !matches!(world.reserve(&hold.at(now_ms)).await, ReserveOutcome::Admitted { .. }) {
            continue;
        }
        match turn % 4 {
            0 => drop(world.release_at(now_ms, &key, Totals::Default).await),
            1 => {}
            _ => {
                let named = total(&amount.to_string());
                let (first, second) = tokio::join!(
                    world.consume_at(now_ms, &key, named.clone(), true),
                    world.consume_at(now_ms, &key, named, true)
                );
                drop((first, second));
                consumed += amount;
            }
        }
    }
    consumed
}

/// All callers at once, in each round at the same instant. Returns what they consumed, and the last round's time.
async fn call_in_rounds(world: &Arc<World>, turns: usize) -> (i64, i64) {
    let (mut consumed, mut now_ms) = (0, START_MS);
    for round in 0..ROUNDS {
        now_ms = START_MS + ROUND_MS * i64::try_from(round).unwrap();
        let share = turns * round / ROUNDS..turns * (round + 1) / ROUNDS;
        let callers = (0..CALLERS).map(|caller| {
            let (world, share) = (Arc::clone(world), share.clone());
            tokio::spawn(async move { call(&world, caller, share, now_ms).await })
        });
        for caller in callers.collect::<Vec<_>>() {
            consumed += caller.await.unwrap();
        }
    }
    (consumed, now_ms)
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
    fn admits(&mut self, units: i64, at_ms: i64) {
        let parameters = self.limit.parameters;
        let mut loaded = self.load(Moment::new_work(at_ms));
        let room = parameters.room_for_new_work(&loaded, CAPACITY);
        assert!(parameters.need(units, false) <= room, "{parameters:?} admits {units} with {room} left");
        parameters.hold(&mut loaded, self.held(units), at_ms + TTL_MS);
        self.cell = Some(loaded.cell);
        self.admitted += 1;
    }

    /// The end of a hold of so many units, of which so many were used.
    fn ends(&mut self, units: i64, used: i64, moment: Moment) {
        let (parameters, freed) = (self.limit.parameters, self.held(units));
        let mut loaded = self.load(moment);
        if !loaded.is_current {
            return;
        }
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

/// What the events say one after the other: each limit with what it admitted, and the units used and held of the day.
async fn replayed(world: &World) -> (Vec<Replayed>, (i64, i64)) {
    let (mut used, mut held) = (0, 0);
    let replayed = |limit| Replayed { limit, cell: None, admitted: 0 };
    let mut replays: Vec<_> = limits().into_iter().map(replayed).collect();
    let mut of_reservation = HashMap::new();
    for event in world.events().await {
        match &event.change {
            Change::Reserve(record) => {
                let field = record.body.rest.as_ref().unwrap().counters[0].field;
                let number = replays.iter().position(|replay| replay.limit.field == field).unwrap();
                let (units, born_at_ms) = (record.units[0].held.get(), record.head.born_at_ms);
                of_reservation.insert(event.reservation, (number, born_at_ms));
                held += units;
                replays[number].admits(units, born_at_ms);
            }
            Change::Consume { units, .. } | Change::Release { units, .. } => {
                let (line, (number, born_at_ms)) = (units[0], of_reservation[&event.reservation]);
                used += line.consumed.get();
                held -= line.held.get();
                let moment = Moment::work_of(born_at_ms, event.gate_time_ms);
                replays[number].ends(line.held.get(), line.consumed.get(), moment);
            }
            other => panic!("{other:?}"),
        }
    }
    (replays, (used, held))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_never_exceed_a_limit_and_strand_no_unit() {
    let world = Arc::new(World::warm(Mode::Alone).await);
    let turns = turns();
    let (consumed, now_ms) = call_in_rounds(&world, turns).await;
    let counts = async |limit: &Counter, at_ms: i64| {
        let reading = world.reading_at(at_ms, limit).await;
        (reading.consumed.get(), reading.reserved.get())
    };
    let (replays, (used, held)) = replayed(&world).await;
    assert_eq!(used, consumed, "what was consumed twice counts once");
    assert_eq!(counts(&day(0), now_ms).await, (used, held));
    for replay in &replays {
        let (parameters, cell) = (replay.limit.parameters, replay.load(Moment::new_work(now_ms)).cell);
        let counted = counts(&replay.limit, now_ms).await;
        assert_eq!(counted, (cell.consumed, cell.reserved), "{parameters:?}");
        let is_some_of_them = (1..turns * CALLERS).contains(&replay.admitted);
        assert!(is_some_of_them, "{parameters:?} admits {} of {}", replay.admitted, turns * CALLERS);
    }
    let due_ms = now_ms + TTL_MS + BUCKET_MS;
    world.sweep(due_ms).await;
    for replay in &replays {
        assert_eq!(counts(&replay.limit, due_ms).await.1, 0);
    }
    assert_eq!(counts(&day(0), due_ms).await, (used, 0));
}
