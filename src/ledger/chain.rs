//! The hash chains over the entries: every batch's hash covers its rows and the batch before it.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Integer, Nullable, SmallInt, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::columns::{Hash, HashIfAny};
use super::prepared::sql_query;
use super::{Ledger, LedgerError, number};
pub use crate::domain::chain::{Chain, ChainHead};
use crate::domain::entry::Entry;

/// The last batches of the chains asked for; a chain without a batch is left out.
pub(crate) type Heads = HashMap<Chain, Head>;

/// The last batch of a chain; number 0 and a hash of zeros when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Head {
    pub(crate) number: i64,
    pub(crate) hash: [u8; 32],
}

/// The row of a batch may be dropped once a later row with a multiple of this number exists: the batch's entries still
/// say the same, and the later row's hash covers them. The statements and the trigger repeat this number.
const KEPT_EVERY: i64 = 1_000;

/// Whether the row of this batch may have been dropped, given the last batch of its chain.
pub(super) fn is_droppable(number: i64, head: i64) -> bool {
    number % KEPT_EVERY != 0 && (number / KEPT_EVERY + 1) * KEPT_EVERY <= head
}

/// A batch to append, with its rows in any order.
pub(crate) struct Batch {
    pub(crate) chain: Chain,
    pub(crate) head: Head,
    pub(crate) rows: Vec<Entry>,
}

impl Batch {
    /// Its number in the chain, from 1.
    pub(crate) fn number(&self) -> i64 {
        self.head.number + 1
    }
}

/// Computes a batch's hash row by row, in the canonical order (tenant, operation, step, line, leg, instant): a batch
/// may hold two lives of one operation.
pub(crate) struct BatchHash(blake3::Hasher);

impl BatchHash {
    pub(crate) fn begin(chain: i16, number: i64, previous: &[u8], booked_at: DateTime<Utc>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate ledger batch v1");
        hasher.update(&chain.to_le_bytes());
        hasher.update(&number.to_le_bytes());
        hasher.update(previous);
        hasher.update(&booked_at.timestamp_micros().to_le_bytes());
        Self(hasher)
    }

    /// Where the next row stood, for a hash over rows of several batches.
    pub(crate) fn place(&mut self, batch: i64, booked_at: DateTime<Utc>) {
        self.0.update(&batch.to_le_bytes());
        self.0.update(&booked_at.timestamp_micros().to_le_bytes());
    }

    pub(crate) fn row(&mut self, entry: &Entry) {
        let flags = &entry.flags;
        self.text(entry.tenant.as_str());
        self.0.update(entry.operation_id.as_bytes());
        self.0.update(&entry.step.to_le_bytes());
        self.0.update(&[entry.line, entry.leg]);
        self.text(entry.meter.as_str());
        self.0.update(&entry.period_start_ms.to_le_bytes());
        self.text(entry.credit.as_str());
        self.text(entry.debit.as_str());
        self.text(&entry.amount.to_string());
        self.text(entry.class.as_str());
        // Two flags in one byte: entries from before there were corrections keep their hash.
        let last = u8::from(flags.degraded) + 2 * u8::from(flags.corrected);
        self.0.update(&[u8::from(flags.excess), u8::from(flags.late), u8::from(flags.carried), last]);
        self.0.update(&entry.happened_at_ms.to_le_bytes());
        self.text(&entry.operation);
        self.0.update(&entry.hour_start_ms.to_le_bytes());
        for subject in &entry.subjects {
            self.0.update(&subject.to_le_bytes());
        }
        self.0.update(&[u8::try_from(entry.subjects.len()).unwrap_or(u8::MAX)]);
    }

    fn text(&mut self, text: &str) {
        self.0.update(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

#[derive(QueryableByName)]
struct HeadRow {
    #[diesel(sql_type = SmallInt)]
    chain: i16,
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Integer)]
    rows: i32,
    #[diesel(sql_type = Binary, deserialize_as = Hash)]
    hash: [u8; 32],
}

/// The heads of these chains. Who is going to append to them must hold the lock that serialises their users.
pub(crate) async fn heads(
    mut connection: &AsyncPgConnection,
    chains: &[Chain],
) -> Result<Heads, LedgerError> {
    let numbers: Vec<i16> = chains.iter().map(|chain| chain.number()).collect();
    let find = sql_query(include_str!("sql/chain_heads.sql")).bind::<Array<SmallInt>, _>(numbers);
    let rows: Vec<HeadRow> = find.load(&mut connection).await?;
    let chain = |number: i16| chains.iter().copied().find(|chain| chain.number() == number);
    let head = |row: HeadRow| Some((chain(row.chain)?, Head { number: row.number, hash: row.hash }));
    Ok(rows.into_iter().filter_map(head).collect())
}

/// A batch as it is stored.
#[derive(Debug, Clone, QueryableByName)]
pub(super) struct BatchRow {
    #[diesel(sql_type = SmallInt)]
    pub(super) chain: i16,
    #[diesel(sql_type = BigInt)]
    pub(super) number: i64,
    #[diesel(sql_type = Integer)]
    pub(super) rows: i32,
    #[diesel(sql_type = Binary)]
    pub(super) hash: Vec<u8>,
    /// The hash of the batch before it.
    #[diesel(sql_type = Binary)]
    pub(super) previous: Vec<u8>,
    #[diesel(sql_type = Timestamptz)]
    pub(super) booked_at: DateTime<Utc>,
}

#[derive(QueryableByName)]
struct FoundRow {
    #[diesel(sql_type = Nullable<BigInt>)]
    number: Option<i64>,
    #[diesel(sql_type = Nullable<Integer>)]
    rows: Option<i32>,
    #[diesel(sql_type = Nullable<Binary>, deserialize_as = HashIfAny)]
    hash: Option<[u8; 32]>,
    #[diesel(sql_type = Bool)]
    is_proven_later: bool,
}

/// What a chain has at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchAt {
    /// This batch.
    Found(ChainHead),
    /// Its row may have been dropped: the hash of a later one proves it.
    ProvenLater,
    /// No such batch.
    Missing,
}

impl FoundRow {
    fn read(self) -> Result<BatchAt, LedgerError> {
        match (self.number, self.rows, self.hash) {
            (Some(number), Some(rows), Some(hash)) => {
                let (number, rows) = (number::unsigned(number)?, number::small(rows)?);
                Ok(BatchAt::Found(ChainHead { number, rows, hash }))
            }
            _ if self.is_proven_later => Ok(BatchAt::ProvenLater),
            _ => Ok(BatchAt::Missing),
        }
    }
}

impl Ledger {
    /// The last batch of every chain that has one.
    pub async fn chain_heads(&self) -> Result<Vec<(Chain, ChainHead)>, LedgerError> {
        let chains: Vec<_> = self.epochs().await?.iter().flat_map(|row| Chain::of(row.partition)).collect();
        let numbers: Vec<i16> = chains.iter().map(|chain| chain.number()).collect();
        let query =
            || sql_query(include_str!("sql/chain_heads.sql")).bind::<Array<SmallInt>, _>(numbers.as_slice());
        let rows: Vec<HeadRow> = self.load(query).await?;
        let chain = |number: i16| chains.iter().copied().find(|chain| chain.number() == number);
        let head = |row: HeadRow| -> Result<_, LedgerError> {
            let (number, rows) = (number::unsigned(row.number)?, number::small(row.rows)?);
            Ok(chain(row.chain).map(|chain| (chain, ChainHead { number, rows, hash: row.hash })))
        };
        rows.into_iter().filter_map(|row| head(row).transpose()).collect()
    }

    /// What the chains have at these places, in their order.
    pub async fn batches_at(&self, places: &[(Chain, u64)]) -> Result<Vec<BatchAt>, LedgerError> {
        let query = || {
            sql_query(include_str!("sql/batches_at.sql"))
                .bind::<Array<SmallInt>, _>(
                    places.iter().map(|(chain, _)| chain.number()).collect::<Vec<_>>(),
                )
                .bind::<Array<BigInt>, _>(
                    places.iter().map(|(_, batch)| number::signed(*batch)).collect::<Vec<_>>(),
                )
        };
        let rows: Vec<FoundRow> = self.load(query).await?;
        rows.into_iter().map(FoundRow::read).collect()
    }

    /// Drops the rows of batches that a later one proves, chain by chain, at most `chunk` in one transaction. Returns
    /// how many.
    pub async fn thin_batches(&self, chunk: usize) -> Result<usize, LedgerError> {
        let mut dropped = 0;
        for (chain, _) in self.chain_heads().await? {
            loop {
                let thin = sql_query(include_str!("sql/thin_batches.sql"))
                    .bind::<SmallInt, _>(chain.number())
                    .bind::<BigInt, _>(number::limit(chunk));
                let count = self.execute(thin).await?;
                dropped += count;
                if count < chunk {
                    break;
                }
            }
        }
        Ok(dropped)
    }
}

/// Puts the batches' rows in canonical order and computes their hashes.
pub(crate) fn seal(batches: &mut [Batch], booked_at: DateTime<Utc>) -> Vec<[u8; 32]> {
    let seal = |batch: &mut Batch| {
        batch.rows.sort_by(|a, b| order(a).cmp(&order(b)));
        let mut hash = BatchHash::begin(batch.chain.number(), batch.number(), &batch.head.hash, booked_at);
        batch.rows.iter().for_each(|row| hash.row(row));
        hash.finish()
    };
    batches.iter_mut().map(seal).collect()
}

/// Appends the sealed batches to their chains.
pub(crate) async fn append(
    mut connection: &AsyncPgConnection,
    batches: &[Batch],
    hashes: &[[u8; 32]],
    booked_at: DateTime<Utc>,
) -> Result<(), LedgerError> {
    let insert = sql_query(include_str!("sql/append_batches.sql"))
        .bind::<Array<SmallInt>, _>(batches.iter().map(|b| b.chain.number()).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(batches.iter().map(Batch::number).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(
            batches.iter().map(|b| i32::try_from(b.rows.len()).unwrap_or(i32::MAX)).collect::<Vec<_>>(),
        )
        .bind::<Array<Binary>, _>(hashes.iter().map(<[u8; 32]>::as_slice).collect::<Vec<_>>())
        .bind::<Array<Binary>, _>(batches.iter().map(|b| b.head.hash.as_slice()).collect::<Vec<_>>())
        .bind::<Timestamptz, _>(booked_at);
    insert.execute(&mut connection).await?;
    Ok(())
}

fn order(entry: &Entry) -> (&str, &[u8; 16], u32, u8, u8, i64) {
    let (tenant, id) = (entry.tenant.as_str(), entry.operation_id.as_bytes());
    (tenant, id, entry.step, entry.line, entry.leg, entry.happened_at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::amount::Amount;
    use crate::domain::ids::{MeterId, Partition, TenantId};
    use crate::domain::movements::{Account, EntryClass, EntryFlags};

    const HASH: &str = "1b11d58558026ebe97aec93c99d123446fbad73da4fa9b5c3aaa5b72e791a277";

    fn entry(leg: u8, debit: Account, flags: EntryFlags) -> Entry {
        Entry {
            tenant: TenantId::parse("acme").unwrap(),
            operation_id: uuid::Uuid::from_u128(7),
            step: 2,
            line: 1,
            leg,
            meter: MeterId::parse("ocr.page").unwrap(),
            credit: Account::Available,
            debit,
            amount: Amount::parse("2.50").unwrap(),
            class: EntryClass::Usage,
            flags,
            period_start_ms: 1_000,
            happened_at_ms: 2_000,
            operation: "ocr.submit".into(),
            hour_start_ms: 1_500,
            subjects: vec![4, 9],
        }
    }

    #[test]
    fn a_batch_hashes_as_it_did_when_the_first_ledgers_were_written() {
        let flags = EntryFlags { excess: true, degraded: true, ..EntryFlags::default() };
        let rows =
            vec![entry(1, Account::Consumed, flags), entry(0, Account::Reserved, EntryFlags::default())];
        let head = Head { number: 41, hash: [7; 32] };
        let mut batches = [Batch { chain: Chain::Other(Partition::new(3).unwrap()), head, rows }];
        let booked_at = DateTime::from_timestamp_micros(1_773_144_000_000_001).unwrap();
        let hash = seal(&mut batches, booked_at)[0];
        assert_eq!(blake3::Hash::from(hash).to_hex().as_str(), HASH);
    }
}
