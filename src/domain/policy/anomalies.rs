//! The counters of how often the subjects of limits call.

use super::counter::{CounterName, LimitSignature, field_of};
use super::resolve::{COUNTERS_MAX, Resolved, TooManyCounters};
use crate::domain::algorithms::Parameters;
use crate::domain::algorithms::anomaly::Anomaly;
use crate::domain::amount::{Decimals, Units};
use crate::domain::counter::{Counter, Source};
use crate::domain::ids::OperationId;
use crate::domain::limit::{Class, Kind};
use crate::domain::load::LoadLevel;

impl Resolved {
    /// Adds a counter for each limit with an `anomaly`, of the subject that the limit counts and of this operation.
    pub fn with_anomalies(mut self, operation: Option<&OperationId>) -> Result<Self, TooManyCounters> {
        let added: Vec<_> =
            self.counters.iter().filter_map(|counter| anomaly_of(counter, operation)).collect();
        if added.is_empty() {
            return Ok(self);
        }
        self.counters.extend(added);
        let counters = self.counters.len();
        if counters > COUNTERS_MAX { Err(TooManyCounters(counters)) } else { Ok(self) }
    }
}

fn anomaly_of(counter: &Counter, operation: Option<&OperationId>) -> Option<Counter> {
    let Source::Limit(limit, level) = &counter.source else { return None };
    let rule = Anomaly(limit.anomaly?);
    // What it knows about a subject goes on, whatever else of the limit changes.
    let name = CounterName::of_anomaly(&limit.id, operation);
    let field = field_of(&name, LimitSignature::of_anomaly(), 0, 0);
    // One that refuses nothing counts as a soft limit without bound.
    let (kind, capacity) = match (rule.0.refuses_from(), counter.kind) {
        (Some(_), Kind::Hard | Kind::Shadow) => (counter.kind, Units::ONE),
        _ => (Kind::Soft, Units::MAX),
    };
    Some(Counter {
        scope_index: counter.scope_index,
        is_light: counter.is_light,
        field,
        kind,
        class: Class::Rate,
        // A call is one call, however many lines of it the limit counts.
        lines: counter.lines.first().map(|(line, _)| (*line, 1)).into_iter().collect(),
        capacity,
        load: LoadLevel::Full,
        parameters: Parameters::Anomaly(rule.in_numbers()),
        since_ms: 0,
        meter: counter.meter.clone(),
        decimals: Decimals::default(),
        budgeted: None,
        source: Source::Anomaly(limit.id.clone(), *level),
    })
}
