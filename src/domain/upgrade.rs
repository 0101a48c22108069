//! Upgrade requests: a tenant asks for another plan, and an administrator approves or declines it.

use serde::{Deserialize, Serialize};

use super::ids::{IdempotencyKey, PlanId, TenantId};

/// The id of an upgrade request: a hash of its tenant and key, so that a repeated call names the same request; or a
/// new one where it has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpgradeId(uuid::Uuid);

impl UpgradeId {
    /// The id under this key.
    pub fn of(tenant: &TenantId, key: &IdempotencyKey) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate upgrade request v1");
        for part in [tenant.as_str(), key.as_str()] {
            hasher.update(part.as_bytes());
            hasher.update(&[0]);
        }
        let mut bytes = [0; 16];
        hasher.finalize_xof().fill(&mut bytes);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The id with this UUID.
    pub fn from_uuid(id: uuid::Uuid) -> Self {
        Self(id)
    }

    /// The id as a UUID.
    pub fn uuid(self) -> uuid::Uuid {
        self.0
    }
}

impl std::fmt::Display for UpgradeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for UpgradeId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        uuid::Uuid::try_parse(text).map(Self::from_uuid).map_err(|_| "must be the id of an upgrade request")
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

/// From when on an approved plan holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effective {
    /// At once.
    #[default]
    Now,
    /// From the end of the tenant's open period on.
    NextPeriod,
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
