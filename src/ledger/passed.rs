//! Passed instants: as of when something of a partition was closed last. A call that is parked later was taken then at
//! the earliest, so that no gate time says otherwise than the books.

use std::collections::{BTreeSet, HashMap};

use diesel::prelude::*;
use diesel::sql_types::{Array, SmallInt, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::columns::Milliseconds;
use super::prepared::sql_query;
use super::schema::cursors as rows;
use super::{Ledger, LedgerError, instant, number};
use crate::domain::ids::Partition;

impl Ledger {
    /// From now on, no call of the partition is parked as one that was taken before this instant (unix ms). Returns
    /// whether that is so: it is not while calls are being parked, or the partition is being booked, for which nobody
    /// waits here. An instance that hangs while it parks calls, or that waits here, would hold up all others.
    pub async fn pass_instant(&self, partition: Partition, instant_ms: i64) -> Result<bool, LedgerError> {
        let at = instant::from_ms(instant_ms)?;
        let passed = rows::table.find(partition).filter(rows::passed_at.ge(at));
        if self.first(|| passed.select(rows::partition)).await?.is_some_and(|_: Partition| true) {
            return Ok(true);
        }
        let pass = || {
            sql_query(include_str!("sql/pass_instant.sql"))
                .bind::<SmallInt, _>(number::of_partition(partition))
                .bind::<Timestamptz, _>(at)
        };
        Ok(self.execute(pass()).await? > 0)
    }
}

/// The passed instants of these partitions (unix ms), where they have one. They stay until this transaction ends.
pub(crate) async fn read(
    connection: &mut AsyncPgConnection,
    partitions: &BTreeSet<Partition>,
) -> Result<HashMap<Partition, i64>, LedgerError> {
    let numbers: Vec<i16> = partitions.iter().map(|partition| number::of_partition(*partition)).collect();
    // Read by a statement of its own: it sees what was committed while the locks were waited for.
    let share = sql_query(include_str!("sql/share_parking.sql"));
    share.bind::<Array<SmallInt>, _>(numbers).execute(connection).await?;
    let rows: Vec<(Partition, Milliseconds)> = rows::table
        .filter(rows::partition.eq_any(partitions.iter().copied()))
        .filter(rows::passed_at.is_not_null())
        .select((rows::partition, rows::passed_at.assume_not_null()))
        .load(connection)
        .await?;
    Ok(rows.into_iter().map(|(partition, Milliseconds(at_ms))| (partition, at_ms)).collect())
}
