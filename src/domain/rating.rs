//! Rating: what a period's use costs. Pure functions of quantities and price versions.
//!
//! A bill has its lines in this order, each rounded once, half to even, to the currency's minor unit:
//! 1. one for each price in force, by meter and price id ([`UsageLine`]);
//! 2. discounts, in the order given, each of what the ones before left;
//! 3. what is missing to a minimum commitment;
//! 4. paid grants that were sold, then adjustments of money: neither is discounted, nor counts towards a commitment;
//! 5. taxes, each on the sum of all lines above the taxes.
//!
//! Its total is the sum of its lines. Only quantities go in, no events: how use was cut into events, and in which order
//! it was booked, cannot matter.

mod charges;
mod credit_note;
mod deferral;
mod exact;
mod terms;
#[cfg(test)]
mod tests;
mod usage_line;

use std::collections::BTreeMap;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use charges::{Charges, MoneyAdjustment, SoldGrant};
pub use credit_note::{CreditNote, NoteLine, credit_note};
pub use deferral::Deferral;
pub(in crate::domain) use terms::in_force as terms_in_force;
pub use terms::{Commitment, Dated, Discount, Reduction, TERMS_MAX, Tax, Terms};
pub use usage_line::{TierPart, UsageLine};

use super::adjustment::AdjustmentId;
use super::amount::{Amount, InvalidAmount};
use super::factor::Factor;
use super::grant::GrantId;
use super::ids::{MeterId, PriceId};
use super::money::{Currency, Money, PercentRate};
use super::movements::{Account, Accounts};
use super::price::Price;

/// What cannot be rated. Nothing is ever rounded or cut off to make it fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RatingError {
    /// A quantity has more decimals than any meter.
    #[error("the quantity {0} has more than 6 decimals")]
    TooPrecise(Amount),
    /// An amount is beyond the largest one.
    #[error("the amount of {0} is too large to be billed")]
    TooLarge(String),
    /// Bills in different currencies were compared.
    #[error("a bill in {0} cannot be corrected by one in {1}")]
    OtherCurrency(Currency, Currency),
}

/// What was used of a meter in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Used {
    /// All units that the period is charged for.
    pub consumed: Amount,
    /// Those of them beyond the quota.
    pub overage: Amount,
}

impl Used {
    /// What a meter's accounts of a period say. What is only held is not used yet: a hold beyond the quota is no
    /// overage before it is consumed.
    ///
    /// # Errors
    /// The accounts cannot be those of a period.
    pub fn of(accounts: &Accounts) -> Result<Self, InvalidAmount> {
        let of = |account: Account| accounts[account.index()];
        let so_far = (-(of(Account::Available) + of(Account::Reserved))).max(Decimal::ZERO);
        Ok(Self {
            consumed: Amount::from_decimal(of(Account::Consumed))?,
            overage: Amount::from_decimal(of(Account::Overage) + so_far)?,
        })
    }
}

/// Everything that a period's bill is made of.
#[derive(Debug, Clone)]
pub struct Cart<'a> {
    /// In which currency it is.
    pub currency: Currency,
    /// The prices in force, as [`super::price::in_force`] finds them.
    pub prices: Vec<&'a Price>,
    /// What was used; a meter that is not named was not.
    pub used: &'a BTreeMap<MeterId, Used>,
    /// What comes after the usage lines: what holds for the period.
    pub terms: &'a Terms,
    /// What comes before the taxes, and is in the books already.
    pub charges: &'a Charges,
}

/// A line of a bill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// What the use of a meter costs.
    Usage(UsageLine),
    /// A discount, below zero.
    Discount {
        /// Which one.
        id: PriceId,
        /// Its share, where it is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        percent: Option<PercentRate>,
        /// What it lowers.
        base: Money,
        /// How much.
        amount: Money,
    },
    /// What is missing to the minimum commitment.
    MinimumCommitment {
        /// The commitment.
        commitment: Money,
        /// How much is missing.
        amount: Money,
    },
    /// A paid grant that was sold.
    Grant {
        /// Which one.
        grant: GrantId,
        /// Of which meter.
        meter: MeterId,
        /// How many units.
        quantity: Amount,
        /// What one costs, where that is exact.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unit: Option<Factor>,
        /// What all of it costs.
        amount: Money,
    },
    /// What finance adjusted, below zero where it is owed back.
    Adjustment {
        /// Which adjustment.
        id: AdjustmentId,
        /// The meter that it is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        meter: Option<MeterId>,
        /// Why.
        reason: String,
        /// How much.
        amount: Money,
        /// When it happened (unix ms). Left out by documents of versions that did not say it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        happened_at_ms: Option<i64>,
        /// The operation that it corrects.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        corrects: Option<Uuid>,
    },
    /// A tax.
    Tax {
        /// Which one.
        code: PriceId,
        /// Its rate.
        percent: PercentRate,
        /// What it is on.
        base: Money,
        /// How much.
        amount: Money,
    },
}

/// What a line is for: the same on a bill and on the notes that correct it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LineKey {
    /// The use of a meter.
    Usage {
        /// Which meter.
        meter: MeterId,
        /// Which of its prices, where it has several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        price: Option<PriceId>,
    },
    /// A discount.
    Discount {
        /// Which one.
        id: PriceId,
    },
    /// The minimum commitment.
    MinimumCommitment,
    /// A paid grant.
    Grant {
        /// Which one.
        grant: GrantId,
        /// Of which meter.
        meter: MeterId,
    },
    /// An adjustment of money.
    Adjustment {
        /// Which one.
        id: AdjustmentId,
        /// The meter that it is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        meter: Option<MeterId>,
    },
    /// A tax.
    Tax {
        /// Which one.
        code: PriceId,
    },
}

impl LineKey {
    /// Whether the books had its amount before the bill was made.
    pub fn is_booked_before(&self) -> bool {
        matches!(self, Self::Grant { .. } | Self::Adjustment { .. })
    }
}

impl Line {
    /// What it is for.
    pub fn key(&self) -> LineKey {
        match self {
            Self::Usage(line) => LineKey::Usage { meter: line.meter.clone(), price: line.price.clone() },
            Self::Discount { id, .. } => LineKey::Discount { id: id.clone() },
            Self::MinimumCommitment { .. } => LineKey::MinimumCommitment,
            Self::Grant { grant, meter, .. } => LineKey::Grant { grant: *grant, meter: meter.clone() },
            Self::Adjustment { id, meter, .. } => LineKey::Adjustment { id: *id, meter: meter.clone() },
            Self::Tax { code, .. } => LineKey::Tax { code: code.clone() },
        }
    }

    /// How much it is.
    pub fn amount(&self) -> Money {
        match self {
            Self::Usage(line) => line.amount,
            Self::Discount { amount, .. }
            | Self::MinimumCommitment { amount, .. }
            | Self::Grant { amount, .. }
            | Self::Adjustment { amount, .. }
            | Self::Tax { amount, .. } => *amount,
        }
    }
}

/// A period's bill: lines in one currency, and their sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bill {
    currency: Currency,
    lines: Vec<Line>,
    total: Money,
}

impl Bill {
    /// The bill of these lines.
    ///
    /// # Errors
    /// Their sum is too large.
    pub fn of(currency: Currency, lines: Vec<Line>) -> Result<Self, RatingError> {
        let total = sum(currency, lines.iter().map(Line::amount))?;
        Ok(Self { currency, lines, total })
    }

    /// In which currency it is.
    pub fn currency(&self) -> Currency {
        self.currency
    }

    /// Its lines, in order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The sum of its lines.
    pub fn total(&self) -> Money {
        self.total
    }
}

/// What a period costs.
///
/// # Errors
/// [`RatingError::TooLarge`] names what cannot be billed.
pub fn bill(cart: &Cart<'_>) -> Result<Bill, RatingError> {
    let currency = cart.currency;
    let mut lines = Vec::new();
    for price in &cart.prices {
        let used = cart.used.get(&price.meter).copied().unwrap_or_default();
        lines.push(Line::Usage(usage_line::rate(price, used)?));
    }
    let mut owed = sum(currency, lines.iter().map(Line::amount))?;
    for discount in &cart.terms.discounts {
        let line = discounted(currency, discount, owed)?;
        owed = sum(currency, [owed, line.amount()])?;
        lines.push(line);
    }
    if let Some(commitment) = cart.terms.minimum_commitment.filter(|commitment| owed < *commitment) {
        let missing = commitment.checked_sub(owed).ok_or_else(|| too_large("the minimum commitment"))?;
        lines.push(Line::MinimumCommitment { commitment, amount: missing });
        owed = commitment;
    }
    for line in cart.charges.lines()? {
        owed = sum(currency, [owed, line.amount()])?;
        lines.push(line);
    }
    for tax in &cart.terms.taxes {
        let amount = share(currency, tax.percent, owed, &tax.code)?;
        lines.push(Line::Tax { code: tax.code.clone(), percent: tax.percent, base: owed, amount });
    }
    Bill::of(currency, lines)
}

fn discounted(currency: Currency, discount: &Discount, owed: Money) -> Result<Line, RatingError> {
    let (percent, reduction) = match discount.reduction {
        Reduction::Percent(percent) => (Some(percent), share(currency, percent, owed, &discount.id)?),
        Reduction::Fixed { amount, .. } => (None, amount.min(owed)),
    };
    let amount = reduction.checked_neg().ok_or_else(|| too_large(&discount.id))?;
    Ok(Line::Discount { id: discount.id.clone(), percent, base: owed, amount })
}

fn share(currency: Currency, percent: PercentRate, of: Money, name: &PriceId) -> Result<Money, RatingError> {
    exact::share(currency, percent, of).ok_or_else(|| too_large(name))
}

fn sum(currency: Currency, amounts: impl IntoIterator<Item = Money>) -> Result<Money, RatingError> {
    let mut amounts = amounts.into_iter();
    let sum = amounts.try_fold(currency.money(0), Money::checked_add);
    sum.ok_or_else(|| too_large("the sum"))
}

fn too_large(what: impl ToString) -> RatingError {
    RatingError::TooLarge(what.to_string())
}
