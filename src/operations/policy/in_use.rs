//! Whether an object is in use: the books are asked once they contain what the outboxes hold.

use super::PolicyVerbs;
use crate::domain::ids::{MeterId, TenantId};
use crate::operations::error::{Answer, OperationError};

impl PolicyVerbs {
    /// Whether anything of the tenant is booked, or waits to be.
    ///
    /// Errors: the writer has not caught up with its outbox.
    pub(super) async fn has_booked(&self, tenant: &TenantId) -> Answer<bool> {
        if self.core.ledger.has_booked(tenant).await? {
            return Ok(true);
        }
        self.core.progress.settled_epoch(self.core.gate.partition_of(tenant)).await?;
        Ok(self.core.ledger.has_booked(tenant).await?)
    }

    /// As [`Self::has_booked`], but true when the writer has not caught up with its outbox.
    pub(super) async fn may_have_booked(&self, tenant: &TenantId) -> Answer<bool> {
        match self.has_booked(tenant).await {
            Err(OperationError::GateUnavailable(_)) => Ok(true),
            known => known,
        }
    }

    /// Whether anything is booked on the meter, or waits to be.
    ///
    /// Errors: the writer has not caught up with an outbox.
    pub(super) async fn is_meter_used(&self, meter: &MeterId) -> Answer<bool> {
        if self.core.ledger.is_meter_booked(meter).await? {
            return Ok(true);
        }
        self.core.progress.catch_up_all(self.core.progress.restore_wait).await?;
        Ok(self.core.ledger.is_meter_booked(meter).await?)
    }
}
