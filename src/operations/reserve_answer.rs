//! From the gate's decision about a reserve to its answer.

use super::answers::*;
use super::present::{self, near_limit};
use super::refusal::{Asked, refusal};
use super::requests::{Mode, ReserveRequest};
use super::reserve::{Decided, Prepared};
use super::{Answer, OperationError, Operations};
use crate::domain::amount::Units;
use crate::domain::ids::Subject;
use crate::domain::policy::Resolved;
use crate::domain::reservation::ReservationState;
use crate::gate::{CounterReading, ReserveOutcome};

/// A reservation's first change is its admission.
pub(super) const ADMISSION_STEP: u32 = 1;

impl Operations {
    pub(super) fn answer_reserve(&self, request: &ReserveRequest, decided: Decided) -> Answer<ReserveAnswer> {
        let Decided { prepared, resolved, outcome, policy_now_ms, degraded, .. } = decided;
        let best_effort = request.mode == Mode::BestEffort;
        match outcome {
            ReserveOutcome::Admitted { granted, expires_at_ms, readings, now_ms, .. } => {
                let (limits, warnings) =
                    limit_answers(&resolved, &request.subjects, &readings, policy_now_ms);
                Ok(ReserveAnswer {
                    id: Some(prepared.id.to_string()),
                    status: Some(ReservationState::Reserved.to_string()),
                    created_at: Some(present::instant(now_ms)),
                    expires_at: Some(present::instant(expires_at_ms)),
                    decision_id: present::decision_of(prepared.id, ADMISSION_STEP),
                    lines: reserved_lines(&prepared, &granted, best_effort),
                    degraded,
                    limits,
                    warnings,
                    ..blank(request)
                })
            }
            ReserveOutcome::Allowed { granted, readings, .. } => {
                let (limits, warnings) =
                    limit_answers(&resolved, &request.subjects, &readings, policy_now_ms);
                Ok(ReserveAnswer {
                    allowed: Some(true),
                    lines: reserved_lines(&prepared, &granted, best_effort),
                    limits,
                    warnings,
                    ..blank(request)
                })
            }
            ReserveOutcome::Refused { granted_by_line, readings, .. }
                if request.dry_run
                    && best_effort
                    && granted_by_line.iter().any(|units| *units > Units::ZERO) =>
            {
                let (limits, warnings) =
                    limit_answers(&resolved, &request.subjects, &readings, policy_now_ms);
                Ok(ReserveAnswer {
                    allowed: Some(true),
                    lines: reserved_lines(&prepared, &granted_by_line, best_effort),
                    limits,
                    warnings,
                    ..blank(request)
                })
            }
            ReserveOutcome::Refused { .. } if request.dry_run => {
                let refusal =
                    match self.refusal_or_fault(&prepared, &resolved, outcome, best_effort, policy_now_ms) {
                        OperationError::Refused(refusal) => refusal,
                        other => return Err(other),
                    };
                let units = vec![Units::ZERO; prepared.units.len()];
                Ok(ReserveAnswer {
                    allowed: Some(false),
                    lines: reserved_lines(
                        &prepared,
                        if best_effort { &units } else { &prepared.units },
                        best_effort,
                    ),
                    limits: refusal.limits,
                    refused_by: refusal.refused_by,
                    decision_id: refusal.decision_id,
                    ..blank(request)
                })
            }
            other => Err(self.refusal_or_fault(&prepared, &resolved, other, best_effort, policy_now_ms)),
        }
    }

    /// What is no admission: a refusal that explains itself, or why no decision was made.
    pub(super) fn refusal_or_fault(
        &self,
        prepared: &Prepared,
        resolved: &Resolved,
        outcome: ReserveOutcome,
        best_effort: bool,
        policy_now_ms: i64,
    ) -> OperationError {
        match outcome {
            ReserveOutcome::Refused { readings, refusing, now_ms, .. } => {
                let now_ms = now_ms.max(policy_now_ms);
                let subjects: Vec<_> = prepared.subjects.iter().map(|(subject, _)| subject).collect();
                let asked = Asked { amounts: &prepared.units, best_effort, subjects: &subjects };
                OperationError::Refused(Box::new(refusal(
                    asked,
                    &resolved.counters,
                    &readings,
                    &refusing,
                    now_ms,
                )))
            }
            _ => OperationError::Internal("the gate gave an answer that fits no request".into()),
        }
    }
}

/// Every limit checked, as an answer shows it, and warnings for those that have come near.
pub(super) fn limit_answers(
    resolved: &Resolved,
    subjects: &[Subject],
    readings: &[CounterReading],
    now_ms: i64,
) -> (Vec<LimitAnswer>, Vec<WarningAnswer>) {
    let mut limits = Vec::with_capacity(readings.len());
    let mut warnings = Vec::new();
    for (counter, reading) in resolved.counters.iter().zip(readings) {
        if !reading.current {
            continue;
        }
        let answer = present::limit(counter, subjects, reading, now_ms);
        warnings.extend(near_limit(counter, reading, &answer));
        limits.push(answer);
    }
    (limits, warnings)
}

/// An answer without what was decided.
pub(super) fn blank(request: &ReserveRequest) -> ReserveAnswer {
    ReserveAnswer {
        id: None,
        status: None,
        allowed: None,
        tenant: request.tenant.to_string(),
        subjects: present::subjects_by_kind(&request.subjects),
        operation: request.work.operation().map(ToString::to_string),
        lines: Vec::new(),
        created_at: None,
        expires_at: None,
        replayed: false,
        degraded: false,
        decision_id: present::decision_id(),
        limits: Vec::new(),
        refused_by: Vec::new(),
        warnings: Vec::new(),
    }
}

fn reserved_lines(prepared: &Prepared, granted: &[Units], best_effort: bool) -> Vec<ReservedLineAnswer> {
    let lines = prepared.lines.iter().zip(granted);
    lines
        .map(|(line, granted)| ReservedLineAnswer {
            meter: line.meter.id.to_string(),
            amount: present::amount(*granted, line.meter.decimals),
            requested: best_effort.then(|| present::amount(line.units, line.meter.decimals)),
        })
        .collect()
}
