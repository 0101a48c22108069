//! Checkpoint: a snapshot of a tenant's counters in the outbox, for the writer to compare.

use std::collections::HashSet;
use std::sync::Arc;

use uuid::Uuid;

use super::Reconcile;
use crate::domain::checkpoint::{
    CHECKPOINT_COUNTERS_MAX, CHECKPOINT_SUBJECTS_MAX, CounterDescription, Description,
};
use crate::domain::counter::Counter;
use crate::domain::ids::{OutboxId, Subject, TenantId};
use crate::domain::policy::Resolved;
use crate::domain::reservation::SubjectHash;
use crate::gate::{CheckpointCall, CheckpointOutcome, GateError, PeekCall};
use crate::ledger::TenantCursor;
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::TenantEntry;
use crate::telemetry::labels::Script;

/// Instances learn of a change of policy within a second. A counter is compared from the first window that began at
/// least this long after the counter did, or once a restore has set it this long after.
const POLICY_SPREADS_MS: i64 = 60_000;
/// A subject is compared if it was used within this time.
const SUBJECTS_SINCE_MS: i64 = 26 * 3_600_000;
/// How many pages of subjects are compared in one visit of a tenant; the next visit continues after them.
const PAGES_MAX: usize = 32;
const OPERATIONS_MAX: usize = 255;
const METERS_MAX: usize = 65_535;
const TENANTS_PAGE: usize = 500;

/// A checkpoint that is in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointTaken {
    /// Its id.
    pub id: Uuid,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its place in the outbox.
    pub place: OutboxId,
}

/// A page of tenants: those that are warm, and how many are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantsPage {
    /// Those that are warm.
    pub warm: Vec<TenantId>,
    /// How many are cold.
    pub cold: usize,
    /// Where the next page starts; none when this was the last.
    pub next: Option<TenantCursor>,
}

/// A part of a tenant's counters, for one checkpoint.
#[derive(Debug, Clone, Copy)]
struct Page {
    /// Whether the tenant's own counters are in it.
    with_tenant: bool,
    /// Subjects with numbers after this one are in it.
    after: i64,
}

/// The counters of one checkpoint, described for the writer and for the gate.
struct Named {
    /// The last subject's number, where there are more.
    next: Option<i64>,
    description: Description,
    counters: Vec<Counter>,
    hashes: Vec<SubjectHash>,
}

impl Reconcile {
    /// A page of all tenants after `after`, with those that the gate knows.
    pub async fn warm_tenants(&self, after: Option<&TenantCursor>) -> Answer<TenantsPage> {
        let page = self.core.ledger.list_tenants(after, TENANTS_PAGE).await?;
        let last = page.last().filter(|_| page.len() == TENANTS_PAGE);
        let next = last.map(|last| TenantCursor { created_at_us: last.created_at_us, id: last.id.clone() });
        let tenants: Vec<TenantId> = page.into_iter().map(|stored| stored.id).collect();
        let known = self.core.gate.warm_tenants(&tenants).await?;
        let warm: Vec<TenantId> =
            tenants.into_iter().zip(&known).filter(|(_, warm)| **warm).map(|(tenant, _)| tenant).collect();
        Ok(TenantsPage { cold: known.len() - warm.len(), warm, next })
    }

    /// Takes a checkpoint of a tenant's counters of class quota and of those of its first active subjects; none where
    /// the gate has no counter that can be compared.
    pub async fn take_checkpoint(&self, tenant: &TenantId) -> Answer<Option<CheckpointTaken>> {
        let (taken, _) = self.take_page(tenant, Page { with_tenant: true, after: 0 }).await?;
        Ok(taken)
    }

    /// Takes checkpoints of all of a tenant's counters of class quota, a page of subjects at a time, each compared as
    /// of its own place. Where a visit cannot compare all subjects, the next one continues after them.
    pub async fn take_checkpoints(&self, tenant: &TenantId) -> Answer<Vec<CheckpointTaken>> {
        let mut page = Page { with_tenant: true, after: self.compared.resume(tenant) };
        let mut all = Vec::new();
        for _ in 0..PAGES_MAX {
            let (taken, next) = self.take_page(tenant, page).await?;
            all.extend(taken);
            let Some(after) = next else { return Ok(all) };
            page = Page { with_tenant: false, after };
        }
        self.compared.leave_at(tenant, page.after);
        Ok(all)
    }

    /// Takes the checkpoint of one page; returns where the next page starts, if there is one.
    async fn take_page(
        &self,
        tenant: &TenantId,
        page: Page,
    ) -> Answer<(Option<CheckpointTaken>, Option<i64>)> {
        let mut at_ms = self.core.gate_now_ms();
        let mut recovery = self.memory.recovery("the tenant's windows kept turning; repeat it");
        loop {
            // Read before the policy: a change between the two only makes the writer more careful.
            let policy_version = self.core.policy.seen_version();
            let entry = self.core.policy.tenant(tenant).await?;
            let named = self.name_counters(&entry, policy_version, at_ms, page).await?;
            if named.counters.is_empty() {
                return Ok((None, named.next));
            }
            let id = Uuid::from_u128(rand::random());
            match self.send_checkpoint(&entry, &named, id, at_ms).await {
                Ok(CheckpointOutcome::Told(place)) => {
                    return Ok((Some(CheckpointTaken { id, tenant: tenant.clone(), place }), named.next));
                }
                Ok(CheckpointOutcome::NothingKnown) => return Ok((None, named.next)),
                Ok(CheckpointOutcome::Cold) => return Ok((None, None)),
                Ok(CheckpointOutcome::StaleWindow { now_ms }) => {
                    at_ms = now_ms;
                    recovery.again()?;
                }
                Err(alarm @ GateError::Alarm { .. }) => {
                    if let Some(away) = recovery.after_failure(alarm).await? {
                        return Err(away.into());
                    }
                }
                Err(error) => {
                    let damaged = self.find_damaged(&entry, &named.hashes, &named.counters, &error).await;
                    let counters =
                        damaged.iter().filter_map(|number| named.description.counters.get(*number));
                    return Err(with_damage(&error, counters.map(name_of).collect()));
                }
            }
        }
    }

    async fn send_checkpoint(
        &self,
        entry: &TenantEntry,
        named: &Named,
        id: Uuid,
        at_ms: i64,
    ) -> Result<CheckpointOutcome, GateError> {
        let valid = entry.windows(at_ms).valid();
        let call = CheckpointCall {
            id,
            partition: entry.partition,
            tenant: &entry.definition.id,
            subjects: &named.hashes,
            counters: &named.counters,
            valid: (valid.start_ms, valid.end_ms),
            description: named.description.encode(),
            now_ms: self.core.script_now(),
        };
        self.core.timed(Script::Checkpoint, self.core.gate.checkpoint(&call)).await
    }

    /// The indexes of those counters that the gate cannot read one by one, after it failed to read all at once.
    pub(super) async fn find_damaged(
        &self,
        entry: &TenantEntry,
        subjects: &[SubjectHash],
        counters: &[Counter],
        failure: &GateError,
    ) -> Vec<usize> {
        let mut damaged = Vec::new();
        if !is_of_damage(failure) {
            return damaged;
        }
        for (number, counter) in counters.iter().enumerate() {
            let call = PeekCall {
                partition: entry.partition,
                tenant: &entry.definition.id,
                subjects,
                counters: std::slice::from_ref(counter),
                light: &[],
                now_ms: self.core.script_now(),
            };
            match self.core.gate.peek_counters(&call).await {
                Err(error) if is_of_damage(&error) => damaged.push(number),
                Err(_) => break,
                Ok(_) => {}
            }
        }
        damaged
    }

    async fn name_counters(
        &self,
        entry: &Arc<TenantEntry>,
        policy_version: u64,
        at_ms: i64,
        page: Page,
    ) -> Answer<Named> {
        let tenant = &entry.definition.id;
        let own = if page.with_tenant { reconciled(entry.tenant_counters(at_ms), None) } else { Vec::new() };
        let (mut counters, mut next) = (own, None);
        let kinds: Vec<_> = entry.policy.reconciled_kinds(at_ms).into_iter().collect();
        if !kinds.is_empty() {
            let since_ms = at_ms.saturating_sub(SUBJECTS_SINCE_MS).max(0);
            let most = CHECKPOINT_SUBJECTS_MAX;
            let active = self.core.ledger.active_subjects(tenant, &kinds, since_ms, page.after, most).await?;
            let is_full = active.len() == most;
            let mut last = page.after;
            for (number, subject) in active {
                let of_subject = reconciled(entry.subject_counters(&subject, at_ms), Some(&subject));
                let fits = counters.len() + of_subject.len() <= CHECKPOINT_COUNTERS_MAX;
                if !fits && last > page.after {
                    next = Some(last);
                    break;
                }
                counters.extend(of_subject);
                last = number;
            }
            next = next.or_else(|| is_full.then_some(last));
        }
        let mut seen = HashSet::new();
        counters.retain(|(counter, _)| seen.insert((counter.subject.clone(), counter.field)));
        counters.truncate(CHECKPOINT_COUNTERS_MAX);
        let (described, mut counters): (Vec<_>, Vec<_>) = counters.into_iter().unzip();
        let tenant_version = entry.version;
        let description =
            Description { tenant: tenant.clone(), tenant_version, policy_version, counters: described };
        let subjects = description.subjects();
        for (described, counter) in description.counters.iter().zip(&mut counters) {
            counter.scope_index = Description::holder(&subjects, described);
        }
        let hashes = subjects.iter().map(|subject| self.core.gate.subject_hash(tenant, subject)).collect();
        Ok(Named { next, counters, hashes, description })
    }
}

fn is_of_damage(error: &GateError) -> bool {
    matches!(error, GateError::Script { .. } | GateError::Undecodable(_))
}

/// The failure, with the names of the damaged counters.
pub(super) fn with_damage(error: &GateError, damaged: Vec<String>) -> OperationError {
    if damaged.is_empty() {
        return error.clone().into();
    }
    OperationError::Internal(format!("the gate cannot read {}: {error}", damaged.join(", ")))
}

/// The limit, its subject, and the field of the state hash.
fn name_of(counter: &CounterDescription) -> String {
    let subject = counter.subject.as_ref();
    let of = subject.map(|subject| format!(" of {}/{}", subject.kind, subject.id)).unwrap_or_default();
    format!("{}{of} (field {})", counter.name, counter.field.as_str())
}

/// The counters of class quota, each as of when every instance knows it.
pub(super) fn reconciled(
    resolved: Resolved,
    subject: Option<&Subject>,
) -> Vec<(CounterDescription, Counter)> {
    let known = |mut counter: Counter| {
        let described = describe(&counter, subject)?;
        counter.since_ms = counter.since_ms.saturating_add(POLICY_SPREADS_MS);
        Some((described, counter))
    };
    resolved.counters.into_iter().filter_map(known).collect()
}

/// None for a counter that the ledger cannot restore, or that has too many operations or meters to be described.
fn describe(counter: &Counter, subject: Option<&Subject>) -> Option<CounterDescription> {
    let window = counter.booked_window()?;
    let operations = counter.operations().cloned();
    let budgeted = counter.budgeted.as_deref().map(<[_]>::to_vec);
    let has_too_many = operations.as_ref().is_some_and(|operations| operations.len() > OPERATIONS_MAX)
        || budgeted.as_ref().is_some_and(|meters| meters.len() > METERS_MAX);
    if has_too_many {
        return None;
    }
    Some(CounterDescription {
        name: counter.name(),
        field: counter.field,
        subject: subject.cloned(),
        meter: counter.meter.clone(),
        decimals: counter.decimals,
        budgeted,
        operations,
        is_quota: counter.is_quota(),
        is_new: counter.is_new(),
        window_ms: (window.start_ms, window.end_ms),
    })
}
