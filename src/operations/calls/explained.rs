//! Keeps what decisions can be explained by: every refusal, and the admissions of sampled tenants.

use super::Calls;
use crate::domain::amount::Units;
use crate::domain::decision::{DecidedCall, DecidedReservation};
use crate::domain::ids::{OperationId, ReservationId};
use crate::domain::reservation::{LineRule, LineUnits, Record, ReservationState};
use crate::operations::answers::{AskedLine, Checked, Refusal, Reservation, Reserved, ReservedLine};
use crate::operations::decisions::Decided;
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{CheckRequest, Mode, ReserveRequest};

impl Calls {
    /// Keeps the decision about a reserve or a dry run of this call. A replay is no decision.
    pub(super) fn keep_reserve(
        &self,
        call: DecidedCall,
        request: &ReserveRequest,
        answer: &Answer<Reserved>,
    ) {
        match answer {
            Ok(reserved) if reserved.replayed => {}
            Ok(reserved) => {
                let is_admitted = reserved.allowed != Some(false);
                if is_admitted && !self.decisions.samples(&request.tenant) {
                    return;
                }
                self.decisions.keep(Decided {
                    id: reserved.decision_id,
                    call,
                    tenant: &request.tenant,
                    subjects: &request.subjects,
                    operation: reserved.operation.as_ref(),
                    lines: reserved.lines.iter().map(ReservedLine::asked).collect(),
                    limits: &reserved.limits,
                    refused_by: &reserved.refused_by,
                    is_admitted,
                    code: reserved.code,
                    is_dry_run: request.dry_run,
                    is_degraded: reserved.degraded,
                    policy_version: reserved.policy_version,
                    granted: may_be_less(request).then(|| granted(&reserved.lines)),
                    reservation: reserved.hold.map(|hold| DecidedReservation {
                        id: hold.id.uuid(),
                        state: hold.state,
                        expires_at_ms: hold.expires_at_ms,
                    }),
                    at_ms: reserved.hold.map(|hold| hold.created_at_ms),
                });
            }
            Err(error) => self.keep_refusal(call, request, error),
        }
    }

    /// Keeps the decision about a usage. A replay is no decision.
    pub(super) fn keep_usage(&self, request: &ReserveRequest, answer: &Answer<Reservation>) {
        match answer {
            Ok(usage) if usage.replayed || !self.decisions.samples(&request.tenant) => {}
            Ok(usage) => {
                let Reservation { record, limits, degraded, .. } = usage;
                let rest = record.body.rest.as_ref();
                self.decisions.keep(Decided {
                    id: usage.decision_id(),
                    call: DecidedCall::Usage,
                    tenant: &request.tenant,
                    subjects: &request.subjects,
                    operation: request.work.operation(),
                    lines: consumed(record),
                    limits,
                    refused_by: &[],
                    is_admitted: true,
                    code: None,
                    is_dry_run: false,
                    is_degraded: *degraded || record.head.degraded,
                    policy_version: rest.map_or(0, |rest| rest.policy_version),
                    granted: None,
                    reservation: Some(reservation_of(usage)),
                    at_ms: Some(record.head.born_at_ms),
                });
            }
            Err(error) => self.keep_refusal(DecidedCall::Usage, request, error),
        }
    }

    /// Keeps the decision about a check of light meters.
    pub(super) fn keep_check(
        &self,
        request: &CheckRequest,
        (lines, policy_version): (&[AskedLine], u64),
        operation: Option<&OperationId>,
        checked: &Checked,
    ) {
        self.decisions.keep(Decided {
            id: checked.decision_id,
            call: DecidedCall::Check,
            tenant: &request.tenant,
            subjects: &request.subjects,
            operation,
            lines: lines.to_vec(),
            limits: &checked.limits,
            refused_by: &checked.refused_by,
            is_admitted: checked.allowed,
            code: checked.code,
            is_dry_run: request.peeks,
            is_degraded: checked.degraded,
            policy_version,
            granted: None,
            reservation: None,
            at_ms: None,
        });
    }

    /// Keeps how a reservation went on. A repeat, or a call that changed nothing, is no decision.
    pub(super) fn keep_resolved(&self, call: DecidedCall, answer: &Answer<Reservation>) {
        let Ok(found) = answer else { return };
        let Reservation { record, limits, replayed, degraded, .. } = found;
        let changed_nothing =
            *replayed || (call == DecidedCall::Release && record.head.state == ReservationState::Expired);
        let tenant = &record.body.tenant;
        if changed_nothing || !self.decisions.samples(tenant) {
            return;
        }
        let rest = record.body.rest.as_ref();
        let subjects: Vec<_> =
            rest.into_iter().flat_map(|rest| &rest.subjects).map(|(subject, _)| subject.clone()).collect();
        self.decisions.keep(Decided {
            id: found.decision_id(),
            call,
            tenant,
            subjects: &subjects,
            operation: rest.and_then(|rest| rest.operation.as_ref()),
            lines: consumed(record),
            limits,
            refused_by: &[],
            is_admitted: true,
            code: None,
            is_dry_run: false,
            is_degraded: *degraded || record.head.degraded,
            policy_version: rest.map_or(0, |rest| rest.policy_version),
            granted: None,
            reservation: Some(reservation_of(found)),
            at_ms: found.resolved_at_ms,
        });
    }

    /// Keeps an event that was recorded: it counts from when its work was done.
    pub(super) fn keep_event(&self, request: &ReserveRequest, id: ReservationId, record: &Record) {
        if !self.decisions.samples(&request.tenant) {
            return;
        }
        let found = Reservation::new(id, record.clone());
        self.decisions.keep(Decided {
            id: found.decision_id(),
            call: DecidedCall::Event,
            tenant: &request.tenant,
            subjects: &request.subjects,
            operation: request.work.operation(),
            lines: consumed(record),
            limits: &[],
            refused_by: &[],
            is_admitted: true,
            code: None,
            is_dry_run: false,
            is_degraded: false,
            policy_version: record.body.rest.as_ref().map_or(0, |rest| rest.policy_version),
            granted: None,
            reservation: Some(reservation_of(&found)),
            at_ms: None,
        });
    }

    fn keep_refusal(&self, call: DecidedCall, request: &ReserveRequest, error: &OperationError) {
        let OperationError::Refused(refusal) = error else { return };
        let Refusal { decision_id, code, refused_by, limits, asked, policy_version, .. } = &**refusal;
        self.decisions.keep(Decided {
            id: *decision_id,
            call,
            tenant: &request.tenant,
            subjects: &request.subjects,
            operation: request.work.operation(),
            lines: asked.clone(),
            limits,
            refused_by,
            is_admitted: false,
            code: Some(*code),
            is_dry_run: request.dry_run,
            is_degraded: false,
            policy_version: *policy_version,
            granted: may_be_less(request).then(|| vec![Units::ZERO; asked.len()]),
            reservation: None,
            at_ms: None,
        });
    }
}

/// Whether less than what it asks for would do.
fn may_be_less(request: &ReserveRequest) -> bool {
    request.mode == Mode::BestEffort
}

fn granted(lines: &[ReservedLine]) -> Vec<Units> {
    lines.iter().map(|line| line.amount.floor_units(line.decimals)).collect()
}

/// What is used up of each line.
fn consumed(record: &Record) -> Vec<AskedLine> {
    let lines = record.body.lines.iter().zip(&record.units);
    let line = |(line, units): (&LineRule, &LineUnits)| AskedLine {
        meter: line.meter.clone(),
        units: units.consumed,
        decimals: line.decimals,
        estimated: false,
    };
    lines.map(line).collect()
}

fn reservation_of(found: &Reservation) -> DecidedReservation {
    let head = &found.record.head;
    DecidedReservation { id: found.id.uuid(), state: head.state, expires_at_ms: head.expires_at_ms }
}
