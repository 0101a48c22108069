//! What is wrong with what bills are made of: prices, the currency, discounts, commitments and taxes.

use std::collections::{BTreeSet, HashSet};

use super::{Validator, repeated};
use crate::domain::field_error::FieldError;
use crate::domain::price::{PRICES_MAX, Price, PriceKey, currency_of};
use crate::domain::rating::{Dated, TERMS_MAX};
use crate::domain::tenant::TenantDefinition;

impl Validator<'_> {
    /// What is wrong with a list of prices.
    pub(super) fn prices(&self, prices: &[Price]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if prices.len() > PRICES_MAX {
            errors.push(FieldError::new("/prices", format!("must be at most {PRICES_MAX}")));
        }
        let versions = prices.iter().map(|price| (price.key(), price.currency, price.effective_from));
        errors.extend(repeated("/prices", "/effective_from", versions));
        for (index, price) in prices.iter().enumerate() {
            let wrong = price
                .amounts()
                .into_iter()
                .filter_map(|(field, amount)| self.amount(&field, "/meter", &price.meter, amount));
            let wrong: BTreeSet<FieldError> = wrong.collect();
            errors.extend(wrong.into_iter().map(|error| error.under(&format!("/prices/{index}"))));
            if self.is_light(&price.meter) {
                let message = format!("the meter `{}` is not booked, so it can have no price", price.meter);
                errors.push(FieldError::new(format!("/prices/{index}/meter"), message));
            }
        }
        errors
    }

    /// A tenant pays in one currency: what costs anything has a price in it.
    pub(super) fn currency(&self, tenant: &TenantDefinition) -> Option<FieldError> {
        let plan = tenant.plan.as_ref().and_then(|plan| self.definitions.plans.get(plan));
        let prices = || tenant.prices.iter().chain(plan.into_iter().flat_map(|plan| &plan.prices));
        let wrong = |message: String| Some(FieldError::new("/currency", message));
        match currency_of(tenant.currency, prices()) {
            Err(several) => {
                let codes: Vec<_> = several.iter().map(|currency| currency.code()).collect();
                wrong(format!("must be given: its prices are in {}", codes.join(", ")))
            }
            Ok(None) => None,
            Ok(Some(currency)) => {
                let there: HashSet<PriceKey<'_>> =
                    prices().filter(|price| price.currency == currency).map(Price::key).collect();
                let missing = prices().find(|price| !there.contains(&price.key()))?;
                wrong(format!(
                    "`{}` has prices, and none in {currency}: write one, or pay in {}",
                    missing.meter, missing.currency
                ))
            }
        }
    }
}

/// What is wrong with a list of discounts, commitments or taxes; `field` has their names.
pub(super) fn terms<T: Dated>(list: &str, field: &str, all: &[T]) -> Vec<FieldError> {
    if all.len() > TERMS_MAX {
        return vec![FieldError::new(list, format!("must be at most {TERMS_MAX}"))];
    }
    let mut errors = Vec::new();
    for (index, each) in all.iter().enumerate() {
        if matches!(each.days(), (Some(from), Some(until)) if from >= until) {
            errors.push(FieldError::new(format!("{list}/{index}/until"), "must be after from"));
        }
        if all[..index].iter().any(|other| other.name() == each.name() && other.meets(each)) {
            let message = "is given twice for some days; end the earlier one with `until`, or keep one";
            errors.push(FieldError::new(format!("{list}/{index}{field}"), message));
        }
    }
    errors
}
