//! Balances per tenant, meter and period: derived from entries, moved with them.

use super::{Ledger, LedgerError};
use crate::domain::entry::Account;
use crate::domain::ids::{MeterId, TenantId};
use rust_decimal::Decimal;

/// A meter's accounts in one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterBalance {
    /// Which meter.
    pub meter: MeterId,
    /// The period, as start and end (unix ms).
    pub period_ms: (i64, i64),
    /// By [`Account::index`]; only `available` and `adjusted` can be negative.
    pub accounts: [Decimal; 13],
    /// The included amount that the quota's period was opened with; none where it was not.
    pub included: Option<Decimal>,
}

impl MeterBalance {
    /// What stands on an account.
    pub fn of(&self, account: Account) -> Decimal {
        self.accounts[account.index()]
    }
}

impl Ledger {
    /// A tenant's balances of the periods that contain the instant `at_ms` (unix ms), by meter.
    pub async fn balances_of(&self, tenant: &TenantId, at_ms: i64) -> Result<Vec<MeterBalance>, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
