//! The shapes of statements: what a period costs, line by line.

use serde::Serialize;
use utoipa::ToSchema;

use super::reports::PeriodAnswer;
use crate::domain::instant::rfc3339;
use crate::domain::rating::{Line, TierPart, UsageLine};
use crate::operations::answers::DraftStatement;

/// The units of a line that one tier prices.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct TierAnswer {
    /// The tier's last unit; absent where it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) up_to: Option<String>,
    /// How many units.
    pub(in crate::http) quantity: String,
    /// What one costs.
    pub(in crate::http) unit: String,
    /// What they cost, not rounded.
    pub(in crate::http) amount: String,
}

/// A line of a statement.
#[derive(Debug, Clone, Default, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct StatementLineAnswer {
    /// `usage`, `discount`, `minimum_commitment` or `tax`.
    pub(in crate::http) kind: &'static str,
    /// Usage: what was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) meter: Option<String>,
    /// Usage: which of the meter's prices, where it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) price: Option<String>,
    /// Usage: since which day this version of the price holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) effective_from: Option<String>,
    /// Usage: how units became money: `per_unit`, `package`, `graduated`, `volume` or `flat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) model: Option<&'static str>,
    /// Usage: which units, `consumed` or `overage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) charge_on: Option<&'static str>,
    /// Usage: how many units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) quantity: Option<String>,
    /// Usage: how many units the price has free of charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) included: Option<String>,
    /// Usage: the units that are not free of charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) charged: Option<String>,
    /// Usage: what a unit costs, or a package of them, where all cost the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) unit: Option<String>,
    /// Usage: how many units are in a package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) package_size: Option<String>,
    /// Usage: how many packages were begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) packages: Option<String>,
    /// Usage: what fell into which tier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::http) tiers: Vec<TierAnswer>,
    /// Usage: the price's minimum, where the line was raised to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) minimum: Option<String>,
    /// Discounts and taxes: which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) id: Option<String>,
    /// Discounts and taxes: the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) percent: Option<String>,
    /// Discounts and taxes: what it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) base: Option<String>,
    /// Minimum commitment: the commitment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) commitment: Option<String>,
    /// What it costs, with all decimals of the currency.
    pub(in crate::http) amount: String,
}

/// The answer to `GET /v1/tenants/{t}/statements/draft`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct DraftStatementAnswer {
    /// Who pays.
    pub(in crate::http) tenant: String,
    /// `draft`: it changes with what is booked, until the period is closed.
    pub(in crate::http) status: &'static str,
    /// The tenant's plan.
    pub(in crate::http) plan: Option<String>,
    /// The version of the policy whose prices these are.
    pub(in crate::http) policy_version: u64,
    /// The open billing period.
    pub(in crate::http) period: PeriodAnswer,
    /// The currency of all amounts; null where nothing has a price.
    pub(in crate::http) currency: Option<&'static str>,
    /// The lines.
    pub(in crate::http) lines: Vec<StatementLineAnswer>,
    /// The meters that were used and have prices, of which none holds for this period: their use is in no line.
    pub(in crate::http) unpriced: Vec<String>,
    /// The sum of the lines.
    pub(in crate::http) total: String,
    /// When the books were read.
    pub(in crate::http) as_of: String,
    /// The last event of the tenant's outbox that was booked then: epoch and number.
    pub(in crate::http) as_of_event: String,
}

impl From<&TierPart> for TierAnswer {
    fn from(part: &TierPart) -> Self {
        Self {
            up_to: part.up_to.map(|up_to| up_to.to_string()),
            quantity: part.quantity.to_string(),
            unit: part.unit.to_string(),
            amount: part.amount.clone(),
        }
    }
}

impl From<&UsageLine> for StatementLineAnswer {
    fn from(line: &UsageLine) -> Self {
        Self {
            kind: "usage",
            meter: Some(line.meter.to_string()),
            price: line.price.as_ref().map(ToString::to_string),
            effective_from: Some(line.effective_from.to_string()),
            model: Some(line.model.as_str()),
            charge_on: Some(line.charge_on.as_str()),
            quantity: Some(line.quantity.to_string()),
            included: Some(line.included.to_string()),
            charged: Some(line.charged.to_string()),
            unit: line.unit.map(|unit| unit.to_string()),
            package_size: line.package_size.map(|size| size.to_string()),
            packages: line.packages.map(|packages| packages.to_string()),
            tiers: line.tiers.iter().map(TierAnswer::from).collect(),
            minimum: line.minimum.map(|minimum| minimum.to_string()),
            amount: line.amount.to_string(),
            ..Self::default()
        }
    }
}

impl From<&Line> for StatementLineAnswer {
    fn from(line: &Line) -> Self {
        let amount = line.amount().to_string();
        match line {
            Line::Usage(usage) => usage.into(),
            Line::Discount { id, percent, base, .. } => Self {
                kind: "discount",
                id: Some(id.to_string()),
                percent: percent.map(|percent| percent.to_string()),
                base: Some(base.to_string()),
                amount,
                ..Self::default()
            },
            Line::MinimumCommitment { commitment, .. } => Self {
                kind: "minimum_commitment",
                commitment: Some(commitment.to_string()),
                amount,
                ..Self::default()
            },
            Line::Tax { code, percent, base, .. } => Self {
                kind: "tax",
                id: Some(code.to_string()),
                percent: Some(percent.to_string()),
                base: Some(base.to_string()),
                amount,
                ..Self::default()
            },
        }
    }
}

impl From<&DraftStatement> for DraftStatementAnswer {
    fn from(draft: &DraftStatement) -> Self {
        let bill = draft.bill.as_ref();
        let lines = bill.iter().flat_map(|bill| bill.lines());
        Self {
            tenant: draft.tenant.to_string(),
            status: "draft",
            plan: draft.plan.as_ref().map(ToString::to_string),
            policy_version: draft.policy_version,
            period: PeriodAnswer {
                start: rfc3339(draft.period.start_ms),
                end: rfc3339(draft.period.end_ms),
                time_zone: draft.zone.clone(),
            },
            currency: bill.map(|bill| bill.currency().code()),
            lines: lines.map(StatementLineAnswer::from).collect(),
            unpriced: draft.unpriced.iter().map(ToString::to_string).collect(),
            total: bill.map_or_else(|| "0".to_owned(), |bill| bill.total().to_string()),
            as_of: rfc3339(draft.as_of_ms),
            as_of_event: draft.as_of_event.to_string(),
        }
    }
}
