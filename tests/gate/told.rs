//! The ledger's restores for the gate, and the gate's decoded answers.

use tollgate::domain::reservation::Record;
use tollgate::gate::{
    Cold, CounterReading, QuotaCapacity, ReserveOutcome, ResolveOutcome, RestoredCounter, WarmState,
};

use super::asks::{field, units};
use super::world::WINDOW;

/// A counter as the ledger restores it.
pub fn restored_counter(name: &[u8; 8], consumed: i64, reserved: i64) -> RestoredCounter {
    RestoredCounter {
        field: field(name),
        window_start_ms: WINDOW.0,
        consumed: units(consumed),
        reserved: units(reserved),
        next_hold_ends_at_ms: None,
    }
}

/// A state in which these counters have so much consumed and reserved.
pub fn told(counters: &[(&[u8; 8], i64, i64)]) -> WarmState {
    let counter =
        |(name, consumed, reserved): &(&[u8; 8], i64, i64)| restored_counter(name, *consumed, *reserved);
    WarmState { counters: counters.iter().map(counter).collect(), ..WarmState::default() }
}

/// A quota's capacity, the same for all its time.
pub fn capacity(name: &[u8; 8], version: u64, amount: i64, until_ms: i64) -> QuotaCapacity {
    QuotaCapacity {
        field: field(name),
        version,
        parts: vec![(0, units(amount))],
        bounds_ms: Vec::new(),
        until_ms,
    }
}

/// The record of a call that was done.
#[track_caller]
pub fn done(outcome: ResolveOutcome) -> Record {
    let ResolveOutcome::Done { record, .. } = outcome else { panic!("not done: {outcome:?}") };
    record
}

/// The figures of the counters when a reserve was admitted.
#[track_caller]
pub fn admitted(outcome: ReserveOutcome) -> Vec<CounterReading> {
    let ReserveOutcome::Admitted { readings, .. } = outcome else { panic!("not admitted: {outcome:?}") };
    readings
}

/// Which counters refused.
#[track_caller]
pub fn refusing(outcome: ReserveOutcome) -> Vec<usize> {
    let ReserveOutcome::Refused { refusing, .. } = outcome else { panic!("not refused: {outcome:?}") };
    refusing.into_iter().map(|(index, _)| index).collect()
}

/// What is missing of a cold tenant.
#[track_caller]
pub fn cold(outcome: ReserveOutcome) -> Cold {
    let ReserveOutcome::Cold(cold) = outcome else { panic!("not cold: {outcome:?}") };
    cold
}

/// The record that a repeat was answered with.
#[track_caller]
pub fn replayed(outcome: ReserveOutcome) -> Record {
    let ReserveOutcome::Replayed { record, .. } = outcome else { panic!("not a replay: {outcome:?}") };
    record
}
