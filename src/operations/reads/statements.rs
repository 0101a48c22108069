//! Statements: what a tenant's period costs.

use super::Reads;
use crate::domain::civil_date::CivilDate;
use crate::domain::ids::TenantId;
use crate::domain::price::{currency_of, in_force};
use crate::domain::rating::{Bill, Cart, Terms, bill};
use crate::ledger::PeriodUse;
use crate::operations::answers::DraftStatement;
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::TenantEntry;

impl Reads {
    /// What the open period costs so far, from what is booked of it.
    pub async fn draft_statement(&self, tenant: TenantId) -> Answer<DraftStatement> {
        let entry = self.known(&tenant).await?;
        let as_of_ms = self.core.clock.now_ms();
        let period = entry.windows(as_of_ms).period;
        let found = self.core.ledger.period_use(entry.partition, &tenant, period.start_ms).await?;
        let calendar = entry.calendars.at(period.start_ms);
        let bill = rated(&entry, calendar.date(period.start_ms), &found)?;
        Ok(DraftStatement {
            tenant,
            plan: entry.definition.plan.clone(),
            period,
            zone: calendar.zone.name().to_owned(),
            bill,
            as_of_ms,
            as_of_event: found.cursor,
        })
    }
}

/// What was used, at the prices of the tenant and its plan that hold for a period with this first day.
fn rated(entry: &TenantEntry, start: CivilDate, found: &PeriodUse) -> Answer<Option<Bill>> {
    let (own, plan) = (entry.definition.prices.as_slice(), entry.plan_prices());
    let asked = found.currency.unwrap_or(entry.definition.currency);
    // Policy refuses prices in several currencies where none is asked for.
    let currency = currency_of(asked, own.iter().chain(plan)).map_err(|several| {
        OperationError::Internal(format!("{} pays in none of {several:?}", entry.definition.id))
    })?;
    let Some(currency) = currency else { return Ok(None) };
    let prices = in_force(own, plan, currency, start);
    let cart = Cart { currency, start, prices, used: &found.used, terms: &Terms::default() };
    let bill = bill(&cart).map_err(|error| OperationError::Internal(error.to_string()))?;
    Ok(Some(bill))
}
