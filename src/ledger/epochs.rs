//! Epochs: only the ledger issues them, each one once.

use diesel::dsl::max;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, SmallInt, Text};
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::prepared::sql_query;
use super::schema::{cursors, epochs};
use super::{BEGIN, Ledger, LedgerError, jobs};
use crate::domain::ids::{Epoch, OutboxId, Partition};

/// The epoch and the cursor of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = cursors, check_for_backend(Pg))]
pub struct PartitionRow {
    /// Its partition.
    pub partition: Partition,
    /// The epoch issued last; 0 when none was.
    #[diesel(select_expression = epochs::epoch)]
    pub epoch: Epoch,
    /// The node on which the partition's memory was verified for this epoch; empty when none.
    #[diesel(select_expression = epochs::run_id)]
    pub run_id: String,
    /// The last event booked; `0-0` when none was.
    #[diesel(select_expression = (cursors::epoch, cursors::sequence))]
    pub cursor: OutboxId,
}

impl Ledger {
    /// Every partition's epoch and cursor, in order, as of one instant.
    pub async fn epochs(&self) -> Result<Vec<PartitionRow>, LedgerError> {
        let query = || {
            cursors::table
                .inner_join(epochs::table.on(epochs::partition.eq(cursors::partition)))
                .select(PartitionRow::as_select())
                .distinct_on(cursors::partition)
                .order((cursors::partition, epochs::epoch.desc()))
        };
        self.load(query).await
    }

    /// Issues the next epoch, in one transaction, for each partition whose memory was found on node `run_id`. Each
    /// comes with the last epoch that was issued and the one that the memory has, later where the ledger lost some.
    /// Returns the epochs that are issued now: another instance may have been first. Also makes the job due that
    /// restores what the gate forgets by the new epoch.
    pub async fn raise_epochs(
        &self,
        from: &[(Partition, Epoch, Epoch)],
        run_id: &str,
    ) -> Result<Vec<(Partition, Epoch)>, LedgerError> {
        let (partitions, (epochs, found)): (Vec<_>, (Vec<_>, Vec<_>)) =
            from.iter().map(|(partition, epoch, found)| (*partition, (*epoch, *found))).unzip();
        let run_id = run_id.to_owned();
        self.transact(BEGIN, move |connection| {
            async move {
                sql_query(include_str!("sql/raise_epochs.sql"))
                    .bind::<Array<SmallInt>, _>(&partitions)
                    .bind::<Array<BigInt>, _>(epochs)
                    .bind::<Text, _>(run_id)
                    .bind::<Array<BigInt>, _>(found)
                    .execute(connection)
                    .await?;
                jobs::ring(connection, jobs::RESTORE).await?;
                let issued = epochs::table
                    .group_by(epochs::partition)
                    .select((epochs::partition, max(epochs::epoch).assume_not_null()))
                    .filter(epochs::partition.eq_any(&partitions))
                    .order(epochs::partition);
                Ok(issued.load(connection).await?)
            }
            .boxed()
        })
        .await
    }

    /// Records that the partition's memory of this epoch was verified on node `run_id`.
    pub async fn verified_on(
        &self,
        partition: Partition,
        epoch: Epoch,
        run_id: &str,
    ) -> Result<(), LedgerError> {
        let verified = epochs::table.find((partition, epoch));
        self.execute(diesel::update(verified).set(epochs::run_id.eq(run_id.to_owned()))).await.map(drop)
    }
}
