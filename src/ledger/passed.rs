//! Passed instants: as of when periods of a partition were closed last. A call that is parked after a close was taken
//! then at the earliest, so that no gate time says otherwise than the books.

use std::collections::{BTreeSet, HashMap};

use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::{Array, SmallInt};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::columns::Milliseconds;
use super::cursors::{self, Cursor};
use super::functions::greatest;
use super::schema::cursors as rows;
use super::{LedgerError, instant, number};
use crate::domain::ids::Partition;

/// Locks the partition's cursor, so that nothing of it is booked before this transaction ends, and lets no call of it
/// be parked; waits for those that are being parked. Returns the cursor, as [`cursors::lock`] does.
pub(crate) async fn lock_to_close(
    connection: &mut AsyncPgConnection,
    partition: Partition,
) -> Result<Vec<Cursor>, LedgerError> {
    let (locked, _) = cursors::lock(connection, &[partition]).await?;
    let hold = sql_query(include_str!("sql/hold_parking.sql"));
    hold.bind::<SmallInt, _>(number::of_partition(partition)).execute(connection).await?;
    Ok(locked)
}

/// Notes the last of these instants (unix ms), as of which periods of the partition are closed. It is locked to close.
pub(crate) async fn note(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    closed_at_ms: impl Iterator<Item = i64>,
) -> Result<(), LedgerError> {
    let Some(last_ms) = closed_at_ms.max() else { return Ok(()) };
    let passed = greatest(rows::passed_at, Some(instant::from_ms(last_ms)?));
    let noted = diesel::update(rows::table.find(partition)).set(rows::passed_at.eq(passed));
    noted.execute(connection).await?;
    Ok(())
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
