//! What the calls tell the metrics: each decision by its outcome.

use super::Calls;
use crate::domain::rejection::Rejection;
use crate::operations::error::{Answer, OperationError};
use crate::telemetry::labels::{Call, Outcome};

impl Calls {
    /// Notes what a call came to; `replayed` says whether a success answered a repeat.
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
}

fn outcome_of(error: &OperationError) -> Outcome {
    match error {
        OperationError::Refused(_) => Outcome::Refused,
        OperationError::KeyReused(_)
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
