//! Keeps what decisions can be explained by: every refusal, and the admissions of sampled tenants.

use super::Calls;
use crate::domain::decision::DecidedCall;
use crate::domain::ids::OperationId;
use crate::operations::answers::{AskedLine, Checked, Refusal, Reservation, Reserved, ReservedLine};
use crate::operations::decisions::Decided;
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{CheckRequest, ReserveRequest};

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
                    is_dry_run: request.dry_run,
                    is_degraded: reserved.degraded,
                    policy_version: reserved.policy_version,
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
                let lines = record.body.lines.iter().zip(&record.units);
                let rest = record.body.rest.as_ref();
                self.decisions.keep(Decided {
                    id: usage.decision_id(),
                    call: DecidedCall::Usage,
                    tenant: &request.tenant,
                    subjects: &request.subjects,
                    operation: request.work.operation(),
                    lines: lines
                        .map(|(line, units)| AskedLine {
                            meter: line.meter.clone(),
                            units: units.consumed,
                            decimals: line.decimals,
                        })
                        .collect(),
                    limits,
                    refused_by: &[],
                    is_admitted: true,
                    is_dry_run: false,
                    is_degraded: *degraded || record.head.degraded,
                    policy_version: rest.map_or(0, |rest| rest.policy_version),
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
            is_dry_run: request.peeks,
            is_degraded: checked.degraded,
            policy_version,
        });
    }

    fn keep_refusal(&self, call: DecidedCall, request: &ReserveRequest, error: &OperationError) {
        let OperationError::Refused(refusal) = error else { return };
        let Refusal { decision_id, refused_by, limits, asked, policy_version, .. } = &**refusal;
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
            is_dry_run: request.dry_run,
            is_degraded: false,
            policy_version: *policy_version,
        });
    }
}
