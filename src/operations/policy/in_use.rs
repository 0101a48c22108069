//! What is in use: asked of the books once they have what the outboxes hold.

use std::time::Duration;

use crate::domain::ids::{MeterId, TenantId};
use crate::operations::{Answer, OperationError, Operations};

const ASK_EVERY: Duration = Duration::from_millis(50);

impl Operations {
    /// Whether anything of the tenant is booked, or waits to be.
    ///
    /// Errors: its outbox cannot be seen to its end.
    pub(in crate::operations) async fn has_booked(&self, tenant: &TenantId) -> Answer<bool> {
        if self.ledger.has_booked(tenant).await? {
            return Ok(true);
        }
        self.settled_epoch(self.partition_of(tenant)).await?;
        Ok(self.ledger.has_booked(tenant).await?)
    }

    /// As [`Self::has_booked`]; of an outbox that cannot be seen to its end it is assumed.
    pub(super) async fn may_have_booked(&self, tenant: &TenantId) -> Answer<bool> {
        match self.has_booked(tenant).await {
            Err(OperationError::GateUnavailable(_)) => Ok(true),
            known => known,
        }
    }

    /// Whether anything is booked on the meter, or waits to be.
    ///
    /// Errors: an outbox cannot be seen to its end.
    pub(super) async fn is_meter_used(&self, meter: &MeterId) -> Answer<bool> {
        if self.ledger.is_meter_booked(meter).await? {
            return Ok(true);
        }
        self.catch_up_all(self.options.restore_wait).await?;
        Ok(self.ledger.is_meter_booked(meter).await?)
    }

    /// Waits that long until the ledger has booked all that any outbox holds now.
    pub(in crate::operations) async fn catch_up_all(&self, patience: Duration) -> Answer<()> {
        let standings = self.gate.look(|| self.wall_clock.now_ms()).await?;
        if standings.len() != usize::from(self.policy.partitions()) {
            return Err(OperationError::GateUnavailable("an outbox could not be looked at".into()));
        }
        let booked = async {
            loop {
                let cursors = self.ledger.cursors().await?;
                let is_settled = standings.iter().all(|standing| {
                    let mut cursors = cursors.iter();
                    cursors.any(|at| at.partition == standing.partition && at.settles(standing.last))
                });
                if is_settled {
                    return Ok(());
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        let late = |_| OperationError::GateUnavailable("the ledger has not caught up with it yet".into());
        tokio::time::timeout(patience, booked).await.map_err(late)?
    }
}
