//! `peek`: reads only.

use crate::domain::ids::{OutboxId, Partition, TenantId};
use crate::domain::reservation::{Record, SubjectHash};

use super::reserve::{Cold, CounterCheck, CounterReading};

/// Counters to read.
#[derive(Debug)]
pub struct PeekCall<'a> {
    /// The tenant's partition.
    pub partition: Partition,
    /// Whose counters.
    pub tenant: &'a TenantId,
    /// The subjects' hashes; holder n of a counter is the n-th.
    pub subjects: &'a [SubjectHash],
    /// Which counters; pairs are not used.
    pub checks: &'a [CounterCheck],
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// Counters as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeekedCounters {
    /// In the order of the checks; those that `cold` concerns are not current.
    pub readings: Vec<CounterReading>,
    /// What the gate does not know; none when it knows all that was asked.
    pub cold: Option<Cold>,
    /// The outbox's last id.
    pub last_id: OutboxId,
    /// The script's time (unix ms).
    pub now_ms: i64,
}

/// A reservation as it is, or not known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeekedRecord {
    /// The record; none when the gate has none of this epoch, or it is another tenant's.
    pub record: Option<Record>,
    /// The outbox's last id.
    pub last_id: OutboxId,
    /// The script's time (unix ms).
    pub now_ms: i64,
}
