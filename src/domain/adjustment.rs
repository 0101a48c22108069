//! Adjustments: corrections that finance posts. Each one is booked by entries of its own and changes none that stands.

use serde::{Deserialize, Serialize};

use super::grant::GrantId;
use super::ids::{IdempotencyKey, MeterId, TenantId};
use super::signed_amount::SignedAmount;

/// The id of an adjustment: a hash of its tenant and key, so that a repeated call names the same adjustment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdjustmentId(uuid::Uuid);

impl AdjustmentId {
    /// The id under this key.
    pub fn of(tenant: &TenantId, key: &IdempotencyKey) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate adjustment v1");
        for part in [tenant.as_str(), key.as_str()] {
            hasher.update(part.as_bytes());
            hasher.update(&[0]);
        }
        let mut bytes = [0; 16];
        hasher.finalize_xof().fill(&mut bytes);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The id of the grant that it makes at this place among its grants.
    pub fn grant_at(self, place: i16) -> GrantId {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate grant of an adjustment v1");
        hasher.update(self.0.as_bytes());
        hasher.update(&place.to_le_bytes());
        let mut bytes = [0; 16];
        hasher.finalize_xof().fill(&mut bytes);
        GrantId::from_uuid(uuid::Builder::from_custom_bytes(bytes).into_uuid())
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

impl std::fmt::Display for AdjustmentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for AdjustmentId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        uuid::Uuid::try_parse(text).map(Self::from_uuid).map_err(|_| "must be the id of an adjustment")
    }
}

/// What an adjustment corrects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdjustmentEffect {
    /// What was used: more of it, or less.
    Usage,
    /// What may be used: more of it, or less.
    Allowance,
}

impl AdjustmentEffect {
    const ALL: [Self; 2] = [Self::Usage, Self::Allowance];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Allowance => "allowance",
        }
    }

    /// The effect with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effect| effect.as_str() == word)
    }
}

/// What became of an adjustment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdjustmentState {
    /// Another person has to approve it.
    Pending,
    /// It is being carried out.
    Approved,
    /// It is in the books.
    Booked,
    /// It never will be.
    Declined,
}

impl AdjustmentState {
    const ALL: [Self; 4] = [Self::Pending, Self::Approved, Self::Booked, Self::Declined];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Booked => "booked",
            Self::Declined => "declined",
        }
    }

    /// The state with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// What is to be corrected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdjustmentTerms {
    /// Whose books.
    pub tenant: TenantId,
    /// Of which meter.
    pub meter: MeterId,
    /// What of it.
    pub effect: AdjustmentEffect,
    /// By how much, not zero.
    pub amount: SignedAmount,
    /// When it happened (unix ms).
    pub happened_at_ms: i64,
    /// The operation that it corrects.
    pub corrects: Option<uuid::Uuid>,
    /// Why, for people.
    pub reason: String,
    /// The name of a paper that says so, such as a ticket.
    pub reference: String,
}
