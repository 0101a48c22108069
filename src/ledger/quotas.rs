//! Quotas' periods: opened at first use, once, with the included amount as their first entry.

use super::{Ledger, LedgerError};
use crate::domain::amount::{Decimals, Units};
use crate::domain::ids::{MeterId, TenantId};

/// A quota's capacity as the gate is told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaCapacity {
    /// Rises with every change; the gate ignores lower ones.
    pub version: u64,
    /// From when (unix ms) which absolute capacity holds.
    pub parts: Vec<(i64, Units)>,
    /// Past this instant (unix ms) the gate has to ask again.
    pub until_ms: i64,
}

impl Ledger {
    /// Opens a meter's quota for a tenant's period (start and end, unix ms) with its included amount, unless it is open:
    /// then the amount it was opened with stands. Returns its capacity.
    pub async fn open_quota_period(
        &self,
        tenant: &TenantId,
        meter: &MeterId,
        decimals: Decimals,
        period_ms: (i64, i64),
        included: Units,
    ) -> Result<QuotaCapacity, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
