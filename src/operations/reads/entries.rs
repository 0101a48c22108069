//! The entries of the books: a page at a time, or all of them as of one moment.

use std::sync::Arc;

use super::Reads;
use crate::domain::ids::TenantId;
use crate::ledger::{EntryCursor, EntryFilter, EntryPlace};
use crate::operations::answers::{Rows, StoredEntry};
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::EntriesRequest;

/// How many entries of an export are read, and in memory, at once.
const EXPORTED_AT_ONCE: usize = 1_000;

/// All entries of a request, as the books were when the export began.
pub struct EntryExport {
    core: Arc<Core>,
    tenant: Option<TenantId>,
    filter: EntryFilter,
    after: Option<EntryPlace>,
    has_ended: bool,
    as_of_ms: i64,
}

impl Reads {
    /// A page of entries, of each tenant the newest first.
    pub async fn list_entries(&self, request: EntriesRequest) -> Answer<Rows<StoredEntry>> {
        let limit = request.page.rows_max();
        let after = request.page.after.as_deref().map(place).transpose()?;
        let (tenant, filter) = self.entries_asked(request).await?;
        let as_of_ms = self.books.now_ms().await?;
        let found = self.books.entries(tenant.as_ref(), &filter, after.as_ref(), limit + 1).await?;
        let page = Rows::page(found, limit, |row: &StoredEntry| {
            let EntryCursor { happened_at_ms, operation_id, step, line, leg } = row.place();
            format!("{happened_at_ms}:{operation_id}:{step}:{line}:{leg}:{}", row.entry.tenant)
        });
        Ok(page.read_at(as_of_ms))
    }

    /// From when on the books hold every entry, if a list from `from_ms` on reaches back before that (unix ms).
    pub async fn entries_held_from_ms(&self, from_ms: Option<i64>) -> Answer<Option<i64>> {
        let held_from_ms = self.core.ledger.held_from_ms().await?;
        Ok(held_from_ms.filter(|held_ms| from_ms.is_none_or(|from_ms| from_ms < *held_ms)))
    }

    /// Begins to read all entries, whatever page was asked for: those that the books hold now.
    pub async fn export_entries(&self, request: EntriesRequest) -> Answer<EntryExport> {
        let (tenant, filter) = self.entries_asked(request).await?;
        let booked_by = self.core.ledger.booked_by_now().await?;
        let as_of_ms = booked_by.as_of_ms();
        let filter = EntryFilter { booked_by: Some(booked_by), ..filter };
        Ok(EntryExport { core: self.core.clone(), tenant, filter, after: None, has_ended: false, as_of_ms })
    }

    async fn entries_asked(&self, request: EntriesRequest) -> Answer<(Option<TenantId>, EntryFilter)> {
        let EntriesRequest { tenant, filter, page: _ } = request;
        self.core.policy.named_if_any(tenant.as_ref()).await?;
        Ok((tenant, filter))
    }
}

impl EntryExport {
    /// When it began, by the database's clock (unix ms): what was booked by then is in it, but for what was still being
    /// booked, and nothing that was booked later.
    pub fn as_of_ms(&self) -> i64 {
        self.as_of_ms
    }

    /// The next entries; none at the end.
    pub async fn next(&mut self) -> Answer<Vec<StoredEntry>> {
        if self.has_ended {
            return Ok(Vec::new());
        }
        let (tenant, after) = (self.tenant.as_ref(), self.after.as_ref());
        let found = self.core.ledger.entries(tenant, &self.filter, after, EXPORTED_AT_ONCE).await?;
        self.has_ended = found.len() < EXPORTED_AT_ONCE;
        let place = |last: &StoredEntry| EntryPlace { tenant: last.entry.tenant.clone(), at: last.place() };
        self.after = found.last().map(place);
        Ok(found)
    }
}

fn place(text: &str) -> Answer<EntryPlace> {
    let parts: Vec<_> = text.splitn(6, ':').collect();
    let [at, id, step, line, leg, tenant] = parts.as_slice() else {
        return Err(OperationError::bad_cursor());
    };
    let bad = |_| OperationError::bad_cursor();
    let at = EntryCursor {
        happened_at_ms: at.parse().map_err(bad)?,
        operation_id: id.parse().map_err(|_| OperationError::bad_cursor())?,
        step: step.parse().map_err(bad)?,
        line: line.parse().map_err(bad)?,
        leg: leg.parse().map_err(bad)?,
    };
    Ok(EntryPlace { tenant: TenantId::parse(tenant).map_err(|_| OperationError::bad_cursor())?, at })
}
