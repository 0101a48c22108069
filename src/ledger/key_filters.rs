//! Keys that the gate may have forgotten: each transaction records its new keys, a job seals them into stretches, and
//! each stretch gets a filter.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, SmallInt, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::columns::{Milliseconds, MillisecondsIfAny, Unsigned};
use super::prepared::sql_query;
use super::quarantine::open;
use super::schema::{booked_keys, key_filters, key_seal, key_stretches, parked, quarantine};
use super::{BEGIN, Ledger, LedgerError, instant, notices, number};
use crate::domain::event::{Change, Event};
use crate::domain::ids::{OutboxId, Partition, ReservationId};
use crate::domain::key_filter::{KeyFilter, Unbuildable, key_hash};
use crate::domain::parked::ParkedCall;
use crate::domain::reservation::Record;

/// The kind of notice that announces new filters.
pub const NOTICE: &str = "key_filters";

/// One transaction seals at most this many rows of keys, each written by one transaction of the writer ...
const ROWS_AT_ONCE: usize = 20_000;
/// ... and at most this many bytes of ids: a quarter of a million keys.
const BYTES_AT_ONCE: usize = 4_000_000;

/// A filter of a partition: of one stretch, or of all stretches merged up to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterCursor {
    /// The partition of its keys.
    pub partition: Partition,
    /// The stretch, or the last one that was merged.
    pub number: i64,
    /// Whether it holds all stretches up to that one.
    pub is_merged: bool,
    /// When it was sealed or merged (gate time, unix ms): after a restored backup the ledger uses numbers again.
    pub made_ms: i64,
}

/// The filters that exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterList {
    /// Every key that the gate had admitted before this instant is in a filter (gate time, unix ms); none before the
    /// first seal.
    pub sealed_ms: Option<i64>,
    /// All of them.
    pub places: Vec<FilterCursor>,
}

/// How many keys of a partition are merged, and how many are not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct Mergeable {
    /// The partition of the keys.
    #[diesel(sql_type = SmallInt)]
    pub partition: Partition,
    /// Stretches with a filter of their own.
    #[diesel(sql_type = BigInt, deserialize_as = Unsigned)]
    pub stretches: u64,
    /// Keys in those.
    #[diesel(sql_type = BigInt, deserialize_as = Unsigned)]
    pub keys: u64,
    /// Keys in the merged filter.
    #[diesel(sql_type = BigInt, deserialize_as = Unsigned)]
    pub merged: u64,
    /// When the merged filter was made (gate time, unix ms); none when there is none.
    #[diesel(sql_type = Nullable<Timestamptz>, column_name = merged_at, deserialize_as = MillisecondsIfAny)]
    pub merged_ms: Option<i64>,
}

/// Records the ids of the keyed reservations that a transaction books first.
pub(crate) async fn add(
    mut connection: &AsyncPgConnection,
    ids: &[ReservationId],
) -> Result<(), LedgerError> {
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<u8> = ids.iter().flat_map(|id| *id.as_bytes()).collect();
    diesel::insert_into(booked_keys::table).values(booked_keys::ids.eq(ids)).execute(&mut connection).await?;
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
    partition: Partition,
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Bool)]
    is_merged: bool,
    #[diesel(sql_type = Timestamptz)]
    made_at: Milliseconds,
}

impl PlaceRow {
    fn place(self) -> FilterCursor {
        let Self { partition, number, is_merged, made_at } = self;
        FilterCursor { partition, number, is_merged, made_ms: made_at.0 }
    }
}

#[derive(QueryableByName)]
struct FilterRow {
    #[diesel(embed)]
    place: PlaceRow,
    #[diesel(sql_type = Binary)]
    filter: Vec<u8>,
}

impl FilterRow {
    fn read(self) -> Result<(FilterCursor, KeyFilter), LedgerError> {
        let place = self.place.place();
        let filter = KeyFilter::decode(&self.filter)
            .map_err(|error| LedgerError::Damaged(format!("keys of {}: {error}", place.partition)))?;
        Ok((place, filter))
    }
}

/// Where an admission waits that is not booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unbooked {
    /// Nowhere.
    No,
    /// The gate admitted this record, and its event waits in quarantine.
    Quarantined(Box<Record>),
    /// The record was admitted while the gate was away, and waits for redelivery.
    Parked(Box<Record>),
    /// An event or a call of it waits that cannot be decoded.
    Unreadable,
}

async fn seal_some(
    connection: &mut AsyncPgConnection,
    sealed_at: DateTime<Utc>,
) -> Result<(usize, bool), LedgerError> {
    lock_seal(connection).await?;
    let taken: Vec<IdsRow> = sql_query(include_str!("sql/take_booked_keys.sql"))
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
        sql_query(include_str!("sql/add_key_stretch.sql"))
            .bind::<SmallInt, _>(number::of_partition(partition))
            .bind::<Timestamptz, _>(sealed_at)
            .bind::<Binary, _>(packed)
            .bind::<Binary, _>(filter.encode())
            .execute(connection)
            .await?;
    }
    if is_last {
        let sealed = key_seal::sealed_at.eq(sealed_at);
        diesel::update(key_seal::table).set(sealed).execute(connection).await?;
        notices::tell(connection, NOTICE, "", 0).await?;
    }
    Ok((count, is_last))
}

/// Only one instance seals at a time, so that each stretch gets its own number.
async fn lock_seal(connection: &mut AsyncPgConnection) -> Result<(), LedgerError> {
    key_seal::table.select(key_seal::sealed_at).for_update().execute(connection).await?;
    Ok(())
}

/// Builds a filter on a blocking thread: one of millions of keys takes a second.
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
    lock_seal(connection).await?;
    let of_partition = key_stretches::table.filter(key_stretches::partition.eq(partition));
    let dropped: Vec<i64> = diesel::delete(of_partition.filter(key_stretches::sealed_at.lt(kept_from)))
        .returning(key_stretches::number)
        .load(connection)
        .await?;
    let stretches: Vec<(i64, Vec<u8>)> = of_partition
        .select((key_stretches::number, key_stretches::keys))
        .order(key_stretches::number)
        .load(connection)
        .await?;
    let last = stretches.last().map(|(number, _)| *number);
    let last = last.into_iter().chain(dropped).max();
    let mut keys: Vec<u64> = stretches
        .iter()
        .flat_map(|(_, keys)| keys.chunks_exact(8))
        .filter_map(|key| key.try_into().ok().map(u64::from_be_bytes))
        .collect();
    drop(stretches);
    keys.extend(undecided(connection, partition).await?);
    let Some(up_to) = last.filter(|_| !keys.is_empty()) else {
        let merged = key_filters::table.find(partition);
        diesel::delete(merged).execute(connection).await?;
        return Ok(0);
    };
    let count = keys.len();
    let filter = build(keys, KeyFilter::compact).await?;
    let merged = (
        key_filters::up_to.eq(up_to),
        key_filters::keys.eq(number::limit(count)),
        key_filters::merged_at.eq(merged_at),
        key_filters::filter.eq(filter.encode()),
    );
    diesel::insert_into(key_filters::table)
        .values((key_filters::partition.eq(partition), merged.clone()))
        .on_conflict(key_filters::partition)
        .do_update()
        .set(merged)
        .execute(connection)
        .await?;
    diesel::update(of_partition.filter(key_stretches::number.le(up_to)))
        .set(key_stretches::filter.eq(None::<Vec<u8>>))
        .execute(connection)
        .await?;
    notices::tell(connection, NOTICE, "", 0).await?;
    Ok(u64::try_from(count).unwrap_or(u64::MAX))
}

/// The keys of events in quarantine, however long they have waited: their rows are not archived before someone decides.
async fn undecided(
    connection: &mut AsyncPgConnection,
    partition: Partition,
) -> Result<Vec<u64>, LedgerError> {
    let ids: Vec<ReservationId> = quarantine::table
        .select(quarantine::reservation_id.assume_not_null())
        .distinct()
        .filter(quarantine::status.eq(open()))
        .filter(quarantine::partition.eq(partition))
        .filter(quarantine::reservation_id.is_not_null())
        .load(connection)
        .await?;
    Ok(ids.into_iter().map(key_hash).collect())
}

async fn list(connection: &mut AsyncPgConnection) -> Result<FilterList, LedgerError> {
    let sealed: Option<MillisecondsIfAny> =
        key_seal::table.select(key_seal::sealed_at).first(connection).await.optional()?;
    // One statement, so that a stretch which is merged meanwhile is not missed.
    let rows: Vec<PlaceRow> = sql_query(include_str!("sql/key_filters.sql")).load(connection).await?;
    Ok(FilterList {
        sealed_ms: sealed.and_then(|sealed| sealed.0),
        places: rows.into_iter().map(PlaceRow::place).collect(),
    })
}

async fn unbooked(connection: &mut AsyncPgConnection, id: ReservationId) -> Result<Unbooked, LedgerError> {
    let quarantined: Option<(OutboxId, Vec<u8>)> = quarantine::table
        .select(((quarantine::epoch, quarantine::sequence), quarantine::event))
        .filter(quarantine::status.eq(open()))
        .filter(quarantine::reservation_id.eq(id))
        .order((quarantine::epoch, quarantine::sequence))
        .first(connection)
        .await
        .optional()?;
    if let Some((place, event)) = quarantined {
        return Ok(match Event::decode(place, &event).map(|event| event.change) {
            Ok(Change::Reserve(record) | Change::Usage(record)) => Unbooked::Quarantined(Box::new(record)),
            _ => Unbooked::Unreadable,
        });
    }
    let parked: Option<Vec<u8>> = parked::table
        .select(parked::payload)
        .filter(parked::reservation_id.eq(id))
        .filter(parked::call.eq_any(["reserve", "usage"]))
        .order(parked::number)
        .first(connection)
        .await
        .optional()?;
    Ok(match parked.map(|payload| ParkedCall::decode(&payload)) {
        None => Unbooked::No,
        Some(Ok(ParkedCall::Admit { record, .. })) => Unbooked::Parked(Box::new(record)),
        Some(_) => Unbooked::Unreadable,
    })
}

impl Ledger {
    /// Seals all keys recorded so far. `sealed_ms` is an instant (gate time, unix ms) before which everything is
    /// booked. Returns how many keys.
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

    /// What could be merged, for each partition.
    pub async fn mergeable_keys(&self) -> Result<Vec<Mergeable>, LedgerError> {
        self.load(|| sql_query(include_str!("sql/mergeable_keys.sql"))).await
    }

    /// Merges all stretches of a partition that were sealed since `kept_from_ms` into one filter, together with the
    /// keys of events in quarantine. Returns how many keys it holds.
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

    /// Which filters exist.
    pub async fn key_filters(&self) -> Result<FilterList, LedgerError> {
        self.read(|connection| list(connection).boxed()).await
    }

    /// Reads these filters; those that have been merged since are left out.
    pub async fn read_key_filters(
        &self,
        places: &[FilterCursor],
    ) -> Result<Vec<(FilterCursor, KeyFilter)>, LedgerError> {
        let partitions: Vec<_> = places.iter().map(|place| place.partition).collect();
        let numbers: Vec<_> = places.iter().map(|place| place.number).collect();
        let merged: Vec<_> = places.iter().map(|place| place.is_merged).collect();
        let rows: Vec<FilterRow> = self
            .load(|| {
                sql_query(include_str!("sql/read_key_filters.sql"))
                    .bind::<Array<SmallInt>, _>(&partitions)
                    .bind::<Array<BigInt>, _>(&numbers)
                    .bind::<Array<Bool>, _>(&merged)
            })
            .await?;
        rows.into_iter().map(FilterRow::read).collect()
    }

    /// Where an admission waits that is not booked: in quarantine, or parked.
    pub async fn unbooked_admission(&self, id: ReservationId) -> Result<Unbooked, LedgerError> {
        self.read(|connection| unbooked(connection, id).boxed()).await
    }
}
