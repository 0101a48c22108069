//! Quota periods that this instance knows to be open, so that work of a past time asks the ledger once for each.

use std::collections::HashMap;
use std::time::Duration;

use moka::sync::Cache;

use super::Memory;
use crate::domain::counter::Counter;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::open_periods::OpenPeriods;
use crate::domain::period::Window;
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
    /// Opens the periods in which work of these quotas is booked that is accepted at `now_ms`, as far as they are not
    /// known to be open: their own, or those that are open by then where they are closed. Work that no quota refuses
    /// does not ask for its capacity, and what is used of a period that is not open would be overage from the first
    /// unit on.
    ///
    /// Errors: the ledger does not answer.
    pub(in crate::operations) async fn open_periods_of(
        &self,
        entry: &TenantEntry,
        resolved: &Resolved,
        now_ms: i64,
    ) -> Answer<()> {
        let tenant = &entry.definition.id;
        let is_closed = |quota: &&Counter| self.stands_in(entry, quota, now_ms) != quota.window();
        let (closed, open): (Vec<_>, Vec<_>) = resolved.quotas().partition(is_closed);
        for quota in open.into_iter().filter(|quota| !self.opened.knows(tenant, quota)) {
            self.open_period(entry, quota).await?;
        }
        for quota in closed {
            let Some(period) = self.stands_in(entry, quota, now_ms) else { continue };
            let later = entry.tenant_counters(period.start_ms);
            let is_same = |later: &&Counter| later.meter == quota.meter && !self.opened.knows(tenant, later);
            if let Some(quota) = later.quotas().find(is_same) {
                self.open_period(entry, quota).await?;
            }
        }
        Ok(())
    }

    /// The period that takes what is booked at `now_ms` of the quota's own one.
    fn stands_in(&self, entry: &TenantEntry, quota: &Counter, now_ms: i64) -> Option<Window> {
        let (tenant, period, grace_ms) =
            (&entry.definition.id, quota.window()?, self.core.ledger.close_grace_ms());
        if now_ms < period.end_ms.saturating_add(grace_ms) {
            return Some(period);
        }
        let open = OpenPeriods {
            grace_ms: Some(grace_ms),
            calendars: HashMap::from([(tenant.clone(), entry.calendars.clone())]),
            ..OpenPeriods::default()
        };
        open.stands_in(tenant, &quota.meter, period, now_ms).ok()
    }
}
