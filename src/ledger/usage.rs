//! Hourly usage: derived from entries, moved with them, the source of every report.

use std::collections::BTreeMap;

use diesel::sql_query;
use diesel::sql_types::{Array, BigInt, Numeric, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::{Ledger, LedgerError, instant};
use crate::domain::entry::{Account, Entry};
use crate::domain::ids::{MeterId, Subject, TenantId};

/// Changes of hourly usage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UsageChanges(BTreeMap<UsageKey, UsageChange>);

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
    /// Adds what an entry says about usage; `is_first` when its line consumes for the first time by it.
    pub(crate) fn add(&mut self, entry: &Entry, is_first: bool) {
        let movement = &entry.movement;
        let amount = match (movement.credit, movement.debit) {
            (_, Account::Consumed) => movement.amount.decimal(),
            (Account::Consumed, _) => -movement.amount.decimal(),
            _ => return,
        };
        for subject in [NO_SUBJECT].iter().chain(&entry.subjects) {
            let key = UsageKey {
                tenant: entry.tenant.clone(),
                meter: movement.meter.clone(),
                hour_start_ms: entry.hour_start_ms,
                operation: entry.operation.clone(),
                subject: *subject,
            };
            let change = self.0.entry(key).or_default();
            change.consumed += amount;
            change.count += i64::from(is_first);
            change.excess += if movement.flags.excess { amount } else { Decimal::ZERO };
            change.late += if movement.flags.late { amount } else { Decimal::ZERO };
        }
    }
}

/// Adds the changes, in order of their keys.
pub(crate) async fn add(connection: &mut AsyncPgConnection, changes: &UsageChanges) -> Result<(), LedgerError> {
    if changes.0.is_empty() {
        return Ok(());
    }
    let keys = || changes.0.keys();
    let amounts = |pick: fn(&UsageChange) -> Decimal| changes.0.values().map(pick).collect::<Vec<_>>();
    sql_query(
        "INSERT INTO usage_hourly AS u (tenant, meter, hour_at, operation, subject, consumed, count, excess, late) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::bigint[], \
                              $6::numeric[], $7::bigint[], $8::numeric[], $9::numeric[]) \
         ON CONFLICT (tenant, meter, hour_at, operation, subject) DO UPDATE SET \
             consumed = u.consumed + excluded.consumed, count = u.count + excluded.count, \
             excess = u.excess + excluded.excess, late = u.late + excluded.late",
    )
    .bind::<Array<Text>, _>(keys().map(|key| key.tenant.as_str()).collect::<Vec<_>>())
    .bind::<Array<Text>, _>(keys().map(|key| key.meter.as_str()).collect::<Vec<_>>())
    .bind::<Array<Timestamptz>, _>(instant::all_from_ms(keys().map(|key| key.hour_start_ms))?)
    .bind::<Array<Text>, _>(keys().map(|key| key.operation.as_str()).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(keys().map(|key| key.subject).collect::<Vec<_>>())
    .bind::<Array<Numeric>, _>(amounts(|change| change.consumed))
    .bind::<Array<BigInt>, _>(changes.0.values().map(|change| change.count).collect::<Vec<_>>())
    .bind::<Array<Numeric>, _>(amounts(|change| change.excess))
    .bind::<Array<Numeric>, _>(amounts(|change| change.late))
    .execute(connection)
    .await?;
    Ok(())
}

/// How finely to cut time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// The tenant's local hours.
    Hour,
    /// Days of a zone.
    Day,
    /// Months of a zone, from the 1st.
    Month,
}

/// What to tell apart; the meter always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupBy {
    /// By tenant.
    Tenant,
    /// By the tenant's present plan.
    Plan,
    /// By operation.
    Operation,
    /// By subject: only what was done in a subject's name.
    Subject,
}

/// Which usage to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    /// Whose; none for all tenants.
    pub tenant: Option<TenantId>,
    /// Only this meter.
    pub meter: Option<MeterId>,
    /// Only this subject (needs a tenant).
    pub subject: Option<Subject>,
    /// From the hours that start at or after this instant (unix ms).
    pub from_ms: i64,
    /// To the hours that start before it (unix ms).
    pub to_ms: i64,
    /// How finely; none for one figure over all the time.
    pub granularity: Option<Granularity>,
    /// The IANA zone of days and months.
    pub zone: String,
    /// What to tell apart.
    pub group_by: Vec<GroupBy>,
    /// From behind this place.
    pub after: Option<UsagePlace>,
    /// At most so many.
    pub limit: usize,
}

/// A place in a list of usage: newest first, then by the groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsagePlace {
    /// The start (unix ms); 0 without granularity.
    pub start_ms: i64,
    /// The group's texts, joined as the ledger orders them.
    pub group: String,
}

/// A figure of usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageFigures {
    /// Its place in the list.
    pub place: UsagePlace,
    /// The start of its hour, day or month (unix ms).
    pub start_ms: Option<i64>,
    /// Whose, where told apart.
    pub tenant: Option<TenantId>,
    /// Which plan, where told apart.
    pub plan: Option<String>,
    /// What was counted.
    pub meter: MeterId,
    /// By which operation, where told apart; empty for none.
    pub operation: Option<String>,
    /// In whose name, where told apart.
    pub subject: Option<Subject>,
    /// How much.
    pub consumed: Decimal,
    /// How many operations consumed.
    pub count: u64,
    /// How much of it was above holds.
    pub excess: Decimal,
    /// How much of it came after expiry.
    pub late: Decimal,
}

/// A page of usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsagePage {
    /// The figures.
    pub rows: Vec<UsageFigures>,
    /// When they were read (the database's clock, unix ms).
    pub as_of_ms: i64,
}

impl Ledger {
    /// Usage by hour, day or month and by the groups asked for, newest first.
    ///
    /// Errors: [`LedgerError::Refused`] for a zone that the database does not know.
    pub async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
