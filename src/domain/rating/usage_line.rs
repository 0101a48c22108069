//! One line of a bill: the use of a meter under one price.

use serde::{Deserialize, Serialize};

use super::exact::{ExactMoney, Quantity};
use super::{RatingError, Used, too_large};
use crate::domain::amount::Amount;
use crate::domain::civil_date::CivilDate;
use crate::domain::factor::Factor;
use crate::domain::ids::{MeterId, PriceId};
use crate::domain::money::Money;
use crate::domain::price::{Charge, ChargeOn, Price, PriceModel, Tier, Tiers};

/// What the use of a meter costs under one price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLine {
    /// What was used.
    pub meter: MeterId,
    /// Which of the meter's prices, where it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<PriceId>,
    /// Since when this version of the price holds.
    pub effective_from: CivilDate,
    /// How units became money.
    pub model: PriceModel,
    /// Which units.
    pub charge_on: ChargeOn,
    /// How many there were.
    pub quantity: Amount,
    /// How many of them are free of charge.
    pub included: Amount,
    /// The others.
    pub charged: Amount,
    /// What a unit costs, or a package of them, where all cost the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Factor>,
    /// How many units are in a package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_size: Option<Amount>,
    /// How many packages were begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<Amount>,
    /// What fell into which tier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierPart>,
    /// The price's minimum, where the line was raised to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Money>,
    /// What it costs.
    pub amount: Money,
}

/// The units of a line that one tier prices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierPart {
    /// The tier's last unit; none where it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to: Option<Amount>,
    /// How many units.
    pub quantity: Amount,
    /// What one costs.
    pub unit: Factor,
    /// What they cost, not rounded.
    pub amount: String,
}

/// Units that became money, before rounding.
#[derive(Default)]
struct Parts {
    unit: Option<Factor>,
    package_size: Option<Amount>,
    packages: Option<Amount>,
    tiers: Vec<TierPart>,
}

pub(super) fn rate(price: &Price, used: Used) -> Result<UsageLine, RatingError> {
    let used = match price.charge_on {
        ChargeOn::Consumed => used.consumed,
        ChargeOn::Overage => used.overage,
    };
    let charged = quantity(used)?.saturating_sub(quantity(price.included)?);
    let beyond = || too_large(&price.meter);
    let (exact, parts) = match &price.charge {
        Charge::PerUnit { unit } => {
            (charged.at(*unit).ok_or_else(beyond)?, Parts { unit: Some(*unit), ..Parts::default() })
        }
        Charge::Package { unit, package_size } => {
            let packages = charged.packages(quantity(*package_size)?);
            let exact = ExactMoney::times(packages, *unit).ok_or_else(beyond)?;
            let packages = u64::try_from(packages).map(Amount::from_integer).map_err(|_| beyond())?;
            let (unit, package_size) = (Some(*unit), Some(*package_size));
            (exact, Parts { unit, package_size, packages: Some(packages), ..Parts::default() })
        }
        Charge::Graduated(tiers) => graduated(tiers, charged, &price.meter)?,
        Charge::Volume(tiers) => volume(tiers, charged, &price.meter)?,
        Charge::Flat { flat } => return Ok(line(price, used, charged, Parts::default(), *flat)),
    };
    let amount = exact.round(price.currency).ok_or_else(beyond)?;
    Ok(line(price, used, charged, parts, amount))
}

fn line(price: &Price, used: Amount, charged: Quantity, parts: Parts, amount: Money) -> UsageLine {
    let minimum = price.minimum.filter(|minimum| amount < *minimum);
    UsageLine {
        meter: price.meter.clone(),
        price: price.id.clone(),
        effective_from: price.effective_from,
        model: price.model(),
        charge_on: price.charge_on,
        quantity: used,
        included: price.included,
        // What is charged is at most what was used, which is an amount.
        charged: charged.amount().unwrap_or(used),
        unit: parts.unit,
        package_size: parts.package_size,
        packages: parts.packages,
        tiers: parts.tiers,
        minimum,
        amount: minimum.unwrap_or(amount),
    }
}

/// Each tier's units at its rate.
fn graduated(tiers: &Tiers, charged: Quantity, meter: &MeterId) -> Result<(ExactMoney, Parts), RatingError> {
    let (mut sum, mut parts, mut below) = (ExactMoney::ZERO, Vec::new(), Quantity::ZERO);
    for tier in tiers.iter() {
        let end = tier.up_to.map(quantity).transpose()?.map_or(charged, |up_to| up_to.min(charged));
        let inside = end.saturating_sub(below);
        if inside == Quantity::ZERO {
            break;
        }
        let (exact, part) = priced(tier, inside, meter)?;
        sum = sum.checked_add(exact).ok_or_else(|| too_large(meter))?;
        parts.push(part);
        below = end;
    }
    Ok((sum, Parts { tiers: parts, ..Parts::default() }))
}

/// All units at the rate of the tier in which the last of them lies.
fn volume(tiers: &Tiers, charged: Quantity, meter: &MeterId) -> Result<(ExactMoney, Parts), RatingError> {
    if charged == Quantity::ZERO {
        return Ok((ExactMoney::ZERO, Parts::default()));
    }
    for tier in tiers.iter() {
        let holds_last = tier.up_to.map(quantity).transpose()?.is_none_or(|up_to| charged <= up_to);
        if holds_last {
            let (exact, part) = priced(tier, charged, meter)?;
            return Ok((exact, Parts { unit: Some(tier.unit), tiers: vec![part], ..Parts::default() }));
        }
    }
    Err(too_large(meter))
}

fn priced(tier: &Tier, inside: Quantity, meter: &MeterId) -> Result<(ExactMoney, TierPart), RatingError> {
    let exact = inside.at(tier.unit).ok_or_else(|| too_large(meter))?;
    let quantity = inside.amount().ok_or_else(|| too_large(meter))?;
    Ok((exact, TierPart { up_to: tier.up_to, quantity, unit: tier.unit, amount: exact.text() }))
}

fn quantity(amount: Amount) -> Result<Quantity, RatingError> {
    Quantity::of(amount).ok_or(RatingError::TooPrecise(amount))
}
