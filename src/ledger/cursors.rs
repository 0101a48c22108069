//! How far each partition's outbox is booked.

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, BigInt, Binary, Nullable, SmallInt, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::statement::Kept;
use super::{BEGIN, Conflict, Ledger, LedgerError, number};
use crate::domain::ids::{Epoch, OutboxId, Partition};

/// A partition's cursor: the last event booked and the hash by which its entry is known again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Which partition.
    pub partition: Partition,
    /// The last event booked; `0-0` when none was.
    pub booked: OutboxId,
    /// The hash of its entry; none when none was booked.
    pub event_hash: Option<[u8; 32]>,
    /// The last epoch whose rest, behind the cursor, will never be booked; 0 when there is none.
    pub given_up: Epoch,
}

impl Cursor {
    /// Whether nothing up to `id` is still to be booked: it is booked, or its epoch's rest is given up.
    pub fn settles(&self, id: OutboxId) -> bool {
        Self::is_settled(self.booked, self.given_up, id)
    }

    /// As [`Self::settles`], of a cursor that stands at `booked`.
    pub fn is_settled(booked: OutboxId, given_up: Epoch, id: OutboxId) -> bool {
        booked >= id || id.epoch <= given_up
    }
}

/// What a partition's outbox held behind its cursor, up to the end of an epoch: lost, or not what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// Which partition.
    pub partition: Partition,
    /// Where its cursor stands.
    pub booked: OutboxId,
    /// The epoch with whose end the rest ends.
    pub epoch: Epoch,
}

/// A step of a partition's cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CursorMove {
    pub(crate) partition: Partition,
    pub(crate) from: OutboxId,
    /// The first event that is booked by it.
    pub(crate) first: OutboxId,
    pub(crate) to: OutboxId,
    pub(crate) event_hash: [u8; 32],
}

#[derive(QueryableByName)]
struct CursorRow {
    #[diesel(sql_type = SmallInt)]
    partition: i16,
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = BigInt)]
    sequence: i64,
    #[diesel(sql_type = Nullable<Binary>)]
    event_hash: Option<Vec<u8>>,
    #[diesel(sql_type = BigInt)]
    given_up: i64,
    #[diesel(sql_type = Timestamptz)]
    now: DateTime<Utc>,
}

impl CursorRow {
    fn read(self) -> Result<Cursor, LedgerError> {
        Ok(Cursor {
            partition: number::partition(self.partition)?,
            booked: OutboxId {
                epoch: Epoch(number::unsigned(self.epoch)?),
                sequence: number::unsigned(self.sequence)?,
            },
            event_hash: self.event_hash.map(number::hash).transpose()?,
            given_up: Epoch(number::unsigned(self.given_up)?),
        })
    }
}

const COLUMNS: &str = "SELECT partition, epoch, sequence, event_hash, given_up, now() AS now FROM cursors";

impl Ledger {
    /// The last event booked of a partition; `0-0` when none was.
    pub async fn cursor(&self, partition: Partition) -> Result<OutboxId, LedgerError> {
        Ok(self.cursor_row(partition).await?.booked)
    }

    /// How far a partition is booked, and what of it is given up.
    pub async fn cursor_row(&self, partition: Partition) -> Result<Cursor, LedgerError> {
        self.read(|connection| read_row(connection, partition).boxed()).await
    }

    /// Notes that these rests will never be booked, each provided that its cursor still stands where it did. Answers those
    /// that are noted.
    pub async fn give_up_rests(&self, rests: &[Rest]) -> Result<Vec<Rest>, LedgerError> {
        let rests = rests.to_vec();
        self.transact(BEGIN, move |connection| note_given_up(connection, rests).boxed()).await
    }

    /// The cursors of all partitions, in order.
    pub async fn cursors(&self) -> Result<Vec<Cursor>, LedgerError> {
        let query = format!("{COLUMNS} ORDER BY partition");
        let rows = self
            .read(|connection| {
                let query = sql_query(query.as_str());
                async move { Ok(query.load::<CursorRow>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(CursorRow::read).collect()
    }
}

/// The last event booked of a partition, as this transaction sees it.
pub(crate) async fn read(
    connection: &mut AsyncPgConnection,
    partition: Partition,
) -> Result<OutboxId, LedgerError> {
    Ok(read_row(connection, partition).await?.booked)
}

async fn read_row(connection: &mut AsyncPgConnection, partition: Partition) -> Result<Cursor, LedgerError> {
    let rows: Vec<CursorRow> = sql_query(format!("{COLUMNS} WHERE partition = $1"))
        .bind::<SmallInt, _>(number::of_partition(partition))
        .load(connection)
        .await?;
    match rows.into_iter().next() {
        Some(row) => row.read(),
        None => Err(LedgerError::Refused(format!("partition {partition} is not one of this installation"))),
    }
}

/// Locks the cursors of these partitions, in order, so that nobody else books them before this transaction ends.
/// Returns them and the transaction's instant.
pub(crate) async fn lock(
    connection: &mut AsyncPgConnection,
    partitions: &[Partition],
) -> Result<(Vec<Cursor>, DateTime<Utc>), LedgerError> {
    let numbers: Vec<i16> = partitions.iter().map(|p| number::of_partition(*p)).collect();
    let lock = sql_query(format!("{COLUMNS} WHERE partition = ANY($1) ORDER BY partition FOR UPDATE"))
        .bind::<Array<SmallInt>, _>(&numbers);
    let rows: Vec<CursorRow> = Kept(lock).load(connection).await?;
    let now = rows.as_slice().first().map(|row| row.now);
    let cursors = rows.into_iter().map(CursorRow::read).collect::<Result<_, _>>()?;
    Ok((cursors, now.ok_or_else(|| LedgerError::Refused("no such partition is installed".into()))?))
}

async fn note_given_up(
    connection: &mut AsyncPgConnection,
    rests: Vec<Rest>,
) -> Result<Vec<Rest>, LedgerError> {
    let partitions: Vec<Partition> = rests.iter().map(|rest| rest.partition).collect();
    let (locked, _) = lock(connection, &partitions).await?;
    let stands = |rest: &Rest| {
        locked.iter().any(|cursor| cursor.partition == rest.partition && cursor.booked == rest.booked)
    };
    let noted: Vec<Rest> = rests.into_iter().filter(stands).collect();
    sql_query(
        "UPDATE cursors c SET given_up = greatest(c.given_up, r.epoch) \
         FROM unnest($1::smallint[], $2::bigint[]) AS r(partition, epoch) WHERE c.partition = r.partition",
    )
    .bind::<Array<SmallInt>, _>(
        noted.iter().map(|rest| number::of_partition(rest.partition)).collect::<Vec<_>>(),
    )
    .bind::<Array<BigInt>, _>(noted.iter().map(|rest| number::signed(rest.epoch.0)).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(noted)
}

/// Moves cursors that this transaction has locked: by compare-and-set, all of them or none.
pub(crate) async fn advance(
    mut connection: &AsyncPgConnection,
    locked: &[Cursor],
    moves: &[CursorMove],
) -> Result<(), LedgerError> {
    for step in moves {
        let found = locked.iter().find(|cursor| cursor.partition == step.partition);
        // What was given up since it was read is never booked: whoever waited for it has gone on without it.
        let is_as_read = |cursor: &Cursor| cursor.booked == step.from && cursor.given_up < step.first.epoch;
        if !found.is_some_and(is_as_read) {
            return Err(LedgerError::Conflict(Conflict::CursorMoved(step.partition.number())));
        }
    }
    let column = |pick: fn(&CursorMove) -> u64| {
        moves.iter().map(|step| number::signed(pick(step))).collect::<Vec<_>>()
    };
    let partitions: Vec<i16> = moves.iter().map(|step| number::of_partition(step.partition)).collect();
    let advance = sql_query(
        "UPDATE cursors c SET epoch = m.epoch, sequence = m.sequence, event_hash = m.event_hash, booked_at = now() \
         FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[]) \
              AS m(partition, from_epoch, from_sequence, epoch, sequence, event_hash) \
         WHERE c.partition = m.partition AND c.epoch = m.from_epoch AND c.sequence = m.from_sequence",
    )
    .bind::<Array<SmallInt>, _>(partitions)
    .bind::<Array<BigInt>, _>(column(|step| step.from.epoch.0))
    .bind::<Array<BigInt>, _>(column(|step| step.from.sequence))
    .bind::<Array<BigInt>, _>(column(|step| step.to.epoch.0))
    .bind::<Array<BigInt>, _>(column(|step| step.to.sequence))
    .bind::<Array<Binary>, _>(moves.iter().map(|step| step.event_hash.as_slice()).collect::<Vec<_>>());
    let moved = Kept(advance).execute(&mut connection).await?;
    match moves.first() {
        Some(first) if moved != moves.len() => {
            Err(LedgerError::Conflict(Conflict::CursorMoved(first.partition.number())))
        }
        _ => Ok(()),
    }
}
