//! Which counters an admission touches.

use super::Prepared;
use crate::domain::counter::Counter;
use crate::domain::policy::Resolved;
use crate::domain::reservation::{CounterRef, OnExcess};

/// The counters of an admission's lines, in order.
pub(super) fn places(prepared: &Prepared, resolved: &Resolved) -> Vec<CounterRef> {
    let caps = |line: u8| {
        let line = prepared.lines.get(usize::from(line));
        line.is_some_and(|line| line.meter.on_excess == OnExcess::Cap)
    };
    let place = |counter: &Counter| counter.place(counter.lines.iter().any(|(line, _)| caps(*line)));
    resolved.counters.iter().map(place).collect()
}

/// When the last counter, of any scope, has forgotten what is counted at `at_ms`; 0 where there is none.
pub(in crate::operations) fn counters_end_ms(counters: &[Counter], at_ms: i64) -> i64 {
    counters.iter().map(|counter| counter.ends_at_ms(at_ms)).max().unwrap_or_default()
}

/// When the last counter of a subject, or light one, has forgotten what is counted at `at_ms`; 0 where there is none.
pub(in crate::operations) fn subject_counters_end_ms(resolved: &Resolved, at_ms: i64) -> i64 {
    let of_subjects = resolved.counters.iter().filter(|counter| counter.scope_index > 0 || counter.is_light);
    of_subjects.map(|counter| counter.ends_at_ms(at_ms)).max().unwrap_or_default()
}
