//! What is asked of objects that stand in definitions of plans and tenants.

use super::Page;
use crate::domain::ids::{LimitId, MeterId, PlanId, TenantId};

/// Filters of the overrides list.
#[derive(Debug, Clone, Default)]
pub struct OverridesRequest {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only those of this limit.
    pub limit: Option<LimitId>,
    /// Which page.
    pub page: Page,
}

/// Whose price it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PriceOwner {
    /// That of all tenants on a plan.
    Plan(PlanId),
    /// A tenant's own.
    Tenant(TenantId),
}

/// Filters of the list of prices.
#[derive(Debug, Clone, Default)]
pub struct PricesRequest {
    /// Only this owner's.
    pub owner: Option<PriceOwner>,
    /// Only of this meter.
    pub meter: Option<MeterId>,
    /// Which page.
    pub page: Page,
}
