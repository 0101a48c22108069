//! The definitions that price periods, and what they make of a period's use.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Jsonb, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::domain::amount::Amount;
use crate::domain::civil_date::CivilDate;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::money::Currency;
use crate::domain::period::Window;
use crate::domain::plan::PlanDefinition;
use crate::domain::rating::Used;
use crate::domain::statement::{
    ChargesByCurrency, Content, Document, Priced, PricedBy, price_charges, price_period,
};
use crate::domain::tenant::TenantDefinition;
use crate::ledger::billing::DuePeriod;
use crate::ledger::columns::Milliseconds;
use crate::ledger::corrections::TenantPeriod;
use crate::ledger::prepared::sql_query;
use crate::ledger::{LedgerError, instant, number};

/// How many changes are looked at behind a period that cannot be rated.
const CHANGES: usize = 200;

/// What a period is billed by, as definitions held at one instant.
pub(super) struct Terms {
    pub(super) tenant: TenantDefinition,
    plan: Option<PlanDefinition>,
    currency: Option<Currency>,
}

impl Terms {
    /// The statements of a period in which so much was used and charged, one for each currency; none where nothing has
    /// a price, nor for what an archived tenant did not use.
    pub(super) fn statements(
        &self,
        due: &DuePeriod,
        used: &BTreeMap<MeterId, Used>,
        charges: &ChargesByCurrency,
        issued_at_ms: i64,
    ) -> Result<Vec<Document>, String> {
        let is_idle = self.tenant.archived && used.values().all(|used| used.consumed.is_zero());
        let by_use = !is_idle && !self.tenant.sandbox;
        let bills = self.bills(due, used, charges, by_use)?.into_iter();
        Ok(bills.map(|priced| self.document(due, used, priced, issued_at_ms)).collect())
    }

    /// The statements of a period in which nothing was used, to be corrected by notes.
    pub(super) fn omitted(&self, due: &DuePeriod, issued_at_ms: i64) -> Result<Vec<Document>, String> {
        let (used, charges) = (BTreeMap::new(), ChargesByCurrency::new());
        let bills = self.bills(due, &used, &charges, !self.tenant.sandbox)?.into_iter();
        Ok(bills.map(|priced| self.document(due, &used, priced, issued_at_ms)).collect())
    }

    /// What has lines. Without its use, a tenant is billed what was sold to it and adjusted: a sandbox what was before
    /// it was one, an archived tenant in a period in which it used nothing.
    fn bills(
        &self,
        due: &DuePeriod,
        used: &BTreeMap<MeterId, Used>,
        charges: &ChargesByCurrency,
        by_use: bool,
    ) -> Result<Vec<Priced>, String> {
        let by = self.priced_by(due.calendar.date(due.period.start_ms));
        let bills: Result<Vec<Priced>, _> = if by_use {
            price_period(by, used, charges)
        } else {
            charges.iter().map(|(currency, charges)| price_charges(by, *currency, charges)).collect()
        };
        let bills = bills.map_err(|error| error.to_string())?.into_iter();
        Ok(bills.filter(|priced| !priced.bill.lines().is_empty()).collect())
    }

    fn document(
        &self,
        due: &DuePeriod,
        used: &BTreeMap<MeterId, Used>,
        priced: Priced,
        issued_at_ms: i64,
    ) -> Document {
        Document {
            tenant: due.tenant.clone(),
            number: 0,
            plan: self.tenant.plan.clone(),
            period_start_ms: due.period.start_ms,
            period_end_ms: due.period.end_ms,
            zone: due.calendar.zone.name().to_owned(),
            start: due.calendar.date(due.period.start_ms),
            currency: priced.bill.currency(),
            prices: priced.prices,
            terms: priced.terms,
            charges: priced.charges,
            used: used.clone(),
            unpriced: priced.unpriced,
            total: priced.bill.total(),
            content: Content::Statement { lines: priced.bill.lines().to_vec() },
            issued_at_ms,
            books: Vec::new(),
        }
    }

    fn priced_by(&self, start: CivilDate) -> PricedBy<'_> {
        PricedBy {
            tenant: &self.tenant,
            plan: self.plan.as_ref(),
            currency: self.currency.or(self.tenant.currency),
            start,
        }
    }

    /// The meters of this use that have a price, but none among those of the document.
    pub(super) fn unpriced(&self, used: &BTreeMap<MeterId, Used>, by: &Document) -> Vec<MeterId> {
        let held: Vec<_> = by.prices.iter().collect();
        self.priced_by(by.start).unpriced(used, &held)
    }

    /// What the plan includes of a meter.
    pub(super) fn included(&self, meter: &MeterId) -> Amount {
        let quotas = self.plan.iter().flat_map(|plan| &plan.quotas);
        quotas.filter(|quota| quota.meter == *meter).map(|quota| quota.included).next().unwrap_or_default()
    }
}

#[derive(QueryableByName)]
struct TermsRow {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Jsonb)]
    definition: Value,
    #[diesel(sql_type = Nullable<Jsonb>)]
    plan: Option<Value>,
    #[diesel(sql_type = Nullable<Text>)]
    currency: Option<String>,
}

impl TermsRow {
    fn read(self) -> Result<Terms, String> {
        let currency = self.currency.map(|code| Currency::parse(&code).map_err(|error| error.to_string()));
        Ok(Terms {
            tenant: definition(self.definition)?,
            plan: self.plan.map(definition).transpose()?,
            currency: currency.transpose()?,
        })
    }
}

fn definition<T: DeserializeOwned>(stored: Value) -> Result<T, String> {
    serde_json::from_value(stored).map_err(|error| format!("a stored definition: {error}"))
}

/// The definitions as they held at the ends (unix ms) of these periods.
pub(super) async fn read(
    connection: &mut AsyncPgConnection,
    periods: &[(TenantPeriod, i64)],
) -> Result<HashMap<TenantPeriod, Vec<Result<Terms, String>>>, LedgerError> {
    let starts = instant::all_from_ms(periods.iter().map(|((_, start_ms), _)| *start_ms))?;
    let ends = instant::all_from_ms(periods.iter().map(|(_, end_ms)| *end_ms))?;
    let rows = at(connection, periods.iter().map(|((tenant, _), _)| tenant).collect(), starts, ends).await?;
    let mut found: HashMap<TenantPeriod, Vec<Result<Terms, String>>> = HashMap::new();
    for row in rows {
        found.entry((row.tenant.clone(), row.period_start.0)).or_default().push(row.read());
    }
    Ok(found)
}

#[derive(QueryableByName)]
struct Change {
    #[diesel(sql_type = Timestamptz)]
    changed_at: DateTime<Utc>,
}

/// The definitions as they held after each change behind a period's end, the earliest first.
pub(super) async fn read_later(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    period: Window,
) -> Result<Vec<Result<Terms, String>>, LedgerError> {
    let find = sql_query(include_str!("../../sql/later_changes.sql"))
        .bind::<Text, _>(tenant)
        .bind::<Timestamptz, _>(instant::from_ms(period.end_ms)?)
        .bind::<BigInt, _>(number::limit(CHANGES));
    let changes: Vec<Change> = find.load(connection).await?;
    let start = instant::from_ms(period.start_ms)?;
    let instants = changes.into_iter().map(|change| change.changed_at).collect::<Vec<_>>();
    let rows = at(connection, vec![tenant; instants.len()], vec![start; instants.len()], instants).await?;
    Ok(rows.into_iter().map(TermsRow::read).collect())
}

/// The definitions as they held just before these instants, of each period in their order.
async fn at(
    connection: &mut AsyncPgConnection,
    tenants: Vec<&TenantId>,
    starts: Vec<DateTime<Utc>>,
    instants: Vec<DateTime<Utc>>,
) -> Result<Vec<TermsRow>, LedgerError> {
    let read = sql_query(include_str!("../../sql/terms_at.sql"))
        .bind::<Array<Text>, _>(tenants)
        .bind::<Array<Timestamptz>, _>(starts)
        .bind::<Array<Timestamptz>, _>(instants);
    Ok(read.load(connection).await?)
}
