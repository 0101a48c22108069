//! Upgrade requests: a tenant asks for another plan, and an administrator approves or declines it.

use serde::{Deserialize, Serialize};

use super::ids::{IdempotencyKey, PlanId, TenantId};
use super::uuid_id::{self, uuid_ids};

uuid_ids! {
    /// The id of an upgrade request: a hash of its tenant and key, so that a repeated call names the same request; or a
    /// new one where it has no key.
    UpgradeId, "must be the id of an upgrade request";
}

impl UpgradeId {
    /// The id under this key.
    pub fn of(tenant: &TenantId, key: &IdempotencyKey) -> Self {
        Self(uuid_id::of_texts("tollgate upgrade request v1", &[tenant.as_str(), key.as_str()]))
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeState {
    /// Nobody has decided it.
    Pending,
    /// The tenant gets the plan.
    Approved,
    /// It does not.
    Declined,
}

impl UpgradeState {
    const ALL: [Self; 3] = [Self::Pending, Self::Approved, Self::Declined];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Declined => "declined",
        }
    }

    /// The state with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// From when on a plan holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effective {
    /// At once.
    Now,
    /// From the end of the tenant's open period on.
    NextPeriod,
}

impl Effective {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::NextPeriod => "next_period",
        }
    }

    /// What has this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Now, Self::NextPeriod].into_iter().find(|known| known.as_str() == word)
    }
}

/// What a tenant asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeTerms {
    /// Who asks.
    pub tenant: TenantId,
    /// For which plan.
    pub plan: PlanId,
    /// Why, for people.
    pub reason: String,
}
