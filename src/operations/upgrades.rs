//! Upgrade requests: a tenant asks for another plan; an administrator who approves puts it on that plan, now or with
//! its next period.

use std::sync::Arc;

use crate::domain::ids::{IdempotencyKey, PlanId};
use crate::domain::plan_change::PlanChangeId;
use crate::domain::upgrade::{Effective, UpgradeId, UpgradeState, UpgradeTerms};
use crate::ledger::{Deciding, PlanChange, Requested, StoredUpgrade};
use crate::operations::answers::{Rows, UpgradeDetails};
use crate::operations::core::Core;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::operations::plan_changes::PlanChanges;
use crate::operations::policy::PolicyVerbs;
use crate::operations::requests::{INSTALLATION, UpgradesRequest};

/// How many approved requests are read at once.
const PAGE: usize = 500;

/// Makes, lists and decides requests for other plans.
pub struct Upgrades {
    core: Arc<Core>,
    policy: Arc<PolicyVerbs>,
    plans: Arc<PlanChanges>,
}

impl Upgrades {
    pub(super) fn new(core: Arc<Core>, policy: Arc<PolicyVerbs>, plans: Arc<PlanChanges>) -> Self {
        Self { core, policy, plans }
    }

    /// Makes a request, once under its key.
    ///
    /// Errors: the plan is unknown, archived or the tenant's own; another request of the tenant is pending.
    pub async fn request(
        &self,
        key: Option<IdempotencyKey>,
        terms: UpgradeTerms,
        actor: &str,
    ) -> Answer<UpgradeDetails> {
        let tenant = terms.tenant.clone();
        let entry = self.core.policy.named_tenant(&tenant).await?;
        let id = match &key {
            Some(key) => UpgradeId::of(&tenant, key),
            None => UpgradeId::from_uuid(uuid::Uuid::now_v7()),
        };
        if let Some(stored) = self.core.ledger.upgrade(id).await? {
            return repeated(stored, &terms);
        }
        if entry.definition.archived {
            return Err(OperationError::field("", format!("the tenant {tenant} is archived")));
        }
        self.check_plan(&terms.plan)?;
        if entry.definition.plan.as_ref() == Some(&terms.plan) {
            let message = format!("is the plan that {tenant} has already");
            return Err(OperationError::field("/plan", message));
        }
        let now_ms = self.core.clock.now_ms();
        match self.core.ledger.request_upgrade(id, terms.clone(), now_ms, actor).await? {
            Requested::Now(stored) => Ok(UpgradeDetails { stored, replayed: false }),
            Requested::Before(stored) => repeated(stored, &terms),
            Requested::Pending(other) => Err(OperationError::InUse(format!(
                "the upgrade request {other} of {tenant} is pending: one can be decided at a time"
            ))),
        }
    }

    /// Requests, newest first.
    pub async fn list(&self, request: UpgradesRequest) -> Answer<Rows<UpgradeDetails>> {
        let UpgradesRequest { filter, page } = request;
        self.core.policy.named_if_any(filter.tenant.as_ref()).await?;
        let limit = page.rows_max();
        let after = page.after.as_deref().map(place).transpose()?;
        let rows = self.core.ledger.list_upgrades(&filter, after, limit + 1).await?;
        let rows = Rows::page(rows, limit, |row| format!("{}:{}", row.requested_at_ms, row.id));
        Ok(rows.map(|stored| UpgradeDetails { stored, replayed: false }))
    }

    /// Approves a request: without a date it holds at once, but for what the plan includes less, which waits for the
    /// next period. Where it holds at once, the tenant has the plan when this returns, or soon after where a server is
    /// away. A repeat changes nothing.
    ///
    /// Errors: the tenant cannot have the plan; the request was declined.
    pub async fn approve(
        &self,
        id: UpgradeId,
        effective: Option<Effective>,
        actor: &str,
    ) -> Answer<UpgradeDetails> {
        let found = self.known(id).await?;
        let UpgradeTerms { tenant, plan, .. } = &found.terms;
        if found.state == UpgradeState::Pending {
            self.check_plan(plan)?;
            self.policy.set_plan(tenant, plan, true, actor).await?;
        }
        let entry = self.core.policy.tenant(tenant).await?;
        let now_ms = self.core.clock.now_ms();
        let effective_at_ms = match effective {
            None | Some(Effective::Now) => now_ms,
            Some(Effective::NextPeriod) => entry.windows(now_ms).period.end_ms,
        };
        let decided = self.decide(id, (Some(effective_at_ms), effective.is_none()), actor).await?;
        if decided.stored.state != UpgradeState::Approved {
            return Err(OperationError::UpgradeDecided("declined"));
        }
        let is_due = decided.stored.effective_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        if decided.stored.applied_at_ms.is_some() || !is_due {
            return Ok(decided);
        }
        if let Err(error) = self.apply(&decided.stored).await {
            tracing::warn!(%tenant, upgrade = %id, %error, "an approved plan comes later");
        }
        Ok(UpgradeDetails { stored: self.known(id).await?, ..decided })
    }

    /// Declines a request. A repeat changes nothing.
    ///
    /// Errors: it was approved.
    pub async fn decline(&self, id: UpgradeId, actor: &str) -> Answer<UpgradeDetails> {
        let decided = self.decide(id, (None, false), actor).await?;
        if decided.stored.state != UpgradeState::Declined {
            return Err(OperationError::UpgradeDecided("approved"));
        }
        Ok(decided)
    }

    /// Puts the tenants of approved requests on their plans, as far as they hold by now. Returns how many.
    pub async fn follow(&self) -> Answer<u64> {
        let (mut applied, mut after) = (0, None);
        loop {
            // Those that cannot be applied are due again in the next run; no later one waits for them.
            let now_ms = self.core.clock.now_ms();
            let page = self.core.ledger.due_upgrades(now_ms, after, PAGE).await?;
            for stored in &page {
                match self.apply(stored).await {
                    Ok(is_applied) => applied += u64::from(is_applied),
                    Err(error) if error.is_server_away() => return Err(error),
                    Err(error) => self.not_applied(stored, error).await?,
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = place_of(last),
                _ => return Ok(applied),
            }
        }
    }

    /// How many tenants a run would put on approved plans now.
    pub async fn due(&self) -> Answer<u64> {
        let (mut due, mut after) = (0, None);
        loop {
            let page = self.core.ledger.due_upgrades(self.core.clock.now_ms(), after, PAGE).await?;
            due += u64::try_from(page.len()).unwrap_or(u64::MAX);
            match page.last() {
                Some(last) if page.len() == PAGE => after = place_of(last),
                _ => return Ok(due),
            }
        }
    }

    /// Declines a request that can never be applied, because its tenant or its plan is gone or the plan is archived;
    /// reports any other one, which is tried again.
    async fn not_applied(&self, stored: &StoredUpgrade, error: OperationError) -> Answer<()> {
        // This instance may not have heard of the plan yet.
        self.core.policy.refresh().await?;
        let never = match &error {
            OperationError::NotFound(_) => true,
            _ => self.check_plan(&stored.terms.plan).is_err(),
        };
        let item = format!("upgrade request {} of tenant {}", stored.id, stored.terms.tenant);
        if never {
            tracing::warn!(item, %error, "an approved plan can never be applied, so the request is declined");
            let (why, now_ms) = (error.to_string(), self.core.clock.now_ms());
            self.core.ledger.give_up_upgrade(stored.id, &why, now_ms, INSTALLATION).await?;
        } else {
            self.core.damage.pass_over(Work::Upgrade, &item, &error).await;
        }
        Ok(())
    }

    async fn known(&self, id: UpgradeId) -> Answer<StoredUpgrade> {
        self.core.ledger.upgrade(id).await?.ok_or_else(no_such_request)
    }

    async fn decide(
        &self,
        id: UpgradeId,
        (effective_at_ms, raises_only): (Option<i64>, bool),
        actor: &str,
    ) -> Answer<UpgradeDetails> {
        let now_ms = self.core.clock.now_ms();
        let deciding = Deciding { effective_at_ms, raises_only, now_ms, actor: actor.to_owned() };
        let decided = self.core.ledger.decide_upgrade(id, deciding).await?;
        let (stored, is_new) = decided.ok_or_else(no_such_request)?;
        Ok(UpgradeDetails { stored, replayed: !is_new })
    }

    fn check_plan(&self, plan: &PlanId) -> Answer<()> {
        let policy = self.core.policy.current();
        match policy.plan(plan) {
            None => Err(OperationError::field("/plan", format!("there is no plan {plan}"))),
            Some(found) if found.archived => {
                Err(OperationError::field("/plan", format!("the plan {plan} is archived")))
            }
            Some(_) => Ok(()),
        }
    }

    /// Puts the tenant on the plan, and notes that its quotas follow it, both ways unless it only raises. Each step is
    /// safe to repeat, so that a run may end anywhere. Returns false where it is applied, superseded or declined
    /// by now.
    async fn apply(&self, stored: &StoredUpgrade) -> Answer<bool> {
        let known = self.known(stored.id).await?;
        if known.applied_at_ms.is_some() || known.effective_at_ms.is_none() {
            return Ok(false);
        }
        let UpgradeTerms { tenant, plan, .. } = &stored.terms;
        let actor = stored.decided_by.as_deref().unwrap_or(&stored.requested_by);
        self.policy.set_plan(tenant, plan, false, actor).await?;
        let now_ms = self.core.clock.now_ms();
        let change = PlanChange {
            id: PlanChangeId::of_upgrade(stored.id),
            tenant: tenant.clone(),
            plan: plan.clone(),
            plan_from: (!stored.raises_only).then_some(Effective::Now),
            changed_at_ms: stored.effective_at_ms.unwrap_or(now_ms),
            changed_by: actor.to_owned(),
        };
        self.core.ledger.note_plan_change(change).await?;
        self.core.ledger.note_upgraded(stored.id, now_ms).await?;
        self.plans.follow_now(Some(tenant)).await;
        Ok(true)
    }
}

fn repeated(stored: StoredUpgrade, terms: &UpgradeTerms) -> Answer<UpgradeDetails> {
    if stored.terms == *terms {
        Ok(UpgradeDetails { stored, replayed: true })
    } else {
        Err(OperationError::UpgradeKeyReused(stored.id))
    }
}

/// Its place in the list of those that are due.
fn place_of(stored: &StoredUpgrade) -> Option<(i64, UpgradeId)> {
    stored.effective_at_ms.map(|at_ms| (at_ms, stored.id))
}

fn no_such_request() -> OperationError {
    OperationError::NotFound("there is no such upgrade request".into())
}

fn place(text: &str) -> Answer<(i64, UpgradeId)> {
    let (at, id) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
    let at_ms = at.parse().map_err(|_| OperationError::bad_cursor())?;
    Ok((at_ms, id.parse().map_err(|_| OperationError::bad_cursor())?))
}
