//! What is asked about adjustments.

use super::Page;

pub use crate::ledger::AdjustmentFilter;

/// Adjustments.
#[derive(Debug, Clone)]
pub struct AdjustmentsRequest {
    /// Which of them.
    pub filter: AdjustmentFilter,
    /// Which page.
    pub page: Page,
}
