//! How far each partition's outbox is booked.

use super::{Ledger, LedgerError};
use crate::domain::ids::{OutboxId, Partition};

impl Ledger {
    /// The last event booked of a partition; `0-0` when none was.
    pub async fn cursor(&self, partition: Partition) -> Result<OutboxId, LedgerError> {
        pending()
    }

    /// The last events booked of all partitions, in order of partition.
    pub async fn cursors(&self) -> Result<Vec<(Partition, OutboxId)>, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
