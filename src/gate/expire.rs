//! `expire`: the sweep that returns what holds have outlived.

/// What one call of the sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpireReport {
    /// Reservations that expired.
    pub expired: u32,
    /// Due entries that had resolved, moved or belong to another epoch.
    pub skipped: u32,
    /// Due entries without a record.
    pub missing: u32,
    /// Holds of a cold tenant or subject, moved to a later bucket.
    pub postponed: u32,
    /// Holds whose counters hold less than they should, left alone and moved to a later bucket: a defect, to be alarmed.
    pub inconsistent: u32,
    /// Whether more is due now.
    pub more: bool,
    /// The last due bucket finished.
    pub swept: i64,
}
