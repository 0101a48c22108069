//! Counts each decision of the calls by its outcome, and logs each refusal with the limits that refuse.

use super::Calls;
use super::decision_log::Refused;
use crate::domain::ids::OperationId;
use crate::domain::rejection::Rejection;
use crate::operations::answers::{Checked, LimitStatus};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{CheckRequest, ReserveRequest};
use crate::telemetry::labels::{Call, Outcome};

impl Calls {
    /// Counts the outcome of a call; `replayed`: a success answered a repeat.
    pub(super) fn decided<T>(
        &self,
        call: Call,
        answer: Answer<T>,
        replayed: impl Fn(&T) -> bool,
    ) -> Answer<T> {
        let outcome = match &answer {
            Ok(done) if replayed(done) => Outcome::Replayed,
            Ok(_) => Outcome::Admitted,
            Err(error) => outcome_of(error),
        };
        self.core.metrics.decision(call, outcome);
        answer
    }

    /// The same for a new admission, whose refusals and a sample of whose successes are logged.
    pub(super) fn admission_decided<T>(
        &self,
        call: (Call, &str),
        request: &ReserveRequest,
        answer: Answer<T>,
        replayed: impl Fn(&T) -> bool,
        limits: impl Fn(&T) -> &[LimitStatus],
    ) -> Answer<T> {
        let (call, name) = call;
        match &answer {
            Ok(done) if !request.dry_run && !replayed(done) => {
                self.log.admitted(name, request);
                self.count_what_limits_saw(limits(done));
            }
            Ok(_) => {}
            Err(OperationError::Refused(refusal)) => {
                self.refused(&Refused {
                    call: name,
                    tenant: &request.tenant,
                    subjects: &request.subjects,
                    operation: request.work.operation(),
                    decision_id: refusal.decision_id,
                    code: refusal.code,
                    retry_after_ms: refusal.retry_after_ms,
                    refused_by: &refusal.refused_by,
                });
            }
            Err(_) => {}
        }
        self.decided(call, answer, replayed)
    }

    /// Counts and logs a check of light meters. A look is neither logged nor counted by limit.
    pub(super) fn check_decided(
        &self,
        request: &CheckRequest,
        operation: Option<&OperationId>,
        checked: &Checked,
    ) {
        let outcome = if checked.allowed { Outcome::Admitted } else { Outcome::Refused };
        self.core.metrics.decision(Call::Check, outcome);
        let Some(code) = checked.code.filter(|_| !request.peeks) else { return };
        self.refused(&Refused {
            call: "check",
            tenant: &request.tenant,
            subjects: &request.subjects,
            operation,
            decision_id: checked.decision_id,
            code,
            retry_after_ms: checked.retry_after_ms,
            refused_by: &checked.refused_by,
        });
    }

    fn refused(&self, refused: &Refused<'_>) {
        self.log.refused(refused);
        for one in refused.refused_by {
            let algorithm = one.limit.counter.algorithm();
            self.core.metrics.limit_refused(algorithm, one.cause.as_str(), refused.code.as_str());
            self.violations.note(refused.tenant, &one.limit);
            if let Some(of) = one.limit.counter.anomaly_of() {
                self.core.metrics.anomaly_throttled(of.as_str());
            }
        }
    }

    /// Counts the shadow limits that would have refused what was let through, and what came much sooner than usual.
    pub(super) fn count_what_limits_saw(&self, limits: &[LimitStatus]) {
        for limit in limits {
            if limit.would_refuse {
                self.core.metrics.shadow_refused(&limit.counter.name());
            } else if let Some(of) = limit.counter.anomaly_of().filter(|_| limit.is_anomalous()) {
                self.core.metrics.anomaly_monitored(of.as_str());
            }
        }
    }
}

/// How a call ended that was in vain.
pub(super) fn outcome_of(error: &OperationError) -> Outcome {
    match error {
        OperationError::Refused(_) => Outcome::Refused,
        OperationError::KeyReused(_)
        | OperationError::Duplicate(..)
        | OperationError::Rejected(Rejection::AlreadyResolved | Rejection::Expired, _) => Outcome::Conflict,
        OperationError::GateUnavailable(_)
        | OperationError::InQuarantine(_)
        | OperationError::LedgerUnavailable(_)
        | OperationError::LedgerTimeout
        | OperationError::Overloaded
        | OperationError::Internal(_) => Outcome::Unavailable,
        _ => Outcome::Invalid,
    }
}
