//! Lets months of entries leave the books: exported, booked as an opening, detached, in one transaction each.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Months, NaiveDate, Utc};
use diesel::prelude::*;
use diesel::query_builder::SqlQuery;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Date, Numeric, SmallInt, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{
    AnsiTransactionManager, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection, TransactionManager,
};
use futures::TryStreamExt;
use rust_decimal::Decimal;

use super::file::{COLUMNS, ChainPlace, FORMAT, LeftOfBalance, Manifest, RunningCheck, WholeFile, hex};
use super::{Kept, KeptEntries, Line, Opening, all, hash_of};
use crate::ledger::columns::Hash;
use crate::ledger::connection::discard;
use crate::ledger::entries::EntryRow;
use crate::ledger::schema::{opening_chains, openings};
use crate::ledger::{Ledger, LedgerError, instant, number};

/// A month may take hours to be read. A wait for the lock that detaching takes stops all who come after it.
const BEGIN: &str = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; \
     SET LOCAL lock_timeout = '10s'; LOCK TABLE openings IN EXCLUSIVE MODE";

/// Which months leave, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachOptions {
    /// Only months before this one.
    pub before: NaiveDate,
    /// Only months that ended so many months ago.
    pub kept_months: u32,
    /// Service time (unix ms).
    pub now_ms: i64,
    /// Where the files go.
    pub directory: PathBuf,
    /// Only say what would leave.
    pub dry_run: bool,
}

/// A month of entries, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonthOfEntries {
    /// Its first day, in UTC.
    pub month: NaiveDate,
    /// How many entries it has.
    pub entries: u64,
    /// How many of them stay in the books.
    pub kept: u64,
    /// The manifest of its file, once it has left.
    pub manifest: Option<PathBuf>,
    /// Why it may not leave yet.
    pub waits: Option<String>,
}

#[derive(QueryableByName)]
struct MonthRow {
    #[diesel(sql_type = Date)]
    month: NaiveDate,
}

#[derive(QueryableByName)]
struct HasUse {
    #[diesel(sql_type = Bool)]
    has_use: bool,
}

#[derive(QueryableByName)]
struct Counts {
    #[diesel(sql_type = BigInt)]
    entries: i64,
    #[diesel(sql_type = BigInt)]
    kept: i64,
}

#[derive(QueryableByName)]
struct Why {
    #[diesel(sql_type = Text)]
    why: String,
}

#[derive(QueryableByName)]
struct BatchesRow {
    #[diesel(sql_type = SmallInt)]
    chain: i16,
    #[diesel(sql_type = BigInt)]
    first_batch: i64,
    #[diesel(sql_type = BigInt)]
    last_batch: i64,
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Binary, deserialize_as = Hash)]
    hash: [u8; 32],
}

#[derive(QueryableByName)]
struct BalanceRow {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Text)]
    meter: String,
    #[diesel(sql_type = Text)]
    period_start: String,
    #[diesel(sql_type = Array<Numeric>)]
    accounts: Vec<Decimal>,
}

impl Ledger {
    /// Lets months leave the books, the oldest first, up to the first that has to wait; a month without entries of
    /// class `usage` is passed over. Each month is one transaction: its file is on the disk before it commits, and the
    /// detached table stays in the database under another name. The books should have been verified before.
    ///
    /// Errors: [`LedgerError::Refused`] where a file cannot be written, or the user of the connection does not own the
    /// tables. What left before has left.
    pub async fn detach_months(&self, options: &DetachOptions) -> Result<Vec<MonthOfEntries>, LedgerError> {
        let old = self.old_months(options.kept_months, options.now_ms).await?;
        let mut months = Vec::new();
        for month in old.into_iter().filter(|month| *month < options.before) {
            let Some(left) = self.detach_month(month, options).await? else { continue };
            let waits = left.waits.is_some();
            months.push(left);
            if waits {
                break;
            }
        }
        Ok(months)
    }

    /// The months that are old enough to leave the books, at `now_ms` (service time, unix ms), and have entries that
    /// would. They may still wait for a period or a reservation.
    pub async fn months_to_detach(
        &self,
        kept_months: u32,
        now_ms: i64,
    ) -> Result<Vec<NaiveDate>, LedgerError> {
        let mut months = Vec::new();
        for month in self.old_months(kept_months, now_ms).await? {
            let span = span_of(month)?;
            let has_use = || of(span, sql_query(include_str!("../sql/month_has_use.sql")));
            if self.first(has_use).await?.is_some_and(|row: HasUse| row.has_use) {
                months.push(month);
            }
        }
        Ok(months)
    }

    /// The months of entries that ended so many months ago.
    async fn old_months(&self, kept_months: u32, now_ms: i64) -> Result<Vec<NaiveDate>, LedgerError> {
        let now = instant::from_ms(now_ms)?.date_naive();
        let rows: Vec<MonthRow> =
            self.load(|| sql_query(include_str!("../sql/months_of_entries.sql"))).await?;
        let is_old = |month: &NaiveDate| {
            let kept_until = month.checked_add_months(Months::new(kept_months.saturating_add(1)));
            kept_until.is_some_and(|until| until <= now)
        };
        Ok(rows.into_iter().map(|row| row.month).filter(is_old).collect())
    }

    async fn detach_month(
        &self,
        month: NaiveDate,
        options: &DetachOptions,
    ) -> Result<Option<MonthOfEntries>, LedgerError> {
        let mut owned = self.connection().await?;
        let connection = &mut *owned;
        // The service's role owns no table: the user who connects has to.
        let done = match connection.batch_execute("RESET ROLE").await {
            Ok(()) => detach(connection, month, options).await,
            Err(error) => Err(error.into()),
        };
        // It has another role now than the pool's.
        discard(owned);
        done
    }
}

async fn detach(
    connection: &mut AsyncPgConnection,
    month: NaiveDate,
    options: &DetachOptions,
) -> Result<Option<MonthOfEntries>, LedgerError> {
    AnsiTransactionManager::begin_transaction_sql(connection, BEGIN).await?;
    match detach_in_transaction(connection, month, options).await {
        Ok(left) if left.as_ref().is_some_and(|left| left.manifest.is_some()) => {
            AnsiTransactionManager::commit_transaction(connection).await?;
            Ok(left)
        }
        left => {
            AnsiTransactionManager::rollback_transaction(connection).await?;
            left
        }
    }
}

async fn detach_in_transaction(
    connection: &mut AsyncPgConnection,
    month: NaiveDate,
    options: &DetachOptions,
) -> Result<Option<MonthOfEntries>, LedgerError> {
    let span = span_of(month)?;
    // Nothing is booked in this month meanwhile; other months go on.
    let lock = format!("LOCK TABLE entries_{} IN SHARE MODE", month.format("%Y_%m"));
    connection.batch_execute(&lock).await?;
    let counts: Counts =
        of(span, sql_query(include_str!("../sql/entries_of_month.sql"))).get_result(connection).await?;
    if counts.entries == counts.kept {
        return Ok(None);
    }
    let why: Option<Why> = of(span, sql_query(include_str!("../sql/month_waits.sql")))
        .get_result(connection)
        .await
        .optional()?;
    let (entries, kept_entries) = (number::unsigned(counts.entries)?, number::unsigned(counts.kept)?);
    let mut left =
        MonthOfEntries { month, entries, kept: kept_entries, manifest: None, waits: why.map(|row| row.why) };
    if left.waits.is_none() && !options.dry_run {
        left.manifest = Some(leave(connection, month, &counts, &options.directory).await?);
    }
    Ok(Some(left))
}

/// Exports the month, books its opening and detaches it. Returns the manifest's path.
async fn leave(
    connection: &mut AsyncPgConnection,
    month: NaiveDate,
    counts: &Counts,
    directory: &Path,
) -> Result<PathBuf, LedgerError> {
    let span = span_of(month)?;
    let earlier = all(connection).await?;
    let number = earlier.last().map_or(1, |last| last.number + 1);
    let named = format!("entries-{}-opening-{number}", month.format("%Y-%m"));
    let file = format!("{named}.csv");
    let file_sha256 = export(connection, span, &directory.join(&file)).await?;
    let batches: Vec<BatchesRow> =
        of(span, sql_query(include_str!("../sql/batches_of_month.sql"))).load(connection).await?;
    let step = |statement: SqlQuery| statement.bind::<Date, _>(month).bind::<BigInt, _>(number);
    step(sql_query(include_str!("../sql/sum_up_month.sql"))).execute(connection).await?;
    let kept = kept(connection, &batches, span).await?;
    for BatchesRow { chain, number: batch, hash, .. } in &batches {
        let (kept_rows, kept_hash) = kept.get(chain).copied().unwrap_or_default();
        let values = (
            opening_chains::opening.eq(number),
            opening_chains::chain.eq(chain),
            opening_chains::number.eq(batch),
            opening_chains::hash.eq(hash.as_slice()),
            opening_chains::kept_rows.eq(kept_rows),
            opening_chains::kept_hash.eq(kept_hash.as_slice()),
        );
        diesel::insert_into(opening_chains::table).values(values).execute(connection).await?;
    }
    let (entries, kept) = (counts.entries, counts.kept);
    let mut opening = Opening { number, month, file, file_sha256, entries, kept, hash: [0; 32] };
    let previous = earlier.last().map_or([0; 32], |last| last.hash);
    opening.hash = hash_of(connection, &opening, &previous).await?;
    book(connection, &opening).await?;
    let manifest = manifest(connection, opening, &previous, &batches).await?;
    let path = directory.join(format!("{named}.json"));
    let text = serde_json::to_string_pretty(&manifest);
    let mut out = WholeFile::create(&path)?;
    out.line(&text.map_err(|error| LedgerError::Damaged(error.to_string()))?)?;
    out.finish()?;
    // Last: until the commit nothing is booked any more, in no month.
    step(sql_query(include_str!("../sql/detach_month.sql"))).execute(connection).await?;
    Ok(path)
}

/// Counts and hashes what stays of the chains up to these batches. Nothing is ever added to a batch that is booked, so
/// it is the same once the month is detached.
async fn kept(
    connection: &mut AsyncPgConnection,
    batches: &[BatchesRow],
    (from, to): Span,
) -> Result<Kept, LedgerError> {
    let query = sql_query(include_str!("../sql/kept_entries.sql"))
        .bind::<Array<SmallInt>, _>(batches.iter().map(|row| row.chain).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(batches.iter().map(|row| row.number).collect::<Vec<_>>())
        .bind::<Timestamptz, _>(from)
        .bind::<Timestamptz, _>(to);
    let mut kept = KeptEntries::up_to(batches.iter().map(|row| (row.chain, row.number, row.hash)));
    let mut rows = query.load_stream::<EntryRow>(connection).await?;
    while let Some(row) = rows.try_next().await? {
        kept.take(row)?;
    }
    Ok(kept.finish())
}

/// Writes the month's file. Returns its SHA-256.
async fn export(connection: &mut AsyncPgConnection, span: Span, path: &Path) -> Result<String, LedgerError> {
    let mut out = WholeFile::create(path)?;
    out.line(COLUMNS)?;
    let mut check = RunningCheck::default();
    let mut lines = of(span, sql_query(include_str!("../sql/lines_of_month.sql")))
        .load_stream::<Line>(connection)
        .await?;
    while let Some(Line { text }) = lines.try_next().await? {
        let check = check.next(&text);
        out.line(&format!("{text},{check}"))?;
    }
    out.finish()
}

async fn book(connection: &mut AsyncPgConnection, opening: &Opening) -> Result<(), LedgerError> {
    let values = (
        openings::number.eq(opening.number),
        openings::month.eq(opening.month),
        openings::file.eq(&opening.file),
        openings::file_sha256.eq(&opening.file_sha256),
        openings::entries.eq(opening.entries),
        openings::kept.eq(opening.kept),
        openings::hash.eq(opening.hash.as_slice()),
    );
    diesel::insert_into(openings::table).values(values).execute(connection).await?;
    Ok(())
}

async fn manifest(
    connection: &mut AsyncPgConnection,
    opening: Opening,
    previous: &[u8; 32],
    batches: &[BatchesRow],
) -> Result<Manifest, LedgerError> {
    let chains = batches.iter().map(|row| ChainPlace {
        chain: row.chain,
        first_batch: row.first_batch,
        last_batch: row.last_batch,
        opening_batch: row.number,
        opening_hash: hex(&row.hash),
    });
    let find = sql_query(include_str!("../sql/opening_balances_of.sql"));
    let balances: Vec<BalanceRow> = find.bind::<BigInt, _>(opening.number).load(connection).await?;
    let left = |row: BalanceRow| {
        let account = |place: usize| row.accounts.get(place).copied().unwrap_or_default().normalize();
        LeftOfBalance {
            available: account(0).to_string(),
            reserved: account(1).to_string(),
            consumed: account(2).to_string(),
            tenant: row.tenant,
            meter: row.meter,
            period_start: row.period_start,
        }
    };
    Ok(Manifest {
        format: FORMAT.into(),
        opening: opening.number,
        month: opening.month.format("%Y-%m").to_string(),
        sha256: opening.file_sha256,
        entries: opening.entries,
        kept: opening.kept,
        chains: chains.collect(),
        balances: balances.into_iter().map(left).collect(),
        hash: hex(&opening.hash),
        previous: hex(previous),
        file: opening.file,
    })
}

/// The first instant of a month, and that of the next one.
type Span = (DateTime<Utc>, DateTime<Utc>);

fn span_of(month: NaiveDate) -> Result<Span, LedgerError> {
    let starts = |day: NaiveDate| day.and_hms_opt(0, 0, 0).map(|at| at.and_utc());
    let next = month.checked_add_months(Months::new(1)).and_then(starts);
    starts(month).zip(next).ok_or_else(|| LedgerError::Damaged(format!("{month} has no end")))
}

/// A statement over the entries of a month.
fn of(
    (from, to): Span,
    statement: SqlQuery,
) -> diesel::query_builder::BoxedSqlQuery<'static, diesel::pg::Pg, SqlQuery> {
    statement.into_boxed().bind::<Timestamptz, _>(from).bind::<Timestamptz, _>(to)
}
