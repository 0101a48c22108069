//! Notices of quotas.

use super::Reads;
use crate::domain::ids::MeterId;
use crate::ledger::NoticeCursor;
use crate::operations::answers::{QuotaNotice, Rows};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::NoticesRequest;

impl Reads {
    /// Notices of a tenant's quotas, newest first.
    pub async fn list_notices(&self, request: NoticesRequest) -> Answer<Rows<QuotaNotice>> {
        self.known(&request.filter.tenant).await?;
        let after = request.page.after.as_deref().map(place).transpose()?;
        let limit = request.page.rows_max();
        let found = self.core.ledger.quota_notices(&request.filter, after.as_ref(), limit + 1).await?;
        Ok(Rows::page(found, limit, |notice| {
            format!("{} {} {}", notice.raised_at, notice.meter, notice.percent)
        }))
    }
}

fn place(text: &str) -> Answer<NoticeCursor> {
    let parts: Vec<_> = text.split(' ').collect();
    let [at, meter, percent] = parts.as_slice() else { return Err(OperationError::bad_cursor()) };
    Ok((
        at.parse().map_err(|_| OperationError::bad_cursor())?,
        MeterId::parse(meter).map_err(|_| OperationError::bad_cursor())?,
        percent.parse().map_err(|_| OperationError::bad_cursor())?,
    ))
}
