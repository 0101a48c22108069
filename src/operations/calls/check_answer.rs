//! Turns what the gate decided about checks into their answers.

use std::collections::HashMap;

use uuid::Uuid;

use super::check::Resolution;
use super::refusal::{Asked, refusal};
use crate::domain::amount::Units;
use crate::domain::counter::{Counter, need};
use crate::domain::ids::Subject;
use crate::domain::reservation::CounterField;
use crate::gate::CheckedCounters;
use crate::operations::answers::{Checked, Refusal};
use crate::operations::limit_status::{LimitStatus, limit_statuses};

/// What checks of one tenant take of each counter, those before the next one.
#[derive(Default)]
struct Taken(HashMap<(Option<Subject>, CounterField), i64>);

impl Taken {
    fn of(&self, counter: &Counter, subjects: &[Subject]) -> Units {
        let taken = self.0.get(&(counter.subject(subjects).cloned(), counter.field));
        taken.and_then(|units| Units::new(*units)).unwrap_or_default()
    }

    fn add(&mut self, counters: &[Counter], subjects: &[Subject], units: &[Units]) {
        for counter in counters {
            let taken = self.0.entry((counter.subject(subjects).cloned(), counter.field)).or_default();
            let need = counter.parameters.need(need(&counter.lines, units), true);
            *taken = taken.saturating_add(need);
        }
    }
}

/// The answers to checks of one partition, in their order; each with what was decided, where a limit counts it.
pub(super) fn answers(
    checks: Vec<(Resolution<'_>, Option<CheckedCounters>)>,
    now_ms: i64,
    together: bool,
) -> Vec<Checked> {
    let mut taken = together.then(Taken::default);
    let one = |(each, decided)| answer(each, decided, taken.as_mut(), now_ms);
    let mut answers: Vec<_> = checks.into_iter().map(one).collect();
    all_or_none(&mut answers, together);
    answers
}

/// Checks together are all allowed or none.
pub(super) fn all_or_none(answers: &mut [Checked], together: bool) {
    if together && answers.iter().any(|answer| !answer.allowed) {
        for answer in answers {
            (answer.allowed, answer.start_after_ms) = (false, 0);
        }
    }
}

fn answer(
    each: Resolution<'_>,
    decided: Option<CheckedCounters>,
    taken: Option<&mut Taken>,
    now_ms: i64,
) -> Checked {
    let (request, units) = (each.check.request, &each.check.units);
    let resolved = match each.resolved {
        Ok(resolved) if resolved.counters.is_empty() => return allowed(Vec::new(), units),
        Ok(resolved) => resolved,
        Err(refusal) => return refused(*refusal, units),
    };
    let Some(CheckedCounters { refusing, readings, start_after_ms }) = decided else {
        return allowed(Vec::new(), units);
    };
    if refusing.is_empty() {
        if let Some(taken) = taken {
            taken.add(&resolved.counters, &request.subjects, units);
        }
        let mut limits = limit_statuses(resolved, &request.subjects, &readings, now_ms);
        if request.peeks {
            limits = limits.into_iter().map(|limit| limit.with_amounts(units)).collect();
        }
        return Checked { start_after_ms, ..allowed(limits, units) };
    }
    let before = |taken: &mut Taken| {
        resolved.counters.iter().map(|counter| taken.of(counter, &request.subjects)).collect()
    };
    let before: Vec<_> = taken.map(before).unwrap_or_default();
    let subjects: Vec<_> = request.subjects.iter().collect();
    let asked = Asked {
        lines: &each.check.costed.lines,
        amounts: units,
        before: &before,
        best_effort: false,
        subjects: &subjects,
        policy_version: each.check.entry.policy.version,
    };
    refused(refusal(asked, &resolved.counters, &readings, &refusing, now_ms), units)
}

/// A check of these amounts that is allowed.
pub(super) fn allowed(limits: Vec<LimitStatus>, units: &[Units]) -> Checked {
    Checked {
        allowed: true,
        remaining_calls: remaining_calls(&limits, units),
        retry_after_ms: None,
        start_after_ms: 0,
        decision_id: Uuid::now_v7(),
        replayed: false,
        degraded: false,
        limits,
        refused_by: Vec::new(),
        code: None,
    }
}

/// A check of these amounts that is refused.
pub(super) fn refused(refusal: Refusal, units: &[Units]) -> Checked {
    Checked {
        allowed: false,
        remaining_calls: remaining_calls(&refusal.limits, units),
        retry_after_ms: refusal.retry_after_ms,
        start_after_ms: 0,
        decision_id: refusal.decision_id,
        replayed: false,
        degraded: false,
        limits: refusal.limits,
        refused_by: refusal.refused_by,
        code: Some(refusal.code),
    }
}

/// How often work of these amounts still fits under all limits that refuse and whose figures the caller may see.
pub(super) fn remaining_calls(limits: &[LimitStatus], units: &[Units]) -> Option<i64> {
    let of_limit = |limit: &LimitStatus| {
        let need = limit.counter.parameters.need(need(&limit.counter.lines, units), true);
        (need > 0).then(|| limit.remaining.get() / need)
    };
    let counts = |limit: &&LimitStatus| {
        limit.counter.kind.refuses() && !limit.is_hidden && !limit.counter.is_anomaly()
    };
    limits.iter().filter(counts).filter_map(of_limit).min()
}
