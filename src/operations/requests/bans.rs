//! What is asked of bans and violations.

use super::Page;
use crate::domain::ids::{LimitId, Subject, TenantId};

/// Who has placed a ban.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacedBy {
    /// An admin.
    Admin,
    /// A limit with a punishment.
    Limit,
}

/// Filters of the list of violations.
#[derive(Debug, Clone, Default)]
pub struct ViolationsRequest {
    /// Only of this tenant.
    pub tenant: Option<TenantId>,
    /// Only of this limit.
    pub limit: Option<LimitId>,
    /// Only of this subject; together with its tenant.
    pub subject: Option<Subject>,
    /// Only minutes that begin within these instants (unix ms).
    pub span_ms: (Option<i64>, Option<i64>),
    /// Which page.
    pub page: Page,
}

/// Filters of the list of bans.
#[derive(Debug, Clone, Default)]
pub struct BansRequest {
    /// Only this tenant's. Those that limits have placed are listed of one tenant only.
    pub tenant: Option<TenantId>,
    /// Only those that were placed so.
    pub placed_by: Option<PlacedBy>,
    /// Which page.
    pub page: Page,
}
