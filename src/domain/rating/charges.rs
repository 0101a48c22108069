//! What a bill has beside use and its terms: paid grants that were sold, and adjustments of money. Both are booked
//! before the bill is made.

use std::collections::BTreeMap;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Line, RatingError, too_large};
use crate::domain::adjustment::AdjustmentId;
use crate::domain::amount::Amount;
use crate::domain::factor::{Factor, exact_product};
use crate::domain::grant::GrantId;
use crate::domain::ids::MeterId;
use crate::domain::money::Money;

/// A paid grant that was sold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoldGrant {
    /// Which one.
    pub grant: GrantId,
    /// Of which meter.
    pub meter: MeterId,
    /// How many units.
    pub quantity: Amount,
    /// What it costs.
    pub price: Money,
    /// What is no longer owed of it, since it was voided: only notes say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refunded: Option<Money>,
}

/// An amount that finance adjusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoneyAdjustment {
    /// Which adjustment.
    pub id: AdjustmentId,
    /// The meter that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meter: Option<MeterId>,
    /// Why.
    pub reason: String,
    /// How much, below zero where it is owed back.
    pub amount: Money,
    /// When it happened (unix ms). Left out by documents of versions that did not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub happened_at_ms: Option<i64>,
    /// The operation that it corrects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects: Option<Uuid>,
}

/// What was charged in one currency beside use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Charges {
    /// Paid grants, as they were sold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<SoldGrant>,
    /// Adjustments, as they were posted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjustments: Vec<MoneyAdjustment>,
}

impl Charges {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty() && self.adjustments.is_empty()
    }

    /// The same charges once these parts of prices are no longer owed.
    pub fn with_refunds(&self, refunds: &BTreeMap<GrantId, Money>) -> Self {
        let mut charges = self.clone();
        for sold in &mut charges.grants {
            sold.refunded = refunds.get(&sold.grant).copied().or(sold.refunded);
        }
        charges
    }

    pub(super) fn lines(&self) -> Result<Vec<Line>, RatingError> {
        let adjusted = self.adjustments.iter().map(|adjustment| {
            let MoneyAdjustment { id, meter, reason, amount, happened_at_ms, corrects } = adjustment.clone();
            Ok(Line::Adjustment { id, meter, reason, amount, happened_at_ms, corrects })
        });
        self.grants.iter().map(SoldGrant::line).chain(adjusted).collect()
    }
}

impl SoldGrant {
    fn line(&self) -> Result<Line, RatingError> {
        let amount = match self.refunded {
            None => self.price,
            Some(refunded) => self.price.checked_sub(refunded).ok_or_else(|| too_large(&self.meter))?,
        };
        Ok(Line::Grant {
            grant: self.grant,
            meter: self.meter.clone(),
            quantity: self.quantity,
            unit: self.unit(),
            amount,
        })
    }

    /// What a unit costs; none where no rate says it exactly.
    fn unit(&self) -> Option<Factor> {
        let (price, quantity) = (self.price.decimal(), self.quantity.decimal());
        let unit: Decimal = price.checked_div(quantity)?.round_dp(12).normalize();
        let is_exact = exact_product(unit, quantity) == Some(price.normalize());
        is_exact.then(|| Factor::parse(&unit.to_string()).ok()).flatten()
    }
}
