//! Quota periods that this instance knows to be open, so that work of a past time asks the ledger once for each.

use std::time::Duration;

use moka::sync::Cache;

use super::Memory;
use crate::domain::counter::Counter;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::policy::Resolved;
use crate::operations::error::Answer;
use crate::operations::policy_store::TenantEntry;

const OPENED_MAX: u64 = 100_000;
/// A ledger that was set back may lack a period again.
const KNOWN_FOR: Duration = Duration::from_secs(3_600);

/// By tenant, meter and the period's start (unix ms).
pub(super) struct Opened(Cache<(TenantId, MeterId, i64), ()>);

impl Default for Opened {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(OPENED_MAX).time_to_live(KNOWN_FOR).build())
    }
}

impl Opened {
    fn knows(&self, tenant: &TenantId, quota: &Counter) -> bool {
        self.0.contains_key(&key(tenant, quota))
    }

    /// Notes that the quota's period is open.
    pub(super) fn note(&self, tenant: &TenantId, quota: &Counter) {
        self.0.insert(key(tenant, quota), ());
    }
}

fn key(tenant: &TenantId, quota: &Counter) -> (TenantId, MeterId, i64) {
    (tenant.clone(), quota.meter.clone(), quota.window().map_or(0, |window| window.start_ms))
}

impl Memory {
    /// Opens the periods of these quotas that are not known to be open. Work that no quota refuses does not ask for its
    /// capacity, and what is used of a period that is not open would be overage from the first unit on.
    ///
    /// Errors: the ledger does not answer.
    pub(in crate::operations) async fn open_periods_of(
        &self,
        entry: &TenantEntry,
        resolved: &Resolved,
    ) -> Answer<()> {
        let tenant = &entry.definition.id;
        for quota in resolved.quotas().filter(|quota| !self.opened.knows(tenant, quota)) {
            self.open_period(entry, quota).await?;
        }
        Ok(())
    }
}
