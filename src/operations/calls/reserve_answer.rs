//! Turns the gate's decision about a reserve into its answer.

use uuid::Uuid;

use super::refusal::{Asked, refusal};
use super::reserve::Decided;
use crate::domain::amount::Units;
use crate::domain::counter::Counter;
use crate::domain::reservation::ReservationState;
use crate::gate::ReserveOutcome;
use crate::operations::answers::{AskedLine, Hold, Refusal, Reserved, ReservedLine, decision_of};
use crate::operations::error::{Answer, OperationError};
use crate::operations::limit_status::limit_statuses;
use crate::operations::preparation::Prepared;
use crate::operations::requests::{Mode, ReserveRequest};

/// An admission is a reservation's first change.
pub(super) const ADMISSION_STEP: u32 = 1;

pub(super) fn answer_reserve(request: &ReserveRequest, decided: Decided) -> Answer<Reserved> {
    let Decided { prepared, resolved, outcome, policy_now_ms, degraded, .. } = decided;
    let best_effort = request.mode == Mode::BestEffort;
    let lines = |granted: &[Units]| reserved_lines(&prepared, granted, best_effort);
    match outcome {
        ReserveOutcome::Admitted { granted, expires_at_ms, readings, now_ms, start_after_ms, .. } => {
            let (id, state) = (prepared.id, ReservationState::Reserved);
            Ok(Reserved {
                hold: Some(Hold { id, state, created_at_ms: now_ms, expires_at_ms }),
                start_after_ms,
                decision_id: decision_of(id, ADMISSION_STEP),
                policy_version: prepared.policy_version,
                lines: lines(&granted),
                degraded,
                limits: limit_statuses(resolved, &request.subjects, &readings, policy_now_ms),
                ..blank(request)
            })
        }
        ReserveOutcome::Allowed { granted, readings, start_after_ms, .. } => Ok(Reserved {
            start_after_ms,
            policy_version: prepared.policy_version,
            allowed: Some(true),
            lines: lines(&granted),
            limits: limit_statuses(resolved, &request.subjects, &readings, policy_now_ms)
                .into_iter()
                .map(|status| status.with_amounts(&granted))
                .collect(),
            ..blank(request)
        }),
        ReserveOutcome::Refused { granted_by_line, readings, .. }
            if request.dry_run && best_effort && granted_by_line.iter().any(|units| *units > Units::ZERO) =>
        {
            Ok(Reserved {
                policy_version: prepared.policy_version,
                allowed: Some(true),
                lines: lines(&granted_by_line),
                limits: limit_statuses(resolved, &request.subjects, &readings, policy_now_ms),
                ..blank(request)
            })
        }
        other => {
            let error = refusal_or_fault(&prepared, &resolved.counters, other, best_effort, policy_now_ms);
            said_of_dry_run(request, error).map(|said| {
                let nothing = vec![Units::ZERO; prepared.units.len()];
                Reserved { lines: lines(if best_effort { &nothing } else { &prepared.units }), ..said }
            })
        }
    }
}

/// What a call is answered that came to nothing: a dry run that is refused has its answer all the same.
pub(super) fn said_of_dry_run(request: &ReserveRequest, error: OperationError) -> Answer<Reserved> {
    match error {
        OperationError::Refused(refusal) if request.dry_run => Ok(refused_dry_run(request, *refusal)),
        error => Err(error),
    }
}

fn refused_dry_run(request: &ReserveRequest, refusal: Refusal) -> Reserved {
    let best_effort = request.mode == Mode::BestEffort;
    let line = |line: AskedLine| {
        let asked = line.units.to_amount(line.decimals);
        ReservedLine {
            meter: line.meter,
            amount: if best_effort { Units::ZERO.to_amount(line.decimals) } else { asked },
            requested: best_effort.then_some(asked),
            decimals: line.decimals,
            estimated: line.estimated,
            estimate: None,
        }
    };
    Reserved {
        allowed: Some(false),
        lines: refusal.asked.into_iter().map(line).collect(),
        limits: refusal.limits,
        refused_by: refusal.refused_by,
        code: Some(refusal.code),
        retry_after_ms: refusal.retry_after_ms,
        decision_id: refusal.decision_id,
        policy_version: refusal.policy_version,
        ..blank(request)
    }
}

/// The error of a decision that is no admission: a refusal with its reasons, or why nothing was decided.
pub(super) fn refusal_or_fault(
    prepared: &Prepared,
    counters: &[Counter],
    outcome: ReserveOutcome,
    best_effort: bool,
    policy_now_ms: i64,
) -> OperationError {
    match outcome {
        ReserveOutcome::Refused { readings, refusing, now_ms, .. } => {
            let now_ms = now_ms.max(policy_now_ms);
            let subjects: Vec<_> = prepared.subjects.iter().map(|(subject, _)| subject).collect();
            let asked = Asked {
                lines: &prepared.lines,
                amounts: &prepared.units,
                before: &[],
                best_effort,
                subjects: &subjects,
                policy_version: prepared.policy_version,
            };
            OperationError::Refused(Box::new(refusal(asked, counters, &readings, &refusing, now_ms)))
        }
        _ => OperationError::Internal("the gate gave an answer that fits no request".into()),
    }
}

/// An answer without a decision in it.
pub(super) fn blank(request: &ReserveRequest) -> Reserved {
    Reserved {
        hold: None,
        start_after_ms: 0,
        allowed: None,
        tenant: request.tenant.clone(),
        subjects: request.subjects.clone(),
        operation: request.work.operation().cloned(),
        lines: Vec::new(),
        replayed: false,
        degraded: false,
        decision_id: Uuid::now_v7(),
        policy_version: 0,
        limits: Vec::new(),
        refused_by: Vec::new(),
        code: None,
        retry_after_ms: None,
    }
}

fn reserved_lines(prepared: &Prepared, granted: &[Units], best_effort: bool) -> Vec<ReservedLine> {
    let lines = prepared.lines.iter().zip(granted);
    lines
        .map(|(line, granted)| ReservedLine {
            meter: line.meter.id.clone(),
            amount: granted.to_amount(line.meter.decimals),
            requested: best_effort.then(|| line.amount()),
            decimals: line.meter.decimals,
            estimated: line.estimate.is_some(),
            estimate: line.estimate.clone(),
        })
        .collect()
}
