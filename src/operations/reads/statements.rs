//! Statements: what a tenant's period costs.

use super::Reads;
use crate::domain::civil_date::CivilDate;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::price::{currency_of, in_force, is_unpriced};
use crate::domain::rating::{Bill, Cart, RatingError, Terms, Used, bill};
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
        let (bill, unpriced) = rated(&entry, calendar.date(period.start_ms), &found)?;
        Ok(DraftStatement {
            tenant,
            plan: entry.definition.plan.clone(),
            policy_version: entry.policy.version,
            period,
            zone: calendar.zone.name().to_owned(),
            bill,
            unpriced,
            as_of_ms,
            as_of_event: found.cursor,
        })
    }
}

/// What was used, at the prices of the tenant and its plan that hold for a period with this first day; and the meters
/// that were used and have prices, of which none holds.
///
/// Errors: an amount is too large.
fn rated(entry: &TenantEntry, start: CivilDate, found: &PeriodUse) -> Answer<(Option<Bill>, Vec<MeterId>)> {
    let (own, plan) = (entry.definition.prices.as_slice(), entry.plan_prices());
    let asked = found.currency.or(entry.definition.currency);
    // Policy refuses prices in several currencies where none is asked for.
    let currency = currency_of(asked, own.iter().chain(plan)).map_err(|several| {
        OperationError::Internal(format!("{} pays in none of {several:?}", entry.definition.id))
    })?;
    let Some(currency) = currency else { return Ok((None, Vec::new())) };
    let prices = in_force(own, plan, currency, start);
    let all: Vec<_> = own.iter().chain(plan).collect();
    let is_used = |used: &Used| !used.consumed.is_zero();
    let used = found.used.iter().filter(|(_, used)| is_used(used)).map(|(meter, _)| meter);
    let unpriced = used.filter(|meter| is_unpriced(meter, &all, &prices)).cloned().collect();
    let cart = Cart { currency, start, prices, used: &found.used, terms: &Terms::default() };
    let bill = bill(&cart).map_err(|error| match error {
        RatingError::TooLarge(_) => OperationError::field("", error.to_string()),
        other => OperationError::Internal(other.to_string()),
    })?;
    Ok((Some(bill), unpriced))
}
