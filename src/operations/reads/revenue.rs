//! What issued statements and credit notes say is owed.

use super::Reads;
use crate::ledger::{Revenue, RevenueCursor};
use crate::operations::answers::Rows;
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::RevenueRequest;

impl Reads {
    /// Revenue by currency and the groups asked for, the latest period first.
    pub async fn revenue(&self, request: RevenueRequest) -> Answer<Rows<Revenue>> {
        self.core.policy.named_if_any(request.filter.tenant.as_ref()).await?;
        let after = request.page.after.as_deref().map(place).transpose()?;
        let limit = request.page.rows_max();
        let (rows, as_of_ms) = self.books.revenue(&request.filter, after.as_ref(), limit + 1).await?;
        let place = |row: &Revenue| format!("{}:{}", row.place.period, row.place.group);
        Ok(Rows::page(rows, limit, place).read_at(as_of_ms))
    }
}

fn place(text: &str) -> Answer<RevenueCursor> {
    let (period, group) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
    Ok(RevenueCursor { period: period.to_owned(), group: group.to_owned() })
}
