//! Keys that the gate may have forgotten: what each transaction makes known, sealed into stretches, and filters over those.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::sql_types::{self, Array, BigInt, Binary, Bool, Nullable, SmallInt, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::statement::Kept;
use super::{BEGIN, Ledger, LedgerError, instant, notices, number};
use crate::domain::event::{Change, Event};
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId};
use crate::domain::key_filter::{KeyFilter, Unbuildable, key_hash};
use crate::domain::parked::ParkedCall;
use crate::domain::reservation::Record;

/// The kind of notice that tells of new filters.
pub const NOTICE: &str = "key_filters";

/// Rows of keys that one transaction seals, each of one transaction of the writer ...
const ROWS_AT_ONCE: usize = 20_000;
/// ... until they have so many bytes of ids: a quarter of a million keys.
const BYTES_AT_ONCE: usize = 4_000_000;

/// A filter of a partition: of one stretch, or merged up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterPlace {
    /// Whose keys.
    pub partition: Partition,
    /// The stretch, or the last one merged.
    pub number: i64,
    /// Whether it holds all stretches up to that.
    pub is_merged: bool,
    /// When it was sealed or merged (gate time, unix ms): a ledger that was set back gives numbers anew.
    pub made_ms: i64,
}

/// Which filters there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterList {
    /// Up to when all that the gate had admitted is in one of them (gate time, unix ms); none before the first seal.
    pub sealed_ms: Option<i64>,
    /// All of them.
    pub places: Vec<FilterPlace>,
}

/// How many keys of a partition wait to be merged, and how many are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mergeable {
    /// Whose keys.
    pub partition: Partition,
    /// Stretches with a filter of their own.
    pub stretches: u64,
    /// Keys in those.
    pub keys: u64,
    /// Keys in the merged filter.
    pub merged: u64,
    /// When it was merged (gate time, unix ms); none when there is no merged one.
    pub merged_ms: Option<i64>,
}

/// Notes the ids of keyed reservations that a transaction makes known.
pub(crate) async fn add(
    mut connection: &AsyncPgConnection,
    ids: &[ReservationId],
) -> Result<(), LedgerError> {
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<u8> = ids.iter().flat_map(|id| *id.as_bytes()).collect();
    let insert = sql_query("INSERT INTO booked_keys (ids) VALUES ($1)");
    Kept(insert.bind::<Binary, _>(ids)).execute(&mut connection).await?;
    Ok(())
}

#[derive(QueryableByName)]
struct IdsRow {
    #[diesel(sql_type = Binary)]
    ids: Vec<u8>,
}

#[derive(QueryableByName)]
struct PlaceRow {
    #[diesel(sql_type = SmallInt)]
    partition: i16,
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Bool)]
    is_merged: bool,
    #[diesel(sql_type = Timestamptz)]
    made_at: DateTime<Utc>,
}

impl PlaceRow {
    fn read(self) -> Result<FilterPlace, LedgerError> {
        Ok(FilterPlace {
            partition: number::partition(self.partition)?,
            number: self.number,
            is_merged: self.is_merged,
            made_ms: self.made_at.timestamp_millis(),
        })
    }
}

#[derive(QueryableByName)]
struct SealRow {
    #[diesel(sql_type = Nullable<Timestamptz>)]
    sealed_at: Option<DateTime<Utc>>,
}

#[derive(QueryableByName)]
struct FilterRow {
    #[diesel(embed)]
    place: PlaceRow,
    #[diesel(sql_type = Binary)]
    filter: Vec<u8>,
}

impl FilterRow {
    fn read(self) -> Result<(FilterPlace, KeyFilter), LedgerError> {
        let place = self.place.read()?;
        let filter = KeyFilter::decode(&self.filter)
            .map_err(|error| LedgerError::Damaged(format!("keys of {}: {error}", place.partition)))?;
        Ok((place, filter))
    }
}

#[derive(QueryableByName)]
struct MergeableRow {
    #[diesel(sql_type = SmallInt)]
    partition: i16,
    #[diesel(sql_type = BigInt)]
    stretches: i64,
    #[diesel(sql_type = BigInt)]
    keys: i64,
    #[diesel(sql_type = BigInt)]
    merged: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    merged_at: Option<DateTime<Utc>>,
}

#[derive(QueryableByName)]
struct StretchRow {
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Binary)]
    keys: Vec<u8>,
}

#[derive(QueryableByName)]
struct NumberRow {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

#[derive(QueryableByName)]
struct ReservationIdRow {
    #[diesel(sql_type = sql_types::Uuid)]
    reservation_id: uuid::Uuid,
}

#[derive(QueryableByName)]
struct QuarantinedRow {
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = BigInt)]
    sequence: i64,
    #[diesel(sql_type = Binary)]
    event: Vec<u8>,
}

#[derive(QueryableByName)]
struct ParkedRow {
    #[diesel(sql_type = Binary)]
    payload: Vec<u8>,
}

/// What the ledger knows of an admission that is not booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unbooked {
    /// Nothing.
    No,
    /// It was admitted with this record at the gate, and its event waits in quarantine.
    Quarantined(Box<Record>),
    /// It was admitted with this record while the gate was away, and waits for the gate.
    Parked(Box<Record>),
    /// Something of it waits in quarantine that cannot be read.
    Unreadable,
}

async fn seal_some(
    connection: &mut AsyncPgConnection,
    sealed_at: DateTime<Utc>,
) -> Result<(usize, bool), LedgerError> {
    // One sealer at a time: a stretch has one number.
    sql_query("SELECT sealed_at FROM key_seal FOR UPDATE").execute(connection).await?;
    let taken: Vec<IdsRow> = sql_query(
        "DELETE FROM booked_keys WHERE number IN ( \
             SELECT number FROM (SELECT number, sum(length(ids)) OVER (ORDER BY number) - length(ids) AS bytes_before \
                 FROM (SELECT number, ids FROM booked_keys ORDER BY number LIMIT $1) oldest) counted \
             WHERE bytes_before < $2) RETURNING ids",
    )
    .bind::<BigInt, _>(number::limit(ROWS_AT_ONCE))
    .bind::<BigInt, _>(number::limit(BYTES_AT_ONCE))
    .load(connection)
    .await?;
    let bytes: usize = taken.iter().map(|row| row.ids.len()).sum();
    let is_last = taken.len() < ROWS_AT_ONCE && bytes < BYTES_AT_ONCE;
    let mut keys: BTreeMap<Partition, Vec<u64>> = BTreeMap::new();
    for id in taken.iter().flat_map(|row| row.ids.chunks_exact(16)) {
        let Ok(id) = <[u8; 16]>::try_from(id) else { continue };
        let id = ReservationId::from_bytes(id);
        keys.entry(id.partition()).or_default().push(key_hash(id));
    }
    let count = keys.values().map(Vec::len).sum();
    for (partition, mut keys) in keys {
        keys.sort_unstable();
        keys.dedup();
        let packed: Vec<u8> = keys.iter().flat_map(|key| key.to_be_bytes()).collect();
        let filter = build(keys, KeyFilter::sharp).await?;
        sql_query(
            "INSERT INTO key_stretches (partition, number, sealed_at, keys, filter) \
             SELECT $1, 1 + greatest(coalesce((SELECT max(number) FROM key_stretches WHERE partition = $1), 0), \
                 coalesce((SELECT up_to FROM key_filters WHERE partition = $1), 0)), $2, $3, $4",
        )
        .bind::<SmallInt, _>(number::of_partition(partition))
        .bind::<Timestamptz, _>(sealed_at)
        .bind::<Binary, _>(packed)
        .bind::<Binary, _>(filter.encode())
        .execute(connection)
        .await?;
    }
    if is_last {
        let query = "UPDATE key_seal SET sealed_at = $1";
        sql_query(query).bind::<Timestamptz, _>(sealed_at).execute(connection).await?;
        notices::tell(connection, NOTICE, "", 0).await?;
    }
    Ok((count, is_last))
}

/// Away from the threads that answer calls: a filter of millions of keys takes a second.
async fn build(
    keys: Vec<u64>,
    of: fn(Vec<u64>) -> Result<KeyFilter, Unbuildable>,
) -> Result<KeyFilter, LedgerError> {
    let built = tokio::task::spawn_blocking(move || of(keys)).await;
    let built = built.map_err(|error| LedgerError::Unavailable(error.to_string()))?;
    built.map_err(|error| LedgerError::Damaged(error.to_string()))
}

async fn merge_one(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    merged_at: DateTime<Utc>,
    kept_from: DateTime<Utc>,
) -> Result<u64, LedgerError> {
    sql_query("SELECT sealed_at FROM key_seal FOR UPDATE").execute(connection).await?;
    let partition = number::of_partition(partition);
    let dropped: Vec<NumberRow> =
        sql_query("DELETE FROM key_stretches WHERE partition = $1 AND sealed_at < $2 RETURNING number")
            .bind::<SmallInt, _>(partition)
            .bind::<Timestamptz, _>(kept_from)
            .load(connection)
            .await?;
    let stretches: Vec<StretchRow> =
        sql_query("SELECT number, keys FROM key_stretches WHERE partition = $1 ORDER BY number")
            .bind::<SmallInt, _>(partition)
            .load(connection)
            .await?;
    let last = stretches.last().map(|stretch| stretch.number);
    let last = last.into_iter().chain(dropped.iter().map(|stretch| stretch.number)).max();
    let mut keys: Vec<u64> = stretches
        .iter()
        .flat_map(|stretch| stretch.keys.chunks_exact(8))
        .filter_map(|key| key.try_into().ok().map(u64::from_be_bytes))
        .collect();
    drop(stretches);
    keys.extend(undecided(connection, partition).await?);
    let Some(up_to) = last.filter(|_| !keys.is_empty()) else {
        sql_query("DELETE FROM key_filters WHERE partition = $1")
            .bind::<SmallInt, _>(partition)
            .execute(connection)
            .await?;
        return Ok(0);
    };
    let count = keys.len();
    let filter = build(keys, KeyFilter::compact).await?;
    sql_query(
        "INSERT INTO key_filters (partition, up_to, keys, merged_at, filter) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (partition) DO UPDATE SET up_to = excluded.up_to, keys = excluded.keys, merged_at = excluded.merged_at, \
             filter = excluded.filter",
    )
    .bind::<SmallInt, _>(partition)
    .bind::<BigInt, _>(up_to)
    .bind::<BigInt, _>(number::limit(count))
    .bind::<Timestamptz, _>(merged_at)
    .bind::<Binary, _>(filter.encode())
    .execute(connection)
    .await?;
    sql_query("UPDATE key_stretches SET filter = NULL WHERE partition = $1 AND number <= $2")
        .bind::<SmallInt, _>(partition)
        .bind::<BigInt, _>(up_to)
        .execute(connection)
        .await?;
    notices::tell(connection, NOTICE, "", 0).await?;
    Ok(u64::try_from(count).unwrap_or(u64::MAX))
}

/// The keys of what waits in quarantine, however long it has waited: its row is not archived before it is decided.
async fn undecided(connection: &mut AsyncPgConnection, partition: i16) -> Result<Vec<u64>, LedgerError> {
    let rows: Vec<ReservationIdRow> = sql_query(
        "SELECT DISTINCT reservation_id FROM quarantine \
         WHERE status = 'open' AND partition = $1 AND reservation_id IS NOT NULL",
    )
    .bind::<SmallInt, _>(partition)
    .load(connection)
    .await?;
    let key = |row: ReservationIdRow| key_hash(ReservationId::from_bytes(row.reservation_id.into_bytes()));
    Ok(rows.into_iter().map(key).collect())
}

async fn list(connection: &mut AsyncPgConnection) -> Result<FilterList, LedgerError> {
    let seal: Vec<SealRow> = sql_query("SELECT sealed_at FROM key_seal").load(connection).await?;
    // One statement, so that no stretch is missed that is merged meanwhile.
    let rows: Vec<PlaceRow> = sql_query(
        "SELECT partition, up_to AS number, true AS is_merged, merged_at AS made_at FROM key_filters \
         UNION ALL SELECT partition, number, false, sealed_at FROM key_stretches WHERE filter IS NOT NULL",
    )
    .load(connection)
    .await?;
    Ok(FilterList {
        sealed_ms: seal.as_slice().first().and_then(|row| row.sealed_at).map(|at| at.timestamp_millis()),
        places: rows.into_iter().map(PlaceRow::read).collect::<Result<_, _>>()?,
    })
}

async fn unbooked(connection: &mut AsyncPgConnection, id: ReservationId) -> Result<Unbooked, LedgerError> {
    let quarantined: Vec<QuarantinedRow> = sql_query(
        "SELECT epoch, sequence, event FROM quarantine WHERE status = 'open' AND reservation_id = $1 ORDER BY epoch, sequence LIMIT 1",
    )
    .bind::<sql_types::Uuid, _>(id.uuid())
    .load(connection)
    .await?;
    if let Some(row) = quarantined.into_iter().next() {
        let place = OutboxId {
            epoch: Epoch(number::unsigned(row.epoch)?),
            sequence: number::unsigned(row.sequence)?,
        };
        return Ok(match Event::decode(place, &row.event).map(|event| event.change) {
            Ok(Change::Reserve(record) | Change::Usage(record)) => Unbooked::Quarantined(Box::new(record)),
            _ => Unbooked::Unreadable,
        });
    }
    let parked: Vec<ParkedRow> = sql_query(
        "SELECT payload FROM parked WHERE reservation_id = $1 AND call IN ('reserve', 'usage') ORDER BY number LIMIT 1",
    )
    .bind::<sql_types::Uuid, _>(id.uuid())
    .load(connection)
    .await?;
    Ok(match parked.into_iter().next().map(|row| ParkedCall::decode(&row.payload)) {
        None => Unbooked::No,
        Some(Ok(ParkedCall::Admit { record, .. })) => Unbooked::Parked(Box::new(record)),
        Some(_) => Unbooked::Unreadable,
    })
}

impl Ledger {
    /// Seals all keys that are known by now: at `sealed_ms` (gate time, unix ms) everything before was booked. Answers how
    /// many.
    pub async fn seal_keys(&self, sealed_ms: i64) -> Result<usize, LedgerError> {
        let sealed_at = instant::from_ms(sealed_ms)?;
        let mut sealed = 0;
        loop {
            let (count, is_last) =
                self.transact(BEGIN, move |connection| seal_some(connection, sealed_at).boxed()).await?;
            sealed += count;
            if is_last {
                return Ok(sealed);
            }
        }
    }

    /// What could be merged, by partition.
    pub async fn mergeable_keys(&self) -> Result<Vec<Mergeable>, LedgerError> {
        let query = "SELECT s.partition, count(s.filter) AS stretches, \
                coalesce(sum(length(s.keys) / 8) FILTER (WHERE s.filter IS NOT NULL), 0)::bigint AS keys, \
                coalesce(max(f.keys), 0)::bigint AS merged, max(f.merged_at) AS merged_at \
            FROM key_stretches s LEFT JOIN key_filters f ON f.partition = s.partition GROUP BY s.partition ORDER BY s.partition";
        let rows = self
            .read(|connection| async move { Ok(sql_query(query).load(connection).await?) }.boxed())
            .await?;
        rows.into_iter()
            .map(|row: MergeableRow| {
                Ok(Mergeable {
                    partition: number::partition(row.partition)?,
                    stretches: number::unsigned(row.stretches)?,
                    keys: number::unsigned(row.keys)?,
                    merged: number::unsigned(row.merged)?,
                    merged_ms: row.merged_at.map(|at| at.timestamp_millis()),
                })
            })
            .collect()
    }

    /// Merges all stretches of a partition into one filter, without those sealed before `kept_from_ms`, and with what waits in
    /// quarantine. Answers how many keys
    /// it holds.
    pub async fn merge_keys(
        &self,
        partition: Partition,
        merged_ms: i64,
        kept_from_ms: i64,
    ) -> Result<u64, LedgerError> {
        let (merged_at, kept_from) = (instant::from_ms(merged_ms)?, instant::from_ms(kept_from_ms.max(0))?);
        self.transact(BEGIN, move |connection| merge_one(connection, partition, merged_at, kept_from).boxed())
            .await
    }

    /// Which filters there are.
    pub async fn key_filters(&self) -> Result<FilterList, LedgerError> {
        self.read(|connection| list(connection).boxed()).await
    }

    /// These filters, without those that have been merged since.
    pub async fn read_key_filters(
        &self,
        places: &[FilterPlace],
    ) -> Result<Vec<(FilterPlace, KeyFilter)>, LedgerError> {
        let query = "WITH wanted AS (SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::boolean[]) w(partition, number, is_merged)) \
            SELECT partition, number, is_merged, merged_at AS made_at, filter FROM key_filters f JOIN wanted w USING (partition) \
                WHERE w.is_merged AND w.number = f.up_to \
            UNION ALL SELECT partition, number, is_merged, sealed_at, filter FROM key_stretches s JOIN wanted w USING (partition, number) \
                WHERE NOT w.is_merged AND s.filter IS NOT NULL";
        let rows: Vec<FilterRow> = self
            .read(|connection| {
                let partitions = places.iter().map(|place| number::of_partition(place.partition));
                let query = sql_query(query)
                    .bind::<Array<SmallInt>, _>(partitions.collect::<Vec<_>>())
                    .bind::<Array<BigInt>, _>(places.iter().map(|place| place.number).collect::<Vec<_>>())
                    .bind::<Array<Bool>, _>(places.iter().map(|place| place.is_merged).collect::<Vec<_>>());
                async move { Ok(query.load(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(FilterRow::read).collect()
    }

    /// What is known of an admission that is not booked: it waits in quarantine, or for the gate.
    pub async fn unbooked_admission(&self, id: ReservationId) -> Result<Unbooked, LedgerError> {
        self.read(|connection| unbooked(connection, id).boxed()).await
    }
}
