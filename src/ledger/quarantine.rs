//! Quarantine: events that could not be booked, kept with every later one of their reservation until someone decides.

use super::{Ledger, LedgerError};
use crate::domain::ids::{OutboxId, Partition, ReservationId, TenantId};

/// Where an event in quarantine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineStatus {
    /// It waits.
    Open,
    /// It was booked on a later try.
    Resolved,
    /// Someone decided that it is not to be booked.
    Discarded,
}

/// An event in quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Its partition.
    pub partition: Partition,
    /// Its place in the outbox.
    pub outbox_id: OutboxId,
    /// Its reservation, as far as it could be read.
    pub reservation: Option<ReservationId>,
    /// Whose, where known.
    pub tenant: Option<TenantId>,
    /// The event as it stood in the outbox.
    pub event: Vec<u8>,
    /// Why it was not booked.
    pub reason: String,
    /// Where it stands.
    pub status: QuarantineStatus,
    /// How often it was tried.
    pub tries: u32,
    /// When it came (the database's clock, unix ms).
    pub first_at_ms: i64,
}

impl Ledger {
    /// Events in quarantine in order of partition and place, at most `limit`, from behind `after`; open ones only
    /// unless `all`.
    pub async fn quarantined(
        &self,
        all: bool,
        after: Option<(Partition, OutboxId)>,
        limit: usize,
    ) -> Result<Vec<Quarantined>, LedgerError> {
        pending()
    }

    /// How many events wait.
    pub async fn count_quarantined(&self) -> Result<u64, LedgerError> {
        pending()
    }

    /// Decides that an open event is not to be booked.
    ///
    /// Errors: [`super::Conflict::Missing`] when no such event waits.
    pub async fn discard_quarantined(
        &self,
        partition: Partition,
        id: OutboxId,
        actor: &str,
    ) -> Result<(), LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
