//! Random sequences of calls at the gate, and of the rules and counters they meet.

use proptest::prelude::*;
use tollgate::domain::algorithms::Parameters;
use tollgate::domain::reservation::{OnExcess, OnLate};

use super::algorithms::{MIXED_MAX, all_rows};
use crate::support::model::{Counter, Mode, Rule};

/// What may happen next.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Reserve { id: u8, meaning: u8, mode: Mode, amounts: [i64; 2], ttl_ms: i64 },
    Consume { id: u8, totals: Option<[i64; 2]>, is_final: bool },
    Release { id: u8, incurred: Option<[i64; 2]> },
    Extend { id: u8, ttl_ms: i64 },
    Pass { ms: i64 },
    Sweep,
    LoseMemory,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = || 0..3_u8;
    let amounts = || [0..25_i64, 0..25_i64];
    let mode = prop_oneof![4 => Just(Mode::All), 2 => Just(Mode::Best), 1 => Just(Mode::Usage)];
    let fresh = prop_oneof![3 => Just(0), 1 => 1..4_u8];
    let reserve = (fresh, 0..8_u8, mode, [1..6_i64, 1..6_i64], 300..2_000_i64).prop_map(
        |(id, meaning, mode, amounts, ttl_ms)| Step::Reserve {
            id,
            meaning: meaning / 7,
            mode,
            amounts,
            ttl_ms,
        },
    );
    let consume = (id(), proptest::option::of(amounts()), proptest::bool::weighted(0.25))
        .prop_map(|(id, totals, is_final)| Step::Consume { id, totals, is_final });
    let release =
        (id(), proptest::option::of(amounts())).prop_map(|(id, incurred)| Step::Release { id, incurred });
    let extend = (id(), 500..9_000_i64).prop_map(|(id, ttl_ms)| Step::Extend { id, ttl_ms });
    let one = prop_oneof![
        5 => reserve,
        5 => consume,
        1 => release,
        1 => extend,
        4 => (1..3_000_i64).prop_map(|ms| Step::Pass { ms }),
        4 => Just(Step::Sweep),
        1 => Just(Step::LoseMemory),
    ];
    // Every step may come twice: a repeat has the effect of one.
    let list = proptest::collection::vec((one, any::<bool>()), 10..60);
    list.prop_map(|steps| {
        let mut latest = 3;
        let about_recent =
            |(step, twice): (Step, bool)| vec![name(step, &mut latest); 1 + usize::from(twice)];
        steps.into_iter().flat_map(about_recent).collect()
    })
}

/// Turns how far back a step looks into an id: 0 in a reserve is a new reservation, the rest are
/// about those made so many before the latest.
pub(super) fn name(step: Step, latest: &mut u8) -> Step {
    match step {
        Step::Reserve { id: 0, meaning, mode, amounts, ttl_ms } => {
            *latest += 1;
            Step::Reserve { id: *latest, meaning, mode, amounts, ttl_ms }
        }
        Step::Reserve { id, meaning, mode, amounts, ttl_ms } => {
            Step::Reserve { id: *latest - id, meaning, mode, amounts, ttl_ms }
        }
        Step::Consume { id, totals, is_final } => Step::Consume { id: *latest - id, totals, is_final },
        Step::Release { id, incurred } => Step::Release { id: *latest - id, incurred },
        Step::Extend { id, ttl_ms } => Step::Extend { id: *latest - id, ttl_ms },
        other => other,
    }
}

pub(super) fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let excess = prop_oneof![Just(OnExcess::Record), Just(OnExcess::Cap), Just(OnExcess::Reject)];
    let late = prop_oneof![12 => Just(OnLate::Charge), 1 => Just(OnLate::Reject)];
    let rule = (excess, late, 1..30_i64).prop_map(|(on_excess, on_late, seconds)| Rule {
        on_excess,
        on_late,
        late_within_ms: seconds * 1000,
    });
    proptest::collection::vec(rule, 2)
}

/// Up to sixteen counters of whatever algorithm.
pub(super) fn mixed_counters() -> impl Strategy<Value = Vec<Counter>> {
    let parameters: Vec<Parameters> = all_rows().into_iter().map(|row| row.turning).collect();
    let weights = prop_oneof![Just([3, 2]), Just([1, 0]), Just([0, 1]), Just([1, 1])];
    let counter = (proptest::sample::select(parameters), 20..110_i64, weights)
        .prop_map(|(parameters, capacity, weights)| Counter::new(parameters, capacity, weights.to_vec()));
    proptest::collection::vec(counter, 1..=MIXED_MAX)
}

/// The same, about a third of them in shadow.
pub(super) fn some_in_shadow(
    counters: impl Strategy<Value = Vec<Counter>>,
) -> impl Strategy<Value = Vec<Counter>> {
    let which = prop::collection::vec(prop::bool::weighted(0.35), MIXED_MAX);
    (counters, which).prop_map(|(mut counters, which)| {
        counters.iter_mut().zip(which).for_each(|(counter, is_shadow)| counter.is_shadow = is_shadow);
        counters
    })
}

pub(super) fn counters(parameters: Parameters) -> impl Strategy<Value = Vec<Counter>> {
    let counter = move |weights: Vec<i64>| {
        (20..110_i64).prop_map(move |capacity| Counter::new(parameters, capacity, weights.clone()))
    };
    (counter(vec![3, 2]), counter(vec![1, 0])).prop_map(|(budget, single)| vec![budget, single])
}
