//! The hash chains over the entries: every batch's hash covers its rows and the batch before it.

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, BigInt, Binary, Integer, SmallInt, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::statement::Kept;
use super::{Ledger, LedgerError, number};
pub use crate::domain::chain::{Chain, ChainHead};
use crate::domain::entry::Entry;

/// The last batch of a chain; number 0 and a hash of zeros when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) number: i64,
    pub(crate) hash: [u8; 32],
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
        self.0.update(&[flags.excess, flags.late, flags.carried, flags.degraded].map(u8::from));
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
    #[diesel(sql_type = Binary)]
    hash: Vec<u8>,
}

/// The heads of these chains, in their order; what serialises the chains' users must be locked before.
pub(crate) async fn heads(
    mut connection: &AsyncPgConnection,
    chains: &[Chain],
) -> Result<Vec<Head>, LedgerError> {
    let numbers: Vec<i16> = chains.iter().map(|chain| chain.number()).collect();
    let find = sql_query(
        "SELECT c.chain, b.number, b.hash FROM unnest($1::smallint[]) AS c(chain) \
         JOIN LATERAL (SELECT number, hash FROM batches WHERE chain = c.chain ORDER BY number DESC LIMIT 1) b ON true",
    )
    .bind::<Array<SmallInt>, _>(&numbers);
    let rows: Vec<HeadRow> = Kept(find).load(&mut connection).await?;
    let mut heads = vec![Head { number: 0, hash: [0; 32] }; chains.len()];
    for row in rows {
        if let Some(index) = numbers.iter().position(|number| *number == row.chain) {
            heads[index] = Head { number: row.number, hash: number::hash(row.hash)? };
        }
    }
    Ok(heads)
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

impl BatchRow {
    fn read(self) -> Result<ChainHead, LedgerError> {
        Ok(ChainHead {
            number: number::unsigned(self.number)?,
            rows: number::small(self.rows)?,
            hash: number::hash(self.hash)?,
        })
    }
}

/// Of each chain, by its index.
const HEADS: &str = "SELECT b.* FROM unnest($1::smallint[]) AS c(chain) \
    JOIN LATERAL (SELECT chain, number, rows, hash, previous, booked_at FROM batches WHERE chain = c.chain ORDER BY number DESC LIMIT 1) b ON true";

const AT: &str = "SELECT b.chain, b.number, b.rows, b.hash, b.previous, b.booked_at FROM unnest($1::smallint[], $2::bigint[]) AS p(chain, number) \
    JOIN batches b ON b.chain = p.chain AND b.number = p.number";

impl Ledger {
    /// The last batch of every chain that has one.
    pub async fn chain_heads(&self) -> Result<Vec<(Chain, ChainHead)>, LedgerError> {
        let chains: Vec<_> = self.epochs().await?.iter().flat_map(|row| Chain::of(row.partition)).collect();
        let numbers: Vec<i16> = chains.iter().map(|chain| chain.number()).collect();
        let rows = self
            .read(|connection| {
                let query = sql_query(HEADS).bind::<Array<SmallInt>, _>(numbers.clone());
                async move { Ok(query.load::<BatchRow>(connection).await?) }.boxed()
            })
            .await?;
        let chain = |number: i16| chains.iter().copied().find(|chain| chain.number() == number);
        rows.into_iter()
            .filter_map(|row| Some((chain(row.chain)?, row)))
            .map(|(c, row)| Ok((c, row.read()?)))
            .collect()
    }

    /// The batches at these places, in their order; none where there is none.
    pub async fn batches_at(&self, places: &[(Chain, u64)]) -> Result<Vec<Option<ChainHead>>, LedgerError> {
        let chains: Vec<i16> = places.iter().map(|(chain, _)| chain.number()).collect();
        let numbers: Vec<i64> = places.iter().map(|(_, batch)| number::signed(*batch)).collect();
        let rows = self
            .read(|connection| {
                let query = sql_query(AT)
                    .bind::<Array<SmallInt>, _>(chains.clone())
                    .bind::<Array<BigInt>, _>(numbers.clone());
                async move { Ok(query.load::<BatchRow>(connection).await?) }.boxed()
            })
            .await?;
        let mut found = vec![None; places.len()];
        for row in rows {
            let place = (row.chain, row.number);
            let index = chains.iter().zip(&numbers).position(|(chain, number)| (*chain, *number) == place);
            if let Some(slot) = index.and_then(|index| found.get_mut(index)) {
                *slot = Some(row.read()?);
            }
        }
        Ok(found)
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
    let insert = sql_query(
        "INSERT INTO batches (chain, number, rows, hash, previous, booked_at) \
         SELECT b.*, $6 FROM unnest($1::smallint[], $2::bigint[], $3::integer[], $4::bytea[], $5::bytea[]) AS b",
    )
    .bind::<Array<SmallInt>, _>(batches.iter().map(|b| b.chain.number()).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(batches.iter().map(Batch::number).collect::<Vec<_>>())
    .bind::<Array<Integer>, _>(
        batches.iter().map(|b| i32::try_from(b.rows.len()).unwrap_or(i32::MAX)).collect::<Vec<_>>(),
    )
    .bind::<Array<Binary>, _>(hashes.iter().map(<[u8; 32]>::as_slice).collect::<Vec<_>>())
    .bind::<Array<Binary>, _>(batches.iter().map(|b| b.head.hash.as_slice()).collect::<Vec<_>>())
    .bind::<Timestamptz, _>(booked_at);
    Kept(insert).execute(&mut connection).await?;
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
