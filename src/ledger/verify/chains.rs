//! The hash chains: every batch recomputed from its entries, every link, no number missing.

use std::collections::BTreeMap;

use diesel::sql_types::{BigInt, SmallInt};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::TryStreamExt;

use super::{Check, FAULTS_MAX, Fault};
use crate::ledger::chain::{BatchHash, BatchRow};
use crate::ledger::entries::{COLUMNS, EntryRow};
use crate::ledger::{Ledger, LedgerError};

#[derive(QueryableByName)]
struct HeadRow {
    #[diesel(sql_type = SmallInt)]
    chain: i16,
    #[diesel(sql_type = BigInt)]
    number: i64,
}

const STRAYS: &str = "SELECT concat_ws(' ', 'entry', e.tenant, e.operation_id, 'step', e.step, 'line', e.line, 'leg', e.leg) AS what, \
        concat('is in batch ', e.batch, ' of chain ', e.chain, ', which does not exist') AS detail \
    FROM entries e LEFT JOIN batches b ON b.chain = e.chain AND b.number = e.batch WHERE b.number IS NULL";

/// `connection` sees one instant; the batches up to its heads never change, so they are read beside it.
pub(super) async fn check(ledger: &Ledger, connection: &mut AsyncPgConnection) -> Result<Check, LedgerError> {
    let mut check = Check::of("hash chains are intact");
    let strays: Vec<Fault> = sql_query(format!("{STRAYS} LIMIT {FAULTS_MAX}")).load(connection).await?;
    strays.into_iter().for_each(|fault| check.fault(fault));
    let heads: Vec<HeadRow> =
        sql_query("SELECT chain, max(number) AS number FROM batches GROUP BY chain").load(connection).await?;
    let heads = heads.into_iter().map(|head| (head.chain, head.number)).collect();
    let mut batches = Batches::new(ledger, heads);
    let query = format!(
        "{COLUMNS} ORDER BY chain, batch, tenant COLLATE \"C\", operation_id, step, line, leg, happened_at"
    );
    let mut rows = sql_query(query).load_stream::<EntryRow>(connection).await?;
    let mut walk = Walk { current: batches.next().await?, count: 0, hash: None, last: None };
    while let Some(row) = rows.try_next().await? {
        let place = (row.chain, row.batch);
        while walk.current.as_ref().is_some_and(|batch| (batch.chain, batch.number) < place) {
            walk.close(&mut check);
            walk.current = batches.next().await?;
        }
        walk.take(row, &mut check);
    }
    while walk.current.is_some() {
        walk.close(&mut check);
        walk.current = batches.next().await?;
    }
    Ok(check)
}

/// Where the walk over batches and their entries stands.
struct Walk {
    current: Option<BatchRow>,
    count: i32,
    hash: Option<BatchHash>,
    /// The batch closed last: chain, number and hash as stored.
    last: Option<(i16, i64, Vec<u8>)>,
}

impl Walk {
    fn take(&mut self, row: EntryRow, check: &mut Check) {
        let Some(batch) =
            self.current.as_ref().filter(|batch| (batch.chain, batch.number) == (row.chain, row.batch))
        else {
            // Named as a stray already, or booked after the instant of this proof.
            return;
        };
        self.count += 1;
        let begin = || BatchHash::begin(batch.chain, batch.number, &batch.previous, batch.booked_at);
        let hash = self.hash.get_or_insert_with(begin);
        if row.booked_at != batch.booked_at {
            check.fault(Fault::new(name(batch), "an entry of it was not booked with it"));
        }
        match row.read() {
            Ok(stored) => hash.row(&stored.entry),
            Err(error) => check.fault(Fault::new(name(batch), error.to_string())),
        }
    }

    fn close(&mut self, check: &mut Check) {
        let Some(batch) = self.current.take() else { return };
        check.checked += 1;
        let begin = || BatchHash::begin(batch.chain, batch.number, &batch.previous, batch.booked_at);
        let hash = self.hash.take().unwrap_or_else(begin).finish();
        let count = std::mem::take(&mut self.count);
        if count != batch.rows {
            check.fault(Fault::new(
                name(&batch),
                format!("has {count} entries where {} were booked", batch.rows),
            ));
        } else if hash.as_slice() != batch.hash {
            check.fault(Fault::new(name(&batch), "an entry of it was changed: its hash differs"));
        }
        let (number, previous) = match self.last.take() {
            Some((chain, number, hash)) if chain == batch.chain => (number, hash),
            _ => (0, vec![0; 32]),
        };
        if batch.number != number + 1 {
            check.fault(Fault::new(
                name(&batch),
                format!("follows batch {number}: those between are missing"),
            ));
        } else if batch.previous != previous {
            check.fault(Fault::new(name(&batch), "does not link to the batch before it"));
        }
        self.last = Some((batch.chain, batch.number, batch.hash));
    }
}

fn name(batch: &BatchRow) -> String {
    format!("batch {} of chain {}", batch.number, batch.chain)
}

const PAGE: i64 = 1_000;

/// The batches up to the heads, in order, a page at a time.
struct Batches<'a> {
    ledger: &'a Ledger,
    heads: BTreeMap<i16, i64>,
    page: std::vec::IntoIter<BatchRow>,
    after: (i16, i64),
}

impl<'a> Batches<'a> {
    fn new(ledger: &'a Ledger, heads: BTreeMap<i16, i64>) -> Self {
        Self { ledger, heads, page: Vec::new().into_iter(), after: (-1, 0) }
    }

    async fn next(&mut self) -> Result<Option<BatchRow>, LedgerError> {
        loop {
            for batch in self.page.by_ref() {
                self.after = (batch.chain, batch.number);
                if self.heads.get(&batch.chain).is_some_and(|head| batch.number <= *head) {
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
        let query = "SELECT chain, number, rows, hash, previous, booked_at FROM batches WHERE (chain, number) > ($1, $2) \
                     ORDER BY chain, number LIMIT $3";
        let query = sql_query(query)
            .bind::<SmallInt, _>(self.after.0)
            .bind::<BigInt, _>(self.after.1)
            .bind::<BigInt, _>(PAGE);
        Ok(query.load(&mut connection).await?)
    }
}
