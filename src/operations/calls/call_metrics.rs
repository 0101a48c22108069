//! Counts each decision of the calls by its outcome, and logs each refusal with the limits that refuse.

use super::Calls;
use super::decision_log::Refused;
use crate::domain::ids::OperationId;
use crate::domain::rejection::Rejection;
use crate::operations::answers::{Checked, LimitStatus, RefusalCode, Reservation, Reserved};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{CheckRequest, ReserveRequest};
use crate::telemetry::labels::{Call, Outcome};

/// The label of what a refusal without a limit has not.
const NONE: &str = "none";

/// The answer to a new admission.
pub(super) trait Admission {
    /// How the call ended.
    fn outcome(&self) -> Outcome;
    /// Every limit checked.
    fn limits(&self) -> &[LimitStatus];
}

impl Admission for Reserved {
    fn outcome(&self) -> Outcome {
        match self.allowed {
            _ if self.replayed => Outcome::Replayed,
            Some(false) => Outcome::Refused,
            _ => Outcome::Admitted,
        }
    }

    fn limits(&self) -> &[LimitStatus] {
        &self.limits
    }
}

impl Admission for Reservation {
    fn outcome(&self) -> Outcome {
        if self.replayed { Outcome::Replayed } else { Outcome::Admitted }
    }

    fn limits(&self) -> &[LimitStatus] {
        &self.limits
    }
}

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

    /// The same for a new admission, whose refusals and a sample of whose successes are logged; of a dry run neither.
    pub(super) fn admission_decided<T: Admission>(
        &self,
        call: (Call, &str),
        request: &ReserveRequest,
        answer: Answer<T>,
    ) -> Answer<T> {
        let (call, name) = call;
        let outcome = answer.as_ref().map_or_else(outcome_of, T::outcome);
        self.core.metrics.decision(call, outcome);
        match &answer {
            Ok(done) if outcome == Outcome::Admitted && !request.dry_run => {
                self.log.admitted(name, &request.tenant, &request.subjects, request.work.operation());
                self.count_what_limits_saw(done.limits());
            }
            Ok(_) => {}
            Err(OperationError::Refused(refusal)) if !request.dry_run => {
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
        answer
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
        if request.peeks {
            return;
        }
        if checked.allowed {
            self.log.admitted("check", &request.tenant, &request.subjects, operation);
            self.count_what_limits_saw(&checked.limits);
        }
        let Some(code) = checked.code else { return };
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
        if refused.refused_by.is_empty() {
            let kind = match refused.code {
                RefusalCode::Banned => "admin_ban",
                _ => "without_limit",
            };
            self.core.metrics.limit_refused(kind, NONE, NONE, refused.code.as_str());
        }
        for one in refused.refused_by {
            let algorithm = one.limit.counter.algorithm();
            let kind = one.limit.counter.source.kind();
            self.core.metrics.limit_refused(kind, algorithm, one.cause.as_str(), refused.code.as_str());
            self.violations.note(refused.tenant, &one.limit);
            if let Some(of) = one.limit.counter.anomaly_of() {
                self.core.metrics.anomaly_throttled(of.as_str());
            }
        }
    }

    /// Counts what limits saw of work that was let through: that a shadow would have refused it, that it came much
    /// sooner than usual, that it has come near a capacity; and, of a sample, how much is left.
    fn count_what_limits_saw(&self, limits: &[LimitStatus]) {
        let metrics = &self.core.metrics;
        let is_sampled = metrics.samples_remaining();
        for limit in limits {
            let counter = &limit.counter;
            if limit.would_refuse {
                metrics.shadow_refused(&counter.name());
            } else if let Some(of) = counter.anomaly_of() {
                if limit.is_anomalous() {
                    metrics.anomaly_monitored(of.as_str());
                }
            } else if limit.is_near() {
                metrics.near_limit(&counter.name());
            }
            if is_sampled && let Some(percent) = limit.remaining_percent() {
                metrics.remaining(counter.algorithm(), percent);
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
