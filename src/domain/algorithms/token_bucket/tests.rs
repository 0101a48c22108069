//! Compares what a token bucket gives back with the exact level of a bucket from which only the consumed units were
//! taken.

use proptest::prelude::*;

use super::*;

const START_MS: i64 = 1_700_000_000_000;

/// A step, this many ms after the last one.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Units are held.
    Hold(i64),
    /// The hold that many steps back gives back this share, in percent, of what it has left.
    Return(usize, i64),
}

/// A hold, and the part of it that stays taken.
struct Taken {
    at_ms: i64,
    units: i64,
}

/// The exact level, in parts of `per_ms`, of a bucket from which exactly these units were taken.
fn exact_level(drain: Drain, taken: &[Taken], now_ms: i64) -> i128 {
    let sink = |level: i128, ms: i64| (level - i128::from(drain.units) * i128::from(ms)).max(0);
    let (mut level, mut at_ms) = (0, START_MS);
    for Taken { at_ms: taken_at_ms, units } in taken {
        level = sink(level, taken_at_ms - at_ms) + i128::from(*units) * i128::from(drain.per_ms);
        at_ms = *taken_at_ms;
    }
    sink(level, now_ms - at_ms)
}

fn parts(drain: Drain, cell: &Cell) -> i128 {
    i128::from(cell.consumed) * i128::from(drain.per_ms) - i128::from(Own::read(cell).fraction)
}

/// Plays a history. The bucket's level may never be below the exact one, and while no low points were merged it is
/// stricter by less than a unit for each return.
fn play(refill: Drain, capacity: i64, steps: &[(i64, Step)]) -> Result<(), TestCaseError> {
    let parameters = Parameters { refill };
    let (mut now_ms, mut cell, mut returns, mut is_merged) = (START_MS, None, 0, false);
    let mut taken: Vec<Taken> = Vec::new();
    for (after_ms, step) in steps {
        now_ms += after_ms;
        let mut loaded = match *step {
            Step::Hold(_) => parameters.load(cell.as_ref(), Moment::new_work(now_ms)),
            Step::Return(back, _) => {
                let Some(of) = taken.len().checked_sub(back + 1) else { continue };
                parameters.load(cell.as_ref(), Moment::work_of(taken[of].at_ms, now_ms))
            }
        };
        match *step {
            Step::Hold(units) => {
                let units = units.min(parameters.room(loaded.cell.consumed, 0, capacity));
                parameters.hold(&mut loaded, units, now_ms + 1);
                taken.push(Taken { at_ms: now_ms, units });
            }
            Step::Return(back, percent) => {
                let of = taken.len() - 1 - back;
                let units = taken[of].units * percent / 100;
                parameters.give_back(&mut loaded, units);
                taken[of].units -= units;
                returns += 1;
            }
        }
        is_merged |= Own::read(&loaded.cell).lows.len() == LOWS_MAX;
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
    let step = prop_oneof![
        3 => (1..12_i64).prop_map(Step::Hold),
        2 => (0..6_usize, prop_oneof![Just(100), 0..=100_i64]).prop_map(|(back, percent)| Step::Return(back, percent)),
    ];
    let pause = prop_oneof![2 => Just(0), 3 => 1..8_i64, 2 => 1..4_000_i64];
    (refill, 1..40_i64, proptest::collection::vec((pause, step), 2..40))
}

/// How many histories a run tries.
const CASES: u32 = 5_000;

#[test]
fn what_returns_counts_as_if_only_what_was_consumed_had_been_taken() {
    let config =
        proptest::test_runner::Config { cases: CASES, failure_persistence: None, ..Default::default() };
    let run = proptest::test_runner::TestRunner::new(config)
        .run(&histories(), |(refill, capacity, steps)| play(refill, capacity, &steps));
    run.unwrap_or_else(|failure| panic!("{failure}"));
}
