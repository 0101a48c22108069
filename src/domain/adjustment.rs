//! Adjustments: corrections that finance posts. Each one is booked by entries of its own and changes none that stands.

use serde::{Deserialize, Serialize};

use super::grant::GrantId;
use super::ids::{IdempotencyKey, MeterId, TenantId};
use super::money::Currency;
use super::signed_amount::SignedAmount;
use super::uuid_id::{self, uuid_ids};

uuid_ids! {
    /// The id of an adjustment: a hash of its tenant and key, so that a repeated call names the same adjustment.
    AdjustmentId, "must be the id of an adjustment";
}

impl AdjustmentId {
    /// The id under this key.
    pub fn of(tenant: &TenantId, key: &IdempotencyKey) -> Self {
        Self(uuid_id::of_texts("tollgate adjustment v1", &[tenant.as_str(), key.as_str()]))
    }

    /// The id of the grant that it makes at this place among its grants.
    pub fn grant_at(self, place: i16) -> GrantId {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate grant of an adjustment v1");
        hasher.update(self.0.as_bytes());
        hasher.update(&place.to_le_bytes());
        GrantId::from_uuid(uuid_id::of_hash(&hasher))
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
    /// What is owed: more of it, or less.
    Money,
}

impl AdjustmentEffect {
    const ALL: [Self; 3] = [Self::Usage, Self::Allowance, Self::Money];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Allowance => "allowance",
            Self::Money => "money",
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
    /// Of which meter; money may be about none.
    pub meter: Option<MeterId>,
    /// What of it.
    pub effect: AdjustmentEffect,
    /// By how much, not zero.
    pub amount: SignedAmount,
    /// The currency of the amount, where it is money.
    pub currency: Option<Currency>,
    /// When it happened (unix ms).
    pub happened_at_ms: i64,
    /// The operation that it corrects.
    pub corrects: Option<uuid::Uuid>,
    /// Why, for people.
    pub reason: String,
    /// The name of a paper that says so, such as a ticket.
    pub reference: String,
}
