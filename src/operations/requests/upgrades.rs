//! What is asked about upgrade requests.

use super::Page;

pub use crate::ledger::UpgradeFilter;

/// Upgrade requests.
#[derive(Debug, Clone)]
pub struct UpgradesRequest {
    /// Which of them.
    pub filter: UpgradeFilter,
    /// Which page.
    pub page: Page,
}
