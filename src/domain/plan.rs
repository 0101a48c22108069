//! A plan: a bundle of limits and included quota that tenants, and single subjects, can be on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::ids::{MeterId, PlanId};
use super::limit::Limit;

/// What happens when a quota is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaMode {
    /// Refusal until the next period or a grant.
    #[default]
    Hard,
}

/// A plan's allowance of a meter for each billing period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// What is allowed.
    pub meter: MeterId,
    /// How much of it each period includes.
    pub included: Amount,
    /// What happens when it is used up.
    #[serde(default)]
    pub mode: QuotaMode,
}

/// A plan as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanDefinition {
    /// Its name.
    pub id: PlanId,
    /// The limits of everybody on it.
    #[serde(default)]
    pub limits: Vec<Arc<Limit>>,
    /// What each period includes; a meter once.
    #[serde(default)]
    pub quotas: Vec<Quota>,
    /// Whether nobody may be put on it any more; who is on it stays.
    #[serde(default)]
    pub archived: bool,
}

/// A plan as a file or a PUT writes it: an absent list is left as it is, an empty one empties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanDocument {
    /// Its name.
    pub id: PlanId,
    /// The limits of everybody on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Vec<Arc<Limit>>>,
    /// What each period includes; a meter once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quotas: Option<Vec<Quota>>,
    /// Whether nobody may be put on it any more; who is on it stays.
    #[serde(default)]
    pub archived: bool,
}

impl PlanDocument {
    /// The plan that is stored once this document has been written over `current`.
    pub fn merge(self, current: Option<&PlanDefinition>) -> PlanDefinition {
        PlanDefinition {
            id: self.id,
            limits: self.limits.or_else(|| current.map(|plan| plan.limits.clone())).unwrap_or_default(),
            quotas: self.quotas.or_else(|| current.map(|plan| plan.quotas.clone())).unwrap_or_default(),
            archived: self.archived,
        }
    }
}

impl From<PlanDefinition> for PlanDocument {
    /// The document that writes exactly this plan.
    fn from(plan: PlanDefinition) -> Self {
        Self { id: plan.id, limits: Some(plan.limits), quotas: Some(plan.quotas), archived: plan.archived }
    }
}
