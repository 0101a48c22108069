//! Checks against the pure transitions of the algorithms: every decision and every figure, alone, several at once and
//! together.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tollgate::domain::algorithms::cell::{Cell, Moment};
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
    let check = (1..12_i64, 1..8_u8, prop::bool::weighted(0.1));
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
        let room = |at: usize, loaded: &tollgate::domain::algorithms::cell::Loaded| {
            let counter = named[at].1;
            counter.parameters.room_for_new_work(loaded, counter.capacity.get())
        };
        let need = |at: usize| named[at].1.parameters.need(amount, true);
        let lacks_room: Vec<bool> = (0..named.len()).map(|at| need(at) > room(at, &loaded[at])).collect();
        let is_shadow = |at: usize| named[at].1.kind == Kind::Shadow;
        let refusing: Vec<_> = (0..named.len()).filter(|at| lacks_room[*at] && !is_shadow(*at)).collect();
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
        let figures = (0..)
            .zip(&loaded)
            .map(|(at, loaded)| (loaded.cell.consumed, room(at, loaded), lacks_room[at] && is_shadow(at)));
        (refusing, figures.collect(), delay_ms)
    }
}

/// Refusing counters; what each has consumed, its room, and whether it would have refused in shadow; the delay.
type Expected = (Vec<usize>, Vec<(i64, i64, bool)>, i64);

fn found(checked: &CheckedCounters) -> Expected {
    let figures = checked
        .readings
        .iter()
        .map(|reading| (reading.consumed.get(), reading.room.unwrap(), reading.would_refuse));
    let refusing = checked.refusing.iter().map(|(index, _)| *index).collect();
    (refusing, figures.collect(), checked.start_after_ms)
}

async fn checks_as_the_model(world: &World, counters: &[Counter; 3], sequence: &[Sent]) {
    let hashes = [world.hash(&user("ada"))];
    let (mut model, mut now_ms) = (Model::default(), START_MS);
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
                figures.for_each(|(was, figure)| *was = (figure.0, figure.1, was.2));
            }
        }
        assert_eq!(checks.iter().map(found).collect::<Vec<_>>(), expected, "step {step}: {sent:?}");
    }
}

#[test]
fn checks_decide_and_count_as_the_pure_transitions_do() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::own();
    let kinds = [[Kind::Hard; 3], [Kind::Hard, Kind::Shadow, Kind::Shadow]];
    let all = checked_rows().chain([interval(), anomaly()]).flat_map(|row| kinds.map(|kinds| (row, kinds)));
    for (Row { name, turning, .. }, kinds) in all {
        let config = Config { cases: sized(CASES), failure_persistence: None, ..Config::default() };
        let counter = |at: usize, field: &[u8; 8]| Counter {
            parameters: turning,
            kind: kinds[at],
            ..limit(field, CAPACITIES[at])
        };
        let counters =
            [counter(0, b"first---"), counter(1, b"second--"), of_subject(1, counter(2, b"third---"))];
        let run = TestRunner::new(config).run(&sequences(), |sequence| {
            runtime.block_on(async {
                server.empty();
                let world = World::over(Arc::clone(&server)).await;
                checks_as_the_model(&world, &counters, &sequence).await;
            });
            Ok(())
        });
        run.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}
