//! What a hash is told of the books: its counters, and those among them that began inside their window.

use super::policy_store::TenantEntry;
use super::{Answer, Operations};
use crate::domain::amount::Units;
use crate::domain::holds::{Held, Holds, NewCounter};
use crate::domain::ids::{Epoch, Subject};
use crate::domain::limit::Class;
use crate::domain::policy::{Resolved, ResolvedQuota};
use crate::domain::reservation::{CounterField, SubjectHash};
use crate::gate::{RestoredCounter, WarmState};
use crate::ledger::TenantSnapshot;

impl Operations {
    /// Tells a warm tenant counters that began inside their window. It waits meanwhile, so that what is held and consumed by
    /// reservations that do not name them is told whole, and what becomes of these later moves them too.
    pub(super) async fn begin_tenant_counters(
        &self,
        entry: &TenantEntry,
        epoch: Epoch,
        at_ms: i64,
    ) -> Answer<()> {
        let turn = self.take_restore_turn(&entry.definition.id, None).await?;
        if turn.waited {
            return Ok(());
        }
        let told = match self.suspend(entry, epoch, None).await? {
            // What it counts in now is what it is told: a window may have turned since the call began.
            true => self.restore_tenant(entry, epoch, at_ms.max(self.gate_now_ms())).await,
            false => Ok(()),
        };
        self.unless_epoch_over(entry.partition, epoch, (), told)
    }

    /// Lets the tenant, or one subject of it, wait until it is restored, and the ledger catch up with it; not where the tenant
    /// is cold, which its next call finds out.
    pub(super) async fn suspend(
        &self,
        entry: &TenantEntry,
        epoch: Epoch,
        subject: Option<SubjectHash>,
    ) -> Answer<bool> {
        let (partition, tenant) = (entry.partition, &entry.definition.id);
        let last_id = self.gate.suspend(partition, epoch, tenant, subject, self.script_now()).await?;
        if let Some(last_id) = last_id {
            self.catch_up(partition, last_id).await?;
        }
        Ok(last_id.is_some())
    }
}

/// Whether the quota began inside its period.
pub(super) fn is_new_quota(quota: &ResolvedQuota) -> bool {
    quota.since_ms > quota.window.start_ms
}

/// The counters of class quota that began inside their window.
pub(super) fn new_counters(resolved: &Resolved, subject: Option<&Subject>) -> Vec<NewCounter> {
    let all = counters(resolved, subject);
    all.filter(|(is_new, _)| *is_new).map(|(_, counter)| counter).collect()
}

/// What each counter counts, and whether it is of class quota and began inside its window.
fn counters(resolved: &Resolved, subject: Option<&Subject>) -> impl Iterator<Item = (bool, NewCounter)> {
    let limits = resolved.limits.iter().map(move |limit| {
        let is_new = limit.limit.class == Class::Quota && limit.since_ms > limit.window.start_ms;
        let counter = NewCounter {
            subject: subject.cloned(),
            field: limit.field,
            meter: limit.limit.meter.clone(),
            operations: limit.limit.operations.clone(),
            window_ms: (limit.window.start_ms, limit.window.end_ms),
        };
        (is_new, counter)
    });
    let quotas = resolved.quotas.iter().map(|quota| {
        let counter = NewCounter {
            subject: None,
            field: quota.field,
            meter: quota.meter.clone(),
            operations: None,
            window_ms: (quota.window.start_ms, quota.window.end_ms),
        };
        (is_new_quota(quota), counter)
    });
    limits.chain(quotas)
}

/// Absolute counters of the snapshot: consumed as booked, reserved as the open reservations hold it. Those that only open
/// reservations know stand apart: resolving these finds what they moved.
pub(super) fn warm_state(
    resolved: &Resolved,
    snapshot: &TenantSnapshot,
    subject: Option<&Subject>,
) -> WarmState {
    let new_counters = new_counters(resolved, subject);
    let open = snapshot.open.iter().map(|(_, record)| record);
    let mut holds = Holds::of(open, &new_counters);
    if !snapshot.torn.is_empty() {
        let all: Vec<_> = counters(resolved, subject).map(|(_, counter)| counter).collect();
        snapshot.torn.iter().for_each(|torn| holds.add_booked(&torn.hold, &all));
    }
    let mut held = holds.into_counters_of(subject);
    let limits = resolved.limits.iter().zip(&snapshot.counters);
    let limits = limits.map(|(limit, consumed)| (limit.field, limit.window.start_ms, *consumed));
    let quotas = resolved.quotas.iter().zip(&snapshot.quotas);
    let quotas = quotas.map(|(quota, state)| (quota.field, quota.window.start_ms, state.consumed));
    let told: Vec<_> = limits
        .chain(quotas)
        .map(|(field, start_ms, consumed)| {
            counter(field, start_ms, consumed, held.remove(&(field, start_ms)))
        })
        .collect();
    held.retain(|(field, _), _| told.iter().all(|counter| counter.field != *field));
    let held_only = held
        .into_iter()
        .map(|((field, start_ms), held)| counter(field, start_ms, Units::ZERO, Some(held)))
        .collect();
    WarmState { as_of: snapshot.cursor, counters: told, held_only, new_counters, ..WarmState::default() }
}

fn counter(
    field: CounterField,
    window_start_ms: i64,
    consumed: Units,
    held: Option<Held>,
) -> RestoredCounter {
    RestoredCounter {
        field,
        window_start_ms,
        consumed,
        reserved: held.map_or(Units::ZERO, |held| held.units),
        next_hold_ends_at_ms: held.map(|held| held.first_end_ms),
    }
}
