//! What the jobs `grants` and `periods` would do now, for their dry runs: nothing is changed.

use super::{FollowedGrants, Memory, NextPeriods, quota_period};
use crate::domain::period::OPENED_AHEAD_MS;
use crate::operations::error::Answer;

/// How many are read at once.
const PAGE: usize = 500;
/// How many quotas get an advance in one run.
const ADVANCED_MAX: usize = 20_000;

impl Memory {
    /// Periods that would be opened, capacities that would be delivered with them, and quotas whose periods would be
    /// looked at again.
    pub async fn next_periods_due(&self) -> Answer<NextPeriods> {
        let now_ms = self.core.clock.now_ms();
        let (ledger, until_ms) = (&self.core.ledger, now_ms.saturating_add(OPENED_AHEAD_MS));
        let mut due = NextPeriods { opened: self.recurring_due().await?, ..NextPeriods::default() };
        due.delivered = due.opened;
        let mut after = None;
        loop {
            let page = ledger.ending_periods(now_ms, until_ms, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some((last.tenant.clone(), last.meter.clone()));
            let tenants: Vec<_> = page.iter().map(|ending| ending.tenant.clone()).collect();
            let plans = ledger.plans_to_come(&tenants).await?;
            for ending in page {
                let tenant = ending.tenant.clone();
                let (is_open, next) =
                    (ending.next_is_open, self.next_period(ending, plans.get(&tenant)).await?);
                due.opened += u64::from(next.is_some() && !is_open);
                due.delivered += u64::from(next.is_some());
            }
        }
        let mut after = None;
        loop {
            let page = ledger.periods_to_follow(None, now_ms, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(due) };
            after = Some(last.clone());
            due.followed += count(page.len());
        }
    }

    /// Periods that would be opened because a recurring grant lasts.
    async fn recurring_due(&self) -> Answer<u64> {
        let (now_ms, mut due, mut after) = (self.core.gate_now_ms(), 0, None);
        loop {
            let page = self.next_to_open(now_ms, &mut after).await?;
            if page.is_empty() {
                return Ok(due);
            }
            for (tenant, meter) in &page {
                due += u64::from(self.current_quota(tenant, meter, now_ms).await?.is_some());
            }
        }
    }

    /// Grants that would be booked as begun and as ended, quotas whose grants would be advanced, and capacities that
    /// the gate lacks.
    pub async fn grants_due(&self) -> Answer<FollowedGrants> {
        let (ledger, now_ms) = (&self.core.ledger, self.core.gate_now_ms());
        let (mut due, mut after) = (FollowedGrants::default(), None);
        loop {
            let page = ledger.grants_to_begin(None, now_ms, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some((last.effective_at_ms, last.id));
            for stored in &page {
                let entry = self.core.policy.find_tenant(&stored.tenant).await?;
                let begins =
                    entry.and_then(|entry| quota_period(&entry, &stored.meter, stored.effective_at_ms));
                due.begun += u64::from(begins.is_some());
            }
        }
        due.settled = ledger.count_ends_to_cut(now_ms).await?;
        let mut after = None;
        loop {
            let page = ledger.grants_to_settle(None, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            due.settled += count(page.len());
        }
        due.advanced = count(ledger.periods_to_advance(None, now_ms, ADVANCED_MAX).await?.len());
        let mut after = None;
        loop {
            let page = ledger.untold_capacities(after.as_ref(), PAGE).await?;
            let Some((tenant, meter, _)) = page.last() else { return Ok(due) };
            after = Some((tenant.clone(), meter.clone()));
            due.told += count(page.len());
        }
    }
}

fn count(found: usize) -> u64 {
    u64::try_from(found).unwrap_or(u64::MAX)
}
