//! `consume`, `release` and `extend`: what becomes of a reservation.

use crate::domain::amount::{Amount, Units};
use crate::domain::ids::{MeterId, OutboxId, ReservationId, Subject, TenantId};
use crate::domain::reservation::{CounterPlace, LineUnits, Record, SubjectHash};

use super::reserve::CounterReading;

/// Totals for the reservation so far, as the caller names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Totals {
    /// None named: max(held, consumed so far) for a consume; nothing incurred for a release.
    Default,
    /// One amount for the single line.
    Single(Amount),
    /// Amounts by meter, each at most once; a meter not named stands as it is defined for the call.
    ByMeter(Vec<(MeterId, Amount)>),
}

/// One consume.
#[derive(Debug)]
pub struct ConsumeCall<'a> {
    /// Which reservation.
    pub id: ReservationId,
    /// The tenant that the caller's key is bound to; another tenant's reservation is unknown to it.
    pub bound: Option<&'a TenantId>,
    /// The totals.
    pub totals: Totals,
    /// Whether it resolves the reservation.
    pub is_final: bool,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// One release.
#[derive(Debug)]
pub struct ReleaseCall<'a> {
    /// Which reservation.
    pub id: ReservationId,
    /// The tenant that the caller's key is bound to.
    pub bound: Option<&'a TenantId>,
    /// What was incurred after all; lines not named stand as consumed so far.
    pub incurred: Totals,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// One extend.
#[derive(Debug)]
pub struct ExtendCall<'a> {
    /// Which reservation.
    pub id: ReservationId,
    /// The tenant that the caller's key is bound to.
    pub bound: Option<&'a TenantId>,
    /// The new expiry is now + this, if that is later, at most the latest permitted one. In ms.
    pub ttl_ms: i64,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// What the gate does not know about a record's holders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdRecord {
    /// The outbox's last id: the ledger must have booked up to it before it is asked.
    pub last_id: OutboxId,
    /// The record's tenant.
    pub tenant: TenantId,
    /// Whether the tenant's own hash is cold.
    pub tenant_cold: bool,
    /// The cold subjects.
    pub subjects: Vec<(Subject, SubjectHash)>,
    /// Counters of the record whose quota capacity is unknown, needed by a `cap` line.
    pub counters: Vec<CounterPlace>,
}

/// What a consume, release or extend came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveOutcome {
    /// Done.
    Done {
        /// The record afterwards, with its whole body.
        record: Record,
        /// Per line, held and consumed before.
        previous: Vec<LineUnits>,
        /// The event's place in the outbox.
        event: OutboxId,
        /// Per line, what a `cap` kept uncharged; empty when nothing was.
        uncharged: Vec<Units>,
        /// The record's counters afterwards; one whose window has moved on is not current.
        readings: Vec<(CounterPlace, CounterReading)>,
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// The same call was done before, or changes nothing.
    Replayed {
        /// The record as it is.
        record: Record,
        /// The record's counters; empty for a tombstone, which no longer names them.
        readings: Vec<(CounterPlace, CounterReading)>,
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// No such reservation in this epoch, or not the bound tenant's.
    Unknown {
        /// The outbox's last id: the ledger must have booked up to it before it is asked.
        last_id: OutboxId,
    },
    /// Resolved otherwise.
    AlreadyResolved {
        /// The record as it is.
        record: Record,
    },
    /// Expired, and the call cannot be taken (a release without anything incurred changes nothing).
    Expired {
        /// The record as it is.
        record: Record,
    },
    /// A total below what is consumed already.
    AmountDecreased {
        /// Which line.
        line: usize,
        /// The record as it is.
        record: Record,
    },
    /// One amount was given for a reservation of several lines.
    AmountNeedsOneLine,
    /// A meter without a line.
    MeterNotReserved {
        /// Which meter.
        meter: MeterId,
    },
    /// More decimals than the meter has.
    TooPrecise {
        /// Which line.
        line: usize,
        /// The record as it is.
        record: Record,
    },
    /// Beyond the largest amount.
    TooLarge {
        /// Which line.
        line: usize,
        /// The record as it is.
        record: Record,
    },
    /// Above the hold of a meter that refuses excess.
    ExcessRejected {
        /// Which line.
        line: usize,
        /// The record as it is.
        record: Record,
    },
    /// The ledger must tell the gate first.
    Cold(ColdRecord),
}
