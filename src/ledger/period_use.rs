//! What tenants used in periods, from the books: statements are made of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::QueryableByName;
use diesel::sql_types::{Array, Bool, Numeric, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::charges::{self, Until};
use super::columns::Milliseconds;
use super::corrections::{self, StoredCorrection, TenantPeriod};
use super::prepared::sql_query;
use super::{BEGIN_LOOK_UP, Ledger, LedgerError, billing, currencies, cursors, instant};
use crate::domain::amount::Amount;
use crate::domain::ids::{MeterId, OutboxId, Partition, TenantId};
use crate::domain::money::Currency;
use crate::domain::movements::{Account, Accounts};
use crate::domain::period::Calendars;
use crate::domain::rating::Used;
use crate::domain::statement::{ChargesByCurrency, LateUse};

/// What a tenant used in one period, as of one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodUse {
    /// The last event of its partition that is in these figures.
    pub cursor: OutboxId,
    /// By meter; without what is billed with an earlier period.
    pub used: BTreeMap<MeterId, Used>,
    /// The currency of the period; none where the tenant's definition alone says it.
    pub currency: Option<Currency>,
    /// What was charged beside use.
    pub charges: ChargesByCurrency,
}

impl Ledger {
    /// What a tenant with these calendars used in the period that starts at `start_ms` (unix ms), in one snapshot.
    pub async fn period_use(
        &self,
        partition: Partition,
        tenant: &TenantId,
        calendars: &Calendars,
        start_ms: i64,
    ) -> Result<PeriodUse, LedgerError> {
        let (tenant, calendars) = (tenant.clone(), calendars.clone());
        self.transact(BEGIN_LOOK_UP, move |connection| {
            async move {
                let start = instant::from_ms(start_ms)?;
                let cursor = cursors::read(connection, partition).await?;
                let currency = currencies::at(connection, tenant.as_str(), start).await?;
                let begun_at_ms = billing::begun_at_ms(connection, tenant.as_str(), &calendars).await?;
                let mut charged =
                    charges::read(connection, &[(&tenant, start_ms)], Until::OnlyPeriod).await?;
                let charges = charged.remove(&tenant).unwrap_or_default();
                let key = (tenant, start_ms);
                let asked = BTreeSet::from([key.clone()]);
                let mut found = read(connection, &asked).await?.remove(&key).unwrap_or_default();
                let late = corrections::booked_in(connection, &asked).await?.remove(&key).unwrap_or_default();
                leave_out(&mut found.used, &late, begun_at_ms.unwrap_or(start_ms));
                found.add_own(&late, begun_at_ms.unwrap_or(start_ms));
                Ok(PeriodUse { cursor, used: found.used, currency, charges })
            }
            .boxed()
        })
        .await
    }
}

/// What the books say of a tenant's period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BookedUse {
    /// By meter; with what is billed with an earlier period.
    pub(super) used: BTreeMap<MeterId, Used>,
    /// Whether one of its meters is not closed.
    pub(super) is_open: bool,
    /// What is available so far of meters that are not closed; below zero where more was used.
    available: BTreeMap<MeterId, Decimal>,
}

impl BookedUse {
    /// Adds what corrections say of holds that were carried into the period and stand in it. What came late for earlier
    /// periods that are billed, those from `begun_at_ms` (unix ms) on, is no use of this one.
    pub(super) fn add_own(&mut self, corrections: &[StoredCorrection], begun_at_ms: i64) {
        for part in corrections.iter().filter(|part| part.is_of_its_own()) {
            if let Some(of_meter) = self.used.get_mut(&part.meter) {
                let is_late =
                    |of: &&StoredCorrection| of.meter == part.meter && of.period_start.0 >= begun_at_ms;
                let late_use: Decimal = corrections.iter().filter(is_late).map(|of| of.consumed).sum();
                let so_far = self
                    .available
                    .get(&part.meter)
                    .map(|available| (available + late_use).max(Decimal::ZERO));
                let so_far = Amount::from_decimal(so_far.unwrap_or_default()).unwrap_or_default();
                let unused = Amount::from_decimal(part.unused).unwrap_or_default().plus(so_far);
                *of_meter = LateUse { unused, ..late(part) }.added_to(*of_meter);
            }
        }
    }
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Numeric)]
    available: Decimal,
    #[diesel(sql_type = Numeric)]
    reserved: Decimal,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
    #[diesel(sql_type = Numeric)]
    overage: Decimal,
    #[diesel(sql_type = Bool)]
    is_closed: bool,
}

impl Row {
    fn used(&self) -> Result<Used, LedgerError> {
        let mut accounts = Accounts::default();
        for (account, stands) in [
            (Account::Available, self.available),
            (Account::Reserved, self.reserved),
            (Account::Consumed, self.consumed),
            (Account::Overage, self.overage),
        ] {
            accounts[account.index()] = stands;
        }
        Used::of(&accounts).map_err(|_| LedgerError::Damaged(format!("the balance of {}", self.meter)))
    }
}

/// What the books say of these periods, but for adjustments of earlier ones; one without a balance is left out. What
/// the next period has paid of overage is none.
pub(super) async fn read(
    connection: &mut AsyncPgConnection,
    periods: &BTreeSet<TenantPeriod>,
) -> Result<HashMap<TenantPeriod, BookedUse>, LedgerError> {
    let starts = instant::all_from_ms(periods.iter().map(|(_, start_ms)| *start_ms))?;
    let read = sql_query(include_str!("sql/used_in_periods.sql"))
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, _)| tenant).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts);
    let rows: Vec<Row> = read.load(connection).await?;
    let mut found: HashMap<TenantPeriod, BookedUse> = HashMap::new();
    for row in rows {
        let used = row.used()?;
        let period = found.entry((row.tenant, row.period_start.0)).or_default();
        period.is_open |= !row.is_closed;
        if !row.is_closed {
            period.available.insert(row.meter.clone(), row.available);
        }
        period.used.insert(row.meter, used);
    }
    Ok(found)
}

/// Takes from `used` what corrections say of closed periods that were billed: those from `begun_at_ms` (unix ms) on. A
/// note to their statement bills it.
pub(super) fn leave_out(
    used: &mut BTreeMap<MeterId, Used>,
    corrections: &[StoredCorrection],
    begun_at_ms: i64,
) {
    for part in corrections.iter().filter(|part| part.period_start.0 >= begun_at_ms) {
        if let Some(of_meter) = used.get_mut(&part.meter) {
            *of_meter = late(part).taken_from(*of_meter);
        }
    }
}

/// What a stored correction says of its closed period, but for what was unused there.
pub(super) fn late(part: &StoredCorrection) -> LateUse {
    let consumed = Amount::from_decimal(part.consumed).unwrap_or_default();
    LateUse { consumed, adjusted: part.adjusted, paid_before: part.paid_before(), unused: Amount::ZERO }
}
