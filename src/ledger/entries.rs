//! The entries: written in batches, never edited, read newest first.

use super::{Ledger, LedgerError};
use crate::domain::entry::Entry;
use crate::domain::ids::{MeterId, TenantId};

/// An entry as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// What it says.
    pub entry: Entry,
    /// When it was booked (unix ms).
    pub booked_at_ms: i64,
}

/// Which entries of a tenant to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryFilter {
    /// Only of this meter.
    pub meter: Option<MeterId>,
    /// Only what happened at or after this instant (unix ms).
    pub from_ms: Option<i64>,
    /// Only what happened before it (unix ms).
    pub to_ms: Option<i64>,
    /// Only of this reservation or other operation.
    pub operation_id: Option<uuid::Uuid>,
}

/// A place in a list of entries, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPlace {
    /// When it happened (unix ms).
    pub happened_at_ms: i64,
    /// The operation that made it.
    pub operation_id: uuid::Uuid,
    /// Its step.
    pub step: u32,
    /// Its line.
    pub line: u8,
    /// Its leg.
    pub leg: u8,
}

impl StoredEntry {
    /// Its place in a list.
    pub fn place(&self) -> EntryPlace {
        EntryPlace {
            happened_at_ms: self.entry.happened_at_ms,
            operation_id: self.entry.operation_id,
            step: self.entry.step,
            line: self.entry.movement.line,
            leg: self.entry.movement.leg,
        }
    }
}

impl Ledger {
    /// A tenant's entries, newest first, at most `limit`, from behind `after`.
    pub async fn entries_of(
        &self,
        tenant: &TenantId,
        filter: &EntryFilter,
        after: Option<EntryPlace>,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
