//! Readings of counters, from the gate and from the books.

use std::collections::HashMap;

use super::Memory;
use super::told::{booked, warm_state};
use crate::domain::amount::Units;
use crate::domain::counter::Counter;
use crate::domain::ids::Subject;
use crate::domain::policy::Resolved;
use crate::domain::punishment::Conduct;
use crate::domain::reservation::SubjectHash;
use crate::gate::{CounterReading, GateError, PeekCall, PeekedCounters, RestoredCounter};
use crate::operations::error::Answer;
use crate::operations::policy_store::TenantEntry;
use crate::telemetry::labels::Script;

impl Memory {
    /// Reads these counters at the gate.
    pub(in crate::operations) async fn peek(
        &self,
        entry: &TenantEntry,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
    ) -> Result<PeekedCounters, GateError> {
        let hashes: Vec<_> = subjects.iter().map(|(_, hash)| *hash).collect();
        let (light, kept): (Vec<_>, Vec<_>) = (0..)
            .zip(resolved.counters.iter().cloned())
            .partition(|(_, counter): &(usize, Counter)| entry.is_light(&counter.meter));
        let (kept_at, kept): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
        let (light_at, light): (Vec<_>, Vec<_>) = light.into_iter().unzip();
        let call = PeekCall {
            partition: entry.partition,
            tenant: &entry.definition.id,
            subjects: &hashes,
            counters: &kept,
            light: &light,
            now_ms: self.core.script_now(),
        };
        let mut peeked = self.core.timed(Script::Peek, self.core.gate.peek_counters(&call)).await?;
        if light.is_empty() {
            return Ok(peeked);
        }
        let of_light = light_at.into_iter().zip(std::mem::take(&mut peeked.light));
        let mut readings: Vec<_> = kept_at.iter().copied().zip(peeked.readings).chain(of_light).collect();
        readings.sort_by_key(|(at, _)| *at);
        peeked.readings = readings.into_iter().map(|(_, reading)| reading).collect();
        if let Some(cold) = &mut peeked.cold {
            cold.counters =
                cold.counters.iter().filter_map(|counter| kept_at.get(*counter).copied()).collect();
        }
        Ok(peeked)
    }

    /// Reads these counters in the books, in order, while the gate is away. One that the ledger cannot restore is not
    /// current.
    pub(in crate::operations) async fn readings_from_ledger(
        &self,
        entry: &TenantEntry,
        resolved: &Resolved,
        subject: Option<&Subject>,
    ) -> Answer<Vec<CounterReading>> {
        let mut readings = HashMap::new();
        for whose in [None, subject].into_iter().take(1 + usize::from(subject.is_some())) {
            let own = resolved.counters.iter().filter(|counter| (counter.scope_index > 0) == whose.is_some());
            let own = Resolved { counters: own.cloned().collect(), ..Resolved::default() };
            let books = self.snapshot(entry, &own, whose).await?;
            let state = warm_state(&own, &books, whose);
            for (booked, told) in booked(&own, &books, self.core.gate_now_ms()).zip(&state.counters) {
                let key = (booked.counter.scope_index, booked.counter.field);
                readings.insert(key, reading(told, booked.capacity));
            }
        }
        let unknown = CounterReading { current: false, ..reading(&RestoredCounter::default(), None) };
        let found = |counter: &Counter| readings.get(&(counter.scope_index, counter.field)).copied();
        Ok(resolved.counters.iter().map(|counter| found(counter).unwrap_or(unknown)).collect())
    }
}

fn reading(counter: &RestoredCounter, capacity: Option<Units>) -> CounterReading {
    CounterReading {
        consumed: counter.consumed,
        reserved: counter.reserved,
        room: capacity.map(|units| units.get() - counter.consumed.get() - counter.reserved.get()),
        resets_at_ms: None,
        next_hold_ends_at_ms: counter.next_hold_ends_at_ms,
        current: true,
        would_refuse: false,
        conduct: Conduct::default(),
    }
}
