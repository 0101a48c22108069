//! The results of comparing the gate with the books, a page at a time, newest first.

use uuid::Uuid;

use super::Reads;
use crate::ledger::ReconciliationCursor;
use crate::operations::answers::{Reconciliation, Rows};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::ReconciliationsRequest;

impl Reads {
    /// Reconciliations of the gate with the ledger; of clean ones only each tenant's latest.
    pub async fn list_reconciliations(
        &self,
        request: ReconciliationsRequest,
    ) -> Answer<Rows<Reconciliation>> {
        self.core.policy.named_if_any(request.filter.tenant.as_ref()).await?;
        let after = request.page.after.as_deref().map(place).transpose()?;
        let limit = request.page.rows_max();
        let as_of_ms = self.books.now_ms().await?;
        let rows = self.books.reconciliations(&request.filter, after, limit + 1).await?;
        let page = Rows::page(rows, limit, |row| format!("{}:{}", row.judged_at_us, row.checkpoint));
        Ok(page.read_at(as_of_ms))
    }
}

fn place(text: &str) -> Answer<ReconciliationCursor> {
    let (judged, checkpoint) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
    Ok(ReconciliationCursor {
        judged_at_us: judged.parse().map_err(|_| OperationError::bad_cursor())?,
        checkpoint: Uuid::parse_str(checkpoint).map_err(|_| OperationError::bad_cursor())?,
    })
}
