//! What reserves of a tenant hold where nothing says how much their work is.

use super::Reads;
use crate::domain::ids::{MeterId, OperationId};
use crate::operations::answers::{ListedEstimate, Rows};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::EstimatesRequest;

impl Reads {
    /// The estimates of a tenant as they are now, in the order of operations and meters. Archived operations have none.
    pub async fn list_estimates(&self, request: EstimatesRequest) -> Answer<Rows<ListedEstimate>> {
        self.core.policy.named_tenant(&request.tenant).await?;
        let after = request.page.after.as_deref().map(place).transpose()?;
        let limit = request.page.rows_max();
        let policy = self.core.policy.current();
        let operations = policy.definitions().operations.values().filter(|operation| !operation.archived);
        let mut found: Vec<_> = operations
            .flat_map(|operation| operation.costs.iter().map(move |cost| (&operation.id, cost)))
            .filter(|(operation, cost)| {
                let is_later =
                    |after: &(OperationId, MeterId)| (*operation, &cost.meter) > (&after.0, &after.1);
                cost.estimate.is_some() && after.as_ref().is_none_or(is_later)
            })
            .collect();
        found.sort_by_key(|(operation, cost)| (*operation, &cost.meter));
        let estimate = |(operation, cost): (&OperationId, &crate::domain::operation::Cost)| {
            let decimals = policy.meter(&cost.meter)?.decimals;
            let estimate = self.estimates.estimate(&request.tenant, operation, cost, decimals);
            let (operation, meter) = (operation.clone(), cost.meter.clone());
            Some(ListedEstimate { operation, meter, decimals, estimate })
        };
        let rows: Vec<_> = found.into_iter().take(limit + 1).filter_map(estimate).collect();
        Ok(Rows::page(rows, limit, |row| format!("{} {}", row.operation, row.meter)))
    }
}

fn place(text: &str) -> Answer<(OperationId, MeterId)> {
    let place = text.split_once(' ').and_then(|(operation, meter)| {
        Some((OperationId::parse(operation).ok()?, MeterId::parse(meter).ok()?))
    });
    place.ok_or_else(OperationError::bad_cursor)
}
