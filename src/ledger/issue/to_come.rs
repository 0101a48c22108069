//! What the statements of a period that has ended would say by now, before they are issued.

use futures::FutureExt;

use super::books::Books;
use super::documents_of;
use crate::domain::ids::{OutboxId, Partition, TenantId};
use crate::domain::period::{Calendars, Window};
use crate::domain::statement::Document;
use crate::ledger::{BEGIN_LOOK_UP, Ledger, LedgerError, billing, cursors};

/// The statements that a period would have by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementsToCome {
    /// The last event of its partition that is in them.
    pub cursor: OutboxId,
    /// The period.
    pub period: Window,
    /// One for each currency, the tenant's own first, or why it cannot be billed. None where nothing has a price.
    pub statements: Result<Vec<Document>, String>,
}

impl Ledger {
    /// Of the first period of a tenant with these calendars that is not billed, if it ended by `now_ms` (unix ms), in
    /// one snapshot.
    pub async fn statements_to_come(
        &self,
        partition: Partition,
        tenant: &TenantId,
        calendars: &Calendars,
        now_ms: i64,
    ) -> Result<Option<StatementsToCome>, LedgerError> {
        let (tenant, calendars, grace_ms) = (tenant.clone(), calendars.clone(), self.close_grace_ms());
        self.transact(BEGIN_LOOK_UP, move |connection| {
            async move {
                let cursor = cursors::read(connection, partition).await?;
                let next = billing::next(connection, tenant.as_str(), &calendars).await?;
                let Some(due) = next.filter(|due| due.period.end_ms <= now_ms) else { return Ok(None) };
                let mut books = Books::read(connection, std::slice::from_ref(&due), grace_ms).await?;
                let documents = documents_of(connection, &mut books, &due, grace_ms).await?;
                let is_its = |document: &Document| {
                    document.corrects().is_none() && document.period_start_ms == due.period.start_ms
                };
                let statements = documents.map(|found| found.into_iter().filter(is_its).collect());
                Ok(Some(StatementsToCome { cursor, period: due.period, statements }))
            }
            .boxed()
        })
        .await
    }
}
