//! Epochs: issued here and nowhere else, each one once.

use diesel::sql_types::{BigInt, SmallInt, Text};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::{BEGIN, Ledger, LedgerError, jobs, number};
use crate::domain::ids::{Epoch, OutboxId, Partition};

/// Where one partition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRow {
    /// Which partition.
    pub partition: Partition,
    /// The epoch issued last; 0 when none was.
    pub epoch: Epoch,
    /// The node on which the partition's memory was verified for this epoch; empty when none.
    pub run_id: String,
    /// The last event booked; `0-0` when none was.
    pub cursor: OutboxId,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = SmallInt)]
    partition: i16,
    #[diesel(sql_type = BigInt)]
    issued: i64,
    #[diesel(sql_type = Text)]
    run_id: String,
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = BigInt)]
    sequence: i64,
}

#[derive(QueryableByName)]
struct Issued {
    #[diesel(sql_type = BigInt)]
    epoch: i64,
}

impl Ledger {
    /// Every partition's epoch and cursor, in order, as of one instant.
    pub async fn epochs(&self) -> Result<Vec<PartitionRow>, LedgerError> {
        let rows = self.read(|connection| read(connection).boxed()).await?;
        rows.into_iter()
            .map(|row| {
                let sequence = number::unsigned(row.sequence)?;
                Ok(PartitionRow {
                    partition: number::partition(row.partition)?,
                    epoch: Epoch(number::unsigned(row.issued)?),
                    run_id: row.run_id,
                    cursor: OutboxId { epoch: Epoch(number::unsigned(row.epoch)?), sequence },
                })
            })
            .collect()
    }

    /// Issues the epoch after `from` for a partition whose memory was found on node `run_id`; when another instance was
    /// first, returns what it issued. Makes the job due that restores what the gate forgets by it.
    pub async fn raise_epoch(
        &self,
        partition: Partition,
        from: Epoch,
        run_id: &str,
    ) -> Result<Epoch, LedgerError> {
        let (from, run_id) = (number::signed(from.0), run_id.to_owned());
        let partition = number::of_partition(partition);
        self.transact(BEGIN, move |connection| {
            async move {
                sql_query(
                    "INSERT INTO epochs (partition, epoch, run_id) SELECT $1, $2 + 1, $3 \
                     WHERE $2 = (SELECT max(epoch) FROM epochs WHERE partition = $1) ON CONFLICT DO NOTHING",
                )
                .bind::<SmallInt, _>(partition)
                .bind::<BigInt, _>(from)
                .bind::<Text, _>(run_id)
                .execute(connection)
                .await?;
                jobs::ring(connection, jobs::RESTORE).await?;
                let issued: Issued =
                    sql_query("SELECT coalesce(max(epoch), 0) AS epoch FROM epochs WHERE partition = $1")
                        .bind::<SmallInt, _>(partition)
                        .get_result(connection)
                        .await?;
                Ok(Epoch(number::unsigned(issued.epoch)?))
            }
            .boxed()
        })
        .await
    }

    /// Notes that the partition's memory of this epoch was verified on node `run_id`.
    pub async fn verified_on(
        &self,
        partition: Partition,
        epoch: Epoch,
        run_id: &str,
    ) -> Result<(), LedgerError> {
        let run_id = run_id.to_owned();
        self.transact(BEGIN, move |connection| {
            async move {
                sql_query("UPDATE epochs SET run_id = $3 WHERE partition = $1 AND epoch = $2")
                    .bind::<SmallInt, _>(number::of_partition(partition))
                    .bind::<BigInt, _>(number::signed(epoch.0))
                    .bind::<Text, _>(run_id)
                    .execute(connection)
                    .await?;
                Ok(())
            }
            .boxed()
        })
        .await
    }
}

async fn read(connection: &mut AsyncPgConnection) -> Result<Vec<Row>, LedgerError> {
    let query = "SELECT c.partition, e.epoch AS issued, e.run_id, c.epoch, c.sequence FROM cursors c \
                 JOIN LATERAL (SELECT epoch, run_id FROM epochs WHERE partition = c.partition \
                               ORDER BY epoch DESC LIMIT 1) e ON true \
                 ORDER BY c.partition";
    Ok(sql_query(query).load(connection).await?)
}
