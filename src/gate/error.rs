//! Why the gate could not decide. A decision is never an error, not even a refusal.

use crate::domain::codec::Undecodable;
use crate::domain::ids::Partition;

/// Why a call to the gate has no decision.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GateError {
    /// The node's memory cannot be trusted: every partition on it must be checked before scripts are loaded.
    #[error("the memory of partition {partition} is in doubt: {reason}")]
    Alarm {
        /// Where it was noticed.
        partition: Partition,
        /// What was noticed.
        reason: String,
    },
    /// No answer within the response timeout; the command cannot run later than that.
    #[error("Redis did not answer in time")]
    Timeout,
    /// The script ran after the caller had stopped waiting, and did nothing.
    #[error("the call reached Redis too late and did nothing")]
    TooLate,
    /// The server cannot be reached or cannot serve now.
    #[error("Redis is not available: {0}")]
    Unavailable(String),
    /// Redis has been silent; nothing is sent to it until a probe is answered.
    #[error("Redis does not answer; calls fail at once until it does")]
    BreakerOpen,
    /// As many calls wait for Redis as may.
    #[error("too many calls wait for Redis at once")]
    Overloaded,
    /// This instance does not have the partition's epoch yet.
    #[error("partition {0} has no epoch yet: the ledger must name it first")]
    NoEpoch(Partition),
    /// The server is not safe to keep counters in; the sentence says what to change.
    #[error("{0}")]
    UnsafeServer(String),
    /// The address or another setting cannot be used.
    #[error("{0}")]
    Settings(String),
    /// The call contradicts itself: a fault of the code that makes it.
    #[error("the call to {script} is malformed: {reason}")]
    Malformed {
        /// Its script.
        script: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// The script failed before its first write.
    #[error("script {script} failed: {message}")]
    Script {
        /// Which script.
        script: &'static str,
        /// The message of Redis.
        message: String,
    },
    /// A value or answer of Redis cannot be decoded.
    #[error(transparent)]
    Undecodable(#[from] Undecodable),
}

impl GateError {
    /// Whether the gate is away: it did not answer, or cannot serve now. Doubt about its memory is not that: it leads
    /// to a check.
    pub fn is_away(&self) -> bool {
        self.is_transient() && !matches!(self, Self::Alarm { .. } | Self::NoEpoch(_))
    }

    /// Whether the gate is away for the moment, so that a retry may succeed. Too many calls at once do not count:
    /// whatever takes calls over for the gate would be overloaded next.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Alarm { .. }
                | Self::Timeout
                | Self::TooLate
                | Self::Unavailable(_)
                | Self::BreakerOpen
                | Self::NoEpoch(_)
        )
    }
}
