//! Hourly usage: derived from entries, moved with them, the source of every report.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::serialize::{self, Output, ToSql, WriteTuple};
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Numeric, Text, Timestamptz};
use diesel::{QueryableByName, select};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::functions::transaction_timestamp;
use super::prepared::{self, sql_query};
use super::{Ledger, LedgerError, instant, number};
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::ids::{MeterId, Subject, SubjectId, SubjectKind, TenantId};
use crate::domain::movements::EntryFlags;
use crate::domain::usage::{Granularity, GroupBy};

/// Changes of hourly usage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UsageChanges {
    moved: BTreeMap<UsageKey, UsageChange>,
    /// What the ledger alone corrects.
    corrections: BTreeMap<UsageKey, Decimal>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct UsageKey {
    tenant: TenantId,
    meter: MeterId,
    hour_start_ms: i64,
    operation: String,
    subject: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct UsageChange {
    consumed: Decimal,
    count: i64,
    excess: Decimal,
    late: Decimal,
}

/// The number that stands for "without a subject".
const NO_SUBJECT: i64 = 0;

impl UsageChanges {
    /// Adds what a posting says about usage.
    pub(crate) fn add(&mut self, posting: &Posting) {
        for line in &posting.lines {
            let mut count = i64::from(line.begins_to_consume);
            for movement in &line.movements {
                let Some(consumed) = movement.consumed() else { continue };
                let EntryFlags { excess, late, .. } = movement.flags();
                for subject in [NO_SUBJECT].iter().chain(&posting.subjects) {
                    if movement.adjusts() {
                        *self.corrections.entry(key(posting, line, *subject)).or_default() += consumed;
                        continue;
                    }
                    let change = self.moved.entry(key(posting, line, *subject)).or_default();
                    change.consumed += consumed;
                    change.count += count;
                    change.excess += if excess { consumed } else { Decimal::ZERO };
                    change.late += if late { consumed } else { Decimal::ZERO };
                }
                count = 0;
            }
        }
    }
}

fn key(posting: &Posting, line: &PostedLine, subject: i64) -> UsageKey {
    UsageKey {
        tenant: posting.tenant.clone(),
        meter: line.meter.clone(),
        hour_start_ms: posting.hour_start_ms,
        operation: posting.operation.clone(),
        subject,
    }
}

/// A row of the type `moved_usage`.
#[derive(Debug)]
struct MovedUsage<'a> {
    key: &'a UsageKey,
    hour_at: DateTime<Utc>,
    change: &'a UsageChange,
}

/// The attributes of `moved_usage`, in order.
type Attributes = (Text, Text, Timestamptz, Text, BigInt, Numeric, BigInt, Numeric, Numeric);

impl ToSql<prepared::Row, Pg> for MovedUsage<'_> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        let (key, change) = (self.key, self.change);
        let row = (
            key.tenant.as_str(),
            key.meter.as_str(),
            self.hour_at,
            key.operation.as_str(),
            key.subject,
            change.consumed,
            change.count,
            change.excess,
            change.late,
        );
        WriteTuple::<Attributes>::write_tuple(&row, &mut out.reborrow())
    }
}

/// Adds the changes, in order of their keys.
pub(crate) async fn add(connection: &AsyncPgConnection, changes: &UsageChanges) -> Result<(), LedgerError> {
    add_moved(connection, &changes.moved).await?;
    add_corrections(connection, &changes.corrections).await
}

async fn add_moved(
    mut connection: &AsyncPgConnection,
    changes: &BTreeMap<UsageKey, UsageChange>,
) -> Result<(), LedgerError> {
    if changes.is_empty() {
        return Ok(());
    }
    let row = |(key, change)| -> Result<_, LedgerError> {
        let key: &UsageKey = key;
        Ok(MovedUsage { key, hour_at: instant::from_ms(key.hour_start_ms)?, change })
    };
    let rows = changes.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    let add = sql_query(include_str!("sql/add_to_usage.sql")).bind::<Array<prepared::Row>, _>(rows);
    add.execute(&mut connection).await?;
    Ok(())
}

async fn add_corrections(
    mut connection: &AsyncPgConnection,
    changes: &BTreeMap<UsageKey, Decimal>,
) -> Result<(), LedgerError> {
    if changes.is_empty() {
        return Ok(());
    }
    let keys = || changes.keys();
    sql_query(include_str!("sql/add_to_usage_corrections.sql"))
        .bind::<Array<Text>, _>(keys().map(|key| key.tenant.as_str()).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(keys().map(|key| key.meter.as_str()).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(keys().map(|key| key.hour_start_ms))?)
        .bind::<Array<Text>, _>(keys().map(|key| key.operation.as_str()).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(keys().map(|key| key.subject).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(changes.values().collect::<Vec<_>>())
        .execute(&mut connection)
        .await?;
    Ok(())
}

/// Which usage to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    /// Only this tenant; none for all.
    pub tenant: Option<TenantId>,
    /// Only this meter.
    pub meter: Option<MeterId>,
    /// Only this subject (needs a tenant).
    pub subject: Option<Subject>,
    /// From the hours that start at or after this instant (unix ms).
    pub from_ms: i64,
    /// To the hours that start before it (unix ms).
    pub to_ms: i64,
    /// How finely; none for one figure over the whole time.
    pub granularity: Option<Granularity>,
    /// The IANA zones of days and months, each from an instant (unix ms) on: the first from the beginning.
    pub zones: Vec<(i64, String)>,
    /// The groups to distinguish.
    pub group_by: Vec<GroupBy>,
    /// After this place.
    pub after: Option<UsageCursor>,
    /// At most this many.
    pub limit: usize,
}

/// A place in a list of usage: newest first, then by the groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageCursor {
    /// The start (unix ms); 0 without granularity.
    pub start_ms: i64,
    /// The group's texts, joined as the ledger orders them.
    pub group: String,
}

/// A figure of usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageFigures {
    /// Its place in the list.
    pub place: UsageCursor,
    /// The start of its hour, day or month (unix ms).
    pub start_ms: Option<i64>,
    /// Its tenant, if grouped by tenant.
    pub tenant: Option<TenantId>,
    /// Its plan, if grouped by plan.
    pub plan: Option<String>,
    /// What was counted.
    pub meter: MeterId,
    /// Its operation, if grouped by operation; empty for none.
    pub operation: Option<String>,
    /// Its subject, if grouped by subject.
    pub subject: Option<Subject>,
    /// How much.
    pub consumed: Decimal,
    /// How many operations consumed.
    pub count: u64,
    /// How much of it was above holds.
    pub excess: Decimal,
    /// How much of it came after expiry.
    pub late: Decimal,
    /// What adjustments add to it, or take back.
    pub corrections: Decimal,
}

/// A page of usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsagePage {
    /// The figures.
    pub rows: Vec<UsageFigures>,
    /// When they were read (the database's clock, unix ms).
    pub as_of_ms: i64,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Nullable<Timestamptz>)]
    start_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Text)]
    place: String,
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Text)]
    plan: String,
    #[diesel(sql_type = Text)]
    meter: String,
    #[diesel(sql_type = Text)]
    operation: String,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Text)]
    subject: String,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
    #[diesel(sql_type = BigInt)]
    count: i64,
    #[diesel(sql_type = Numeric)]
    excess: Decimal,
    #[diesel(sql_type = Numeric)]
    late: Decimal,
    #[diesel(sql_type = Numeric)]
    corrections: Decimal,
}

impl Row {
    fn read(self, query: &UsageQuery) -> Result<UsageFigures, LedgerError> {
        let has = |group: GroupBy| query.group_by.contains(&group);
        let damaged = |what: &str| LedgerError::Damaged(format!("the {what} of a row of usage"));
        let subject = || -> Result<Subject, LedgerError> {
            let kind = SubjectKind::parse(&self.kind).map_err(|_| damaged("subject"))?;
            Ok(Subject { kind, id: SubjectId::parse(&self.subject).map_err(|_| damaged("subject"))? })
        };
        let start_ms = self.start_at.map(|at| at.timestamp_millis());
        Ok(UsageFigures {
            place: UsageCursor { start_ms: start_ms.unwrap_or_default(), group: self.place.clone() },
            start_ms,
            tenant: has(GroupBy::Tenant).then(|| number::tenant(&self.tenant)).transpose()?,
            plan: has(GroupBy::Plan).then(|| self.plan.clone()),
            meter: MeterId::parse(&self.meter).map_err(|_| damaged("meter"))?,
            operation: has(GroupBy::Operation).then(|| self.operation.clone()),
            subject: has(GroupBy::Subject).then(subject).transpose()?,
            consumed: self.consumed,
            count: number::unsigned(self.count)?,
            excess: self.excess,
            late: self.late,
            corrections: self.corrections,
        })
    }
}

impl Ledger {
    /// Usage by hour, day or month and by the groups asked for, newest first.
    ///
    /// Errors: [`LedgerError::Refused`] for a zone that the database does not know.
    pub async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, LedgerError> {
        let (from, to) = (instant::from_ms(query.from_ms)?, instant::from_ms(query.to_ms)?);
        let place_at = query.after.as_ref().map(|place| instant::from_ms(place.start_ms)).transpose()?;
        let has = |group: GroupBy| query.group_by.contains(&group);
        let since = instant::all_from_ms(query.zones.iter().map(|(from_ms, _)| *from_ms))?;
        let by_subject = query.subject.is_some() || has(GroupBy::Subject);
        let (rows, now) = self
            .read(|connection| {
                let subject = query.subject.as_ref();
                let question = sql_query(include_str!("sql/usage.sql"))
                    .bind::<Timestamptz, _>(from)
                    .bind::<Timestamptz, _>(to)
                    .bind::<Nullable<Text>, _>(query.tenant.as_ref().map(ToString::to_string))
                    .bind::<Nullable<Text>, _>(query.meter.as_ref().map(ToString::to_string))
                    .bind::<Nullable<Text>, _>(subject.map(|subject| subject.kind.to_string()))
                    .bind::<Nullable<Text>, _>(subject.map(|subject| subject.id.to_string()))
                    .bind::<Array<Text>, _>(
                        query.zones.iter().map(|(_, zone)| zone.clone()).collect::<Vec<_>>(),
                    )
                    .bind::<Nullable<Timestamptz>, _>(place_at)
                    .bind::<Nullable<Text>, _>(query.after.as_ref().map(|place| place.group.clone()))
                    .bind::<BigInt, _>(number::limit(query.limit))
                    .bind::<Nullable<Text>, _>(query.granularity.map(word))
                    .bind::<Bool, _>(has(GroupBy::Tenant))
                    .bind::<Bool, _>(has(GroupBy::Plan))
                    .bind::<Bool, _>(has(GroupBy::Operation))
                    .bind::<Bool, _>(has(GroupBy::Subject))
                    .bind::<Bool, _>(by_subject)
                    .bind::<Array<Timestamptz>, _>(since.clone());
                async move {
                    let now: DateTime<Utc> = select(transaction_timestamp()).get_result(connection).await?;
                    Ok((question.load::<Row>(connection).await?, now))
                }
                .boxed()
            })
            .await?;
        let rows = rows.into_iter().map(|row| row.read(query)).collect::<Result<_, _>>()?;
        Ok(UsagePage { rows, as_of_ms: now.timestamp_millis() })
    }
}

/// The word that Postgres uses for it.
fn word(granularity: Granularity) -> &'static str {
    match granularity {
        Granularity::Hour => "hour",
        Granularity::Day => "day",
        Granularity::Month => "month",
    }
}
