//! Holds that nobody resolved.

use super::Reads;
use crate::ledger::ExpiredCursor;
use crate::operations::answers::{Reservation, Rows};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{Ack, LeakedRequest};

impl Reads {
    /// Reservations that expired and were never consumed, as booked, the last to expire first.
    pub async fn leaked_holds(&self, request: LeakedRequest) -> Answer<Rows<Reservation>> {
        self.core.policy.named_if_any(request.filter.tenant.as_ref()).await?;
        let after = request.page.after.as_deref().map(|text| self.expired_place(text)).transpose()?;
        let limit = request.page.rows_max();
        let as_of_ms = self.books.now_ms().await?;
        let found = self.books.expired_holds(&request.filter, after, limit + 1).await?;
        let holds = found.into_iter().map(|row| {
            let resolved_at_ms = row.resolved_at_ms;
            Reservation { ack: Ack::Ledger, resolved_at_ms, ..Reservation::new(row.id, row.record) }
        });
        let place = |hold: &Reservation| format!("{}:{}", hold.resolved_at_ms.unwrap_or_default(), hold.id);
        Ok(Rows::page(holds.collect(), limit, place).read_at(as_of_ms))
    }

    fn expired_place(&self, text: &str) -> Answer<ExpiredCursor> {
        let (at, id) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
        Ok(ExpiredCursor {
            expired_at_ms: at.parse().map_err(|_| OperationError::bad_cursor())?,
            id: self.ids.parse(id).map_err(|_| OperationError::bad_cursor())?,
        })
    }
}
