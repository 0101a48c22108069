//! Openings: what months of entries came to that have left the books, and from where on the books are proven.

mod archive;
mod detach;
mod file;

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Date, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::TryStreamExt;

pub use self::archive::check_archive;
pub use self::detach::{DetachOptions, MonthOfEntries};

use super::chain::BatchHash;
use super::columns::Hash;
use super::entries::EntryRow;
use super::{Ledger, LedgerError};
use crate::ledger::prepared::sql_query;

/// From where on a chain is proven: the batch, its hash, and the entries up to it that stay.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub(crate) struct OpeningChain {
    #[diesel(sql_type = SmallInt)]
    pub(crate) chain: i16,
    #[diesel(sql_type = BigInt)]
    pub(crate) number: i64,
    #[diesel(sql_type = Binary, deserialize_as = Hash)]
    pub(crate) hash: [u8; 32],
    #[diesel(sql_type = BigInt)]
    pub(crate) kept_rows: i64,
    #[diesel(sql_type = Binary, deserialize_as = Hash)]
    pub(crate) kept_hash: [u8; 32],
}

/// Openings by their chains.
pub(crate) type OpeningChains = BTreeMap<i16, OpeningChain>;

/// A month that has left.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub(crate) struct Opening {
    #[diesel(sql_type = BigInt)]
    pub(crate) number: i64,
    #[diesel(sql_type = Date)]
    pub(crate) month: NaiveDate,
    #[diesel(sql_type = Text)]
    pub(crate) file: String,
    #[diesel(sql_type = Text)]
    pub(crate) file_sha256: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) entries: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) kept: i64,
    #[diesel(sql_type = Binary, deserialize_as = Hash)]
    pub(crate) hash: [u8; 32],
}

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text)]
    text: String,
}

#[derive(QueryableByName)]
struct HeldFrom {
    #[diesel(sql_type = Nullable<Timestamptz>)]
    held_from: Option<DateTime<Utc>>,
}

impl Ledger {
    /// From which instant on the books hold every entry (unix ms); none where no month has left.
    pub async fn held_from_ms(&self) -> Result<Option<i64>, LedgerError> {
        let rows: Vec<HeldFrom> = self.load(|| sql_query(include_str!("../sql/held_from.sql"))).await?;
        Ok(rows.into_iter().next().and_then(|row| row.held_from).map(|at| at.timestamp_millis()))
    }
}

/// Every opening, in order.
pub(crate) async fn all(connection: &mut AsyncPgConnection) -> Result<Vec<Opening>, LedgerError> {
    Ok(sql_query(include_str!("../sql/openings.sql")).load(connection).await?)
}

/// Of each chain from which an entry has left, its last opening.
pub(crate) async fn chains(connection: &mut AsyncPgConnection) -> Result<OpeningChains, LedgerError> {
    let rows: Vec<OpeningChain> =
        sql_query(include_str!("../sql/last_openings.sql")).load(connection).await?;
    Ok(rows.into_iter().map(|row| (row.chain, row)).collect())
}

/// The entries of chains up to their openings that are in the books: of each chain how many, and their hash.
pub(crate) type Kept = BTreeMap<i16, (i64, [u8; 32])>;

/// Counts and hashes the entries of chains up to their openings, which come in the order in which they were hashed.
pub(crate) struct KeptEntries(BTreeMap<i16, (i64, BatchHash)>);

impl KeptEntries {
    /// Begins with the last batch of each chain and its hash.
    pub(crate) fn up_to(places: impl IntoIterator<Item = (i16, i64, [u8; 32])>) -> Self {
        let begin = |(chain, number, hash): (i16, i64, [u8; 32])| {
            (chain, (0, BatchHash::begin(chain, number, &hash, DateTime::UNIX_EPOCH)))
        };
        Self(places.into_iter().map(begin).collect())
    }

    /// Adds the next entry.
    pub(crate) fn take(&mut self, row: EntryRow) -> Result<(), LedgerError> {
        let (batch, booked_at) = (row.batch, row.booked_at);
        if let Some((count, hash)) = self.0.get_mut(&row.chain) {
            *count += 1;
            hash.place(batch, booked_at);
            hash.row(&row.read()?.entry);
        }
        Ok(())
    }

    /// Their numbers and hashes.
    pub(crate) fn finish(self) -> Kept {
        self.0.into_iter().map(|(chain, (count, hash))| (chain, (count, hash.finish()))).collect()
    }
}

/// The hash over an opening, with all that it says and the hash of the one before.
pub(crate) async fn hash_of(
    connection: &mut AsyncPgConnection,
    opening: &Opening,
    previous: &[u8; 32],
) -> Result<[u8; 32], LedgerError> {
    let mut hasher = blake3::Hasher::new_derive_key("tollgate ledger opening v1");
    let Opening { number, month, file, file_sha256, entries, kept, .. } = opening;
    hasher.update(previous);
    hasher.update(format!("{number}|{month}|{file}|{file_sha256}|{entries}|{kept}").as_bytes());
    let query = sql_query(include_str!("../sql/opening_lines.sql")).bind::<BigInt, _>(*number);
    let mut lines = query.load_stream::<Line>(connection).await?;
    while let Some(line) = lines.try_next().await? {
        hasher.update(b"\n");
        hasher.update(line.text.as_bytes());
    }
    Ok(*hasher.finalize().as_bytes())
}
