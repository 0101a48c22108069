//! What became of closed periods.

use super::Reads;
use crate::domain::ids::{MeterId, TenantId};
use crate::ledger::ClosedCursor;
use crate::operations::answers::{ClosedPeriod, Rows};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::RolloverRequest;

impl Reads {
    /// Closed periods with all their accounts, the last to end first.
    pub async fn rollovers(&self, request: RolloverRequest) -> Answer<Rows<ClosedPeriod>> {
        self.core.policy.named_if_any(request.filter.tenant.as_ref()).await?;
        let after = request.page.after.as_deref().map(place).transpose()?;
        let limit = request.page.rows_max();
        let as_of_ms = self.books.now_ms().await?;
        let found = self.books.closed_periods(&request.filter, after.as_ref(), limit + 1).await?;
        let place = |closed: &ClosedPeriod| {
            format!("{} {} {}", closed.balance.period_ms.1, closed.tenant, closed.balance.meter)
        };
        Ok(Rows::page(found, limit, place).read_at(as_of_ms))
    }
}

fn place(text: &str) -> Answer<ClosedCursor> {
    let parts: Vec<_> = text.split(' ').collect();
    let [at, tenant, meter] = parts.as_slice() else { return Err(OperationError::bad_cursor()) };
    Ok(ClosedCursor {
        ended_at_ms: at.parse().map_err(|_| OperationError::bad_cursor())?,
        tenant: TenantId::parse(tenant).map_err(|_| OperationError::bad_cursor())?,
        meter: MeterId::parse(meter).map_err(|_| OperationError::bad_cursor())?,
    })
}
