//! What a hash is told of the books: its counters, and those among them that began inside their window.

use super::Memory;
use crate::domain::amount::Units;
use crate::domain::counter::Counter;
use crate::domain::holds::{Held, Holds, NewCounter};
use crate::domain::ids::{Epoch, Subject};
use crate::domain::period::Window;
use crate::domain::policy::Resolved;
use crate::domain::reservation::{CounterField, SubjectHash};
use crate::gate::{RestoredCounter, WarmState};
use crate::ledger::TenantSnapshot;
use crate::operations::error::Answer;
use crate::operations::policy_store::TenantEntry;

impl Memory {
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
            true => self.restore_tenant(entry, epoch, at_ms.max(self.core.gate_now_ms())).await,
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
        let last_id =
            self.core.gate.suspend(partition, epoch, tenant, subject, self.core.script_now()).await?;
        if let Some(last_id) = last_id {
            self.core.progress.catch_up(partition, last_id).await?;
        }
        Ok(last_id.is_some())
    }
}

/// A counter as the books have it.
pub(in crate::operations) struct Booked<'a> {
    pub(in crate::operations) counter: &'a Counter,
    pub(in crate::operations) window: Window,
    pub(in crate::operations) consumed: Units,
    /// Of a quota whose period is open.
    pub(in crate::operations) capacity: Option<Units>,
}

/// Every counter that the ledger can tell, with what it said of these.
pub(in crate::operations) fn booked<'a>(
    resolved: &'a Resolved,
    snapshot: &'a TenantSnapshot,
) -> impl Iterator<Item = Booked<'a>> {
    let (mut limits, mut quotas) = (snapshot.counters.iter(), snapshot.quotas.iter());
    resolved.counters.iter().filter_map(move |counter| {
        let window = counter.window()?;
        let (consumed, capacity) = match counter.is_quota() {
            false => (*limits.next()?, None),
            true => {
                let state = quotas.next()?;
                let part = state.capacity.as_ref().and_then(|capacity| capacity.parts.last());
                (state.consumed, part.map(|(_, units)| *units))
            }
        };
        Some(Booked { counter, window, consumed, capacity })
    })
}

/// The counters of class quota that began inside their window.
pub(super) fn new_counters(resolved: &Resolved, subject: Option<&Subject>) -> Vec<NewCounter> {
    let new = resolved.counters.iter().filter(|counter| counter.is_new());
    new.filter_map(|counter| counted(counter, subject)).collect()
}

/// What a counter counts; nothing for one that the ledger cannot tell.
fn counted(counter: &Counter, subject: Option<&Subject>) -> Option<NewCounter> {
    let window = counter.window()?;
    Some(NewCounter {
        subject: subject.filter(|_| !counter.is_quota()).cloned(),
        field: counter.field,
        meter: counter.meter.clone(),
        operations: counter.operations().cloned(),
        window_ms: (window.start_ms, window.end_ms),
    })
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
        let all: Vec<_> = resolved.counters.iter().filter_map(|counter| counted(counter, subject)).collect();
        snapshot.torn.iter().for_each(|torn| holds.add_booked(&torn.hold, &all));
    }
    let mut held = holds.into_counters_of(subject);
    let told: Vec<_> = booked(resolved, snapshot)
        .map(|Booked { counter: Counter { field, .. }, window, consumed, .. }| {
            counter(*field, window.start_ms, consumed, held.remove(&(*field, window.start_ms)))
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
