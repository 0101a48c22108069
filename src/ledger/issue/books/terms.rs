//! The definitions that price periods, and what they make of a period's use.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, BigInt, Jsonb, Nullable, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::domain::amount::Amount;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::money::Currency;
use crate::domain::period::Window;
use crate::domain::plan::PlanDefinition;
use crate::domain::rating::Used;
use crate::domain::statement::{Content, Document, PricedBy, price_period};
use crate::domain::tenant::TenantDefinition;
use crate::ledger::billing::DuePeriod;
use crate::ledger::columns::Milliseconds;
use crate::ledger::corrections::TenantPeriod;
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
    /// The statement of a period in which so much was used; none where nothing has a price, nor for an archived tenant
    /// that used nothing, unless that is corrected.
    pub(super) fn statement(
        &self,
        due: &DuePeriod,
        used: BTreeMap<MeterId, Used>,
        issued_at_ms: i64,
        is_corrected: bool,
    ) -> Result<Option<Document>, String> {
        let calendar = &due.calendar;
        let start = calendar.date(due.period.start_ms);
        let by = PricedBy {
            tenant: &self.tenant,
            plan: self.plan.as_ref(),
            currency: self.currency.or(self.tenant.currency),
            start,
        };
        let priced = price_period(by, &used).map_err(|error| error.to_string())?;
        let Some(priced) = priced.filter(|priced| !priced.bill.lines().is_empty()) else { return Ok(None) };
        let is_unused = used.values().all(|used| used.consumed.is_zero());
        let is_idle = self.tenant.archived && is_unused && !is_corrected;
        let document = || Document {
            tenant: due.tenant.clone(),
            number: 0,
            plan: self.tenant.plan.clone(),
            period_start_ms: due.period.start_ms,
            period_end_ms: due.period.end_ms,
            zone: calendar.zone.name().to_owned(),
            start,
            currency: priced.bill.currency(),
            prices: priced.prices,
            terms: priced.terms,
            used,
            unpriced: priced.unpriced,
            total: priced.bill.total(),
            content: Content::Statement { lines: priced.bill.lines().to_vec() },
            issued_at_ms,
        };
        Ok((!is_idle).then(document))
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
