//! Statements: what a tenant owes for a closed period, and the notes that correct it.
//!
//! A document says everything that it was worked out from, so that it can be worked out again: the prices, what was
//! used, and its lines. Documents of a tenant are numbered without gaps, and each one's hash covers the one before.

mod document;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use rust_decimal::Decimal;

use super::amount::Amount;
use super::civil_date::CivilDate;
use super::ids::MeterId;
use super::money::Currency;
use super::plan::PlanDefinition;
use super::price::{Price, currency_of, in_force, is_unpriced};
use super::rating::{Bill, Cart, Charges, RatingError, Tax, Terms, Used, bill, terms_in_force};
use super::tenant::TenantDefinition;

pub use document::{BookHead, Content, Document, DocumentHash};

/// What revenue is added up by, beside its currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevenueGroup {
    /// The day on which a billing period starts.
    Period,
    /// Who pays.
    Tenant,
    /// The plan at the end of the period.
    Plan,
    /// The meter that a line is about.
    Meter,
}

/// Why a period cannot be billed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// What is used cannot be rated.
    #[error(transparent)]
    Rating(#[from] RatingError),
    /// Only a statement is corrected by a note.
    #[error("it is a credit note, which no other note corrects")]
    NoStatement,
    /// The prices are in several currencies, and none is asked for. Policy refuses such prices.
    #[error("prices are in several currencies and none is chosen: {0:?}")]
    Currencies(BTreeSet<Currency>),
}

/// What a period is priced by.
#[derive(Debug, Clone, Copy)]
pub struct PricedBy<'a> {
    /// The tenant, with prices, discounts, commitments and taxes of its own.
    pub tenant: &'a TenantDefinition,
    /// Its plan, with those of all tenants on it.
    pub plan: Option<&'a PlanDefinition>,
    /// The currency that was asked for.
    pub currency: Option<Currency>,
    /// The day on which the period starts.
    pub start: CivilDate,
}

impl<'a> PricedBy<'a> {
    fn own_prices(self) -> &'a [Price] {
        &self.tenant.prices
    }

    fn plan_prices(self) -> &'a [Price] {
        self.plan.map_or(&[], |plan| &plan.prices)
    }

    /// The meters of this use that have prices, none of which is among those `held` in force.
    pub fn unpriced(self, used: &BTreeMap<MeterId, Used>, held: &[&Price]) -> Vec<MeterId> {
        let all: Vec<&Price> = self.own_prices().iter().chain(self.plan_prices()).collect();
        let meters = used.iter().filter(|(_, used)| !used.consumed.is_zero()).map(|(meter, _)| meter);
        meters.filter(|meter| is_unpriced(meter, &all, held)).cloned().collect()
    }

    /// What the bill carries after its usage lines.
    fn terms(self, currency: Currency) -> Terms {
        let (tenant, start) = (self.tenant, self.start);
        let discounts = self.plan.map_or(&[][..], |plan| &plan.discounts);
        let commitments = self.plan.map_or(&[][..], |plan| &plan.minimum_commitments);
        let commitment = terms_in_force(&tenant.minimum_commitments, commitments, currency, start).pop();
        Terms {
            discounts: terms_in_force(&tenant.discounts, discounts, currency, start),
            minimum_commitment: commitment.map(|commitment| commitment.amount),
            taxes: terms_in_force(&tenant.taxes, &[], currency, start),
        }
    }
}

/// What was charged beside use, by currency.
pub type ChargesByCurrency = BTreeMap<Currency, Charges>;

/// A priced period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priced {
    /// What it costs.
    pub bill: Bill,
    /// What of it was charged beside use.
    pub charges: Charges,
    /// The prices in force.
    pub prices: Vec<Price>,
    /// The discounts, the commitment and the taxes in force.
    pub terms: Terms,
    /// The meters that were used and have prices, of which none holds.
    pub unpriced: Vec<MeterId>,
}

/// What was `used` in a period at the prices that hold for it, with what was charged beside use: first the bill in the
/// tenant's currency, then one for each other currency in which something was charged. None where nothing has a price
/// and nothing was charged.
///
/// # Errors
/// It cannot be rated, or what has a price not in one currency.
pub fn price_period(
    by: PricedBy<'_>,
    used: &BTreeMap<MeterId, Used>,
    charges: &ChargesByCurrency,
) -> Result<Vec<Priced>, StatementError> {
    let all: Vec<&Price> = by.own_prices().iter().chain(by.plan_prices()).collect();
    let currency = currency_of(by.currency, all.iter().copied()).map_err(StatementError::Currencies)?;
    let mut bills = Vec::new();
    if let Some(currency) = currency {
        let prices = in_force(by.own_prices(), by.plan_prices(), currency, by.start);
        let unpriced = by.unpriced(used, &prices);
        let charges = charges.get(&currency).cloned().unwrap_or_default();
        let mut terms = by.terms(currency);
        if prices.is_empty() && terms.minimum_commitment.is_none() {
            // A discount of nothing is no line, nor is a tax.
            terms = Terms { taxes: taxes_on(&charges, terms.taxes), ..Terms::default() };
        }
        let bill = bill(&Cart { currency, prices: prices.clone(), used, terms: &terms, charges: &charges })?;
        let prices = prices.into_iter().cloned().collect();
        bills.push(Priced { bill, charges, prices, terms, unpriced });
    }
    let others = charges.iter().filter(|(other, _)| currency != Some(**other));
    for (currency, charges) in others {
        bills.push(price_charges(by, *currency, charges)?);
    }
    Ok(bills)
}

/// What was charged in one currency beside use, where use is not billed in it.
///
/// # Errors
/// It cannot be rated.
pub fn price_charges(
    by: PricedBy<'_>,
    currency: Currency,
    charges: &Charges,
) -> Result<Priced, StatementError> {
    let terms = Terms { taxes: taxes_on(charges, by.terms(currency).taxes), ..Terms::default() };
    let used = BTreeMap::new();
    let bill = bill(&Cart { currency, prices: Vec::new(), used: &used, terms: &terms, charges })?;
    Ok(Priced { bill, charges: charges.clone(), prices: Vec::new(), terms, unpriced: Vec::new() })
}

fn taxes_on(charges: &Charges, taxes: Vec<Tax>) -> Vec<Tax> {
    if charges.is_empty() { Vec::new() } else { taxes }
}

/// What corrections say of a meter's use in a closed period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LateUse {
    /// What was consumed and booked later.
    pub consumed: Amount,
    /// What adjustments add to it, or take back.
    pub adjusted: Decimal,
    /// What of that the period before had paid for, of holds that were carried over: it was never overage.
    pub paid_before: Decimal,
    /// What was unused of the period's quota: so much of it is no overage.
    pub unused: Amount,
}

impl LateUse {
    /// What was used in all. What is taken back was overage first, but for what the period before had paid for.
    pub fn added_to(self, used: Used) -> Used {
        let more = self.consumed.decimal() + self.adjusted;
        let burnt = more - self.paid_before;
        let beyond = burnt - self.unused.decimal().min(burnt.max(Decimal::ZERO));
        let with = |amount: Amount, more| Amount::from_decimal(amount.decimal() + more).unwrap_or_default();
        Used { consumed: with(used.consumed, more), overage: with(used.overage, beyond) }
    }

    /// What was used but for what is billed with an earlier period. Adjustments are in no period's use but in that of
    /// the one that they correct.
    pub fn taken_from(self, used: Used) -> Used {
        Used {
            consumed: used.consumed.saturating_sub(self.consumed),
            overage: used.overage.saturating_sub(self.consumed),
        }
    }
}
