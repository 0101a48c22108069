//! What is asked of the books over all tenants.

use super::{BalanceFilter, ClosedFilter, Page, RevenueFilter};

/// What stood in the accounts.
#[derive(Debug, Clone)]
pub struct BalancesRequest {
    /// In which.
    pub filter: BalanceFilter,
    /// As of this instant (unix ms), by the database's clock; absent: now.
    pub at_ms: Option<i64>,
    /// Which page.
    pub page: Page,
}

/// What became of closed periods.
#[derive(Debug, Clone)]
pub struct RolloverRequest {
    /// Which periods, by when they ended.
    pub filter: ClosedFilter,
    /// Which page.
    pub page: Page,
}

/// What issued statements and notes say is owed.
#[derive(Debug, Clone)]
pub struct RevenueRequest {
    /// Which of it, by which groups.
    pub filter: RevenueFilter,
    /// Which page.
    pub page: Page,
}
