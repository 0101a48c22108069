//! The next period: opened in the books a day ahead and delivered to the gate, so that the turn of a month needs no
//! ledger. And the period that is on, where a recurring grant lasts and nothing has opened it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Memory;
use super::capacities::{at_gate, period_of, quota_of};
use crate::domain::counter::Counter;
use crate::domain::ids::{MeterId, Partition, PlanId, TenantId};
use crate::domain::period::OPENED_AHEAD_MS;
use crate::gate::RestoreOutcome;
use crate::ledger::{EndingPeriod, NextPeriod};
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::operations::left_partitions::LeftPartitions;
use crate::operations::policy_store::TenantEntry;

const PAGE: usize = 500;

/// The result of opening periods ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NextPeriods {
    /// Periods that were not open before.
    pub opened: u64,
    /// Capacities that the gate has now.
    pub delivered: u64,
    /// Quotas whose periods were open and are as policy has it by now.
    pub followed: u64,
}

impl Memory {
    /// Opens the current period of each quota with a recurring grant, where none is open, and the period after each
    /// open one that ends within a day, and delivers them to the gate. A cold tenant gets both periods when it is
    /// restored. Those that are open already follow policy.
    pub async fn open_next_periods(&self) -> Answer<NextPeriods> {
        let (mut done, mut left) = (NextPeriods::default(), LeftPartitions::default());
        // Its error waits: whatever the books answer it, the next periods must be open when a month turns.
        let recurring = self.open_recurring(&mut done, &mut left).await;
        self.open_ahead(&mut done).await?;
        done.followed = u64::try_from(self.follow_policy(None, &mut left).await?.len()).unwrap_or(u64::MAX);
        if done.followed > 0 {
            self.send_untold_except(&mut left).await?;
        }
        recurring?;
        left.end_run(done)
    }

    /// Opens the current period of quotas with a recurring grant, where nothing but use would: their tenant was
    /// archived, or had no such quota, when the period before was closed, or jobs were away for long.
    async fn open_recurring(&self, done: &mut NextPeriods, left: &mut LeftPartitions) -> Answer<()> {
        let (now_ms, mut after) = (self.core.gate_now_ms(), None);
        loop {
            let page = self.next_to_open(now_ms, &mut after).await?;
            if page.is_empty() {
                return Ok(());
            }
            self.core.policy.read_ahead(page.iter().map(|(tenant, _)| tenant)).await;
            for (tenant, meter) in page {
                let partition = self.core.gate.partition_of(&tenant);
                if left.has(partition) {
                    continue;
                }
                if let Err(error) = self.open_current(partition, &tenant, &meter, now_ms, done).await {
                    let item = format!("tenant {tenant}");
                    left.go_on(partition, error, (&self.core.damage, Work::NextPeriod, &item)).await;
                }
            }
        }
    }

    /// The next quotas with a recurring grant in force of which no period is open at `now_ms`, after `after`, which is
    /// moved to their end. None while Redis's clock is not trusted.
    pub(super) async fn next_to_open(
        &self,
        now_ms: i64,
        after: &mut Option<(TenantId, MeterId)>,
    ) -> Answer<Vec<(TenantId, MeterId)>> {
        if !self.core.gate.trusts_time() {
            // A period of another time would stay in the books, and at the gate in the place of the one that is on.
            return Ok(Vec::new());
        }
        let page = self.core.ledger.quotas_to_open(now_ms, after.as_ref(), PAGE).await?;
        *after = page.last().cloned();
        Ok(page)
    }

    async fn open_current(
        &self,
        partition: Partition,
        tenant: &TenantId,
        meter: &MeterId,
        now_ms: i64,
        done: &mut NextPeriods,
    ) -> Answer<()> {
        let Some((entry, quota)) = self.current_quota(tenant, meter, now_ms).await? else { return Ok(()) };
        let (capacity, is_new) = self.open_period(&entry, &quota).await?;
        done.opened += u64::from(is_new);
        let script_now = self.core.script_now();
        match self.core.gate.set_capacity(partition, tenant, &capacity, script_now).await? {
            RestoreOutcome::StillCold => {}
            _ => done.delivered += 1,
        }
        Ok(())
    }

    /// The quota as policy has it now; none where the tenant no longer has it, or is archived.
    pub(super) async fn current_quota(
        &self,
        tenant: &TenantId,
        meter: &MeterId,
        now_ms: i64,
    ) -> Answer<Option<(Arc<TenantEntry>, Counter)>> {
        let entry = self.core.policy.find_tenant(tenant).await?;
        let entry = entry.filter(|entry| !entry.definition.archived);
        Ok(entry.and_then(|entry| quota_of(&entry, meter, now_ms).map(|quota| (entry, quota))))
    }

    async fn open_ahead(&self, done: &mut NextPeriods) -> Answer<()> {
        let (now_ms, mut after) = (self.core.clock.now_ms(), None);
        loop {
            let page = self
                .core
                .ledger
                .ending_periods(now_ms, now_ms.saturating_add(OPENED_AHEAD_MS), after.as_ref(), PAGE)
                .await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some((last.tenant.clone(), last.meter.clone()));
            let tenants: Vec<_> = page.iter().map(|ending| ending.tenant.clone()).collect();
            let plans = self.core.ledger.plans_to_come(&tenants).await?;
            let mut by_partition: BTreeMap<Partition, Vec<(NextPeriod, Counter)>> = BTreeMap::new();
            for ending in page {
                let tenant = ending.tenant.clone();
                match self.next_period(ending, plans.get(&tenant)).await {
                    Ok(None) => {}
                    Ok(Some(next)) => {
                        by_partition.entry(self.core.gate.partition_of(&tenant)).or_default().push(next)
                    }
                    Err(error) => self.unless_away(&format!("tenant {tenant}"), error).await?,
                }
            }
            for (partition, periods) in by_partition {
                if let Err(error) = self.open_and_deliver(partition, periods, done).await {
                    self.unless_away(&format!("partition {partition}"), error).await?;
                }
            }
        }
    }

    /// Skips a period that cannot be delivered, so that the others go on; fails only when a server is away.
    pub(super) async fn unless_away(&self, item: &str, error: OperationError) -> Answer<()> {
        if error.is_server_away() {
            return Err(error);
        }
        self.core.damage.pass_over(Work::NextPeriod, item, &error).await;
        Ok(())
    }

    /// The next period by the policy in force, or by a plan that the tenant gets by then (from an instant in unix ms
    /// on); none when the tenant no longer has such a quota.
    pub(super) async fn next_period(
        &self,
        ending: EndingPeriod,
        to_come: Option<&(PlanId, i64)>,
    ) -> Answer<Option<(NextPeriod, Counter)>> {
        let Some(mut entry) = self.core.policy.find_tenant(&ending.tenant).await? else { return Ok(None) };
        if let Some((plan, _)) = to_come.filter(|(_, from_ms)| *from_ms <= ending.period_ms.1) {
            entry = Arc::new(entry.on_plan(plan, self.core.clock.now_ms())?);
        }
        let quota = quota_from(&entry, &ending).filter(|_| !entry.definition.archived);
        Ok(quota.and_then(|quota| {
            let next = NextPeriod {
                tenant: ending.tenant,
                meter: ending.meter,
                current_start_ms: ending.period_ms.0,
                period: period_of(&entry, &quota)?,
            };
            Some((next, quota))
        }))
    }

    async fn open_and_deliver(
        &self,
        partition: Partition,
        periods: Vec<(NextPeriod, Counter)>,
        done: &mut NextPeriods,
    ) -> Answer<()> {
        let (periods, quotas): (Vec<_>, Vec<_>) = periods.into_iter().unzip();
        let opened = self.core.ledger.open_next_periods(partition, &periods).await?;
        done.opened += opened.new;
        let mut delivered = Vec::new();
        for ((period, quota), capacity) in periods.into_iter().zip(quotas).zip(opened.capacities) {
            let Some(told) = capacity else { continue };
            let capacity = at_gate(quota.field, told);
            match self
                .core
                .gate
                .set_capacity(partition, &period.tenant, &capacity, self.core.script_now())
                .await
            {
                // A restore under way may have read the books before the period was opened: retried.
                Ok(RestoreOutcome::StillCold) => {}
                Ok(_) => delivered.push(period),
                Err(error) => self.unless_away(&format!("tenant {}", period.tenant), error.into()).await?,
            }
        }
        done.delivered += self.core.ledger.note_delivered(&delivered).await?;
        Ok(())
    }
}

fn quota_from(entry: &TenantEntry, ending: &EndingPeriod) -> Option<Counter> {
    let at_ms = ending.period_ms.1;
    // Computed apart: the entry keeps the current windows.
    let windows = entry.calendars.windows(at_ms);
    let is_next = |counter: &Counter| {
        counter.is_quota()
            && counter.meter == ending.meter
            && counter.window().is_some_and(|window| window.start_ms == at_ms)
    };
    entry.policy.overview(&[], at_ms, &windows).counters.into_iter().find(is_next)
}
