//! Random worlds for the plain path: their counters, and the calls in them.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tollgate::domain::algorithms::{Parameters, fixed_window, sliding_counter};
use tollgate::domain::counter::Counter;
use tollgate::domain::reservation::{OnExcess, OnLate};
use tollgate::gate::ReserveMode;

use crate::gate::world::*;
use crate::properties::gate::algorithms::uncut;

/// The meters of the lines, in their order.
pub(super) const METERS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// The subjects, of which a world has the first few.
pub(super) const SUBJECTS: [&str; 2] = ["ada", "bob"];

/// How a counter of the world counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Calendar,
    /// By fixed windows.
    Fixed,
    /// By a sliding counter.
    Sliding,
    /// No calendar cuts it: by another algorithm.
    Uncut,
    Quota,
}

/// A counter of the world, whatever the time.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    kind: Kind,
    scope: u8,
    capacity: i64,
    weights: Vec<i64>,
    is_kept: bool,
}

/// A world, and what happens in it.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// Whether scripts ask Redis for the time.
    pub(super) is_by_redis_clock: bool,
    /// Whether records are a former version's.
    pub(super) is_former: bool,
    /// How long a window of the calendar is.
    pub(super) window_ms: i64,
    /// The rules of each line.
    pub(super) rules: Vec<(u8, OnExcess, OnLate, u32)>,
    /// All counters.
    pub(super) counters: Vec<Planned>,
    /// How many subjects calls name.
    pub(super) subject_count: u8,
    /// Which counters were created inside the window in which the world begins.
    pub(super) new: u16,
    /// What happens, and whether it comes too late.
    pub(super) steps: Vec<(Step, bool)>,
}

/// What may happen next. Reservations are named by how far back they were made; 0 in a reserve is a new one.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Reserve {
        back: u8,
        meaning: u8,
        mode: ReserveMode,
        amounts: Vec<i64>,
        ttl_ms: i64,
        keyed: bool,
        known: bool,
        asked: bool,
        omitted: u16,
        is_stale: bool,
    },
    Consume {
        back: u8,
        totals: Option<Vec<Option<i64>>>,
        is_tenth: bool,
        is_final: bool,
        was_parked: bool,
        is_bound: bool,
    },
    Release {
        back: u8,
    },
    Extend {
        back: u8,
        ttl_ms: i64,
    },
    Sweep,
    Pass {
        ms: i64,
    },
    Warm {
        ask_ms: i64,
        told: u16,
        new: u16,
    },
    /// The tenant's hash waits, and is restored at once.
    WarmAgain {
        told: u16,
        new: u16,
    },
    TellSubject {
        number: u8,
        new: u16,
    },
    Suspend {
        number: Option<u8>,
    },
    NewEpoch,
}

impl Case {
    /// The counters as they count at this time; those of the mask are left out.
    pub(super) fn counters_at(&self, now_ms: i64, omitted: u16) -> Vec<Counter> {
        let all = (0..).zip(&self.counters).filter(|(number, _)| omitted >> number & 1 == 0);
        all.map(|(number, planned)| planned.at(number, self.window_at(now_ms))).collect()
    }

    /// Whether a counter has fixed windows, and whether one is a sliding counter.
    pub(super) fn has_fixed_and_sliding(&self) -> [bool; 2] {
        [Kind::Fixed, Kind::Sliding].map(|kind| self.counters.iter().any(|planned| planned.kind == kind))
    }

    /// The calendar's window at this time.
    pub(super) fn window_at(&self, now_ms: i64) -> (i64, i64) {
        let start_ms = now_ms - now_ms % self.window_ms;
        (start_ms, start_ms + self.window_ms)
    }
}

impl Planned {
    fn at(&self, number: u8, window: (i64, i64)) -> Counter {
        let name = name_of(number);
        let counter = if self.kind == Kind::Quota { quota(&name) } else { limit(&name, self.capacity) };
        let length_ms = window.1 - window.0;
        let parameters = match self.kind {
            Kind::Fixed => {
                Parameters::FixedWindow(fixed_window::Parameters { length_ms, aligned: number % 2 == 1 })
            }
            Kind::Sliding => Parameters::SlidingCounter(sliding_counter::Parameters {
                slot_ms: length_ms / 5,
                slot_count: 6,
            }),
            Kind::Uncut => {
                let ways = uncut(length_ms);
                ways[usize::from(number) % ways.len()].1
            }
            _ => in_window(window.0, window.1),
        };
        let counter = of_subject(self.scope, weighted(&self.weights, Counter { parameters, ..counter }));
        if self.is_kept { kept(counter) } else { counter }
    }

    /// Whether it is of this scope and counts by the calendar.
    pub(super) fn is_told_with(&self, scope: u8) -> bool {
        self.scope == scope && matches!(self.kind, Kind::Calendar | Kind::Quota)
    }

    /// Its capacity, where it is a quota.
    pub(super) fn included(&self) -> Option<i64> {
        (self.kind == Kind::Quota).then_some(self.capacity)
    }
}

/// The field of the counter with this number.
pub(super) fn name_of(number: u8) -> [u8; 8] {
    let mut name = *b"count---";
    (name[6], name[7]) = (b'0' + number / 10, b'0' + number % 10);
    name
}

fn counters(line_count: usize, subject_count: u8) -> impl Strategy<Value = Vec<Planned>> {
    let of_calendar = prop_oneof![14 => Just(Kind::Calendar), 1 => Just(Kind::Uncut), 3 => Just(Kind::Quota)];
    let mixed = prop_oneof![
        6 => Just(Kind::Calendar), 5 => Just(Kind::Fixed), 5 => Just(Kind::Sliding), 2 => Just(Kind::Quota),
    ];
    let of = |kind: BoxedStrategy<Kind>| {
        let one = planned(kind, line_count, subject_count).boxed();
        prop_oneof![4 => vec(one.clone(), 1..4), 1 => vec(one, 4..=16)]
    };
    prop_oneof![of(of_calendar.boxed()), of(mixed.boxed())]
}

fn planned(
    kind: BoxedStrategy<Kind>,
    line_count: usize,
    subject_count: u8,
) -> impl Strategy<Value = Planned> {
    let weights = prop_oneof![
        3 => (0..line_count).prop_map(move |line| (0..line_count).map(|at| i64::from(at == line)).collect()),
        1 => vec(0..4_i64, line_count).prop_map(|mut weights: Vec<i64>| { weights[0] += i64::from(weights.iter().sum::<i64>() == 0); weights }),
    ];
    let capacity = prop_oneof![2 => 5..60_i64, 3 => Just(1_000_000_000_000)];
    (kind, 0..=subject_count, capacity, weights, any::<bool>()).prop_map(
        |(kind, scope, capacity, weights, is_kept)| Planned {
            kind,
            scope: if kind == Kind::Quota { 0 } else { scope },
            capacity,
            weights,
            is_kept,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<(Step, bool)>> {
    use ReserveMode::{AllOrNothing, BestEffort, DryRun, Usage};
    let mode =
        prop_oneof![8 => Just(AllOrNothing), 1 => Just(BestEffort), 1 => Just(DryRun), 2 => Just(Usage)];
    let seldom = || proptest::bool::weighted(0.05);
    let fresh = prop_oneof![7 => Just(0), 1 => 1..4_u8];
    let amounts = vec(prop_oneof![1 => Just(0), 8 => 1..9_i64], METERS.len());
    let omitted = prop_oneof![2 => Just(0), 1 => any::<u16>()];
    let reserve = (
        fresh,
        seldom(),
        mode,
        amounts,
        300..5_000_i64,
        any::<bool>(),
        (seldom(), seldom()),
        omitted,
        seldom(),
    )
        .prop_map(|(back, other, mode, amounts, ttl_ms, keyed, (known, asked), omitted, is_stale)| {
            Step::Reserve {
                back,
                meaning: u8::from(other),
                mode,
                amounts,
                ttl_ms,
                keyed,
                known,
                asked,
                omitted,
                is_stale,
            }
        });
    let totals = option::weighted(0.7, vec(option::weighted(0.95, 0..12_i64), METERS.len()));
    let consume = (0..3_u8, totals, seldom(), proptest::bool::weighted(0.8), seldom(), seldom()).prop_map(
        |(back, totals, is_tenth, is_final, was_parked, is_bound)| Step::Consume {
            back,
            totals,
            is_tenth,
            is_final,
            was_parked,
            is_bound,
        },
    );
    let told = (prop_oneof![Just(0), Just(2_000_i64)], any::<u16>(), new());
    let one = prop_oneof![
        36 => reserve,
        30 => consume,
        3 => (0..3_u8).prop_map(|back| Step::Release { back }),
        3 => (0..3_u8, 500..9_000_i64).prop_map(|(back, ttl_ms)| Step::Extend { back, ttl_ms }),
        8 => Just(Step::Sweep),
        18 => (-20..400_i64).prop_map(|ms| Step::Pass { ms }),
        8 => (500..4_000_i64).prop_map(|ms| Step::Pass { ms }),
        4 => told.prop_map(|(ask_ms, told, new)| Step::Warm { ask_ms, told, new }),
        4 => (any::<u16>(), any::<u16>()).prop_map(|(told, new)| Step::WarmAgain { told, new }),
        3 => (0..2_u8, new()).prop_map(|(number, new)| Step::TellSubject { number, new }),
        1 => option::of(0..2_u8).prop_map(|number| Step::Suspend { number }),
        1 => Just(Step::NewEpoch),
    ];
    vec((one, proptest::bool::weighted(0.02)), 20..60)
}

/// Which counters a restore tells as created inside their window.
fn new() -> impl Strategy<Value = u16> {
    prop_oneof![2 => Just(0), 1 => any::<u16>()]
}

/// A world, and what happens in it.
pub(super) fn cases() -> impl Strategy<Value = Case> {
    let line_count = prop_oneof![3 => Just(1_usize), 2 => 2..=3_usize, 1 => Just(METERS.len())];
    let clock = (proptest::bool::weighted(0.3), proptest::bool::weighted(0.2));
    (line_count, 0..=2_u8, clock, prop_oneof![Just(3_000), Just(60_000), Just(10_000_000)]).prop_flat_map(
        |(line_count, subject_count, (is_by_redis_clock, is_former), window_ms)| {
            let excess = prop_oneof![6 => Just(OnExcess::Record), 1 => Just(OnExcess::Cap), 2 => Just(OnExcess::Reject)];
            let late = prop_oneof![Just(OnLate::Charge), Just(OnLate::Reject)];
            let rules = vec((0..2_u8, excess, late, 1..30_u32), line_count);
            let all = (rules, counters(line_count, subject_count), new(), steps());
            all.prop_map(move |(rules, counters, new, steps)| Case {
                is_by_redis_clock, is_former, window_ms, rules, counters, subject_count, new, steps,
            })
        },
    )
}
