//! Adjustments as the verbs answer them.

use crate::ledger::StoredAdjustment;

/// An adjustment.
#[derive(Debug, Clone)]
pub struct AdjustmentDetails {
    /// As it is stored.
    pub stored: StoredAdjustment,
    /// Whether this is the answer to a repeated call.
    pub replayed: bool,
}
