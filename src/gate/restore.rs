//! What the ledger tells the gate: `adopt`, `restore`, `capacity`, `publish`.

use crate::domain::amount::Units;
use crate::domain::ids::{Partition, ReservationId, TenantId};
use crate::domain::reservation::{CounterField, Record, SubjectHash};

/// The most records of one page.
pub const PAGE_RECORDS_MAX: usize = 500;

/// A counter's absolute figures as of the snapshot.
///
/// Give one for every counter asked for, also where it is zero, **and one for every counter of the open records
/// of the hash**, whatever its class (a rate counter: consumed as known or zero, reserved the sum of what is still held).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredCounter {
    /// Which field.
    pub field: CounterField,
    /// Its window's start (unix ms).
    pub window_start_ms: i64,
    /// Units consumed in the window.
    pub consumed: Units,
    /// Units held in the window.
    pub reserved: Units,
    /// The expiry of one live hold in it (unix ms), if known.
    pub next_hold_ends_at_ms: Option<i64>,
}

/// A quota's capacity as the gate keeps it: an absolute with a version, up to the next boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaCapacity {
    /// The quota's counter field; the capacity stands under `q` + this name.
    pub field: CounterField,
    /// A lower or equal version than the stored one is ignored.
    pub version: u64,
    /// From when (unix ms, ascending) how much; 1 to 16 parts.
    pub parts: Vec<(i64, Units)>,
    /// Past this instant (unix ms) the quota is cold.
    pub until_ms: i64,
}

/// What a warm hash starts with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WarmState {
    /// Keyed calls of an unknown id ask the ledger until then (unix ms); 0 for never.
    pub ask_until_ms: i64,
    /// Counters as of the snapshot.
    pub counters: Vec<RestoredCounter>,
    /// Quota capacities (tenant hash only).
    pub capacities: Vec<QuotaCapacity>,
}

/// One page of a tenant's restore. All pages of a snapshot go in order; only the last makes the tenant warm.
#[derive(Debug)]
pub struct RestorePage<'a> {
    /// The tenant's partition.
    pub partition: Partition,
    /// The tenant.
    pub tenant: &'a TenantId,
    /// Open reservations, at most [`PAGE_RECORDS_MAX`]; they get the partition's epoch.
    pub records: &'a [(ReservationId, Record)],
    /// Given on the last page.
    pub last: Option<WarmState>,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// What a restore came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreOutcome {
    /// Written.
    Done,
    /// Warm in this epoch already (another restore was first), or nothing new: nothing was written.
    AlreadyWarm,
    /// Single counters or a capacity were offered to a hash that is cold as a whole: nothing was written.
    StillCold,
}

/// Which state hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The tenant's own.
    Tenant,
    /// A subject's.
    Subject(SubjectHash),
}
