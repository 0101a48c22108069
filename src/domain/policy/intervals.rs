//! The counters of an operation's least time between calls.

use super::counter::{CounterName, LimitSignature, field_of};
use super::resolve::{COUNTERS_MAX, Resolved, TooManyCounters};
use crate::domain::algorithms::Parameters;
use crate::domain::algorithms::interval::{Interval, Parameters as IntervalParameters};
use crate::domain::amount::{Decimals, Units};
use crate::domain::counter::{Counter, Source};
use crate::domain::ids::{MeterId, OperationId};
use crate::domain::limit::{Class, Kind};
use crate::domain::load::LoadLevel;

/// An operation's least time between two calls of one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationInterval {
    /// The operation.
    pub operation: OperationId,
    /// How long.
    pub interval: Interval,
}

impl Resolved {
    /// Adds a counter for each of so many subjects, or one for the tenant where no subject is named. `meters` are those
    /// of the request's lines.
    pub fn with_interval<'a>(
        mut self,
        of: &OperationInterval,
        meters: impl IntoIterator<Item = &'a MeterId>,
        subjects: usize,
    ) -> Result<Self, TooManyCounters> {
        let meters: Vec<_> = meters.into_iter().collect();
        let Some(first) = meters.first() else { return Ok(self) };
        let lines: Vec<(u8, i64)> = (0..).zip(&meters).map(|(line, _)| (line, 1)).collect();
        // The length is no part of the identity: another one counts from the same last call.
        let name = CounterName::of_interval(&of.operation);
        let field = field_of(&name, LimitSignature::of_interval(), 0, 0);
        let counter = |scope_index: u8| Counter {
            scope_index,
            is_light: false,
            field,
            kind: Kind::Hard,
            class: Class::Rate,
            lines: lines.clone(),
            capacity: Units::ONE,
            load: LoadLevel::Full,
            parameters: Parameters::Interval(IntervalParameters { length_ms: of.interval.length.ms() }),
            since_ms: 0,
            meter: (*first).clone(),
            decimals: Decimals::default(),
            budgeted: None,
            source: Source::Interval(of.clone()),
        };
        let subjects = u8::try_from(subjects).unwrap_or(u8::MAX);
        self.counters.extend((subjects.min(1)..=subjects).map(counter));
        let counters = self.counters.len();
        if counters > COUNTERS_MAX { Err(TooManyCounters(counters)) } else { Ok(self) }
    }
}
