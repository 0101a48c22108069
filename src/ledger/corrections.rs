//! What was consumed for closed periods and is booked in later ones, and what is corrected of carried holds where they
//! stand: summed up by the period that it belongs to and the one in which it is booked, moved with the entries.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::QueryableByName;
use diesel::sql_types::{Array, Bool, Numeric, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::columns::Milliseconds;
use super::prepared::{Statement, sql_query};
use super::{LedgerError, instant};
use crate::domain::booking::Correction;
use crate::domain::carried_use::paid_before;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::period::Window;
use crate::domain::signed_amount::SignedAmount;

/// The key of a sum: the starts (unix ms) are those of the closed period and of the one in which it is booked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    tenant: TenantId,
    booked_in_ms: i64,
    meter: MeterId,
    start_ms: i64,
}

/// What is corrected of a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    /// By facts that came late.
    consumed: Decimal,
    /// By adjustments.
    adjusted: Decimal,
    /// What of that was held, of holds that were carried over.
    of_held: Decimal,
}

/// What was consumed, by period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Corrections(BTreeMap<Key, Sums>);

impl Corrections {
    /// What an adjustment adds to a meter's use in `period`, or takes back, booked in another one, and what of it was
    /// held. Of carried holds it may be booked in the same one.
    pub(super) fn of_adjustment(
        (tenant, meter): (&TenantId, &MeterId),
        (amount, of_held): (SignedAmount, Decimal),
        period: Window,
        booked_in: Window,
    ) -> Self {
        let key = Key {
            tenant: tenant.clone(),
            booked_in_ms: booked_in.start_ms,
            meter: meter.clone(),
            start_ms: period.start_ms,
        };
        Self(BTreeMap::from([(key, Sums { adjusted: amount.decimal(), of_held, ..Sums::default() })]))
    }

    /// Adds one of this tenant.
    pub(crate) fn add(&mut self, tenant: &TenantId, part: Correction) {
        let key = Key {
            tenant: tenant.clone(),
            booked_in_ms: part.booked_in.start_ms,
            meter: part.meter,
            start_ms: part.period.start_ms,
        };
        self.0.entry(key).or_default().consumed += part.consumed.decimal();
    }
}

/// Adds them to the sums, in order of their keys.
pub(crate) async fn add(mut connection: &AsyncPgConnection, sums: &Corrections) -> Result<(), LedgerError> {
    if sums.0.is_empty() {
        return Ok(());
    }
    let keys = || sums.0.keys();
    sql_query(include_str!("sql/add_corrections.sql"))
        .bind::<Array<Text>, _>(keys().map(|key| &key.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(keys().map(|key| &key.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(keys().map(|key| key.start_ms))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(keys().map(|key| key.booked_in_ms))?)
        .bind::<Array<Numeric>, _>(sums.0.values().map(|sums| sums.consumed).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(sums.0.values().map(|sums| sums.adjusted).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(sums.0.values().map(|sums| sums.of_held).collect::<Vec<_>>())
        .execute(&mut connection)
        .await?;
    Ok(())
}

/// A sum as it is stored.
#[derive(Debug, QueryableByName)]
pub(super) struct StoredCorrection {
    #[diesel(sql_type = Text)]
    pub(super) tenant: TenantId,
    #[diesel(sql_type = Text)]
    pub(super) meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    pub(super) period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    pub(super) booked_in: Milliseconds,
    #[diesel(sql_type = Numeric)]
    pub(super) consumed: Decimal,
    /// What adjustments add to it, or take back.
    #[diesel(sql_type = Numeric)]
    pub(super) adjusted: Decimal,
    /// What of that was held, of holds that were carried over.
    #[diesel(sql_type = Numeric)]
    pub(super) of_held: Decimal,
    /// Whether the meter's quota of that period was opened: it was not where nothing of it was used.
    #[diesel(sql_type = Bool)]
    pub(super) is_opened: bool,
    /// What was unused of the closed period's quota: it lapsed, rolled over, or returned of a hold that was carried on.
    /// A quota that was not opened is no part of it.
    #[diesel(sql_type = Numeric)]
    pub(super) unused: Decimal,
    /// What was consumed in that period of holds that were carried to it, less what the one before had paid for.
    #[diesel(sql_type = Numeric)]
    pub(super) charged: Decimal,
    /// What was used beyond the period's quota, but for what corrections say.
    #[diesel(sql_type = Numeric)]
    pub(super) overage: Decimal,
}

impl StoredCorrection {
    /// Whether it was booked in the period that it belongs to, before that was closed: what is corrected of carried
    /// holds. The statement of that period has it, and no note.
    pub(super) fn is_of_its_own(&self) -> bool {
        self.period_start.0 == self.booked_in.0
    }

    /// What of it the period before had paid for.
    pub(super) fn paid_before(&self) -> Decimal {
        paid_before(self.of_held, self.charged)
    }

    /// What adjustments change of what burnt the period's own quota.
    pub(super) fn adjusted_of_burnt(&self) -> Decimal {
        self.adjusted - self.paid_before()
    }
}

/// A tenant and the start of a period (unix ms).
pub(super) type TenantPeriod = (TenantId, i64);

/// What is booked in these periods for closed ones, and of their own, by tenant.
pub(super) async fn booked_in(
    connection: &mut AsyncPgConnection,
    periods: &BTreeSet<TenantPeriod>,
) -> Result<HashMap<TenantPeriod, Vec<StoredCorrection>>, LedgerError> {
    let rows = read(connection, sql_query(include_str!("sql/corrections_booked_in.sql")), periods).await?;
    Ok(grouped(rows, |row| (row.tenant.clone(), row.booked_in.0)))
}

/// All that was booked later for these closed periods, by tenant and period.
pub(super) async fn of_periods(
    connection: &mut AsyncPgConnection,
    periods: &BTreeSet<TenantPeriod>,
) -> Result<HashMap<TenantPeriod, Vec<StoredCorrection>>, LedgerError> {
    let rows = read(connection, sql_query(include_str!("sql/corrections_of_periods.sql")), periods).await?;
    Ok(grouped(rows, |row| (row.tenant.clone(), row.period_start.0)))
}

async fn read(
    connection: &mut AsyncPgConnection,
    query: Statement<'_>,
    periods: &BTreeSet<TenantPeriod>,
) -> Result<Vec<StoredCorrection>, LedgerError> {
    if periods.is_empty() {
        return Ok(Vec::new());
    }
    let starts = instant::all_from_ms(periods.iter().map(|(_, start_ms)| *start_ms))?;
    let read = query
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, _)| tenant).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts);
    Ok(read.load(connection).await?)
}

fn grouped(
    rows: Vec<StoredCorrection>,
    key: impl Fn(&StoredCorrection) -> TenantPeriod,
) -> HashMap<TenantPeriod, Vec<StoredCorrection>> {
    let mut found: HashMap<TenantPeriod, Vec<StoredCorrection>> = HashMap::new();
    for row in rows {
        found.entry(key(&row)).or_default().push(row);
    }
    found
}
