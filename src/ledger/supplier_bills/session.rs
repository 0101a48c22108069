//! The work of one comparison, on a connection of its own. The bill's rows and the uses are in temporary tables, which
//! end with the connection. Findings are stored in one transaction with the comparison's end: if it is cut off at any
//! place, nothing of it is left.

use std::fmt::Write as _;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures::SinkExt;
use rust_decimal::Decimal;
use serde_json::Value;
use tokio::sync::mpsc::Receiver;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Transaction};
use uuid::Uuid;

use crate::domain::reservation::Record;
use crate::domain::supplier_bill::finding::{Sum, Unmatchable};
use crate::domain::supplier_bill::passes::{Found, Order, Pass, PassKind};
use crate::domain::supplier_bill::reading::BillRow;
use crate::domain::supplier_bill::summary::Summary;
use crate::domain::supplier_bill::{BillId, BillTerms, Finding, Item, Source, UseReference};
use crate::ledger::at_work::OwnClient;
use crate::ledger::decisions::escape;
use crate::ledger::{Ledger, LedgerError, instant, number};

/// How many items are read, and in memory, at once, beside those that a pass holds.
const AT_ONCE: i32 = 5_000;

/// The work takes minutes, and sorts millions of rows. Each of its waits ends all the same.
const LONG_WORK: &str = "SET idle_in_transaction_session_timeout = '10min'; SET work_mem = '64MB'";

/// The columns of items in a temporary table.
const COLUMNS: &str = "is_row, scope, reference, amount, at_ms, tenant, reservation, is_inside, line";

/// What each reservation consumed of the meter in all, by when it last did, of those that consumed within the time that
/// is looked at. None consumes over a longer time than the longest life of a hold and the longest time to be late. What
/// adjusts the books is no use. Entries are read once: joined with themselves they take a time that is quadratic where
/// Postgres has no statistics of them yet.
const GATHER: &str = "INSERT INTO items_0 (is_row, scope, reference, amount, at_ms, tenant, reservation, is_inside, line) \
    SELECT false, CASE WHEN $7::boolean THEN tenant ELSE '' END, CASE WHEN $8::boolean THEN operation_id::text ELSE '' END, \
        amount, floor(extract(epoch FROM at) * 1000)::bigint, tenant, operation_id, \
        at >= timestamptz 'epoch' + $2::bigint * interval '1 millisecond' \
            AND at < timestamptz 'epoch' + $3::bigint * interval '1 millisecond', 0 \
    FROM (SELECT tenant, operation_id, max(happened_at) AS at, \
            sum(CASE WHEN debit = 'consumed' THEN amount ELSE -amount END) AS amount \
        FROM entries \
        WHERE meter = $1::text AND class IN ('usage', 'correction') \
            AND 'consumed' IN (credit, debit) AND 'adjusted' NOT IN (credit, debit) AND NOT corrected \
            AND ($6::text IS NULL OR tenant = $6) \
            AND happened_at >= timestamptz 'epoch' + ($4::bigint - $9::bigint) * interval '1 millisecond' \
            AND happened_at < timestamptz 'epoch' + ($5::bigint + $9) * interval '1 millisecond' \
        GROUP BY tenant, operation_id \
        HAVING bool_or(happened_at >= timestamptz 'epoch' + $4 * interval '1 millisecond' \
            AND happened_at < timestamptz 'epoch' + $5 * interval '1 millisecond')) AS used \
    WHERE amount <> 0";

/// The record of each use: of several lives under one id, the one that had begun.
const RECORDS: &str = "SELECT i.tenant, i.reservation::text, life.record FROM items_0 i, LATERAL (SELECT record FROM ( \
        SELECT record, born_at FROM reservations \
            WHERE partition = get_byte(uuid_send(i.reservation), 12) AND id = i.reservation AND tenant = i.tenant \
        UNION ALL SELECT record, born_at FROM reservations_archive \
            WHERE partition = get_byte(uuid_send(i.reservation), 12) AND id = i.reservation AND tenant = i.tenant \
        ) AS lives \
        ORDER BY (born_at <= timestamptz 'epoch' + i.at_ms * interval '1 millisecond') DESC, born_at DESC LIMIT 1 \
    ) AS life WHERE NOT i.is_row";

const REFER: &str = "UPDATE items_0 i SET reference = r.reference FROM use_references r \
    WHERE NOT i.is_row AND i.tenant = r.tenant AND i.reservation = r.reservation";

const FINISH: &str = "UPDATE supplier_bills SET state = 'done', summary = $3::text::jsonb, finished_at = clock_timestamp(), \
        compared_at = timestamptz 'epoch' + $4::bigint * interval '1 millisecond' \
    WHERE id = $1::text::uuid AND attempt = $2::integer AND state = 'matching'";

const MATCHES: &str = "COPY supplier_matches (bill, outcome, number, tenant, reference, amount_here, amount_there, \
    uses, rows_there, at_here, at_there, reservations, lines) FROM STDIN";

/// A connection with the rows of one bill.
pub struct BillSession {
    client: OwnClient,
}

impl Ledger {
    /// Opens a connection for one comparison.
    pub async fn bill_session(&self) -> Result<BillSession, LedgerError> {
        let client = self.client_of_its_own().await?;
        let timeout_ms = BillSession::STATEMENT_MAX.as_millis();
        client.batch_execute(&format!("SET statement_timeout = {timeout_ms}; {LONG_WORK}")).await?;
        for place in 0..=PassKind::PASSES_MAX {
            client.batch_execute(&table(place)).await?;
        }
        Ok(BillSession { client })
    }
}

/// Makes the table of the items that a pass takes, or that the last one leaves over.
fn table(place: usize) -> String {
    format!(
        "CREATE TEMP TABLE items_{place} (is_row boolean NOT NULL, scope text COLLATE \"C\" NOT NULL, \
         reference text COLLATE \"C\" NOT NULL, amount numeric NOT NULL, at_ms bigint NOT NULL, \
         tenant text COLLATE \"C\" NOT NULL, reservation uuid, is_inside boolean NOT NULL, line bigint NOT NULL)"
    )
}

impl BillSession {
    /// How long one statement may take: one takes the whole file, as slowly as it arrives.
    pub const STATEMENT_MAX: Duration = Duration::from_secs(65 * 60);

    /// Takes rows until there are no more. They come from a thread that reads the file.
    pub async fn load(&self, rows: &mut Receiver<Vec<BillRow>>) -> Result<(), LedgerError> {
        let mut sink = pin!(self.client.copy_in::<_, Bytes>(&copy(0)).await?);
        while let Some(rows) = rows.recv().await {
            let mut text = String::new();
            for row in rows {
                let BillRow { line, tenant, reference, amount, at_ms } = row;
                let item = Item { scope: tenant, reference, amount, at_ms, source: Source::Row { line } };
                write_item(&item, &mut text);
            }
            sink.send(Bytes::from(text)).await?;
        }
        sink.finish().await?;
        Ok(())
    }

    /// Compares the rows with what is booked by now, and stores what it finds with the end of the attempt. A use of
    /// this meter is over within `use_lasts`. Returns whether it did: another attempt may have begun meanwhile.
    ///
    /// Errors: [`LedgerError::Refused`] if the bill cannot be compared.
    pub async fn compare(
        &mut self,
        id: BillId,
        attempt: i32,
        terms: &BillTerms,
        use_lasts: Duration,
    ) -> Result<bool, LedgerError> {
        let transaction = self.client.transaction().await?;
        let now =
            transaction.query_one("SELECT floor(extract(epoch FROM now()) * 1000)::bigint", &[]).await?;
        let now_ms: i64 = now.try_get(0)?;
        gather(&transaction, terms, use_lasts).await?;
        if let UseReference::Metadata(key) = &terms.reference
            && terms.columns.reference.is_some()
        {
            refer(&transaction, key).await?;
        }
        let mut keeper = Keeper { id, is_kept: !terms.dry_run, number: 0, summary: Summary::default() };
        for (place, kind) in PassKind::of(terms).into_iter().enumerate() {
            walk(&transaction, place, kind, terms, &mut keeper).await?;
        }
        let summary = serde_json::to_string(&keeper.summary);
        let summary = summary.map_err(|error| LedgerError::Damaged(error.to_string()))?;
        let finished = transaction.execute(FINISH, &[&id.to_string(), &attempt, &summary, &now_ms]).await?;
        if finished == 1 {
            transaction.commit().await?;
        }
        Ok(finished == 1)
    }
}

/// Adds the uses to the rows.
async fn gather(
    transaction: &Transaction<'_>,
    terms: &BillTerms,
    use_lasts: Duration,
) -> Result<(), LedgerError> {
    let tenant = terms.tenant.as_ref().map(ToString::to_string);
    let has_scopes = terms.columns.tenant.is_some();
    let is_named_by_id = terms.columns.reference.is_some() && terms.reference == UseReference::Reservation;
    let (from_ms, to_ms) = (terms.looked_at_from_ms(), terms.looked_at_to_ms());
    let use_lasts_ms = i64::try_from(use_lasts.as_millis()).unwrap_or(i64::MAX);
    let parameters: [&(dyn ToSql + Sync); 9] = [
        &terms.meter.as_str(),
        &terms.from_ms,
        &terms.to_ms,
        &from_ms,
        &to_ms,
        &tenant,
        &has_scopes,
        &is_named_by_id,
        &use_lasts_ms,
    ];
    transaction.execute(GATHER, &parameters).await?;
    Ok(())
}

/// Gives every use its reference: what its reservation's metadata has under this key.
async fn refer(transaction: &Transaction<'_>, key: &str) -> Result<(), LedgerError> {
    let table =
        "CREATE TEMP TABLE use_references (tenant text COLLATE \"C\", reservation uuid, reference text)";
    transaction.batch_execute(&format!("{table} ON COMMIT DROP; ANALYZE items_0")).await?;
    let portal = transaction.bind(RECORDS, &[]).await?;
    loop {
        let rows = transaction.query_portal(&portal, AT_ONCE).await?;
        let mut text = String::new();
        for row in &rows {
            let (tenant, reservation): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
            if let Some(reference) = reference(row.try_get(2)?, key) {
                escape(tenant, &mut text);
                let _ = write!(text, "\t{reservation}\t");
                escape(&reference, &mut text);
                text.push('\n');
            }
        }
        send(transaction, "COPY use_references FROM STDIN", text).await?;
        if is_last(&rows) {
            break;
        }
    }
    transaction.batch_execute(&format!("ANALYZE use_references; {REFER}")).await?;
    Ok(())
}

/// The value that a record's metadata has under this key, if it is a text or a number.
fn reference(record: &[u8], key: &str) -> Option<String> {
    let metadata = Record::decode(record).ok()?.body.rest?.metadata;
    let metadata: Value = serde_json::from_str(&metadata).ok()?;
    match metadata.get(key)? {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.contains('\0')),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Lets the sieve of a pass go over its items. What that leaves over goes past the pass, to the one after it. An amount
/// that no use before the span has needs no sieve.
async fn sift(
    transaction: &Transaction<'_>,
    place: usize,
    sieve: PassKind,
    terms: &BillTerms,
    keeper: &mut Keeper,
) -> Result<(), LedgerError> {
    let some = format!(
        "WHERE (i.scope, i.amount) IN (SELECT e.scope, e.amount FROM items_{place} e \
         WHERE NOT e.is_row AND e.at_ms < {})",
        terms.from_ms
    );
    go_over(transaction, place, &some, sieve, terms, keeper).await?;
    let past = place + 1;
    let delete = format!(
        "DELETE FROM items_{place} i USING items_{past} p \
         WHERE NOT i.is_row AND i.tenant = p.tenant AND i.reservation = p.reservation"
    );
    transaction.batch_execute(&delete).await?;
    Ok(())
}

/// Takes one pass's items in its order, and puts away what it finds and leaves over.
async fn walk(
    transaction: &Transaction<'_>,
    place: usize,
    kind: PassKind,
    terms: &BillTerms,
    keeper: &mut Keeper,
) -> Result<(), LedgerError> {
    if let Some(sieve) = kind.sieve(terms) {
        sift(transaction, place, sieve, terms, keeper).await?;
    }
    go_over(transaction, place, "", kind, terms, keeper).await?;
    transaction.batch_execute(&format!("DROP TABLE items_{place}")).await?;
    Ok(())
}

/// Lets a pass go over these of the items of a place.
async fn go_over(
    transaction: &Transaction<'_>,
    place: usize,
    these: &str,
    kind: PassKind,
    terms: &BillTerms,
    keeper: &mut Keeper,
) -> Result<(), LedgerError> {
    let portal = transaction.bind(&select(place, these, kind.order()), &[]).await?;
    let mut pass = kind.begin(terms);
    loop {
        let rows = transaction.query_portal(&portal, AT_ONCE).await?;
        let is_last = is_last(&rows);
        // In a thread of its own: those of the runtime book, and hear Postgres, meanwhile.
        let taking = tokio::task::spawn_blocking(move || take(pass, &rows, is_last)).await;
        let (next, Found { findings, left }) =
            taking.map_err(|error| LedgerError::Unavailable(error.to_string()))??;
        pass = next;
        keeper.keep(transaction, findings).await?;
        let mut text = String::new();
        left.iter().for_each(|item| write_item(item, &mut text));
        send(transaction, &copy(place + 1), text).await?;
        if is_last {
            return Ok(());
        }
    }
}

/// Lets a pass take these items. Returns it with what it has found.
fn take(mut pass: Box<dyn Pass>, rows: &[Row], is_last: bool) -> Result<(Box<dyn Pass>, Found), LedgerError> {
    let mut found = Found::default();
    for row in rows {
        pass.take(item(row)?, &mut found).map_err(refused)?;
    }
    if is_last {
        pass.finish(&mut found).map_err(refused)?;
    }
    Ok((pass, found))
}

fn refused(error: Unmatchable) -> LedgerError {
    LedgerError::Refused(error.to_string())
}

/// Whether no more rows follow these.
fn is_last(rows: &[Row]) -> bool {
    rows.len() < usize::try_from(AT_ONCE).unwrap_or(usize::MAX)
}

fn select(place: usize, these: &str, order: Order) -> String {
    // Without the table's name, an amount would be sorted as the text that is read of it.
    let order = match order {
        Order::Reference => "i.scope, i.reference, i.is_row, i.at_ms",
        Order::Amount => "i.scope, i.amount, i.at_ms, i.is_row",
        Order::AmountBackwards => "i.scope, i.amount, i.at_ms DESC, i.is_row",
        Order::Time => "i.scope, i.at_ms, i.is_row",
    };
    format!(
        "SELECT is_row, scope, reference, amount::text, at_ms, tenant, reservation::text, is_inside, line \
         FROM items_{place} i {these} ORDER BY {order}, i.tenant, i.reservation, i.line"
    )
}

fn item(row: &Row) -> Result<Item, LedgerError> {
    let damaged = || LedgerError::Damaged("an item of a comparison".into());
    let amount: &str = row.try_get(3)?;
    let source = if row.try_get(0)? {
        Source::Row { line: number::unsigned(row.try_get(8)?)? }
    } else {
        let reservation: &str = row.try_get(6)?;
        Source::Use {
            tenant: row.try_get(5)?,
            reservation: Uuid::try_parse(reservation).map_err(|_| damaged())?,
            is_inside: row.try_get(7)?,
        }
    };
    Ok(Item {
        scope: row.try_get(1)?,
        reference: row.try_get(2)?,
        amount: Decimal::from_str_exact(amount).map_err(|_| damaged())?.normalize(),
        at_ms: row.try_get(4)?,
        source,
    })
}

fn copy(place: usize) -> String {
    format!("COPY items_{place} ({COLUMNS}) FROM STDIN")
}

/// A line of the text format of COPY.
fn write_item(item: &Item, text: &mut String) {
    let Item { scope, reference, amount, at_ms, source } = item;
    text.push_str(if matches!(source, Source::Row { .. }) { "t\t" } else { "f\t" });
    escape(scope, text);
    text.push('\t');
    escape(reference, text);
    // Writing into a string cannot fail.
    let _ = match source {
        Source::Row { line } => writeln!(text, "\t{amount}\t{at_ms}\t\t\\N\tt\t{line}"),
        Source::Use { tenant, reservation, is_inside } => {
            writeln!(text, "\t{amount}\t{at_ms}\t{tenant}\t{reservation}\t{is_inside}\t0")
        }
    };
}

async fn send(transaction: &Transaction<'_>, copy: &str, text: String) -> Result<(), LedgerError> {
    if text.is_empty() {
        return Ok(());
    }
    let mut sink = pin!(transaction.copy_in::<_, Bytes>(copy).await?);
    sink.send(Bytes::from(text)).await?;
    sink.finish().await?;
    Ok(())
}

/// Counts findings, and stores them unless the run is dry.
struct Keeper {
    id: BillId,
    is_kept: bool,
    number: u64,
    summary: Summary,
}

impl Keeper {
    async fn keep(
        &mut self,
        transaction: &Transaction<'_>,
        findings: Vec<Finding>,
    ) -> Result<(), LedgerError> {
        let mut text = String::new();
        for finding in findings {
            self.summary.add(&finding).map_err(refused)?;
            self.number += 1;
            if self.is_kept {
                self.write(&finding, &mut text)?;
            }
        }
        send(transaction, MATCHES, text).await
    }

    fn write(&self, finding: &Finding, text: &mut String) -> Result<(), LedgerError> {
        let Finding { outcome, tenant, reference, here, there } = finding;
        let _ = write!(text, "{}\t{}\t{}\t", self.id, outcome.as_str(), self.number);
        match tenant {
            Some(tenant) => escape(tenant, text),
            None => text.push_str("\\N"),
        }
        text.push('\t');
        escape(reference, text);
        let _ = write!(text, "\t{}\t{}\t{}\t{}", here.amount, there.amount, here.count, there.count);
        let _ = write!(text, "\t{}\t{}", time(here)?, time(there)?);
        let _ = writeln!(text, "\t{}\t{}", names(here), names(there));
        Ok(())
    }
}

fn time<T>(sum: &Sum<T>) -> Result<String, LedgerError> {
    let Some(at_ms) = sum.at_ms else { return Ok("\\N".to_owned()) };
    Ok(instant::from_ms(at_ms)?.to_rfc3339())
}

fn names<T: ToString>(sum: &Sum<T>) -> String {
    crate::ledger::entries::literal(&sum.named)
}
