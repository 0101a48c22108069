//! Gaps in the outboxes: proof that events were lost.

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, BigInt, SmallInt, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::{Ledger, LedgerError, number};
use crate::domain::ids::{Epoch, OutboxId, Partition};

/// A place where the outbox went on too far ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Which partition.
    pub partition: Partition,
    /// The last event before it.
    pub after: OutboxId,
    /// The first event behind it.
    pub found: OutboxId,
    /// When it was noticed (the database's clock, unix ms).
    pub noticed_at_ms: i64,
}

/// A gap that the writer has met: partition, the place before and the place behind.
pub(crate) type Found = (Partition, OutboxId, OutboxId);

/// Records gaps; one that is known stays as it is.
pub(crate) async fn add(mut connection: &AsyncPgConnection, gaps: &[Found]) -> Result<(), LedgerError> {
    if gaps.is_empty() {
        return Ok(());
    }
    let column =
        |pick: fn(&Found) -> u64| gaps.iter().map(|gap| number::signed(pick(gap))).collect::<Vec<_>>();
    sql_query(
        "INSERT INTO gaps (partition, after_epoch, after_sequence, found_epoch, found_sequence) \
         SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) ON CONFLICT DO NOTHING",
    )
    .bind::<Array<SmallInt>, _>(gaps.iter().map(|gap| number::of_partition(gap.0)).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(column(|gap| gap.1.epoch.0))
    .bind::<Array<BigInt>, _>(column(|gap| gap.1.sequence))
    .bind::<Array<BigInt>, _>(column(|gap| gap.2.epoch.0))
    .bind::<Array<BigInt>, _>(column(|gap| gap.2.sequence))
    .execute(&mut connection)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = SmallInt)]
    partition: i16,
    #[diesel(sql_type = BigInt)]
    after_epoch: i64,
    #[diesel(sql_type = BigInt)]
    after_sequence: i64,
    #[diesel(sql_type = BigInt)]
    found_epoch: i64,
    #[diesel(sql_type = BigInt)]
    found_sequence: i64,
    #[diesel(sql_type = Timestamptz)]
    noticed_at: DateTime<Utc>,
}

impl Row {
    fn read(self) -> Result<Gap, LedgerError> {
        let id = |epoch, sequence| -> Result<OutboxId, LedgerError> {
            Ok(OutboxId { epoch: Epoch(number::unsigned(epoch)?), sequence: number::unsigned(sequence)? })
        };
        Ok(Gap {
            partition: number::partition(self.partition)?,
            after: id(self.after_epoch, self.after_sequence)?,
            found: id(self.found_epoch, self.found_sequence)?,
            noticed_at_ms: self.noticed_at.timestamp_millis(),
        })
    }
}

impl Ledger {
    /// Gaps, the latest first, at most `limit`.
    pub async fn gaps(&self, limit: usize) -> Result<Vec<Gap>, LedgerError> {
        let query = "SELECT partition, after_epoch, after_sequence, found_epoch, found_sequence, noticed_at FROM gaps \
                     ORDER BY noticed_at DESC, partition, found_epoch DESC, found_sequence DESC LIMIT $1";
        let rows = self
            .read(|connection| {
                let query = sql_query(query).bind::<BigInt, _>(number::limit(limit));
                async move { Ok(query.load::<Row>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(Row::read).collect()
    }
}
