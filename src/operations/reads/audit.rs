//! Who changed what, a page at a time, newest first.

use super::lists::{bad_cursor, limit_of};
use crate::operations::answers::{AuditRecord, Rows};
use crate::operations::requests::AuditRequest;
use crate::operations::{Answer, Operations};

impl Operations {
    /// Changes in the audit log; those of policy with the definitions before and after them.
    pub async fn list_audit(&self, request: AuditRequest) -> Answer<Rows<AuditRecord>> {
        let after = request.page.after.as_deref().map(str::parse).transpose().map_err(|_| bad_cursor())?;
        let limit = limit_of(&request.page);
        let rows = self.ledger.audit(&request.filter, after, limit + 1).await?;
        Ok(Rows::page(rows, limit, |row| row.number.to_string()))
    }
}
