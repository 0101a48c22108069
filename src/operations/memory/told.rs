//! What a restore writes into a state hash from the books: its counters, and those among them that began inside their
//! window.

use std::collections::HashMap;

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
    /// Restores a warm tenant's counters that began inside their window. The tenant waits meanwhile: then the units
    /// held and consumed by reservations that do not name these counters are counted completely, and later changes of
    /// those reservations move the counters too.
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
            // Counts by the current time, because a window may have turned since the call began.
            true => self.restore_tenant(entry, epoch, at_ms.max(self.core.gate_now_ms())).await,
            false => Ok(()),
        };
        self.unless_epoch_over(entry.partition, epoch, (), told)
    }

    /// Suspends the tenant, or one subject of it, and waits until the ledger has caught up. False where the tenant is
    /// cold: its next call finds that out.
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

/// A counter with its booked figures.
pub(in crate::operations) struct Booked<'a> {
    pub(in crate::operations) counter: &'a Counter,
    pub(in crate::operations) window: Window,
    pub(in crate::operations) consumed: Units,
    /// The capacity of a quota whose period is open.
    pub(in crate::operations) capacity: Option<Units>,
}

/// Every counter that the ledger can restore, with the booked figures from the snapshot and the capacity at `at_ms`.
pub(in crate::operations) fn booked<'a>(
    resolved: &'a Resolved,
    snapshot: &'a TenantSnapshot,
    at_ms: i64,
) -> impl Iterator<Item = Booked<'a>> {
    let (mut limits, mut quotas) = (snapshot.counters.iter(), snapshot.quotas.iter());
    resolved.counters.iter().filter_map(move |counter| {
        let window = counter.booked_window()?;
        let (consumed, capacity) = match counter.is_quota() {
            false => (*limits.next()?, None),
            true => {
                let state = quotas.next()?;
                (state.consumed, state.capacity.as_ref().and_then(|capacity| capacity.at(at_ms)))
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

/// What a counter counts; none for one that the ledger cannot restore.
fn counted(counter: &Counter, subject: Option<&Subject>) -> Option<NewCounter> {
    let window = counter.booked_window()?;
    Some(NewCounter {
        subject: subject.filter(|_| !counter.is_quota()).cloned(),
        field: counter.field,
        meters: counter.counted_meters(),
        operations: counter.operations().cloned(),
        window_ms: (window.start_ms, window.end_ms),
    })
}

/// The counters of the snapshot as absolute figures: consumed as booked, reserved as held by the open reservations.
/// Counters in which only open reservations count, such as those of class rate, are listed apart, so that resolving
/// these reservations finds what they moved.
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
    let told: Vec<_> = booked(resolved, snapshot, 0)
        .map(|Booked { counter: Counter { field, .. }, window, consumed, .. }| {
            counter(*field, window.start_ms, consumed, held.remove(&(*field, window.start_ms)))
        })
        .collect();
    held.retain(|(field, _), _| told.iter().all(|counter| counter.field != *field));
    let held_only = latest_windows(held)
        .into_iter()
        .map(|(field, (start_ms, held))| counter(field, start_ms, Units::ZERO, Some(held)))
        .collect();
    WarmState { as_of: snapshot.cursor, counters: told, held_only, new_counters, ..WarmState::default() }
}

/// What is held in the latest window of each counter: a field has one window, and goes on to later ones only.
fn latest_windows(held: HashMap<(CounterField, i64), Held>) -> HashMap<CounterField, (i64, Held)> {
    let mut latest: HashMap<CounterField, (i64, Held)> = HashMap::with_capacity(held.len());
    for ((field, start_ms), held) in held {
        let known = latest.entry(field).or_insert((start_ms, held));
        if known.0 < start_ms {
            *known = (start_ms, held);
        }
    }
    latest
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
