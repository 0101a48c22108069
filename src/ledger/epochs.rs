//! Epochs: issued here and nowhere else, each one once.

use super::{Ledger, LedgerError};
use crate::domain::ids::{Epoch, OutboxId, Partition};

/// Where one partition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRow {
    /// Which partition.
    pub partition: Partition,
    /// The epoch issued last; 0 when none was.
    pub epoch: Epoch,
    /// The node on which the partition's memory was verified for this epoch; empty when none.
    pub run_id: String,
    /// The last event booked; `0-0` when none was.
    pub cursor: OutboxId,
}

impl Ledger {
    /// Every partition's epoch and cursor, in order, as of one instant.
    pub async fn epochs(&self) -> Result<Vec<PartitionRow>, LedgerError> {
        pending()
    }

    /// Issues the epoch after `from` for a partition whose memory was found on node `run_id`; when another instance was
    /// first, returns what it issued.
    pub async fn raise_epoch(
        &self,
        partition: Partition,
        from: Epoch,
        run_id: &str,
    ) -> Result<Epoch, LedgerError> {
        pending()
    }

    /// Notes that the partition's memory of this epoch was verified on node `run_id`.
    pub async fn verified_on(
        &self,
        partition: Partition,
        epoch: Epoch,
        run_id: &str,
    ) -> Result<(), LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
