//! The entries: inserted in batches, never edited, read newest first.

use chrono::{DateTime, TimeDelta, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::serialize::{self, Output, ToSql, WriteTuple};
use diesel::sql_types::{self, Array, BigInt, Bool, Integer, Nullable, Numeric, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::chain::Batch;
use super::exports::BookedBy;
use super::prepared::{self, sql_query};
use super::schema::{reservations, reservations_archive as archive};
use super::{Ledger, LedgerError, instant, number};
use crate::domain::amount::Amount;
use crate::domain::entry::Entry;
use crate::domain::ids::{MeterId, ReservationId, TenantId};
use crate::domain::movements::{Account, EntryClass, EntryFlags};

/// An entry as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// The entry.
    pub entry: Entry,
    /// When it was booked (unix ms).
    pub booked_at_ms: i64,
    /// The number of its hash chain, and that of its batch in it.
    pub batch: (i16, u64),
}

/// Which entries of a tenant to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryFilter {
    /// Only of this meter.
    pub meter: Option<MeterId>,
    /// Only what happened at or after this instant (unix ms).
    pub from_ms: Option<i64>,
    /// Only what happened before it (unix ms).
    pub to_ms: Option<i64>,
    /// Only of this reservation.
    pub reservation: Option<ReservationId>,
    /// Only of this class.
    pub class: Option<EntryClass>,
    /// Only what the books held then.
    pub booked_by: Option<BookedBy>,
}

/// A place in a list of entries, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryCursor {
    /// When the entry happened (unix ms).
    pub happened_at_ms: i64,
    /// The operation that made it.
    pub operation_id: uuid::Uuid,
    /// Its step.
    pub step: u32,
    /// Its line.
    pub line: u8,
    /// Its leg.
    pub leg: u8,
}

impl StoredEntry {
    /// Its place in a list of entries.
    pub fn place(&self) -> EntryCursor {
        EntryCursor {
            happened_at_ms: self.entry.happened_at_ms,
            operation_id: self.entry.operation_id,
            step: self.entry.step,
            line: self.entry.line,
            leg: self.entry.leg,
        }
    }
}

/// A row of the type `booked_entry`.
#[derive(Debug)]
struct BookedEntry<'a> {
    entry: &'a Entry,
    period_start: DateTime<Utc>,
    happened_at: DateTime<Utc>,
    hour_at: DateTime<Utc>,
    chain: i16,
    batch: i64,
}

impl<'a> BookedEntry<'a> {
    fn of(entry: &'a Entry, batch: &Batch) -> Result<Self, LedgerError> {
        Ok(Self {
            entry,
            period_start: instant::from_ms(entry.period_start_ms)?,
            happened_at: instant::from_ms(entry.happened_at_ms)?,
            hour_at: instant::from_ms(entry.hour_start_ms)?,
            chain: batch.chain.number(),
            batch: batch.number(),
        })
    }
}

/// The attributes of `booked_entry`, in order. Accounts and classes are sent as words.
type Attributes = (
    Text,
    sql_types::Uuid,
    Integer,
    SmallInt,
    SmallInt,
    Text,
    Timestamptz,
    Text,
    Text,
    Numeric,
    Text,
    Bool,
    Bool,
    Bool,
    Bool,
    Timestamptz,
    Text,
    Timestamptz,
    Array<BigInt>,
    SmallInt,
    BigInt,
);

impl ToSql<prepared::Row, Pg> for BookedEntry<'_> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        let entry = self.entry;
        let row = (
            entry.tenant.as_str(),
            entry.operation_id,
            i32::try_from(entry.step).unwrap_or(i32::MAX),
            i16::from(entry.line),
            i16::from(entry.leg),
            entry.meter.as_str(),
            self.period_start,
            entry.credit.as_str(),
            entry.debit.as_str(),
            entry.amount.decimal(),
            entry.class.as_str(),
            entry.flags.excess,
            entry.flags.late,
            entry.flags.carried,
            entry.flags.degraded,
            self.happened_at,
            entry.operation.as_str(),
            self.hour_at,
            entry.subjects.as_slice(),
            self.chain,
            self.batch,
        );
        WriteTuple::<Attributes>::write_tuple(&row, &mut out.reborrow())
    }
}

/// Inserts the sealed batches' rows.
pub(crate) async fn insert(
    mut connection: &AsyncPgConnection,
    batches: &[Batch],
    booked_at: DateTime<Utc>,
) -> Result<(), LedgerError> {
    let corrected: Vec<bool> =
        batches.iter().flat_map(|batch| &batch.rows).map(|row| row.flags.corrected).collect();
    let rows = batches.iter().flat_map(|batch| batch.rows.iter().map(move |row| BookedEntry::of(row, batch)));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let insert = sql_query(include_str!("sql/insert_entries.sql"));
    let insert = insert.bind::<Array<prepared::Row>, _>(rows).bind::<Timestamptz, _>(booked_at);
    let insert = insert.bind::<Array<Bool>, _>(corrected);
    insert.execute(&mut connection).await?;
    Ok(())
}

/// An array as Postgres writes it: `unnest` would flatten an array of arrays.
pub(crate) fn literal(items: &[impl ToString]) -> String {
    format!("{{{}}}", items.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

#[derive(QueryableByName)]
pub(crate) struct EntryRow {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = sql_types::Uuid)]
    operation_id: uuid::Uuid,
    #[diesel(sql_type = Integer)]
    step: i32,
    #[diesel(sql_type = SmallInt)]
    line: i16,
    #[diesel(sql_type = SmallInt)]
    leg: i16,
    #[diesel(sql_type = Text)]
    meter: String,
    #[diesel(sql_type = Timestamptz)]
    period_start: DateTime<Utc>,
    #[diesel(sql_type = Text)]
    credit: String,
    #[diesel(sql_type = Text)]
    debit: String,
    #[diesel(sql_type = Numeric)]
    amount: Decimal,
    #[diesel(sql_type = Text)]
    class: String,
    #[diesel(sql_type = Array<Bool>)]
    flags: Vec<bool>,
    #[diesel(sql_type = Timestamptz)]
    happened_at: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    pub(crate) booked_at: DateTime<Utc>,
    #[diesel(sql_type = Text)]
    operation: String,
    #[diesel(sql_type = Timestamptz)]
    hour_at: DateTime<Utc>,
    #[diesel(sql_type = Array<BigInt>)]
    subjects: Vec<i64>,
    #[diesel(sql_type = SmallInt)]
    pub(crate) chain: i16,
    #[diesel(sql_type = BigInt)]
    pub(crate) batch: i64,
}

impl EntryRow {
    /// A name by which an operator finds it.
    pub(crate) fn name(&self) -> String {
        let Self { tenant, operation_id, step, line, leg, .. } = self;
        format!("entry {tenant} {operation_id} step {step} line {line} leg {leg}")
    }

    pub(crate) fn read(self) -> Result<StoredEntry, LedgerError> {
        let name = self.name();
        let damaged = |what: &str| LedgerError::Damaged(format!("{what} of the {name}"));
        let flag = |index: usize| self.flags.get(index).copied().unwrap_or_default();
        let entry = Entry {
            tenant: number::tenant(&self.tenant)?,
            operation_id: self.operation_id,
            step: number::small(self.step)?,
            line: number::small(self.line.into())?,
            leg: number::small(self.leg.into())?,
            meter: MeterId::parse(&self.meter).map_err(|_| damaged("the meter"))?,
            credit: Account::from_word(&self.credit).ok_or_else(|| damaged("the credit"))?,
            debit: Account::from_word(&self.debit).ok_or_else(|| damaged("the debit"))?,
            amount: Amount::from_decimal(self.amount).map_err(|_| damaged("the amount"))?,
            class: EntryClass::from_word(&self.class).ok_or_else(|| damaged("the class"))?,
            flags: EntryFlags {
                excess: flag(0),
                late: flag(1),
                carried: flag(2),
                degraded: flag(3),
                corrected: flag(4),
            },
            period_start_ms: self.period_start.timestamp_millis(),
            happened_at_ms: self.happened_at.timestamp_millis(),
            operation: self.operation,
            hour_start_ms: self.hour_at.timestamp_millis(),
            subjects: self.subjects,
        };
        let batch = (self.chain, number::unsigned(self.batch)?);
        Ok(StoredEntry { entry, booked_at_ms: self.booked_at.timestamp_millis(), batch })
    }
}

impl Ledger {
    /// A tenant's entries, newest first, at most `limit`, after `after`.
    pub async fn entries_of(
        &self,
        tenant: &TenantId,
        filter: &EntryFilter,
        after: Option<EntryCursor>,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, LedgerError> {
        let (mut from, mut to) = (
            filter.from_ms.map(instant::from_ms).transpose()?,
            filter.to_ms.map(instant::from_ms).transpose()?,
        );
        if let Some(id) = filter.reservation {
            let Some((first, last)) = self.span_of(id).await? else { return Ok(Vec::new()) };
            from = from.max(Some(first));
            to = [to, last].into_iter().flatten().min();
        }
        let place_at = after.map(|place| instant::from_ms(place.happened_at_ms)).transpose()?;
        let step = after.map(|place| i32::try_from(place.step).unwrap_or(i32::MAX));
        let query = || {
            sql_query(include_str!("sql/entries_of.sql"))
                .bind::<Text, _>(tenant.as_str())
                .bind::<Nullable<Text>, _>(filter.meter.as_ref().map(MeterId::as_str))
                .bind::<Nullable<Timestamptz>, _>(from)
                .bind::<Nullable<Timestamptz>, _>(to)
                .bind::<Nullable<sql_types::Uuid>, _>(filter.reservation.map(ReservationId::uuid))
                .bind::<Nullable<Timestamptz>, _>(place_at)
                .bind::<Nullable<sql_types::Uuid>, _>(after.map(|place| place.operation_id))
                .bind::<Nullable<Integer>, _>(step)
                .bind::<Nullable<SmallInt>, _>(after.map(|place| i16::from(place.line)))
                .bind::<Nullable<SmallInt>, _>(after.map(|place| i16::from(place.leg)))
                .bind::<BigInt, _>(number::limit(limit))
                .bind::<Nullable<Array<BigInt>>, _>(filter.booked_by.as_ref().map(BookedBy::batches))
                .bind::<Nullable<Text>, _>(filter.class.map(EntryClass::as_str))
        };
        let rows: Vec<EntryRow> = self.load(query).await?;
        rows.into_iter().map(EntryRow::read).collect()
    }

    /// The time in which a reservation's entries happened, over all its lives: from its birth until it was resolved,
    /// with a margin for a clock that was set. It has no end while the reservation is open. None where the reservation
    /// is not booked.
    async fn span_of(&self, id: ReservationId) -> Result<Option<Span>, LedgerError> {
        let booked = || {
            let is_it = reservations::partition.eq(id.partition()).and(reservations::id.eq(id));
            reservations::table.select((reservations::born_at, reservations::resolved_at)).filter(is_it)
        };
        let archived = || {
            let is_it = archive::partition.eq(id.partition()).and(archive::id.eq(id));
            archive::table.select((archive::born_at, archive::resolved_at)).filter(is_it)
        };
        let lives: Vec<Span> = self.load(|| booked().union_all(archived())).await?;
        let first = lives.iter().map(|(born, resolved)| resolved.map_or(*born, |at| at.min(*born))).min();
        let ends = lives.iter().map(|(born, resolved)| resolved.map(|at| at.max(*born)));
        let last = ends.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max());
        Ok(first.map(|first| (first - CLOCKS_APART, last.map(|last| last + CLOCKS_APART))))
    }
}

/// The beginning, and the end where it is known.
type Span = (DateTime<Utc>, Option<DateTime<Utc>>);

/// The gate's clock may be set during a reservation's life, by less than this.
const CLOCKS_APART: TimeDelta = TimeDelta::days(1);
