//! Who changed what, a page at a time, newest first.

use super::Reads;
use crate::operations::answers::{AuditRecord, Rows};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::AuditRequest;

impl Reads {
    /// Changes in the audit log. Changes of policy come with the definitions before and after them.
    pub async fn list_audit(&self, request: AuditRequest) -> Answer<Rows<AuditRecord>> {
        let after = request.page.after.as_deref().map(str::parse).transpose();
        let after = after.map_err(|_| OperationError::bad_cursor())?;
        let limit = request.page.rows_max();
        let rows = self.core.ledger.audit(&request.filter, after, limit + 1).await?;
        Ok(Rows::page(rows, limit, |row| row.number.to_string()))
    }
}
