//! What finance has posted.

use super::Reads;
use crate::domain::adjustment::AdjustmentId;
use crate::operations::answers::{AdjustmentDetails, Rows};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::AdjustmentsRequest;

impl Reads {
    /// Adjustments, newest first.
    pub async fn list_adjustments(&self, request: AdjustmentsRequest) -> Answer<Rows<AdjustmentDetails>> {
        let AdjustmentsRequest { filter, page } = request;
        self.core.policy.named_if_any(filter.tenant.as_ref()).await?;
        let limit = page.rows_max();
        let after = page.after.as_deref().map(place).transpose()?;
        let as_of_ms = self.books.now_ms().await?;
        let rows = self.books.list_adjustments(&filter, after, limit + 1).await?;
        let rows =
            Rows::page(rows, limit, |row| format!("{}:{}", row.posted_at_ms, row.id)).read_at(as_of_ms);
        Ok(rows.map(|stored| AdjustmentDetails { stored, replayed: false }))
    }
}

fn place(text: &str) -> Answer<(i64, AdjustmentId)> {
    let (at, id) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
    let at_ms = at.parse().map_err(|_| OperationError::bad_cursor())?;
    Ok((at_ms, id.parse().map_err(|_| OperationError::bad_cursor())?))
}
