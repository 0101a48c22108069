//! Which counters an admission touches, in the order in which the gate is asked about them.

use super::present::Counted;
use super::reserve::Prepared;
use crate::domain::ids::Subject;
use crate::domain::limit::Class;
use crate::domain::policy::Resolved;
use crate::domain::reservation::{Body, CounterPlace, OnExcess, PlaceCapacity};
use crate::gate::{CheckCapacity, CounterCheck, CounterClass};

/// Every counter of a resolution in the order the gate is asked: limits, then quotas.
pub(super) fn counted<'a>(
    resolved: &'a Resolved,
    subjects: impl IntoIterator<Item = &'a Subject>,
) -> Vec<Counted<'a>> {
    let subjects: Vec<_> = subjects.into_iter().collect();
    let limits = resolved
        .limits
        .iter()
        .map(|limit| Counted::Limit(limit, limit.subject.and_then(|index| subjects.get(index)).copied()));
    limits.chain(resolved.quotas.iter().map(Counted::Quota)).collect()
}

/// Where the lines of an admission count, in the same order.
pub(super) fn places(prepared: &Prepared, resolved: &Resolved) -> Vec<CounterPlace> {
    let capped =
        |line: usize| prepared.lines.get(line).is_some_and(|line| line.meter.on_excess == OnExcess::Cap);
    let pairs = |line: usize| u8::try_from(line).map(|line| (line, 1)).into_iter().collect();
    let limits = resolved.limits.iter().map(|limit| CounterPlace {
        holder: holder_of(limit.subject),
        field: limit.field,
        window_start_ms: limit.window.start_ms,
        cap: capped(limit.line).then_some((limit.window.end_ms, PlaceCapacity::Limit(limit.capacity))),
        pairs: pairs(limit.line),
    });
    let quotas = resolved.quotas.iter().map(|quota| CounterPlace {
        holder: 0,
        field: quota.field,
        window_start_ms: quota.window.start_ms,
        cap: capped(quota.line).then_some((quota.window.end_ms, PlaceCapacity::Quota)),
        pairs: pairs(quota.line),
    });
    limits.chain(quotas).collect()
}

/// The same counters to read alone: no line moves them.
pub(super) fn checks_of(resolved: &Resolved) -> Vec<CounterCheck> {
    let limits = resolved.limits.iter().map(|limit| (holder_of(limit.subject), limit.field, limit.window));
    let quotas = resolved.quotas.iter().map(|quota| (0, quota.field, quota.window));
    let places = limits.chain(quotas).map(|(holder, field, window)| CounterPlace {
        holder,
        field,
        window_start_ms: window.start_ms,
        cap: None,
        pairs: vec![(0, 1)],
    });
    with_rules(resolved, places)
}

/// When the last window of a subject's counter ends; 0 where no subject's counts.
pub(super) fn subject_windows_end_ms(resolved: &Resolved) -> i64 {
    let of_subjects = resolved.limits.iter().filter(|limit| limit.subject.is_some());
    of_subjects.map(|limit| limit.window.end_ms).max().unwrap_or_default()
}

/// The hash a limit counts in: 0 is the tenant's, n the n-th subject's.
fn holder_of(subject: Option<usize>) -> u8 {
    subject.map_or(0, |index| u8::try_from(index + 1).unwrap_or(u8::MAX))
}

/// The counters of an admission to be checked and moved, each with its rule.
pub(super) fn checks(resolved: &Resolved, body: &Body) -> Vec<CounterCheck> {
    with_rules(resolved, body.rest.iter().flat_map(|rest| rest.counters.iter().cloned()))
}

fn with_rules(resolved: &Resolved, places: impl Iterator<Item = CounterPlace>) -> Vec<CounterCheck> {
    let rules =
        resolved
            .limits
            .iter()
            .map(|limit| {
                let class = match limit.limit.class {
                    Class::Quota => CounterClass::Quota,
                    Class::Rate => CounterClass::Rate,
                };
                (class, limit.since_ms, CheckCapacity::Limit(limit.capacity))
            })
            .chain(resolved.quotas.iter().map(|quota| {
                (CounterClass::Quota, quota.since_ms, CheckCapacity::Quota { field: quota.field })
            }));
    places
        .zip(rules)
        .map(|(place, (class, since_ms, capacity))| CounterCheck { place, class, since_ms, capacity })
        .collect()
}
