//! The candidates for one limit id of a tenant or of one of its subjects, and which of them wins at which time.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::counter::{CounterKey, Generations, LimitSignature, Resets, field_of};
use super::resolve::Level;
use crate::domain::amount::{Amount, Decimals, Units};
use crate::domain::counted_meter::CountedMeter;
use crate::domain::counter::{Counter, Source};
use crate::domain::factor::Factor;
use crate::domain::ids::MeterId;
use crate::domain::limit::{Kind, Limit};
use crate::domain::load::LoadLevel;
use crate::domain::period::Windows;
use crate::domain::reservation::CounterField;

/// One definition or override of a limit id, at its level.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) level: Level,
    pub(super) says: Says,
}

/// The content of a candidate.
#[derive(Debug, Clone)]
pub(super) enum Says {
    /// The whole limit.
    Limit(Arc<Limit>),
    /// Another capacity, a factor of the capacity that would win without it, or another kind, until an instant.
    Other { capacity: Option<Amount>, factor: Option<Factor>, kind: Option<Kind>, until_ms: Option<i64> },
}

impl Candidate {
    fn is_active(&self, at_ms: i64) -> bool {
        match &self.says {
            Says::Limit(limit) => limit.is_active(at_ms),
            Says::Other { until_ms, .. } => until_ms.is_none_or(|until_ms| at_ms < until_ms),
        }
    }

    fn edges_ms(&self) -> impl Iterator<Item = i64> {
        let (from_ms, until_ms) = match &self.says {
            Says::Limit(limit) => (limit.from.map(|from| from.ms()), limit.until.map(|until| until.ms())),
            Says::Other { until_ms, .. } => (None, *until_ms),
        };
        from_ms.into_iter().chain(until_ms)
    }
}

/// The winner from one instant to that of the next segment.
#[derive(Debug)]
struct Segment {
    from_ms: i64,
    winner: Option<Winner>,
}

/// The definition in force, with its kind, capacity and counter.
#[derive(Debug, Clone)]
pub(super) struct Winner {
    pub(super) limit: Arc<Limit>,
    pub(super) kind: Kind,
    /// The meters that it counts, sorted; counters of a budget share the list.
    pub(super) meters: Arc<[CountedMeter]>,
    pub(super) decimals: Decimals,
    pub(super) capacity: Units,
    pub(super) level: Level,
    pub(super) identity: CounterIdentity,
}

impl Winner {
    /// How many of its units one smallest unit of a meter is; none for a meter that it does not count.
    pub(super) fn factor(&self, meter: &MeterId) -> Option<i64> {
        let at = self.meters.binary_search_by(|counted| counted.meter.cmp(meter)).ok()?;
        self.meters.get(at).map(|counted| counted.factor)
    }

    /// The counter of one line of a request, of this meter and weight, for the tenant (0) or the n-th subject.
    pub(super) fn counter(
        &self,
        (line, weight): (u8, i64),
        meter: &MeterId,
        scope_index: u8,
        windows: &Windows,
    ) -> Counter {
        Counter {
            scope_index,
            is_light: false,
            field: self.identity.field,
            kind: self.kind,
            class: self.limit.class,
            lines: vec![(line, weight)],
            capacity: self.capacity,
            load: LoadLevel::Full,
            parameters: self.limit.algorithm.parameters(windows, self.decimals, self.capacity),
            since_ms: self.identity.since_ms,
            meter: meter.clone(),
            decimals: self.decimals,
            budgeted: self.limit.limited.is_budget().then(|| self.meters.clone()),
            source: Source::Limit(self.limit.clone(), self.level),
        }
    }
}

/// The identity of a counter, for the gate and the resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CounterIdentity {
    pub(super) shape: LimitSignature,
    pub(super) start_ms: i64,
    pub(super) since_ms: i64,
    pub(super) field: CounterField,
}

impl CounterIdentity {
    /// The counter of signature `shape` that took effect at `active_from_ms` by its limit's dates.
    pub(super) fn new(
        key: &CounterKey,
        shape: LimitSignature,
        active_from_ms: i64,
        generations: &Generations,
        resets: &Resets,
    ) -> Self {
        let generation = generations.get(&key.counter, shape);
        let start_ms = resets.start_ms(key, active_from_ms);
        Self {
            shape,
            start_ms,
            since_ms: generation.since_ms.max(start_ms),
            field: field_of(&key.counter, shape, generation.number, start_ms),
        }
    }
}

/// The winners of a limit id over time: computed once, so that a question is a look-up.
#[derive(Debug)]
pub(super) struct Chain {
    segments: Vec<Segment>,
}

impl Chain {
    /// Computes the winners among `candidates`, which are in order of precedence.
    pub(super) fn new(
        key: &CounterKey,
        candidates: &[Candidate],
        decimals_of: impl Fn(&MeterId) -> Decimals,
        generations: &Generations,
        resets: &Resets,
    ) -> Self {
        let edges: BTreeSet<i64> = candidates.iter().flat_map(Candidate::edges_ms).collect();
        let mut segments: Vec<Segment> = Vec::with_capacity(edges.len() + 1);
        // When the signature in force took effect: 0 while it is the first.
        let mut active_from_ms = 0;
        let mut shape_before = None;
        for from_ms in std::iter::once(i64::MIN).chain(edges) {
            let won = win(candidates, from_ms, &decimals_of);
            let shape = won.as_ref().map(|won| LimitSignature::of_limit(&won.limit));
            if !segments.is_empty() && shape != shape_before {
                active_from_ms = from_ms;
            }
            shape_before = shape;
            let winner = won.zip(shape).map(|(won, shape)| Winner {
                limit: won.limit,
                kind: won.kind,
                meters: won.meters,
                decimals: won.decimals,
                capacity: won.capacity,
                level: won.level,
                identity: CounterIdentity::new(key, shape, active_from_ms, generations, resets),
            });
            segments.push(Segment { from_ms, winner });
        }
        Self { segments }
    }

    /// The winner at `at_ms`, if any definition is in force then.
    pub(super) fn winner(&self, at_ms: i64) -> Option<&Winner> {
        let after = self.segments.partition_point(|segment| segment.from_ms <= at_ms);
        self.segments.get(after.checked_sub(1)?)?.winner.as_ref()
    }

    /// Every meter that it may ever count.
    pub(super) fn meters(&self) -> BTreeSet<&MeterId> {
        let winners = self.segments.iter().filter_map(|segment| segment.winner.as_ref());
        winners.flat_map(|winner| winner.limit.limited.meters()).collect()
    }
}

struct Won {
    limit: Arc<Limit>,
    kind: Kind,
    meters: Arc<[CountedMeter]>,
    decimals: Decimals,
    capacity: Units,
    level: Level,
}

/// The first active definition wins the signature; capacity and kind are those of the first active candidate with one.
/// A limit that is off has no winner.
fn win(candidates: &[Candidate], at_ms: i64, decimals_of: impl Fn(&MeterId) -> Decimals) -> Option<Won> {
    let active = || candidates.iter().filter(|candidate| candidate.is_active(at_ms));
    let limit = active().find_map(|candidate| match &candidate.says {
        Says::Limit(limit) => Some(limit.clone()),
        _ => None,
    })?;
    let kind = active().find_map(|candidate| match &candidate.says {
        Says::Limit(limit) => Some(limit.kind),
        Says::Other { kind, .. } => *kind,
    });
    let kind = kind.filter(|kind| *kind != Kind::Off)?;
    let decimals = limit.limited.decimals(|meter| Some(decimals_of(meter)))?;
    let counted = |meter: &MeterId| {
        let decimals = decimals_of(meter);
        let factor = limit.limited.factor(meter, decimals)?;
        Some(CountedMeter { meter: meter.clone(), decimals, factor })
    };
    let meters = limit.limited.meters().filter_map(counted).collect();
    let mut factors: Vec<Factor> = Vec::new();
    let named = active().find_map(|candidate| match &candidate.says {
        Says::Limit(limit) => Some(limit.capacity),
        Says::Other { capacity, factor, .. } => {
            factors.extend(factor);
            *capacity
        }
    })?;
    let capacity =
        factors.iter().rev().fold(named.floor_units(decimals), |units, rate| rate.scale_down(units));
    // Factors of several levels meet here only.
    let capacity =
        Units::new(limit.algorithm.capacity_max(decimals)).map_or(capacity, |most| capacity.min(most));
    Some(Won { limit, kind, meters, decimals, capacity, level: active().next()?.level })
}
