//! What the writer needs of the gate.

use std::future::Future;
use std::time::Duration;

use super::tail::TailStretch;
use crate::domain::ids::{Epoch, OutboxId, Partition};

/// An event as it stands in the outbox: its place and its bytes.
pub type OutboxEntry = (OutboxId, Vec<u8>);

/// The gate did not do it; the writer tries again later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboxError {
    /// It cannot be asked now.
    #[error("the gate does not answer: {0}")]
    Away(String),
    /// It may have lost its memory, or begun an epoch that is not known here: its node is to be checked.
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
    /// For each partition at most `count` entries from the given place on, that place included, in one round trip.
    fn read(
        &self,
        from: &[(Partition, OutboxId)],
        count: usize,
    ) -> impl Future<Output = Result<Vec<(Partition, Vec<OutboxEntry>)>, OutboxError>> + Send;

    /// For each partition the epoch that its memory names now; none where that is missing.
    fn epochs(
        &self,
        partitions: &[Partition],
    ) -> impl Future<Output = Result<Vec<(Partition, Option<Epoch>)>, OutboxError>> + Send;

    /// Returns when any of the partitions has an entry behind the given place, or after `timeout`; which have, as far as it
    /// knows then.
    fn wait(
        &self,
        after: &[(Partition, OutboxId)],
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<Partition>, OutboxError>> + Send;

    /// Tells the gate how far the ledger has booked.
    fn publish(
        &self,
        booked: &[(Partition, OutboxId)],
    ) -> impl Future<Output = Result<(), OutboxError>> + Send;

    /// What stands in each outbox up to the given place, in stretches, oldest first; their sizes may be estimates.
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
