//! How figures of usage are cut: in time, and by what.

/// How finely time is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// The tenant's local hours.
    Hour,
    /// Days of a zone.
    Day,
    /// Months of a zone, from the 1st.
    Month,
}

/// What figures are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupBy {
    /// By meter, as figures always are.
    Meter,
    /// By subject: only what was done in a subject's name.
    Subject,
    /// By operation.
    Operation,
    /// By tenant.
    Tenant,
    /// By the tenant's present plan.
    Plan,
}
