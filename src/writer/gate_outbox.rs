//! The gate's outboxes as the writer uses them.

use std::sync::Arc;
use std::time::Duration;

use super::{Outbox, OutboxEntry, OutboxError, TailStretch};
use crate::domain::ids::{Epoch, OutboxId, Partition};
use crate::gate::{Gate, GateError, OutboxStretch};

/// The outboxes of one gate.
pub struct GateOutbox {
    gate: Arc<Gate>,
}

impl GateOutbox {
    /// The outboxes of `gate`.
    pub fn new(gate: Arc<Gate>) -> Self {
        Self { gate }
    }
}

impl From<GateError> for OutboxError {
    fn from(error: GateError) -> Self {
        match error {
            GateError::Alarm { partition, reason } => Self::Doubt { partition, reason },
            error => Self::Away(error.to_string()),
        }
    }
}

impl Outbox for GateOutbox {
    async fn read(
        &self,
        from: &[(Partition, OutboxId)],
        count: usize,
    ) -> Result<Vec<(Partition, Vec<OutboxEntry>)>, OutboxError> {
        Ok(self.gate.read_outbox(from, count).await?)
    }

    async fn epochs(&self, partitions: &[Partition]) -> Result<Vec<(Partition, Option<Epoch>)>, OutboxError> {
        Ok(self.gate.adopted_epochs(partitions).await?)
    }

    async fn wait(
        &self,
        after: &[(Partition, OutboxId)],
        timeout: Duration,
    ) -> Result<Vec<Partition>, OutboxError> {
        Ok(self.gate.wait_outbox(after, timeout).await?)
    }

    async fn publish(&self, booked: &[(Partition, OutboxId)]) -> Result<(), OutboxError> {
        let published = booked.iter().map(|(partition, id)| self.gate.publish(*partition, *id));
        futures::future::try_join_all(published).await?;
        Ok(())
    }

    async fn standing(
        &self,
        up_to: &[(Partition, OutboxId)],
    ) -> Result<Vec<(Partition, Vec<TailStretch>)>, OutboxError> {
        let stretch = |stretch: &OutboxStretch| TailStretch {
            last: stretch.last,
            age: Duration::from_millis(stretch.age_ms.max(0).unsigned_abs()),
            bytes: stretch.bytes,
        };
        let found = self.gate.booked_stretches(up_to).await?.into_iter();
        Ok(found.map(|(partition, stretches)| (partition, stretches.iter().map(stretch).collect())).collect())
    }

    async fn trim(&self, partition: Partition, below: OutboxId) -> Result<(), OutboxError> {
        self.gate.trim_outbox(partition, below).await?;
        Ok(())
    }
}
