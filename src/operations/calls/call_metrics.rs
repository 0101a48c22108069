//! What the verbs tell the metrics: each decision by its outcome, each script by its time.

use crate::clock::Clock;
use crate::domain::rejection::Rejection;
use crate::gate::GateError;
use crate::operations::{Answer, OperationError, Operations};
use crate::telemetry::labels::{Call, Outcome, Script};

impl Operations {
    /// Runs one script call and notes how long it took.
    pub(in crate::operations) async fn timed<T>(
        &self,
        script: Script,
        call: impl Future<Output = Result<T, GateError>>,
    ) -> Result<T, GateError> {
        let started = Clock::monotonic();
        let result = call.await;
        self.metrics.gate_call(script, started.elapsed());
        result
    }

    /// Notes what a call came to; `replayed` says whether a success answered a repeat.
    pub(in crate::operations) fn decided<T>(
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
        self.metrics.decision(call, outcome);
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
