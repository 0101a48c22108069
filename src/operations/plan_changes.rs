//! Changes of plan: quotas follow them in the open period, as the plan says. What a plan includes more is granted; what
//! it includes less is voided as far as it is available. A next period that is open already follows policy anyway.

use std::sync::Arc;

use rust_decimal::Decimal;

use crate::domain::amount::Amount;
use crate::domain::counter::Counter;
use crate::domain::grant::{GrantKind, GrantRollover, GrantTerms, Priority, Recurrence};
use crate::domain::ids::TenantId;
use crate::domain::period::Window;
use crate::domain::plan_change::Moves;
use crate::ledger::{ClaimedChange, PlanChange, QuotaChange, WantedChange};
use crate::operations::core::Core;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::operations::grants::GrantVerbs;
use crate::operations::left_partitions::LeftPartitions;
use crate::operations::memory::Memory;
use crate::operations::policy_store::TenantEntry;
use crate::operations::requests::INSTALLATION;

/// How many changes are read at once.
const PAGE: usize = 500;
/// How many changes of a policy file are carried out before it is answered; the job does the others.
const AT_ONCE: usize = 20;

/// Has quotas follow changes of plan.
pub struct PlanChanges {
    core: Arc<Core>,
    memory: Arc<Memory>,
    grants: GrantVerbs,
}

impl PlanChanges {
    pub(super) fn new(core: Arc<Core>, memory: Arc<Memory>) -> Self {
        let grants = GrantVerbs::new(core.clone(), memory.clone());
        Self { core, memory, grants }
    }

    /// Has the quotas of a tenant, or of a few, follow their changes of plan. What cannot be done now is done by the
    /// job.
    pub async fn follow_now(&self, tenant: Option<&TenantId>) {
        let followed = async {
            let some = self.core.ledger.due_plan_changes(tenant, None, AT_ONCE).await?;
            self.carry_out_all(&some).await
        };
        if let Err(error) = followed.await {
            tracing::warn!(?tenant, %error, "quotas follow a change of plan later");
        }
    }

    /// Has quotas follow what is left of changes of plan. Returns how many changes are done now.
    pub async fn follow(&self) -> Answer<u64> {
        let (mut done, mut after) = (0, None);
        loop {
            // Those that wait for an earlier period's close are due again in the next run; no later one waits for them.
            let page = self.core.ledger.due_plan_changes(None, after, PAGE).await?;
            done += self.carry_out_all(&page).await?;
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some((last.changed_at_ms, last.id)),
                _ => return Ok(done),
            }
        }
    }

    /// How many changes of plan quotas would follow now.
    pub async fn due(&self) -> Answer<u64> {
        let (mut due, mut after) = (0, None);
        loop {
            let page = self.core.ledger.due_plan_changes(None, after, PAGE).await?;
            due += u64::try_from(page.len()).unwrap_or(u64::MAX);
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some((last.changed_at_ms, last.id)),
                _ => return Ok(due),
            }
        }
    }

    async fn carry_out_all(&self, changes: &[PlanChange]) -> Answer<u64> {
        let mut done = 0;
        for change in changes {
            match self.carry_out(change).await {
                Ok(is_done) => done += u64::from(is_done),
                Err(error) if error.is_server_away() => return Err(error),
                Err(error) => {
                    let item = format!("plan change {} of tenant {}", change.id, change.tenant);
                    self.core.damage.pass_over(Work::Upgrade, &item, &error).await;
                }
            }
        }
        Ok(done)
    }

    /// Carries out one change. Each step is noted before it is done and is safe to repeat, so that a run may end
    /// anywhere. Returns whether all of it is done.
    async fn carry_out(&self, change: &PlanChange) -> Answer<bool> {
        let mut left = LeftPartitions::default();
        let followed = self.memory.follow_policy(Some(&change.tenant), &mut left).await?;
        let followed = left.end(followed)?;
        let stored = self.core.ledger.read_tenant_definition(&change.tenant).await?;
        let plan = stored.as_ref().map(|stored| &stored.definition["plan"]);
        let holds = plan.is_some_and(|plan| *plan == change.plan.as_str());
        let entry = self.core.policy.find_tenant(&change.tenant).await?;
        let mut is_done = true;
        if let Some(entry) = &entry {
            for (_, meter) in &followed {
                self.memory.send_capacity(entry, meter, 0).await?;
            }
            for begun in self.core.ledger.quota_changes_under_way(&change.tenant).await? {
                is_done &= self.finish(entry, &begun).await?;
            }
            if holds && entry.definition.plan.as_ref() != Some(&change.plan) {
                // This instance has not heard of it yet.
                return Ok(false);
            }
            if holds {
                is_done &= self.fit_quotas(entry, change).await?;
            }
        }
        if is_done {
            self.core.ledger.note_plan_changed(change, self.core.clock.now_ms()).await?;
        }
        Ok(is_done)
    }

    /// Fits the period in which the plan has changed.
    async fn fit_quotas(&self, entry: &TenantEntry, change: &PlanChange) -> Answer<bool> {
        let moves = Moves::of_open_period(change.plan_from);
        // Computed apart: the entry keeps the current windows.
        let windows = entry.calendars.windows(change.changed_at_ms);
        let mut is_done = true;
        for quota in entry.policy.overview(&[], change.changed_at_ms, &windows).counters {
            if let Some(window) = quota.window().filter(|_| quota.is_quota()) {
                is_done &= self.fit_quota(entry, &quota, (window, moves), change).await?;
            }
        }
        Ok(is_done)
    }

    async fn fit_quota(
        &self,
        entry: &TenantEntry,
        quota: &Counter,
        (window, moves): (Window, Moves),
        change: &PlanChange,
    ) -> Answer<bool> {
        let now_ms = self.core.gate_now_ms();
        if window.end_ms <= now_ms {
            return Ok(true);
        }
        let wanted = WantedChange {
            id: change.id.of_quota(&quota.meter, window.start_ms),
            tenant: change.tenant.clone(),
            meter: quota.meter.clone(),
            start_ms: window.start_ms,
            included: quota.capacity.to_amount(quota.decimals).decimal(),
            moves,
            now_ms,
        };
        loop {
            match self.core.ledger.claim_quota_change(wanted.clone()).await? {
                ClaimedChange::Nothing => return Ok(true),
                ClaimedChange::Stands(stands) => return self.finish(entry, &stands).await,
                ClaimedChange::After(other) => {
                    if !self.finish(entry, &other).await? {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Does what is left of a change. Returns whether it is done.
    async fn finish(&self, entry: &TenantEntry, change: &QuotaChange) -> Answer<bool> {
        match change {
            QuotaChange { changed: Some(_), .. } => Ok(true),
            _ if change.lowers() => self.lower(entry, change).await,
            _ => self.raise(entry, change).await,
        }
    }

    /// Grants what a plan includes more, until the period ends.
    async fn raise(&self, entry: &TenantEntry, change: &QuotaChange) -> Answer<bool> {
        let has_begun = change.start_ms <= self.core.gate_now_ms();
        let terms = GrantTerms {
            tenant: change.tenant.clone(),
            meter: change.meter.clone(),
            amount: Amount::from_decimal(change.amount)
                .map_err(|error| OperationError::Internal(error.to_string()))?,
            kind: GrantKind::Promotional,
            price: None,
            priority: Priority::default(),
            effective_at_ms: (!has_begun).then_some(change.start_ms),
            expires_at_ms: entry.calendars.windows(change.start_ms).period.end_ms,
            recurrence: Recurrence::None,
            rollover: GrantRollover::default(),
            reason: entry.definition.plan.as_ref().map(|plan| format!("plan {plan}")).unwrap_or_default(),
        };
        let by = match self.grants.make(change.id, terms, INSTALLATION).await {
            // It was made before, with the plan of that time as its reason.
            Ok(_) | Err(OperationError::GrantKeyReused(_)) => change.amount,
            // Its period is over, or it would be beyond the largest amount.
            Err(OperationError::Invalid(_)) => Decimal::ZERO,
            Err(error) => return Err(error),
        };
        self.core.ledger.note_raised(change, by).await?;
        Ok(true)
    }

    /// Sends the strict bound to the gate, then wants the cut after what the outbox has by now; then what is taken is
    /// booked as of the cut, and the gate gets the exact capacity.
    async fn lower(&self, entry: &TenantEntry, change: &QuotaChange) -> Answer<bool> {
        self.memory.send_capacity(entry, &change.meter, 0).await?;
        let last_id = self.core.gate.last_event(entry.partition).await?;
        self.core.ledger.want_lowered(change.clone(), last_id.unwrap_or_default()).await?;
        self.memory.settle_grants(Some(&change.tenant)).await?;
        let stands = self.core.ledger.quota_change(&change.tenant, change.id).await?;
        if stands.is_none_or(|stands| stands.changed.is_none()) {
            return Ok(false);
        }
        self.memory.send_capacity(entry, &change.meter, 0).await?;
        Ok(true)
    }
}
