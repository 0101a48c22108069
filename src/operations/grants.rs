//! Grants: amounts beside what a plan includes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::amount::{Amount, Decimals};
use crate::domain::grant::{GrantId, GrantRollover, GrantTerms, Recurrence};
use crate::domain::instant::rfc3339;
use crate::ledger::{Granted, NewGrant, QuotaPeriod, RepeatsEnded, StoredGrant, Voided};
use crate::operations::answers::{GrantDetails, GrantState, Rows};
use crate::operations::core::Core;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, FieldError, OperationError};
use crate::operations::left_partitions::LeftPartitions;
use crate::operations::memory::{FollowedGrants, Memory, quota_period};
use crate::operations::policy_store::TenantEntry;
use crate::operations::requests::{GrantRequest, GrantsRequest};

/// How many voided grants are ended at once.
const PAGE: usize = 500;
/// How often a grant is made again whose period was prepared by an older version of its tenant.
const TRIES: usize = 3;

/// Makes, lists and voids grants.
pub struct GrantVerbs {
    core: Arc<Core>,
    memory: Arc<Memory>,
}

impl GrantVerbs {
    pub(super) fn new(core: Arc<Core>, memory: Arc<Memory>) -> Self {
        Self { core, memory }
    }

    /// Makes a grant, once under its key, and sends the capacity to the gate. Where the gate is away, the grant is made
    /// all the same; the gate gets it later.
    pub async fn create(&self, request: GrantRequest, actor: &str) -> Answer<GrantDetails> {
        let GrantRequest { key, terms } = request;
        self.make(GrantId::of(&terms.tenant, &key), terms, actor).await
    }

    /// Makes the grant with this id, once.
    pub(super) async fn make(&self, id: GrantId, terms: GrantTerms, actor: &str) -> Answer<GrantDetails> {
        let fingerprint = terms.fingerprint();
        if let Some(stored) = self.core.ledger.grant(id).await? {
            return self.repeated(stored, fingerprint).await;
        }
        let mut entry = self.core.policy.tenant(&terms.tenant).await?;
        for _ in 0..TRIES {
            let new = self.new_grant(&entry, id, terms.clone()).await?;
            match self.core.ledger.create_grant(new, actor).await {
                Ok(Granted::Now(stored)) => {
                    self.send(&entry, &stored).await;
                    return self.details(stored, false).await;
                }
                Ok(Granted::Before(stored)) => return self.repeated(stored, fingerprint).await,
                Ok(Granted::TooMuch) => {
                    let why = "with what is included and the other grants it is beyond the largest amount";
                    return Err(OperationError::field("/amount", why));
                }
                Err(refused) => entry = self.core.policy.tenant_moved(refused).await?,
            }
        }
        Err(OperationError::Overloaded)
    }

    /// The grant by the tenant as this instance has it.
    async fn new_grant(&self, entry: &TenantEntry, id: GrantId, terms: GrantTerms) -> Answer<NewGrant> {
        let now_ms = self.core.gate_now_ms();
        let effective_at_ms = terms.effective_at_ms.unwrap_or(now_ms);
        let period = self.period_of(entry, &terms, effective_at_ms)?;
        check(entry, &terms, effective_at_ms, now_ms, &period)?;
        let after = self.memory.last_place(entry.partition).await;
        let sold_in = entry.windows(now_ms).period;
        Ok(NewGrant { id, terms, effective_at_ms, now_ms, sold_in, period, after })
    }

    /// The grant with this id.
    pub async fn get(&self, id: GrantId) -> Answer<GrantDetails> {
        let found = self.core.ledger.grant(id).await?.filter(|stored| stored.repeats.is_none());
        let stored = found.ok_or_else(|| OperationError::NotFound("there is no such grant".into()))?;
        self.details(stored, false).await
    }

    /// Grants, newest first.
    pub async fn list(&self, request: GrantsRequest) -> Answer<Rows<GrantDetails>> {
        self.core.policy.named_if_any(request.tenant.as_ref()).await?;
        let limit = request.page.rows_max();
        let after = request.page.after.as_deref().map(place).transpose()?;
        let rows = self.core.ledger.list_grants(request.tenant.as_ref(), after, limit + 1).await?;
        let page = Rows::page(rows, limit, |row| format!("{}:{}", row.created_at_ms, row.id));
        let recurring = page.data.iter().filter(|stored| stored.recurrence == Recurrence::Period);
        let recurring: Vec<GrantId> = recurring.map(|stored| stored.id).collect();
        let ended = self.core.ledger.repeats_ended(&recurring).await?;
        Ok(page.map(|stored| self.with_repeats(&ended, stored, false)))
    }

    /// Books the grants that have begun or ended, and sends the gate what it lacks of capacities.
    pub async fn follow(&self) -> Answer<FollowedGrants> {
        let mut left = LeftPartitions::default();
        self.end_voided(&mut left).await?;
        let followed = self.memory.settle_grants_except(None, &mut left).await?;
        let told = self.memory.send_untold_except(&mut left).await?;
        left.end_run(FollowedGrants { told, ..followed })
    }

    /// Ends a grant now: the gate gets the capacity without it first, as a bound; then the grant is cut, what is
    /// unburnt of it is booked, and the gate gets the exact capacity. What cannot be done now is done by the job.
    pub async fn void(&self, id: GrantId, actor: &str) -> Answer<GrantDetails> {
        let now_ms = self.core.gate_now_ms();
        let is_repeat = |stored: &StoredGrant| stored.repeats.is_some();
        if self.core.ledger.grant(id).await?.as_ref().is_some_and(is_repeat) {
            return Err(OperationError::NotFound("there is no such grant".into()));
        }
        self.begin(id, now_ms).await?;
        let voided = self.core.ledger.void_grant(id, now_ms, actor).await?;
        let (stored, replayed) = match voided {
            Voided::Missing => return Err(OperationError::NotFound("there is no such grant".into())),
            Voided::Expired(stored) => {
                let ended_at_ms = stored.settled_at_ms.unwrap_or(stored.expires_at_ms);
                return Err(OperationError::GrantEnded(ended_at_ms.min(stored.expires_at_ms)));
            }
            Voided::OfPlan(stored) => {
                let why = "it is what a plan includes more";
                let tenant = stored.tenant;
                return Err(OperationError::InUse(format!("{why}: another plan of {tenant} takes it back")));
            }
            Voided::Cancelled(stored) | Voided::Ending(stored) => (stored, false),
            Voided::Before(stored) => (stored, true),
        };
        if let Err(error) = self.end_now(&stored).await {
            tracing::warn!(tenant = %stored.tenant, grant = %id, %error, "a grant ends later");
        }
        let stored = self.core.ledger.grant(id).await?.unwrap_or(stored);
        self.details(stored, replayed).await
    }

    /// Books a grant that has begun and that no job has booked yet: what was burnt of it stays burnt.
    async fn begin(&self, id: GrantId, now_ms: i64) -> Answer<()> {
        let found = self.core.ledger.grant(id).await?;
        let has_begun = |stored: &StoredGrant| {
            stored.period_start_ms.is_none()
                && stored.voided_at_ms.is_none()
                && stored.effective_at_ms <= now_ms
        };
        if let Some(stored) = found.filter(has_begun) {
            let mut left = LeftPartitions::default();
            self.memory.begin_grants(Some(&stored.tenant), now_ms, &mut left).await?;
            left.end(())?;
        }
        Ok(())
    }

    async fn end_now(&self, stored: &StoredGrant) -> Answer<()> {
        let ending = self.core.ledger.ending_grants(&stored.tenant, stored.id).await?;
        for one in &ending {
            self.end(one).await?;
        }
        if !ending.is_empty() {
            self.memory.settle_grants(Some(&stored.tenant)).await?;
        }
        let entry = self.core.policy.tenant(&stored.tenant).await?;
        self.memory.send_capacity(&entry, &stored.meter, 0).await
    }

    /// Sends the strict bound to the gate, then wants the cut after what the outbox has by now.
    async fn end(&self, stored: &StoredGrant) -> Answer<()> {
        if let Some(entry) = self.core.policy.find_tenant(&stored.tenant).await? {
            self.memory.send_capacity(&entry, &stored.meter, 0).await?;
        }
        let partition = self.core.gate.partition_of(&stored.tenant);
        let after = self.core.gate.last_event(partition).await?.unwrap_or_default();
        Ok(self.core.ledger.want_end(stored.clone(), after).await?)
    }

    async fn end_voided(&self, left: &mut LeftPartitions) -> Answer<()> {
        let mut after = None;
        loop {
            let page = self.core.ledger.voided_grants(None, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.id);
            for stored in page {
                let partition = self.core.gate.partition_of(&stored.tenant);
                if left.has(partition) {
                    continue;
                }
                if let Err(error) = self.end(&stored).await {
                    let item = format!("grant {} of tenant {}", stored.id, stored.tenant);
                    left.go_on(partition, error, (&self.core.damage, Work::Capacity, &item)).await;
                }
            }
        }
    }

    /// Sends the capacity; what cannot be sent now stays noted in the ledger, and the job sends it.
    async fn send(&self, entry: &TenantEntry, stored: &StoredGrant) {
        if let Err(error) = self.begin_at_gate(entry, stored).await {
            tracing::warn!(tenant = %stored.tenant, grant = %stored.id, %error, "the gate gets a grant later");
        }
    }

    /// Sends the capacity, and has the grant begin to burn here.
    async fn begin_at_gate(&self, entry: &TenantEntry, stored: &StoredGrant) -> Answer<()> {
        self.memory.send_capacity(entry, &stored.meter, 0).await?;
        if stored.period_start_ms.is_some() {
            self.core.append_boundary(entry.partition, 0).await?;
        }
        Ok(())
    }

    fn period_of(
        &self,
        entry: &TenantEntry,
        terms: &GrantTerms,
        effective_at_ms: i64,
    ) -> Answer<QuotaPeriod> {
        quota_period(entry, &terms.meter, effective_at_ms).ok_or_else(|| {
            let tenant = &terms.tenant;
            let why =
                format!("{tenant} has no quota of {}: a grant adds to the quota of a plan", terms.meter);
            OperationError::field("/meter", why)
        })
    }

    async fn repeated(&self, stored: StoredGrant, fingerprint: [u8; 32]) -> Answer<GrantDetails> {
        if stored.fingerprint != fingerprint {
            return Err(OperationError::GrantKeyReused(stored.id));
        }
        self.details(stored, true).await
    }

    async fn details(&self, stored: StoredGrant, replayed: bool) -> Answer<GrantDetails> {
        let recurs = stored.recurrence == Recurrence::Period;
        let recurring = if recurs { vec![stored.id] } else { Vec::new() };
        let ended = self.core.ledger.repeats_ended(&recurring).await?;
        Ok(self.with_repeats(&ended, stored, replayed))
    }

    /// A grant as it is now, with what has ended of its repeats.
    fn with_repeats(
        &self,
        ended: &HashMap<GrantId, RepeatsEnded>,
        mut stored: StoredGrant,
        replayed: bool,
    ) -> GrantDetails {
        let now_ms = self.core.gate_now_ms();
        let ended = ended.get(&stored.id).copied().unwrap_or_default();
        if let Some(unburnt) = ended.unburnt {
            let all = stored.settled_amount.unwrap_or_default().decimal() + unburnt;
            stored.settled_amount = Amount::from_decimal(all).ok();
        }
        let is_ending = stored.settled_at_ms.is_none() || ended.is_ending;
        let state = match stored {
            _ if stored.voided_at_ms.is_some() && is_ending => GrantState::Ending,
            _ if stored.voided_at_ms.is_some() => GrantState::Voided,
            _ if stored.settled_at_ms.is_some() => GrantState::Expired,
            _ if now_ms < stored.effective_at_ms => GrantState::Scheduled,
            _ if now_ms < stored.expires_at_ms => GrantState::Active,
            _ => GrantState::Expired,
        };
        GrantDetails { stored, state, replayed }
    }
}

/// Checks what the terms say of the tenant, the amount and the dates.
fn check(
    entry: &TenantEntry,
    terms: &GrantTerms,
    effective_at_ms: i64,
    now_ms: i64,
    period: &QuotaPeriod,
) -> Answer<()> {
    let mut faults = Vec::new();
    let mut fault = |pointer: &str, message: String| faults.push(FieldError::new(pointer, message));
    if entry.definition.archived {
        fault("/tenant", format!("{} is archived", entry.definition.id));
    }
    match terms.amount.to_units(period.decimals) {
        Ok(_) if terms.amount.is_zero() => fault("/amount", "must be more than zero".into()),
        Ok(_) => {}
        Err(error) => fault("/amount", error.to_string()),
    }
    let open_start_ms = entry.calendars.windows(now_ms).period.start_ms;
    if effective_at_ms < open_start_ms {
        fault("/effective_at", format!("must not be before the open period, {}", rfc3339(open_start_ms)));
    }
    if terms.expires_at_ms <= effective_at_ms.max(now_ms) {
        fault("/expires_at", "must be later than now and than `effective_at`".into());
    }
    faults.extend(rollover(terms, period.decimals));
    if faults.is_empty() { Ok(()) } else { Err(OperationError::Invalid(faults)) }
}

/// Checks the terms on which the grant goes on.
fn rollover(terms: &GrantTerms, decimals: Decimals) -> Vec<FieldError> {
    let GrantRollover { max, min } = terms.rollover;
    let min = Some(min).filter(|min| !min.is_zero());
    let mut faults = Vec::new();
    for (pointer, amount) in [("/max_rollover", max), ("/min_rollover", min)] {
        let Some(amount) = amount else { continue };
        if let Err(error) = amount.to_units(decimals) {
            faults.push(FieldError::new(pointer, error.to_string()));
        } else if terms.price.is_some() {
            // What lapses at a close would have to take its part of the price along, and what is added has none.
            faults.push(FieldError::new(pointer, "is for a grant without a `paid_amount`"));
        }
    }
    let recurs = terms.recurrence == Recurrence::Period;
    let most = max.unwrap_or(if recurs { Amount::ZERO } else { terms.amount });
    if min.is_some_and(|min| min > most.min(terms.amount)) {
        faults.push(FieldError::new("/min_rollover", "must be at most `amount` and `max_rollover`"));
    }
    faults
}

fn place(text: &str) -> Answer<(i64, GrantId)> {
    let (at, id) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
    let at_ms = at.parse().map_err(|_| OperationError::bad_cursor())?;
    Ok((at_ms, id.parse().map_err(|_| OperationError::bad_cursor())?))
}
