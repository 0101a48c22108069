//! A plan: a bundle of limits, included quota and prices that tenants, and single subjects, can be on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::amount::{Amount, Decimals, Units};
use super::ids::{MeterId, PlanId};
use super::limit::Limit;
use super::price::Price;
use super::rating::{Commitment, Discount};

/// What happens when a quota is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaMode {
    /// Refusal until the next period or a grant.
    #[default]
    Hard,
    /// Nothing: what is used beyond it is measured, and answers carry a warning.
    Soft,
    /// Refusal until a grant: waiting does not help.
    Prepaid,
    /// Use goes on down to the overdraft; then refusal until a grant.
    Overdraft,
}

impl QuotaMode {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Soft => "soft",
            Self::Prepaid => "prepaid",
            Self::Overdraft => "overdraft",
        }
    }

    /// Whether only a grant helps where it is used up.
    pub fn needs_grant(self) -> bool {
        matches!(self, Self::Prepaid | Self::Overdraft)
    }
}

/// The overdraft of a quota that only measures: more than is ever used, and still less than a counter can have together
/// with what the quota includes. By it a capacity at the gate is known as such a quota's.
pub const MEASURED: Units = Units::HALF_MAX;

/// In how many periods what rolls over may count at most.
pub const ROLLOVER_PERIODS_MAX: u8 = 36;

/// A plan's allowance of a meter for each billing period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Its meter.
    pub meter: MeterId,
    /// The amount that each period includes.
    pub included: Amount,
    /// How much of it goes on to the next period at most, where it is unused. Left out where there is none: versions of
    /// the service without rollover read that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rollover: Option<Amount>,
    /// How much the next period gets at least, of what is unused or beside it. This and the next two are left out where
    /// they say nothing: versions of the service that do not know them read that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rollover: Option<Amount>,
    /// In how many periods counts what goes on, 1 to 36; 1 where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollover_periods: Option<u8>,
    /// Whether what is left of it after those goes on again, together with what is unused of the included amount.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reroll: bool,
    /// What happens when it is used up.
    #[serde(default)]
    pub mode: QuotaMode,
    /// How far below zero it may go, for the mode `overdraft`. Left out where there is none: versions of the service
    /// without overdrafts read that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdraft: Option<Amount>,
    /// Whether the next period pays, out of what it includes, for what was used beyond the quota. Left out where it
    /// does not: versions of the service that do not know it read that.
    #[serde(default, skip_serializing_if = "is_false")]
    pub preserve_overage: bool,
    /// At which percentages of it its tenant gets a notice; 50, 80, 90 and 100 where they are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notices_percent: Option<Vec<u8>>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Quota {
    /// The thresholds of its notices.
    pub fn thresholds(&self) -> Thresholds {
        Thresholds::of(self.notices_percent.as_deref().unwrap_or(&[50, 80, 90, 100]))
    }

    /// What a period of it opens with, of a meter with so many decimals.
    pub fn terms(&self, decimals: Decimals) -> PeriodTerms {
        let units = |amount: Option<Amount>| amount.unwrap_or_default().floor_units(decimals);
        PeriodTerms {
            included: self.included.floor_units(decimals),
            max_rollover: units(self.max_rollover),
            min_rollover: units(self.min_rollover),
            rollover_periods: self.rollover_periods.unwrap_or(1),
            reroll: self.reroll,
            overdraft: if self.mode == QuotaMode::Soft { MEASURED } else { units(self.overdraft) },
            preserve_overage: self.preserve_overage,
            thresholds: self.thresholds(),
        }
    }
}

/// Percentages from 1 to 100, each once: a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Thresholds(u128);

impl Thresholds {
    /// These percentages; others than 1 to 100 are left out.
    pub fn of(percents: &[u8]) -> Self {
        let valid = percents.iter().filter(|percent| (1..=100).contains(*percent));
        Self(valid.fold(0, |bits, percent| bits | 1 << *percent))
    }

    /// Each of them, the lowest first.
    pub fn percents(self) -> Vec<i16> {
        (1..=100).filter(|percent| self.0 >> percent & 1 == 1).collect()
    }
}

/// What a quota's period opens with. Once the period has begun, it stays as it is when the plan changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodTerms {
    /// The amount that it includes.
    pub included: Units,
    /// How much of it goes on to the next period at most.
    pub max_rollover: Units,
    /// How much the next period gets at least.
    pub min_rollover: Units,
    /// In how many periods counts what goes on.
    pub rollover_periods: u8,
    /// Whether what is left of it after those goes on again.
    pub reroll: bool,
    /// How far below zero it may go; [`MEASURED`] where it only measures.
    pub overdraft: Units,
    /// Whether the next period pays for what is used beyond it.
    pub preserve_overage: bool,
    /// At which percentages its tenant gets a notice.
    pub thresholds: Thresholds,
}

impl Default for PeriodTerms {
    fn default() -> Self {
        Self {
            included: Units::ZERO,
            max_rollover: Units::ZERO,
            min_rollover: Units::ZERO,
            rollover_periods: 1,
            reroll: false,
            overdraft: Units::ZERO,
            preserve_overage: false,
            thresholds: Thresholds::default(),
        }
    }
}

/// A plan as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanDefinition {
    /// Its name.
    pub id: PlanId,
    /// The limits of every tenant on it.
    #[serde(default)]
    pub limits: Vec<Arc<Limit>>,
    /// The included amounts of each period; each meter once.
    #[serde(default)]
    pub quotas: Vec<Quota>,
    /// What use costs, all versions. Left out where there are none: versions of the service without prices read that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<Price>,
    /// The discounts of every tenant on it. These and the commitments are left out where there are none, likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discounts: Vec<Discount>,
    /// The least that a period costs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub minimum_commitments: Vec<Commitment>,
    /// Whether no tenant may be put on it any more; its present tenants stay.
    #[serde(default)]
    pub archived: bool,
}

/// A plan in a file or a PUT: an absent list is left as it is, an empty one removes all items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanDocument {
    /// Its name.
    pub id: PlanId,
    /// The limits of every tenant on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Vec<Arc<Limit>>>,
    /// The included amounts of each period; each meter once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quotas: Option<Vec<Quota>>,
    /// What use costs, all versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Vec<Price>>,
    /// The discounts of every tenant on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discounts: Option<Vec<Discount>>,
    /// The least that a period costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_commitments: Option<Vec<Commitment>>,
    /// Whether no tenant may be put on it any more; its present tenants stay.
    #[serde(default)]
    pub archived: bool,
}

impl PlanDocument {
    /// The plan to store when this document is applied to `current`.
    pub fn merge(self, current: Option<&PlanDefinition>) -> PlanDefinition {
        PlanDefinition {
            id: self.id,
            limits: self.limits.or_else(|| current.map(|plan| plan.limits.clone())).unwrap_or_default(),
            quotas: self.quotas.or_else(|| current.map(|plan| plan.quotas.clone())).unwrap_or_default(),
            prices: self.prices.or_else(|| current.map(|plan| plan.prices.clone())).unwrap_or_default(),
            discounts: self
                .discounts
                .or_else(|| current.map(|plan| plan.discounts.clone()))
                .unwrap_or_default(),
            minimum_commitments: self
                .minimum_commitments
                .or_else(|| current.map(|plan| plan.minimum_commitments.clone()))
                .unwrap_or_default(),
            archived: self.archived,
        }
    }
}

impl From<PlanDefinition> for PlanDocument {
    /// The document that makes exactly this plan.
    fn from(plan: PlanDefinition) -> Self {
        Self {
            id: plan.id,
            limits: Some(plan.limits),
            quotas: Some(plan.quotas),
            prices: Some(plan.prices),
            discounts: Some(plan.discounts),
            minimum_commitments: Some(plan.minimum_commitments),
            archived: plan.archived,
        }
    }
}
