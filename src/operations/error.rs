//! Why a verb could not do what it was asked; http turns each into one status and code.

use super::answers::{Refusal, ReservationAnswer};

pub use crate::domain::field_error::FieldError;

/// Why a verb could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// Well-formed and wrong (422 `validation_failed`).
    #[error("{}", .0.first().map_or("the request is not valid", |e| e.message.as_str()))]
    Invalid(Vec<FieldError>),
    /// Malformed (400 `invalid_request`).
    #[error("{0}")]
    Malformed(String),
    /// There is no such thing, or it is another tenant's (404 `not_found`).
    #[error("{0}")]
    NotFound(String),
    /// The key may not do this (403 `forbidden`).
    #[error("{0}")]
    Forbidden(String),
    /// No key, or one that does not work (401 `unauthenticated`).
    #[error("the key is missing, wrong, expired or revoked")]
    Unauthenticated,
    /// The call needs an idempotency key (400 `idempotency_key_required`).
    #[error("this call needs an Idempotency-Key header or an idempotency_key field")]
    KeyRequired,
    /// The same key came with another meaning (422 `idempotency_key_reused`); carries the first request's reservation.
    #[error("this idempotency key was used for another request, whose reservation is {}", .0.id)]
    KeyReused(Box<ReservationAnswer>),
    /// Resolved otherwise before (409 `already_resolved`); carries the reservation.
    #[error("the reservation is already {}", .0.status)]
    AlreadyResolved(Box<ReservationAnswer>),
    /// Too late (410 `reservation_expired`); carries the reservation.
    #[error("the reservation expired at {}", .0.expires_at)]
    Expired(Box<ReservationAnswer>),
    /// A smaller total than before (422 `amount_decreased`).
    #[error("the total of {meter} is below what was consumed so far; totals never decrease")]
    AmountDecreased {
        /// The line's meter.
        meter: String,
    },
    /// Something still refers to it, or it is in the books (409 `in_use`).
    #[error("{0}")]
    InUse(String),
    /// It has another version than `If-Match` names, or is there although it must not be (412 `precondition_failed`).
    #[error("the object has version {current}, which is not what If-Match or If-None-Match asks for")]
    PreconditionFailed {
        /// The version it has.
        current: u64,
    },
    /// What was agreed to is not what would happen any more (412 `precondition_failed`).
    #[error("the difference is not the one that was looked at: look at it again")]
    DifferenceMoved,
    /// A limit or quota refuses (402 or 429).
    #[error("{}", .0.detail)]
    Refused(Box<Refusal>),
    /// The gate cannot decide now (503 `gate_unavailable`).
    #[error("the gate cannot decide right now: {0}")]
    GateUnavailable(String),
    /// An event of the reservation waits in quarantine: until it is decided the gate is not told of it (503 `gate_unavailable`).
    #[error("{0} waits in quarantine; repeat the call once an operator has decided it")]
    InQuarantine(&'static str),
    /// The ledger cannot be read now (503 `ledger_unavailable`).
    #[error("the ledger cannot be read right now: {0}")]
    LedgerUnavailable(String),
    /// Too much at once (503 `overloaded`).
    #[error("too many calls at once")]
    Overloaded,
    /// The gate has it, the ledger not yet (503 `ledger_timeout` with `"applied": "gate"`).
    #[error(
        "the gate has applied the call, but the ledger has not booked it in time; repeat the call to wait again"
    )]
    LedgerTimeout,
    /// A fault of ours (500 `internal`): logged once, the caller sees a fixed text.
    #[error("internal fault: {0}")]
    Internal(String),
}

impl OperationError {
    /// One wrong field.
    pub fn field(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError::new(pointer, message)])
    }

    /// Whether gate or ledger did not answer, so that the same may do later.
    pub fn is_server_away(&self) -> bool {
        matches!(self, Self::GateUnavailable(_) | Self::LedgerUnavailable(_))
    }
}
