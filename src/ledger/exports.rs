//! Entries of one tenant or of all, as of one moment, however long their reading takes.

use chrono::{DateTime, Utc};
use diesel::select;
use diesel::sql_types::{Array, BigInt, Integer, Nullable, SmallInt, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::chain::{self, Chain};
use super::entries::{EntryCursor, EntryFilter, EntryRow, StoredEntry};
use super::functions::transaction_timestamp;
use super::prepared::sql_query;
use super::{BEGIN_SNAPSHOT, Ledger, LedgerError, instant, number};
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::movements::EntryClass;

/// What the books held at one moment: the last batch of every chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookedBy {
    /// By the chain's number, from 0; -1 for a chain without batches.
    batches: Vec<i64>,
    as_of_ms: i64,
}

impl BookedBy {
    /// When that was, by the database's clock (unix ms), which also says when entries are booked.
    pub fn as_of_ms(&self) -> i64 {
        self.as_of_ms
    }

    /// As the statements take it.
    pub(super) fn batches(&self) -> &[i64] {
        &self.batches
    }
}

/// A place in a list of entries of all tenants: by tenant from the last
/// name to the first, of each tenant the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPlace {
    /// Whose entry.
    pub tenant: TenantId,
    /// Its place among the tenant's.
    pub at: EntryCursor,
}

impl Ledger {
    /// What the books hold now. Batches of a chain follow each other, so whatever is booked later lies behind it.
    pub async fn booked_by_now(&self) -> Result<BookedBy, LedgerError> {
        let chains: Vec<_> = self.epochs().await?.iter().flat_map(|row| Chain::of(row.partition)).collect();
        self.transact(BEGIN_SNAPSHOT, move |connection| {
            async move {
                // By the clock of this host, or before the heads, it would not be when they were read.
                let now: DateTime<Utc> = select(transaction_timestamp()).get_result(connection).await?;
                let mut batches = Vec::new();
                for (chain, head) in chain::heads(connection, &chains).await? {
                    let place: usize = number::small(chain.number().into())?;
                    batches.resize(batches.len().max(place + 1), -1);
                    batches[place] = head.number;
                }
                Ok(BookedBy { batches, as_of_ms: now.timestamp_millis() })
            }
            .boxed()
        })
        .await
    }

    /// Entries of one tenant, or of all, by tenant from the last name to the first; of each tenant the newest first. At
    /// most `limit`, after `after`.
    ///
    /// Errors: [`LedgerError::Refused`] for a reservation without its tenant.
    pub async fn entries(
        &self,
        tenant: Option<&TenantId>,
        filter: &EntryFilter,
        after: Option<&EntryPlace>,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, LedgerError> {
        if let Some(tenant) = tenant {
            return self.entries_of(tenant, filter, after.map(|place| place.at), limit).await;
        }
        if filter.reservation.is_some() {
            return Err(LedgerError::Refused("a reservation is looked for among its tenant's".into()));
        }
        let (from, to) = (
            filter.from_ms.map(instant::from_ms).transpose()?,
            filter.to_ms.map(instant::from_ms).transpose()?,
        );
        let at = after.map(|place| place.at);
        let place_at = at.map(|at| instant::from_ms(at.happened_at_ms)).transpose()?;
        let query = || {
            sql_query(include_str!("sql/entries_of_all.sql"))
                .bind::<Nullable<Text>, _>(filter.meter.as_ref().map(MeterId::as_str))
                .bind::<Nullable<Timestamptz>, _>(from)
                .bind::<Nullable<Timestamptz>, _>(to)
                .bind::<Nullable<Array<BigInt>>, _>(filter.booked_by.as_ref().map(BookedBy::batches))
                .bind::<Nullable<Text>, _>(after.map(|place| place.tenant.as_str()))
                .bind::<Nullable<Timestamptz>, _>(place_at)
                .bind::<Nullable<Uuid>, _>(at.map(|at| at.operation_id))
                .bind::<Nullable<Integer>, _>(at.map(|at| i32::try_from(at.step).unwrap_or(i32::MAX)))
                .bind::<Nullable<SmallInt>, _>(at.map(|at| i16::from(at.line)))
                .bind::<Nullable<SmallInt>, _>(at.map(|at| i16::from(at.leg)))
                .bind::<BigInt, _>(number::limit(limit))
                .bind::<Nullable<Text>, _>(filter.class.map(EntryClass::as_str))
        };
        let rows: Vec<EntryRow> = self.load(query).await?;
        rows.into_iter().map(EntryRow::read).collect()
    }
}
