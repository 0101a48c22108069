//! Revenue: what issued statements and credit notes say is owed, less what of it is not earned yet, added up by groups.

use chrono::{DateTime, Utc};
use diesel::sql_types::{BigInt, Bool, Nullable, Numeric, Text, Timestamptz};
use diesel::{QueryableByName, select};
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use rust_decimal::Decimal;

use super::functions::transaction_timestamp;
use super::prepared::sql_query;
use super::{Ledger, LedgerError, instant, number};
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::money::{Currency, Money};
use crate::domain::statement::RevenueGroup;

/// Which revenue to read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RevenueFilter {
    /// Only this tenant's; none for all.
    pub tenant: Option<TenantId>,
    /// Only of periods that start at or after this instant (unix ms).
    pub from_ms: Option<i64>,
    /// Only of periods that start before it (unix ms).
    pub to_ms: Option<i64>,
    /// The groups to distinguish, beside currencies.
    pub group_by: Vec<RevenueGroup>,
}

/// A place in a list of revenue: the latest period first, then by currency and the other groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RevenueCursor {
    /// The day on which the period starts; empty where periods are not distinguished.
    pub period: String,
    /// The texts of the other groups, joined as the ledger orders them.
    pub group: String,
}

/// What a group owes by its statements and notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revenue {
    /// Its place in the list.
    pub place: RevenueCursor,
    /// The day on which the period starts, in the tenant's zone; none unless asked for.
    pub period: Option<String>,
    /// The tenant; none unless asked for.
    pub tenant: Option<TenantId>,
    /// The tenants' plan at the end of the period, empty where they had none; none unless asked for.
    pub plan: Option<String>,
    /// The meter; none unless asked for, or where a line is not about use.
    pub meter: Option<MeterId>,
    /// The currency of the amounts.
    pub currency: Currency,
    /// By statements.
    pub billed: Money,
    /// By credit notes, below zero where it is owed back.
    pub corrected: Money,
    /// What of both is earned: without what is deferred and what was forfeited.
    pub revenue: Money,
    /// What was sold in grants and is not earned: below zero where more was earned than sold.
    pub deferred: Money,
    /// What was forfeited of grants that lapsed.
    pub breakage: Money,
    /// How many statements and notes have lines in it.
    pub documents: u64,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    period: String,
    #[diesel(sql_type = Text)]
    place: String,
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Text)]
    plan: String,
    #[diesel(sql_type = Text)]
    meter: String,
    #[diesel(sql_type = Text)]
    currency: String,
    #[diesel(sql_type = Numeric)]
    billed: Decimal,
    #[diesel(sql_type = Numeric)]
    corrected: Decimal,
    #[diesel(sql_type = Numeric)]
    deferred: Decimal,
    #[diesel(sql_type = Numeric)]
    breakage: Decimal,
    #[diesel(sql_type = BigInt)]
    documents: i64,
}

impl Row {
    fn read(self, groups: &[RevenueGroup]) -> Result<Revenue, LedgerError> {
        let is_asked = |group: RevenueGroup| groups.contains(&group);
        let damaged = |what: &str| LedgerError::Damaged(format!("the {what} of a row of revenue"));
        let currency = Currency::parse(&self.currency).map_err(|_| damaged("currency"))?;
        let money = |sum: Decimal| currency.signed_money(sum).map_err(|_| damaged("amount"));
        let meter = || MeterId::parse(&self.meter).map_err(|_| damaged("meter"));
        let is_of_meter = is_asked(RevenueGroup::Meter) && !self.meter.is_empty();
        Ok(Revenue {
            period: is_asked(RevenueGroup::Period).then(|| self.period.clone()),
            tenant: is_asked(RevenueGroup::Tenant).then(|| number::tenant(&self.tenant)).transpose()?,
            plan: is_asked(RevenueGroup::Plan).then_some(self.plan),
            meter: is_of_meter.then(meter).transpose()?,
            currency,
            billed: money(self.billed)?,
            corrected: money(self.corrected)?,
            revenue: money(self.billed + self.corrected - self.deferred - self.breakage)?,
            deferred: money(self.deferred)?,
            breakage: money(self.breakage)?,
            documents: number::unsigned(self.documents)?,
            place: RevenueCursor { period: self.period, group: self.place },
        })
    }
}

impl Ledger {
    /// Revenue by currency and the groups asked for, at most `limit` rows, after `after`; and when that was read (the
    /// database's clock, unix ms).
    pub async fn revenue(
        &self,
        filter: &RevenueFilter,
        after: Option<&RevenueCursor>,
        limit: usize,
    ) -> Result<(Vec<Revenue>, i64), LedgerError> {
        let (from, to) = (
            filter.from_ms.map(instant::from_ms).transpose()?,
            filter.to_ms.map(instant::from_ms).transpose()?,
        );
        let is_asked = |group: RevenueGroup| filter.group_by.contains(&group);
        let (rows, now) = self
            .read(|connection| {
                let question = sql_query(include_str!("sql/revenue.sql"))
                    .bind::<Nullable<Text>, _>(filter.tenant.as_ref().map(ToString::to_string))
                    .bind::<Nullable<Timestamptz>, _>(from)
                    .bind::<Nullable<Timestamptz>, _>(to)
                    .bind::<Nullable<Text>, _>(after.map(|place| place.period.clone()))
                    .bind::<Nullable<Text>, _>(after.map(|place| place.group.clone()))
                    .bind::<BigInt, _>(number::limit(limit))
                    .bind::<Bool, _>(is_asked(RevenueGroup::Period))
                    .bind::<Bool, _>(is_asked(RevenueGroup::Tenant))
                    .bind::<Bool, _>(is_asked(RevenueGroup::Plan))
                    .bind::<Bool, _>(is_asked(RevenueGroup::Meter));
                async move {
                    let now: DateTime<Utc> = select(transaction_timestamp()).get_result(connection).await?;
                    Ok((question.load::<Row>(connection).await?, now))
                }
                .boxed()
            })
            .await?;
        let rows = rows.into_iter().map(|row| row.read(&filter.group_by)).collect::<Result<_, _>>()?;
        Ok((rows, now.timestamp_millis()))
    }
}
