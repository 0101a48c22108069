//! Why a pass of the writer ends.

use super::OutboxError;
use super::fail_point::Killed;
use crate::ledger::LedgerError;

/// Why a pass ends before its end.
pub(super) enum Failure {
    Killed,
    Failed(String),
}

impl From<Killed> for Failure {
    fn from(_: Killed) -> Self {
        Self::Killed
    }
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<OutboxError> for Failure {
    fn from(error: OutboxError) -> Self {
        Self::Failed(error.to_string())
    }
}
