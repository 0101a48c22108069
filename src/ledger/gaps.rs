//! Gaps in the outboxes: proof that events were lost.

use super::{Ledger, LedgerError};
use crate::domain::ids::{OutboxId, Partition};

/// A place where the outbox went on too far ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Which partition.
    pub partition: Partition,
    /// The last event before it.
    pub after: OutboxId,
    /// The first event behind it.
    pub found: OutboxId,
    /// When it was noticed (the database's clock, unix ms).
    pub noticed_at_ms: i64,
}

impl Ledger {
    /// Gaps, the latest first, at most `limit`.
    pub async fn gaps(&self, limit: usize) -> Result<Vec<Gap>, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
