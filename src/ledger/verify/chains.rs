//! The hash chains: every batch is recomputed from its entries, every link is checked, and no number may be missing.
//! Where a batch's row was dropped, its entries are hashed instead, and the next row that is kept proves them. A chain
//! from which a month has left begins after its opening.

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, BigInt, SmallInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::TryStreamExt;

use super::part::{BatchNumbers, Part};
use super::{Check, Fault};
use crate::ledger::chain::{self, BatchHash, BatchRow, Chain, is_droppable};
use crate::ledger::entries::EntryRow;
use crate::ledger::openings::{Kept, KeptEntries, OpeningChains};
use crate::ledger::prepared::sql_query;
use crate::ledger::{Ledger, LedgerError};

/// `connection` sees one instant. The batches up to the part's heads are read on another connection: they never change,
/// and retention drops only rows that have been proven for a day. Batches booked since are left to the next run: they
/// may have entries of other tenants. Entries up to the `openings` are only counted and hashed: others that were hashed
/// with them have left.
pub(super) async fn check(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    part: &Part,
    openings: &OpeningChains,
) -> Result<(Check, Kept), LedgerError> {
    let mut check = Check::of("hash chains are intact");
    let now = chain::heads(connection, &part.chains()).await?;
    let now: BatchNumbers = now.into_iter().map(|(chain, head)| (chain.number(), head.number)).collect();
    let is_later = |row: &EntryRow| {
        let of = |numbers: &BatchNumbers| numbers.get(&row.chain).copied().unwrap_or_default();
        row.batch > of(&part.heads) && row.batch <= of(&now)
    };
    let is_opened = |row: &EntryRow| openings.get(&row.chain).is_some_and(|of| row.batch <= of.number);
    let mut kept = KeptEntries::up_to(openings.values().map(|of| (of.chain, of.number, of.hash)));
    let mut batches = Batches::new(ledger, part, openings);
    let query =
        sql_query(include_str!("../sql/entries_in_batches.sql")).bind::<Array<Text>, _>(&part.tenants);
    let mut rows = query.load_stream::<EntryRow>(connection).await?;
    let mut walk = Walk { heads: &now, openings, open: None, last: None };
    let mut next = batches.next().await?;
    while let Some(row) = rows.try_next().await? {
        if is_later(&row) {
            continue;
        }
        if is_opened(&row) {
            kept.take(row)?;
            continue;
        }
        let place = (row.chain, row.batch);
        if walk.open.as_ref().is_none_or(|open| open.place != place) {
            walk.close(&mut check);
            while let Some(empty) = next.take_if(|batch| (batch.chain, batch.number) < place) {
                walk.begin((empty.chain, empty.number), Some(empty), None);
                walk.close(&mut check);
                next = batches.next().await?;
            }
            let batch = next.take_if(|batch| (batch.chain, batch.number) == place);
            if batch.is_some() {
                next = batches.next().await?;
            }
            walk.begin(place, batch, Some(&row));
        }
        walk.take(row, &mut check);
    }
    walk.close(&mut check);
    while let Some(empty) = next.take() {
        walk.begin((empty.chain, empty.number), Some(empty), None);
        walk.close(&mut check);
        next = batches.next().await?;
    }
    Ok((check, kept.finish()))
}

/// The state of the walk over batches and their entries.
struct Walk<'a> {
    /// The last batches of the chains.
    heads: &'a BatchNumbers,
    /// Where the chains begin from which months have left.
    openings: &'a OpeningChains,
    open: Option<Open>,
    last: Option<Closed>,
}

/// A batch whose entries are being read.
struct Open {
    /// Its chain and number.
    place: (i16, i64),
    kept: Option<BatchRow>,
    /// One of its entries, which names it where no such batch exists.
    entry: String,
    booked_at: Option<DateTime<Utc>>,
    count: i32,
    hash: BatchHash,
}

/// The batch before.
#[derive(Clone, Copy)]
struct Closed {
    chain: i16,
    number: i64,
    /// As stored where its row is kept, else as computed from its entries.
    hash: [u8; 32],
    /// The last number up to which rows prove the entries.
    proven: i64,
}

impl Walk<'_> {
    /// The batch before the next one of this chain.
    fn before(&self, chain: i16) -> Closed {
        let last = self.last.filter(|last| last.chain == chain);
        last.unwrap_or_else(|| {
            let opening = self.openings.get(&chain);
            let (number, hash) = opening.map_or((0, [0; 32]), |opening| (opening.number, opening.hash));
            Closed { chain, number, hash, proven: number }
        })
    }

    fn begin(&mut self, place: (i16, i64), kept: Option<BatchRow>, first: Option<&EntryRow>) {
        let previous = self.before(place.0).hash;
        let previous = kept.as_ref().map_or(previous.as_slice(), |batch| batch.previous.as_slice());
        let booked_at = kept.as_ref().map(|batch| batch.booked_at).or(first.map(|row| row.booked_at));
        let hash = BatchHash::begin(place.0, place.1, previous, booked_at.unwrap_or_default());
        let entry = first.map(EntryRow::name).unwrap_or_default();
        self.open = Some(Open { place, kept, entry, booked_at, count: 0, hash });
    }

    fn take(&mut self, row: EntryRow, check: &mut Check) {
        let Some(open) = &mut self.open else { return };
        open.count += 1;
        if Some(row.booked_at) != open.booked_at {
            check.fault(Fault::new(name(open.place), "an entry of it was not booked with it"));
        }
        match row.read() {
            Ok(stored) => open.hash.row(&stored.entry),
            Err(error) => check.fault(Fault::new(name(open.place), error.to_string())),
        }
    }

    fn close(&mut self, check: &mut Check) {
        let Some(open) = self.open.take() else { return };
        let (chain, number) = open.place;
        check.checked += 1;
        let head = self.heads.get(&chain).copied().unwrap_or_default();
        if open.kept.is_none() && !is_droppable(number, head) {
            let where_it_is = format!("is in batch {number} of chain {chain}, which does not exist");
            return check.fault(Fault::new(open.entry, where_it_is));
        }
        let before = self.before(chain);
        self.last = None;
        let hash = open.hash.finish();
        if number != before.number + 1 {
            let missing = format!("follows batch {}: those between are missing", before.number);
            check.fault(Fault::new(name(open.place), missing));
        }
        let Some(kept) = open.kept else {
            self.last = Some(Closed { chain, number, hash, proven: before.proven });
            return;
        };
        if open.count != kept.rows {
            let count = format!("has {} entries where {} were booked", open.count, kept.rows);
            check.fault(Fault::new(name(open.place), count));
        } else if hash.as_slice() != kept.hash {
            check.fault(Fault::new(name(open.place), "an entry of it was changed: its hash differs"));
        }
        if number == before.number + 1 && kept.previous != before.hash {
            check.fault(unlinked(&kept, &before));
        }
        let hash = kept.hash.try_into().unwrap_or(hash);
        self.last = Some(Closed { chain, number, hash, proven: number });
    }
}

/// A row that does not follow the batch before it: either that row was kept too, or the entries since the last kept row
/// are not those that were booked.
fn unlinked(kept: &BatchRow, before: &Closed) -> Fault {
    if before.proven == before.number {
        return Fault::new(name((kept.chain, kept.number)), "does not link to the batch before it");
    }
    let what = format!("batches {} to {} of chain {}", before.proven + 1, before.number, kept.chain);
    Fault::new(what, "an entry of theirs was changed, or is missing: the next batch has another hash of them")
}

fn name((chain, number): (i16, i64)) -> String {
    format!("batch {number} of chain {chain}")
}

const PAGE: i64 = 1_000;

/// The rows of a part's batches up to its heads, in order, a page at a time.
struct Batches<'a> {
    ledger: &'a Ledger,
    part: &'a Part,
    openings: &'a OpeningChains,
    chains: Vec<i16>,
    page: std::vec::IntoIter<BatchRow>,
    after: (i16, i64),
}

impl<'a> Batches<'a> {
    fn new(ledger: &'a Ledger, part: &'a Part, openings: &'a OpeningChains) -> Self {
        let chains = part.chains().into_iter().map(Chain::number).collect();
        Self { ledger, part, openings, chains, page: Vec::new().into_iter(), after: (-1, 0) }
    }

    async fn next(&mut self) -> Result<Option<BatchRow>, LedgerError> {
        loop {
            for batch in self.page.by_ref() {
                self.after = (batch.chain, batch.number);
                let opening = self.openings.get(&batch.chain).map_or(0, |opening| opening.number);
                if batch.number > opening
                    && self.part.heads.get(&batch.chain).is_some_and(|head| batch.number <= *head)
                {
                    return Ok(Some(batch));
                }
            }
            let rows = self.read().await?;
            if rows.is_empty() {
                return Ok(None);
            }
            self.page = rows.into_iter();
        }
    }

    async fn read(&self) -> Result<Vec<BatchRow>, LedgerError> {
        let mut connection = self.ledger.connection().await?;
        let query = sql_query(include_str!("../sql/batches_page.sql"))
            .bind::<SmallInt, _>(self.after.0)
            .bind::<BigInt, _>(self.after.1)
            .bind::<BigInt, _>(PAGE)
            .bind::<Array<SmallInt>, _>(&self.chains);
        Ok(query.load(&mut connection).await?)
    }
}
