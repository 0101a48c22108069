//! What the writer needs from the gate.

use std::future::Future;
use std::time::Duration;

use super::tail::TailStretch;
use crate::domain::ids::{Epoch, OutboxId, Partition};

/// An event in the outbox: its id and its bytes.
pub type OutboxEntry = (OutboxId, Vec<u8>);

/// The gate did not do it; the writer retries later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboxError {
    /// It cannot be asked now.
    #[error("the gate does not answer: {0}")]
    Away(String),
    /// It may have lost its memory, or begun an unknown epoch: its node has to be checked.
    #[error("the gate's memory is in doubt: {reason}")]
    Doubt {
        /// The partition that shows it.
        partition: Partition,
        /// What it shows.
        reason: String,
    },
}

/// The gate's outboxes.
pub trait Outbox: Send + Sync + 'static {
    /// Reads at most `count` entries of each partition, beginning with the given place, in one round trip and in the
    /// order given. A partition whose outbox cannot be read is left out.
    fn read(
        &self,
        from: &[(Partition, OutboxId)],
        count: usize,
    ) -> impl Future<Output = Result<Vec<(Partition, Vec<OutboxEntry>)>, OutboxError>> + Send;

    /// The epoch that each partition's `meta` names now; none where it is missing.
    fn epochs(
        &self,
        partitions: &[Partition],
    ) -> impl Future<Output = Result<Vec<(Partition, Option<Epoch>)>, OutboxError>> + Send;

    /// Waits until a partition has an entry after its given place, or for `timeout`; returns the partitions known to
    /// have one.
    fn wait(
        &self,
        after: &[(Partition, OutboxId)],
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<Partition>, OutboxError>> + Send;

    /// Publishes to the gate how far the ledger has booked.
    fn publish(
        &self,
        booked: &[(Partition, OutboxId)],
    ) -> impl Future<Output = Result<(), OutboxError>> + Send;

    /// The tail of each outbox up to the given place, in stretches, oldest first; their sizes may be estimates.
    fn standing(
        &self,
        up_to: &[(Partition, OutboxId)],
    ) -> impl Future<Output = Result<Vec<(Partition, Vec<TailStretch>)>, OutboxError>> + Send;

    /// Drops the entries below a place.
    fn trim(
        &self,
        partition: Partition,
        below: OutboxId,
    ) -> impl Future<Output = Result<(), OutboxError>> + Send;
}
