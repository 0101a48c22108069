//! Why a verb failed.

use crate::domain::adjustment::AdjustmentId;
use crate::domain::amount::UNITS_MAX;
use crate::domain::grant::GrantId;
use crate::domain::ids::{Partition, ReservationId};
use crate::domain::instant::rfc3339;
use crate::domain::rejection::Rejection;
use crate::domain::reservation::Record;
use crate::domain::supplier_bill::BillId;
use crate::domain::upgrade::UpgradeId;
use crate::gate::GateError;
use crate::ledger::{Conflict, LedgerError, STATEMENT_TIMEOUT};
use crate::operations::answers::{Refusal, Reservation};

pub use crate::domain::field_error::FieldError;

/// What every verb answers.
pub type Answer<T> = Result<T, OperationError>;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// Well-formed, but wrong.
    #[error("{}", .0.first().map_or("the request is not valid", |e| e.message.as_str()))]
    Invalid(Vec<FieldError>),
    /// Malformed.
    #[error("{0}")]
    Malformed(String),
    /// What is booked needs a key.
    #[error("what is booked needs an idempotency key")]
    KeyRequired,
    /// It does not exist, or it belongs to another tenant.
    #[error("{0}")]
    NotFound(String),
    /// The key was used for another request; carries that one's reservation.
    #[error("this idempotency key was used for another request, whose reservation is {}", .0.id)]
    KeyReused(Box<Reservation>),
    /// The same work was submitted a short time ago; carries that reservation, where it is still known.
    #[error("the same payload was submitted for this operation a short time ago, as reservation {0}")]
    Duplicate(ReservationId, Option<Box<Reservation>>),
    /// The key was used for another grant.
    #[error("this idempotency key was used for another grant, {0}")]
    GrantKeyReused(GrantId),
    /// The key was used for another reconciliation with a bill.
    #[error("this idempotency key was used for another reconciliation, {0}")]
    BillKeyReused(BillId),
    /// More was sent than is taken at once.
    #[error("{0}")]
    TooLarge(String),
    /// The grant has ended by itself (unix ms).
    #[error("the grant expired at {}", rfc3339(*.0))]
    GrantEnded(i64),
    /// The key was used for another upgrade request.
    #[error("this idempotency key was used for another upgrade request, {0}")]
    UpgradeKeyReused(UpgradeId),
    /// The key was used for another adjustment.
    #[error("this idempotency key was used for another adjustment, {0}")]
    AdjustmentKeyReused(AdjustmentId),
    /// The adjustment was decided the other way.
    #[error("the adjustment was {0} before")]
    AdjustmentDecided(&'static str),
    /// Who posted the adjustment cannot approve it.
    #[error("the adjustment was posted by this key; another person approves it, with a key of their own")]
    SamePerson,
    /// The upgrade request was decided the other way.
    #[error("the upgrade request was {0} before")]
    UpgradeDecided(&'static str),
    /// The call does not change the reservation, whose state is carried.
    #[error("{}", why(.0, .1))]
    Rejected(Rejection, Box<Reservation>),
    /// Something still refers to it, or it is in the books.
    #[error("{0}")]
    InUse(String),
    /// It has another version than the expected one, or exists although it must not.
    #[error("the object has version {current}, which is not the one that was asked for")]
    PreconditionFailed {
        /// The version it has.
        current: u64,
    },
    /// The changes that were agreed to are not those that would happen now.
    #[error("the difference is not the one that was looked at: look at it again")]
    DifferenceMoved,
    /// A limit or quota refuses.
    #[error("{}", .0.detail)]
    Refused(Box<Refusal>),
    /// The gate cannot decide now.
    #[error("the gate cannot decide right now: {0}")]
    GateUnavailable(String),
    /// An event of the reservation waits in quarantine: until it is decided, the reservation is not restored to the
    /// gate.
    #[error("{0} waits in quarantine; repeat the call once an operator has decided it")]
    InQuarantine(&'static str),
    /// The ledger cannot be read now.
    #[error("the ledger cannot be read right now: {0}")]
    LedgerUnavailable(String),
    /// Too much at once.
    #[error("too many calls at once")]
    Overloaded,
    /// The gate has it; the ledger has not booked it in time.
    #[error(
        "the gate has applied the call, but the ledger has not booked it in time; repeat the call to wait again"
    )]
    LedgerTimeout,
    /// The ledger never issued an epoch, and the gate has one.
    #[error(
        "Redis has the memory of another installation, and this ledger is new: empty this Redis, or name the Redis or the \
         Postgres that belongs to the other"
    )]
    ForeignMemory,
    /// The gate has something else where the facts of a partition should be.
    #[error(
        "the `meta` of partition {0} in Redis is damaged: delete this key, its tenants are restored from the ledger"
    )]
    DamagedMemory(Partition),
    /// A fault of the service: logged once, the caller gets a fixed text.
    #[error("internal fault: {0}")]
    Internal(String),
}

impl OperationError {
    /// An error of one field.
    pub fn field(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError::new(pointer, message)])
    }

    /// The same answer for a reservation id that is unknown and for one of another tenant.
    pub(super) fn no_such_reservation() -> Self {
        Self::NotFound(
            "there is no such reservation; if the work was done, record it as usage with a key of its own"
                .into(),
        )
    }

    /// A list cursor that this service did not make.
    pub(super) fn bad_cursor() -> Self {
        Self::Malformed("the cursor cannot be decoded; start again without it".into())
    }

    /// Whether gate or ledger did not answer, so that a retry may succeed.
    pub fn is_server_away(&self) -> bool {
        matches!(self, Self::GateUnavailable(_) | Self::LedgerUnavailable(_))
    }

    /// Whether a statement of the ledger took longer than it may: it may have asked for too much at once.
    pub(super) fn is_statement_timeout(&self) -> bool {
        matches!(self, Self::LedgerUnavailable(why) if why.contains(STATEMENT_TIMEOUT))
    }

    /// Whether work on many tenants may have failed because of one of them.
    pub(super) fn may_be_of_one(&self) -> bool {
        !self.is_server_away() || self.is_statement_timeout()
    }
}

impl From<GateError> for OperationError {
    fn from(error: GateError) -> Self {
        if matches!(error, GateError::Overloaded) {
            Self::Overloaded
        } else if error.is_transient() {
            Self::GateUnavailable(error.to_string())
        } else {
            Self::Internal(error.to_string())
        }
    }
}

impl From<LedgerError> for OperationError {
    fn from(error: LedgerError) -> Self {
        match error {
            error if error.is_transient() => Self::LedgerUnavailable(error.to_string()),
            LedgerError::Conflict(Conflict::Version { found, .. }) => {
                Self::PreconditionFailed { current: found.unwrap_or_default() }
            }
            LedgerError::Conflict(Conflict::Missing { kind, id }) => {
                Self::NotFound(format!("there is no {kind} {id}"))
            }
            LedgerError::Conflict(moved @ Conflict::TenantMoved { .. }) => {
                Self::LedgerUnavailable(moved.to_string())
            }
            LedgerError::Conflict(conflict @ (Conflict::InUse { .. } | Conflict::Exists { .. })) => {
                Self::InUse(conflict.to_string())
            }
            other => Self::Internal(other.to_string()),
        }
    }
}

/// Why a call does not change a reservation, and what to do instead.
fn why(rejection: &Rejection, found: &Reservation) -> String {
    let Record { head, body, .. } = &found.record;
    let meter = |line: &usize| body.lines.get(*line).map(|line| line.meter.as_str()).unwrap_or_default();
    match rejection {
        Rejection::AlreadyResolved => format!("the reservation is already {}", head.state),
        Rejection::Expired => format!("the reservation expired at {}", rfc3339(head.expires_at_ms)),
        Rejection::AmountNeedsOneLine => {
            "the reservation has several lines; name the meters in `lines`".into()
        }
        Rejection::MeterNotReserved(meter) => {
            format!("{meter} was not reserved; record it as usage with a key of its own")
        }
        Rejection::TooPrecise(line) => format!("the amount has more decimals than {} has", meter(line)),
        Rejection::TooLarge(line) => {
            format!("the amount of {} is beyond {UNITS_MAX} of its smallest units", meter(line))
        }
        Rejection::AmountDecreased(line) => {
            format!("the total of {} is below what was consumed so far; totals never decrease", meter(line))
        }
        Rejection::ExcessRejected(line) => format!(
            "{} takes no more than was held (on_excess = reject); record the excess as usage",
            meter(line)
        ),
    }
}
