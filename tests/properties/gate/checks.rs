//! Checks against the pure transitions of the algorithms: every decision, every wait and every figure, alone, several
//! at once and together.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tollgate::domain::algorithms::Parameters;
use tollgate::domain::algorithms::cell::{Cell, Loaded, Moment};
use tollgate::domain::counter::Counter;
use tollgate::domain::limit::Kind;
use tollgate::gate::{CheckAsk, CheckOutcome, CheckedCounters};

use super::algorithms::{Row, anomaly, checked_rows, interval};
use crate::gate::server::Server;
use crate::gate::world::*;
use crate::properties::sized;

/// How many sequences a run tries for each algorithm.
const CASES: u32 = 50;
const CAPACITIES: [i64; 3] = [40, 25, 30];

/// Checks that are sent in one call: how much of which counters each asks for, and whether it only looks.
#[derive(Debug, Clone)]
struct Sent {
    after_ms: i64,
    checks: Vec<(i64, u8, bool)>,
    together: bool,
}

fn sequences() -> impl Strategy<Value = Vec<Sent>> {
    // What is above every capacity never fits.
    let amount = prop_oneof![15 => 1..12_i64, 1 => 20..50_i64];
    let check = (amount, 1..8_u8, prop::bool::weighted(0.1));
    let after = prop_oneof![0..60_i64, 0..9_000_i64];
    let sent = (after, prop::collection::vec(check, 1..4), any::<bool>()).prop_map(|sent| {
        let (after_ms, mut checks, together) = sent;
        if together {
            let looks = checks[0].2;
            checks.iter_mut().for_each(|check| check.2 = looks);
        }
        Sent { after_ms, checks, together }
    });
    prop::collection::vec(sent, 5..30)
}

/// The first instant from which on it is so: at the latest then.
fn earliest(from_ms: i64, until_ms: i64, is_so: impl Fn(i64) -> bool) -> i64 {
    assert!(is_so(until_ms), "not even at {until_ms}");
    let (mut before, mut first) = (from_ms - 1, until_ms);
    while first - before > 1 {
        let middle = before + (first - before) / 2;
        if is_so(middle) {
            first = middle;
        } else {
            before = middle;
        }
    }
    first
}

/// The cell as it counts new work of that instant, with no other work since.
fn loaded_at(counter: &Counter, cell: &Cell, at_ms: i64) -> Loaded {
    counter.parameters.load(Some(cell), Moment::new_work(at_ms))
}

/// Until when a check has to wait that this cell refuses; none where no wait helps.
fn wait_ms(counter: &Counter, cell: &Cell, need: i64, now_ms: i64) -> Option<i64> {
    let capacity = counter.capacity.get();
    if need > capacity {
        return None;
    }
    let fits = |at_ms: i64| {
        // The calendar's next window is another counter's parameters.
        let is_next = counter.window().is_some_and(|window| at_ms >= window.end_ms);
        let loaded = loaded_at(counter, cell, at_ms);
        is_next || need <= counter.parameters.room_for_new_work(&loaded, capacity)
    };
    if let Parameters::Anomaly(_) = counter.parameters {
        // As long as usual, which may be longer than needed.
        let usual_ms = (cell.own[2] + 999) / 1_000;
        assert!(fits(now_ms + usual_ms), "refused after {usual_ms} ms");
        return Some(usual_ms);
    }
    Some(earliest(now_ms, counter.ends_at_ms(now_ms), fits) - now_ms)
}

/// When what this cell counts is forgotten; where it counts nothing, when a window that begins now ends, or now.
fn resets_at_ms(counter: &Counter, cell: &Cell, now_ms: i64) -> i64 {
    match counter.parameters {
        Parameters::Calendar(calendar) => calendar.window.end_ms,
        Parameters::FixedWindow(fixed) => fixed.end_of(cell.mark),
        Parameters::Anomaly(_) => counter.ends_at_ms(cell.mark),
        _ => earliest(now_ms, counter.ends_at_ms(now_ms), |at_ms| {
            loaded_at(counter, cell, at_ms).cell.consumed == 0
        }),
    }
}

/// What the pure transitions say: a cell for each counter.
#[derive(Clone, Default)]
struct Model {
    cells: [Option<Cell>; 3],
}

impl Model {
    /// Refusing counters and figures, by place among those that the check names.
    fn check(&mut self, named: &[(usize, &Counter)], amount: i64, peeks: bool, now_ms: i64) -> Expected {
        let mut loaded: Vec<_> = named
            .iter()
            .map(|(at, counter)| counter.parameters.load(self.cells[*at].as_ref(), Moment::new_work(now_ms)))
            .collect();
        let room = |at: usize, loaded: &Loaded| {
            let counter = named[at].1;
            counter.parameters.room_for_new_work(loaded, counter.capacity.get())
        };
        let need = |at: usize| named[at].1.parameters.need(amount, true);
        let lacks_room: Vec<bool> = (0..named.len()).map(|at| need(at) > room(at, &loaded[at])).collect();
        let is_shadow = |at: usize| named[at].1.kind == Kind::Shadow;
        let refusing = (0..named.len()).filter(|at| lacks_room[*at] && !is_shadow(*at));
        let waiting = |at: usize| (at, wait_ms(named[at].1, &loaded[at].cell, need(at), now_ms));
        let refusing: Vec<_> = refusing.map(waiting).collect();
        let acting = named.iter().zip(&loaded).filter(|((_, counter), _)| counter.kind != Kind::Shadow);
        let delays = acting.map(|((_, counter), loaded)| counter.parameters.delay_ms(loaded));
        let delay_ms = if refusing.is_empty() { delays.max().unwrap_or_default() } else { 0 };
        if refusing.is_empty() && !peeks {
            let moved = named.iter().zip(&mut loaded).zip(&lacks_room).filter(|(_, lacks)| !**lacks);
            for (((at, counter), loaded), _) in moved {
                counter.parameters.charge(loaded, amount);
                self.cells[*at] = Some(loaded.cell.clone());
            }
        }
        let figures = (0..).zip(&loaded).map(|(at, loaded)| Figures {
            consumed: loaded.cell.consumed,
            reserved: loaded.cell.reserved,
            room: Some(room(at, loaded)),
            resets_at_ms: Some(resets_at_ms(named[at].1, &loaded.cell, now_ms)),
            next_hold_ends_at_ms: Some(loaded.cell.next_end).filter(|end_ms| *end_ms > now_ms),
            would_refuse: lacks_room[at] && is_shadow(at),
        });
        (refusing, figures.collect(), delay_ms)
    }
}

/// What is read of a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Figures {
    consumed: i64,
    reserved: i64,
    room: Option<i64>,
    resets_at_ms: Option<i64>,
    next_hold_ends_at_ms: Option<i64>,
    would_refuse: bool,
}

/// Refusing counters with how long each has to be waited for; what is read of each counter; the delay.
type Expected = (Vec<(usize, Option<i64>)>, Vec<Figures>, i64);

fn found(checked: &CheckedCounters) -> Expected {
    let figures = checked.readings.iter().map(|reading| Figures {
        consumed: reading.consumed.get(),
        reserved: reading.reserved.get(),
        room: reading.room,
        resets_at_ms: reading.resets_at_ms,
        next_hold_ends_at_ms: reading.next_hold_ends_at_ms,
        would_refuse: reading.would_refuse,
    });
    (checked.refusing.clone(), figures.collect(), checked.start_after_ms)
}

/// Returns how often a check was refused for now, and how often for ever.
async fn checks_as_the_model(world: &World, counters: &[Counter; 3], sequence: &[Sent]) -> [u32; 2] {
    let hashes = [world.hash(&user("ada"))];
    let (mut model, mut now_ms, mut refusals) = (Model::default(), START_MS, [0; 2]);
    for (step, sent) in sequence.iter().enumerate() {
        now_ms += sent.after_ms;
        let of_mask = |mask: u8| (0..3).filter(move |at| mask & (1 << at) != 0);
        let named: Vec<Vec<Counter>> = sent
            .checks
            .iter()
            .map(|(_, mask, _)| of_mask(*mask).map(|at| counters[at].clone()).collect())
            .collect();
        let amounts: Vec<_> = sent.checks.iter().map(|(amount, ..)| [units(*amount)]).collect();
        let ask = |at: usize| CheckAsk {
            tenant: Some(&world.tenant),
            subjects: &hashes,
            amounts: &amounts[at],
            counters: &named[at],
            valid: WINDOW,
            needed_until_ms: WINDOW.1,
            peeks: sent.checks[at].2,
        };
        let asks: Vec<_> = (0..sent.checks.len()).map(ask).collect();
        let outcome = world.gate.check(world.partition, &asks, sent.together, Some(now_ms)).await.unwrap();
        let CheckOutcome::Decided { checks, .. } = outcome else { panic!("{outcome:?}") };
        let before = model.clone();
        let decide = |model: &mut Model, counts: bool| -> Vec<Expected> {
            let one = |(amount, mask, peeks): &(i64, u8, bool)| {
                let named: Vec<_> = of_mask(*mask).map(|at| (at, &counters[at])).collect();
                model.check(&named, *amount, !counts || (*peeks && !sent.together), now_ms)
            };
            sent.checks.iter().map(one).collect()
        };
        let mut expected = decide(&mut model, true);
        let is_refused = expected.iter().any(|(refusing, ..)| !refusing.is_empty());
        // Looks together find each other, and leave nothing.
        if sent.together && (is_refused || sent.checks[0].2) {
            model = before;
            let unmoved = decide(&mut model.clone(), false);
            for (expected, unmoved) in expected.iter_mut().zip(unmoved) {
                let figures = expected.1.iter_mut().zip(unmoved.1);
                figures.for_each(|(was, figure)| *was = Figures { would_refuse: was.would_refuse, ..figure });
            }
        }
        let found: Vec<_> = checks.iter().map(found).collect();
        assert_eq!(found, expected, "step {step} at {now_ms}: {sent:?}");
        let waits = found.iter().flat_map(|(refusing, ..)| refusing);
        waits.for_each(|(_, wait_ms)| refusals[usize::from(wait_ms.is_none())] += 1);
    }
    refusals
}

#[test]
fn checks_decide_and_count_as_the_pure_transitions_do() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::own();
    let kinds = [[Kind::Hard; 3], [Kind::Hard, Kind::Shadow, Kind::Shadow]];
    let all = checked_rows().chain([interval(), anomaly()]).flat_map(|row| kinds.map(|kinds| (row, kinds)));
    let (cases, refusals) = (sized(CASES), std::cell::Cell::new([0; 2]));
    for (Row { name, turning, .. }, kinds) in all {
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let counter = |at: usize, field: &[u8; 8]| Counter {
            parameters: turning,
            kind: kinds[at],
            ..limit(field, CAPACITIES[at])
        };
        let counters =
            [counter(0, b"first---"), counter(1, b"second--"), of_subject(1, counter(2, b"third---"))];
        let run = TestRunner::new(config).run(&sequences(), |sequence| {
            let [for_now, for_ever] = runtime.block_on(async {
                server.empty();
                let world = World::over(Arc::clone(&server)).await;
                checks_as_the_model(&world, &counters, &sequence).await
            });
            refusals.set([refusals.get()[0] + for_now, refusals.get()[1] + for_ever]);
            Ok(())
        });
        run.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
    let [for_now, for_ever] = refusals.get();
    assert!(for_now > 4 * cases && for_ever > cases, "{for_now} were refused for now, {for_ever} for ever");
}
