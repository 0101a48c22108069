//! How work under a limit is treated while the gate does not answer.

use serde::{Deserialize, Serialize};

/// How work under a limit is treated while the gate does not answer. Of several limits of one call the first in this
/// order decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnGateFailure {
    /// It is refused until the gate answers.
    #[default]
    Deny,
    /// Each instance admits as much as its limit's `emergency_capacity`.
    Emergency,
    /// Each instance admits as much as it has of the counter: its share, which the gate gave it beforehand.
    Local,
    /// It is admitted unmeasured.
    Allow,
}
