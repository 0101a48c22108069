//! Upgrade requests as the verbs answer them.

use crate::ledger::StoredUpgrade;

/// An upgrade request.
#[derive(Debug, Clone)]
pub struct UpgradeDetails {
    /// As it is stored.
    pub stored: StoredUpgrade,
    /// Whether this is the answer to a repeated call.
    pub replayed: bool,
}
