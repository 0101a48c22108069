//! `reserve`: the only admission. Holds amounts, or counts usage after the fact under the same limits.

use crate::domain::amount::Units;
use crate::domain::ids::{OutboxId, Partition, ReservationId, Subject, TenantId};
use crate::domain::reservation::{Body, CounterField, CounterPlace, Record, SubjectHash};

/// How a reserve treats what does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveMode {
    /// All lines pass all their limits, or nothing moves.
    AllOrNothing,
    /// Lines in order, each gets what fits after the lines before it.
    BestEffort,
    /// Decides and writes nothing.
    DryRun,
    /// Writes an already consumed record: usage after the fact, refused like a reserve.
    Usage,
}

/// Whether a counter must be restored from the ledger or may start fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterClass {
    /// Restored and reconciled: a missing field may mean unknown use.
    Quota,
    /// Short memory: a missing field is zero.
    Rate,
}

/// Against what a counter is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckCapacity {
    /// A limit's capacity, from policy.
    Limit(Units),
    /// The quota's capacity, which the gate has from the ledger under this field (without its `q`).
    Quota {
        /// The counter's field name; the capacity stands under `q` + this name.
        field: CounterField,
    },
}

/// One counter that a call is measured against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterCheck {
    /// Which counter, in which window, and which lines count with what weight. A quota's holder is 0.
    pub place: CounterPlace,
    /// Whether a missing field may read as zero.
    pub class: CounterClass,
    /// When the counter was created (unix ms): a window that began later started at zero.
    pub since_ms: i64,
    /// Its capacity.
    pub capacity: CheckCapacity,
}

/// One reserve, usage or dry run.
#[derive(Debug)]
pub struct ReserveCall<'a> {
    /// The reservation's id.
    pub id: ReservationId,
    /// The tenant's partition.
    pub partition: Partition,
    /// Whose units.
    pub tenant: &'a TenantId,
    /// The subjects named, in the order of the body; holder n of a counter is the n-th.
    pub subjects: Vec<(Subject, SubjectHash)>,
    /// How to treat what does not fit.
    pub mode: ReserveMode,
    /// Per line of the body, what is asked for.
    pub amounts: Vec<Units>,
    /// All fixed data. Its counters are those of `checks`, in the same order.
    pub body: &'a Body,
    /// The counters to measure and move.
    pub checks: Vec<CounterCheck>,
    /// How long the hold lasts, in ms.
    pub ttl_ms: i64,
    /// How long `extend` may keep it in all, in ms.
    pub max_life_ms: i64,
    /// The span in which all windows of the call are current: start inclusive, end exclusive, unix ms.
    pub valid: (i64, i64),
    /// The ledger was asked and does not know the call's key.
    pub ledger_asked: bool,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// How a counter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterReading {
    /// Units consumed in the window.
    pub consumed: Units,
    /// Units held in the window.
    pub reserved: Units,
    /// The capacity in effect; none where the script is not told it (a limit's, when resolving).
    pub capacity: Option<Units>,
    /// When one of the holds in it ends (unix ms), the earliest known.
    pub next_hold_ends_at_ms: Option<i64>,
    /// Whether the window is the counter's current one and its figures are known.
    pub current: bool,
}

/// What the gate does not know, and must be told by the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cold {
    /// The outbox's last id: the ledger must have booked up to it before it is asked.
    pub last_id: OutboxId,
    /// The tenant's hash is not of this epoch.
    pub tenant: bool,
    /// Subject hashes that are not of this epoch, by number (1 is the first subject).
    pub holders: Vec<u8>,
    /// Counters of warm hashes whose use or quota capacity is unknown, by index.
    pub counters: Vec<usize>,
}

/// What a reserve came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// Held (or, as usage, consumed).
    Admitted {
        /// Per line, what is held.
        granted: Vec<Units>,
        /// When the hold ends (unix ms).
        expires_at_ms: i64,
        /// The event's place in the outbox.
        event: OutboxId,
        /// The script's time (unix ms).
        now_ms: i64,
        /// The counters afterwards, in the order of the checks.
        readings: Vec<CounterReading>,
    },
    /// A dry run that would have been admitted.
    Allowed {
        /// Per line, what would be held.
        granted: Vec<Units>,
        /// The script's time (unix ms).
        now_ms: i64,
        /// The counters as they are, in the order of the checks.
        readings: Vec<CounterReading>,
    },
    /// The same call was admitted before.
    Replayed {
        /// The record as it is now.
        record: Record,
        /// The counters as they are now, in the order of the checks.
        readings: Vec<CounterReading>,
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// Limits or quotas do not allow it; nothing was written.
    Refused {
        /// The script's time (unix ms).
        now_ms: i64,
        /// The counters as they are, in the order of the checks.
        readings: Vec<CounterReading>,
        /// Which checks refuse, all of them.
        refusing: Vec<usize>,
        /// Per line, what a best effort would have been granted.
        granted_by_line: Vec<Units>,
    },
    /// The id belongs to a call with another meaning.
    KeyReused,
    /// The windows were computed for another time; compute them for this one.
    StaleWindow {
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// The ledger must tell the gate first.
    Cold(Cold),
    /// The call may be a retry from before a loss: ask the ledger, then call with `ledger_asked`.
    AskLedger {
        /// The outbox's last id: the ledger must have booked up to it before it is asked.
        last_id: OutboxId,
    },
}
