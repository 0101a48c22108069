//! How figures of usage are divided: by time, and by groups.

/// The granularity of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// The tenant's local hours.
    Hour,
    /// Days of a zone.
    Day,
    /// Months of a zone, from the 1st.
    Month,
}

/// What figures are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupBy {
    /// By meter, which always applies.
    Meter,
    /// By subject: only what was done in a subject's name.
    Subject,
    /// By operation.
    Operation,
    /// By tenant.
    Tenant,
    /// By the tenant's current plan.
    Plan,
}

/// Who is ranked by what was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumer {
    /// Tenants.
    Tenant,
    /// Subjects, each of its tenant.
    Subject,
    /// Operations, also work that names none.
    Operation,
    /// The plans that the tenants have now.
    Plan,
}

impl Consumer {
    /// Whether it stands under a tenant.
    pub fn has_tenant(self) -> bool {
        matches!(self, Self::Tenant | Self::Subject)
    }
}
