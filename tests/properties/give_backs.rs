//! Random histories of a token bucket: what it gives back, held against the exact level of a bucket from which only the
//! consumed units were taken.
//!
//! Short in every run of the tests; `make give-backs` tries a million.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tollgate::domain::algorithms::Counting;
use tollgate::domain::algorithms::bucket::Drain;
use tollgate::domain::algorithms::cell::{Cell, Moment};
use tollgate::domain::algorithms::token_bucket::Parameters;

use crate::support::process::from_environment;

const START_MS: i64 = 1_700_000_000_000;
/// How many low points a bucket remembers.
const LOWS_MAX: usize = 8;
/// How many histories a run tries, unless the environment says otherwise.
const HISTORIES: u64 = 5_000;

/// A step, this many ms after the last one.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Units are held.
    Hold(i64),
    /// The hold that many steps back gives back this share, in percent, of what it has left.
    Return(usize, i64),
    /// It is consumed: this share of what it has left. The rest comes back, and what is above it is charged.
    Consume(usize, i64),
}

/// Units that stay taken, and how many of them are still held.
struct Taken {
    at_ms: i64,
    units: i64,
    held: i64,
}

/// The exact level, in parts of `per_ms`, of a bucket from which exactly these units were taken.
fn exact_level(drain: Drain, taken: &[Taken], now_ms: i64) -> i128 {
    let sink = |level: i128, ms: i64| (level - i128::from(drain.units) * i128::from(ms)).max(0);
    let (mut level, mut at_ms) = (0, START_MS);
    for Taken { at_ms: taken_at_ms, units, .. } in taken {
        level = sink(level, taken_at_ms - at_ms) + i128::from(*units) * i128::from(drain.per_ms);
        at_ms = *taken_at_ms;
    }
    sink(level, now_ms - at_ms)
}

fn parts(drain: Drain, cell: &Cell) -> i128 {
    let fraction = cell.own.get(1).copied().unwrap_or_default();
    i128::from(cell.consumed) * i128::from(drain.per_ms) - i128::from(fraction)
}

/// The low points' levels, which rise.
fn lows(cell: &Cell) -> Vec<i64> {
    cell.own.iter().skip(2).skip(1).step_by(2).copied().collect()
}

/// Whether a touch has dropped the oldest low point: there was no room, and the new one lies above all of them.
fn has_merged(before: &Cell, after: &Cell) -> bool {
    let (before, after) = (lows(before), lows(after));
    before.len() == LOWS_MAX && before.last() < after.last()
}

/// Plays a history. The bucket's level may never be below the exact one, and while no low points were merged it is
/// stricter by less than a unit for each return.
fn play(refill: Drain, capacity: i64, steps: &[(i64, Step)]) -> Result<(), TestCaseError> {
    let parameters = Parameters { refill };
    let (mut now_ms, mut cell, mut returns, mut is_merged) = (START_MS, None, 0, false);
    let mut taken: Vec<Taken> = Vec::new();
    for (after_ms, step) in steps {
        now_ms += after_ms;
        let of = match *step {
            Step::Hold(_) => None,
            Step::Return(back, _) | Step::Consume(back, _) => {
                let Some(of) = taken.len().checked_sub(back + 1) else { continue };
                Some(of)
            }
        };
        let moment = of.map_or(Moment::new_work(now_ms), |of| Moment::work_of(taken[of].at_ms, now_ms));
        let mut loaded = parameters.load(cell.as_ref(), moment);
        is_merged |= cell.as_ref().is_some_and(|cell| has_merged(cell, &loaded.cell));
        match (*step, of) {
            (Step::Hold(units), _) => {
                let units = units.min(parameters.room(loaded.cell.consumed, 0, capacity)).max(0);
                parameters.hold(&mut loaded, units, now_ms + 1);
                taken.push(Taken { at_ms: now_ms, units, held: units });
            }
            (Step::Return(_, percent), Some(of)) => {
                let units = taken[of].held * percent / 100;
                parameters.give_back(&mut loaded, units);
                taken[of].units -= units;
                taken[of].held -= units;
                returns += 1;
            }
            (Step::Consume(_, percent), Some(of)) => {
                let held = std::mem::take(&mut taken[of].held);
                let used = held * percent / 100;
                parameters.settle(&mut loaded, used.min(held));
                let (unused, excess) = ((held - used).max(0), (used - held).max(0));
                parameters.give_back(&mut loaded, unused);
                parameters.charge(&mut loaded, excess);
                taken[of].units -= unused;
                taken.push(Taken { at_ms: now_ms, units: excess, held: 0 });
                returns += 1;
            }
            _ => {}
        }
        let (level, exact) = (parts(refill, &loaded.cell), exact_level(refill, &taken, now_ms));
        prop_assert!(level >= exact, "{level} and exactly {exact} after {step:?}");
        let allowed = returns * i128::from(refill.per_ms);
        prop_assert!(
            is_merged || level == exact || level - exact < allowed,
            "{level} and exactly {exact} after {step:?}"
        );
        cell = Some(loaded.cell);
    }
    Ok(())
}

fn histories() -> impl Strategy<Value = (Drain, i64, Vec<(i64, Step)>)> {
    let refill = (1..9_i64, prop_oneof![Just(1), Just(7), Just(1000)])
        .prop_map(|(units, per_ms)| Drain { units, per_ms });
    let back = || 0..6_usize;
    let share = prop_oneof![Just(100), 0..=100_i64];
    let used = prop_oneof![Just(100), 0..=100_i64, 101..=300_i64];
    let step = prop_oneof![
        3 => (1..12_i64).prop_map(Step::Hold),
        1 => (back(), share).prop_map(|(back, percent)| Step::Return(back, percent)),
        1 => (back(), used).prop_map(|(back, percent)| Step::Consume(back, percent)),
    ];
    let pause = prop_oneof![2 => Just(0), 3 => 1..8_i64, 2 => 1..4_000_i64];
    (refill, 1..40_i64, proptest::collection::vec((pause, step), 2..40))
}

#[test]
fn what_returns_counts_as_if_only_what_was_consumed_had_been_taken() {
    let asked = from_environment("TOLLGATE_GIVE_BACKS").unwrap_or(HISTORIES);
    let cases = u32::try_from(asked).unwrap();
    eprintln!("{cases} histories");
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let run =
        TestRunner::new(config).run(&histories(), |(refill, capacity, steps)| play(refill, capacity, &steps));
    run.unwrap_or_else(|failure| panic!("{failure}"));
}
