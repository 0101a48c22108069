//! How far each partition's outbox is booked.

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, SmallInt, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::columns::HashIfAny;
use super::functions::{greatest, transaction_timestamp};
use super::prepared::sql_query;
use super::schema::cursors;
use super::{BEGIN, Conflict, Ledger, LedgerError, number};
use crate::domain::ids::{Epoch, OutboxId, Partition};

/// A partition's cursor: the last event booked, and the hash that recognises its outbox entry.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = cursors, check_for_backend(Pg))]
pub struct Cursor {
    /// Its partition.
    pub partition: Partition,
    /// The last event booked; `0-0` when none was.
    #[diesel(select_expression = (cursors::epoch, cursors::sequence))]
    pub booked: OutboxId,
    /// The hash of its entry; none when none was booked.
    #[diesel(deserialize_as = HashIfAny)]
    pub event_hash: Option<[u8; 32]>,
    /// The last epoch whose tail after the cursor is abandoned; 0 when there is none.
    pub given_up: Epoch,
    /// How many names of the partition's subjects were erased.
    pub erasures: i64,
}

impl Cursor {
    /// Whether nothing up to `id` will still be booked: it is booked, or the tail of its epoch is abandoned.
    pub fn settles(&self, id: OutboxId) -> bool {
        Self::is_settled(self.booked, self.given_up, id)
    }

    /// As [`Self::settles`], for a cursor at `booked`.
    pub fn is_settled(booked: OutboxId, given_up: Epoch, id: OutboxId) -> bool {
        booked >= id || id.epoch <= given_up
    }
}

/// The tail of a partition's outbox from its cursor to the end of an epoch: it is lost, or does not continue what was
/// booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbandonedTail {
    /// Its partition.
    pub partition: Partition,
    /// Its cursor.
    pub booked: OutboxId,
    /// The epoch whose end is the end of the tail.
    pub epoch: Epoch,
}

/// A move of a partition's cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CursorMove {
    pub(crate) partition: Partition,
    pub(crate) from: OutboxId,
    /// The first event that it books.
    pub(crate) first: OutboxId,
    pub(crate) to: OutboxId,
    pub(crate) event_hash: [u8; 32],
}

impl Ledger {
    /// The last event booked in a partition; `0-0` when none was.
    pub async fn cursor(&self, partition: Partition) -> Result<OutboxId, LedgerError> {
        Ok(self.cursor_row(partition).await?.booked)
    }

    /// A partition's cursor: what is booked and what is abandoned.
    pub async fn cursor_row(&self, partition: Partition) -> Result<Cursor, LedgerError> {
        let found = self.first(|| one(partition)).await?;
        found.ok_or_else(|| not_installed(partition))
    }

    /// Abandons these tails, each only if its cursor has not moved meanwhile. Returns those that are abandoned now.
    pub async fn abandon_tails(&self, tails: &[AbandonedTail]) -> Result<Vec<AbandonedTail>, LedgerError> {
        let tails = tails.to_vec();
        self.transact(BEGIN, move |connection| note_given_up(connection, tails).boxed()).await
    }

    /// The cursors of all partitions, in order.
    pub async fn cursors(&self) -> Result<Vec<Cursor>, LedgerError> {
        self.load(|| cursors::table.select(Cursor::as_select()).order(cursors::partition)).await
    }
}

#[diesel::dsl::auto_type(no_type_alias)]
fn one(partition: Partition) -> _ {
    let cursor: diesel::dsl::AsSelect<Cursor, Pg> = Cursor::as_select();
    cursors::table.select(cursor).filter(cursors::partition.eq(partition))
}

fn not_installed(partition: Partition) -> LedgerError {
    LedgerError::Refused(format!("partition {partition} is not one of this installation"))
}

/// The last event booked in a partition, as this transaction sees it.
pub(crate) async fn read(
    connection: &mut AsyncPgConnection,
    partition: Partition,
) -> Result<OutboxId, LedgerError> {
    let found: Option<Cursor> = one(partition).first(connection).await.optional()?;
    Ok(found.ok_or_else(|| not_installed(partition))?.booked)
}

/// Locks the cursors of these partitions, in order, so that nobody else books them before this transaction ends.
/// Returns them and the transaction's instant.
pub(crate) async fn lock(
    connection: &mut AsyncPgConnection,
    partitions: &[Partition],
) -> Result<(Vec<Cursor>, DateTime<Utc>), LedgerError> {
    let lock = cursors::table
        .select((Cursor::as_select(), transaction_timestamp()))
        .filter(cursors::partition.eq_any(partitions))
        .order(cursors::partition)
        .for_update();
    let (cursors, instants): (Vec<Cursor>, Vec<DateTime<Utc>>) =
        lock.load::<(Cursor, DateTime<Utc>)>(connection).await?.into_iter().unzip();
    let now = instants.as_slice().first().copied();
    Ok((cursors, now.ok_or_else(|| LedgerError::Refused("no such partition is installed".into()))?))
}

/// Counts an erasure of a name: an instance that remembers its number sees that when it books next.
pub(crate) async fn count_erasure(
    connection: &mut AsyncPgConnection,
    partition: Partition,
) -> Result<(), LedgerError> {
    let count = cursors::erasures.eq(cursors::erasures + 1);
    diesel::update(cursors::table.find(partition)).set(count).execute(connection).await?;
    Ok(())
}

async fn note_given_up(
    connection: &mut AsyncPgConnection,
    tails: Vec<AbandonedTail>,
) -> Result<Vec<AbandonedTail>, LedgerError> {
    let partitions: Vec<Partition> = tails.iter().map(|rest| rest.partition).collect();
    let (locked, _) = lock(connection, &partitions).await?;
    let stands = |rest: &AbandonedTail| {
        locked.iter().any(|cursor| cursor.partition == rest.partition && cursor.booked == rest.booked)
    };
    let noted: Vec<AbandonedTail> = tails.into_iter().filter(stands).collect();
    for rest in &noted {
        let given_up = greatest(cursors::given_up, rest.epoch);
        let give_up = diesel::update(cursors::table.find(rest.partition)).set(cursors::given_up.eq(given_up));
        give_up.execute(connection).await?;
    }
    Ok(noted)
}

#[derive(QueryableByName)]
struct Moved {
    #[diesel(sql_type = SmallInt)]
    partition: Partition,
    #[diesel(sql_type = Timestamptz)]
    booked_at: DateTime<Utc>,
    #[diesel(sql_type = BigInt)]
    erasures: i64,
}

/// What a transaction that books begins with.
pub(crate) struct Advanced {
    /// The transaction's instant.
    pub(crate) booked_at: DateTime<Utc>,
    /// How many names were erased in each partition.
    pub(crate) erasures: Vec<(Partition, i64)>,
}

/// Moves cursors by compare-and-set, all of them or none, and holds their locks until the transaction ends. Nobody else
/// books these partitions meanwhile, so a transaction that reads anything of them calls this first.
pub(crate) async fn advance(
    mut connection: &AsyncPgConnection,
    moves: &[CursorMove],
) -> Result<Advanced, LedgerError> {
    let column = |pick: fn(&CursorMove) -> u64| {
        moves.iter().map(|step| number::signed(pick(step))).collect::<Vec<_>>()
    };
    let advance = sql_query(include_str!("sql/advance_cursors.sql"))
        .bind::<Array<SmallInt>, _>(moves.iter().map(|step| step.partition).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(column(|step| step.from.epoch.0))
        .bind::<Array<BigInt>, _>(column(|step| step.from.sequence))
        .bind::<Array<BigInt>, _>(column(|step| step.first.epoch.0))
        .bind::<Array<BigInt>, _>(column(|step| step.to.epoch.0))
        .bind::<Array<BigInt>, _>(column(|step| step.to.sequence))
        .bind::<Array<Binary>, _>(moves.iter().map(|step| step.event_hash.as_slice()).collect::<Vec<_>>());
    let moved: Vec<Moved> = advance.load(&mut connection).await?;
    let is_moved = |step: &&CursorMove| moved.iter().any(|moved| moved.partition == step.partition);
    if let Some(step) = moves.iter().find(|step| !is_moved(step)) {
        return Err(LedgerError::Conflict(Conflict::CursorMoved(step.partition.number())));
    }
    let booked_at = moved.as_slice().first().map(|moved| moved.booked_at);
    let booked_at = booked_at.ok_or_else(|| LedgerError::Refused("no event is to be booked".into()))?;
    let erasures = moved.iter().map(|moved| (moved.partition, moved.erasures)).collect();
    Ok(Advanced { booked_at, erasures })
}
