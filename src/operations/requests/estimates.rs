//! What is asked about estimates.

use super::Page;
use crate::domain::ids::TenantId;

/// What is held of a tenant's work where nothing says how much it is.
#[derive(Debug, Clone)]
pub struct EstimatesRequest {
    /// Whose work.
    pub tenant: TenantId,
    /// Which page.
    pub page: Page,
}
