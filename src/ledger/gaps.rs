//! Gaps in the outboxes: proof that events were lost.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::columns::Milliseconds;
use super::schema::gaps;
use super::{Ledger, LedgerError, number};
use crate::domain::ids::{OutboxId, Partition};

/// A place where the ids of an outbox leave some out.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = gaps, check_for_backend(Pg))]
pub struct Gap {
    /// Its partition.
    pub partition: Partition,
    /// The last event before it.
    #[diesel(select_expression = (gaps::after_epoch, gaps::after_sequence))]
    pub after: OutboxId,
    /// The first event after it.
    #[diesel(select_expression = (gaps::found_epoch, gaps::found_sequence))]
    pub found: OutboxId,
    /// When it was noticed (the database's clock, unix ms).
    #[diesel(column_name = noticed_at, deserialize_as = Milliseconds)]
    pub noticed_at_ms: i64,
}

/// A gap that the writer has met: partition, the last event before it and the first one after it.
pub(crate) type Found = (Partition, OutboxId, OutboxId);

/// Records gaps; one that is recorded already stays as it is.
pub(crate) async fn add(mut connection: &AsyncPgConnection, gaps: &[Found]) -> Result<(), LedgerError> {
    if gaps.is_empty() {
        return Ok(());
    }
    let row = |(partition, after, found): &Found| {
        (
            gaps::partition.eq(*partition),
            gaps::after_epoch.eq(after.epoch),
            gaps::after_sequence.eq(number::signed(after.sequence)),
            gaps::found_epoch.eq(found.epoch),
            gaps::found_sequence.eq(number::signed(found.sequence)),
        )
    };
    let rows: Vec<_> = gaps.iter().map(row).collect();
    diesel::insert_into(gaps::table).values(rows).on_conflict_do_nothing().execute(&mut connection).await?;
    Ok(())
}

impl Ledger {
    /// Gaps, the latest first, at most `limit`.
    pub async fn gaps(&self, limit: usize) -> Result<Vec<Gap>, LedgerError> {
        let latest_first =
            (gaps::noticed_at.desc(), gaps::partition, gaps::found_epoch.desc(), gaps::found_sequence.desc());
        let query = || gaps::table.select(Gap::as_select()).order(latest_first).limit(number::limit(limit));
        self.load(query).await
    }
}
