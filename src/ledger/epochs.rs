//! Epochs: issued here and nowhere else, each one once.

use diesel::sql_types::{Array, BigInt, SmallInt, Text};
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
    #[diesel(sql_type = SmallInt)]
    partition: i16,
    #[diesel(sql_type = BigInt)]
    epoch: i64,
}

impl Issued {
    fn read(self) -> Result<(Partition, Epoch), LedgerError> {
        Ok((number::partition(self.partition)?, Epoch(number::unsigned(self.epoch)?)))
    }
}

/// In one order, so that two instances never wait for each other.
const RAISE: &str = "INSERT INTO epochs (partition, epoch, run_id) \
    SELECT f.partition, f.epoch + 1, $3 FROM unnest($1::smallint[], $2::bigint[]) AS f(partition, epoch) \
    WHERE f.epoch = (SELECT max(e.epoch) FROM epochs e WHERE e.partition = f.partition) \
    ORDER BY f.partition ON CONFLICT DO NOTHING";

const ISSUED: &str =
    "SELECT partition, max(epoch) AS epoch FROM epochs WHERE partition = ANY($1) GROUP BY 1 ORDER BY 1";

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

    /// Issues, in one transaction, the epoch after the one given for each partition whose memory was found on node `run_id`.
    /// Answers what is issued now: where another instance was first, what that one issued. Makes the job due that restores
    /// what the gate forgets by it.
    pub async fn raise_epochs(
        &self,
        from: &[(Partition, Epoch)],
        run_id: &str,
    ) -> Result<Vec<(Partition, Epoch)>, LedgerError> {
        let partitions: Vec<i16> =
            from.iter().map(|(partition, _)| number::of_partition(*partition)).collect();
        let epochs: Vec<i64> = from.iter().map(|(_, epoch)| number::signed(epoch.0)).collect();
        let run_id = run_id.to_owned();
        self.transact(BEGIN, move |connection| {
            async move {
                sql_query(RAISE)
                    .bind::<Array<SmallInt>, _>(&partitions)
                    .bind::<Array<BigInt>, _>(epochs)
                    .bind::<Text, _>(run_id)
                    .execute(connection)
                    .await?;
                jobs::ring(connection, jobs::RESTORE).await?;
                let issued: Vec<Issued> =
                    sql_query(ISSUED).bind::<Array<SmallInt>, _>(&partitions).load(connection).await?;
                issued.into_iter().map(Issued::read).collect()
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
