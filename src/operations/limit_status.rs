//! Where a limit or quota stands: its counter with what the gate or the books say of it.

use std::borrow::Borrow;

use crate::domain::amount::Units;
use crate::domain::counter::Counter;
use crate::domain::ids::Subject;
use crate::domain::policy::Resolved;
use crate::gate::CounterReading;

/// Where a limit or quota stands.
#[derive(Debug, Clone)]
pub struct LimitStatus {
    /// What it counts, and how.
    pub counter: Counter,
    /// Whose use it counts, where that is one subject's.
    pub subject: Option<Subject>,
    /// At most so much: a limit's from policy, a quota's as it was told.
    pub capacity: Units,
    /// Used up.
    pub consumed: Units,
    /// Held by running work.
    pub reserved: Units,
    /// What is left.
    pub remaining: Units,
    /// When what it counts is forgotten (unix ms).
    pub resets_at_ms: i64,
    /// When one of the holds in it ends (unix ms), the earliest known.
    pub next_hold_ends_at_ms: Option<i64>,
    /// When it stood so (unix ms).
    pub as_of_ms: i64,
}

impl LimitStatus {
    pub(super) fn new<T: Borrow<Subject>>(
        counter: Counter,
        subjects: &[T],
        reading: &CounterReading,
        now_ms: i64,
    ) -> Self {
        let CounterReading { consumed, reserved, room, .. } = *reading;
        let told = room.filter(|_| counter.is_quota());
        let capacity = told
            .and_then(|room| Units::new(room + consumed.get() + reserved.get()))
            .unwrap_or(counter.capacity);
        let left = || counter.parameters.room(consumed.get(), reserved.get(), capacity.get());
        let subject: Option<&Subject> = counter.subject(subjects).map(T::borrow);
        Self {
            subject: subject.cloned(),
            capacity,
            consumed,
            reserved,
            remaining: Units::new(room.unwrap_or_else(left).max(0)).unwrap_or_default(),
            resets_at_ms: counter.resets_at_ms(reading.resets_at_ms, now_ms),
            next_hold_ends_at_ms: reading.next_hold_ends_at_ms,
            as_of_ms: now_ms,
            counter,
        }
    }

    /// Whether it has come near its capacity.
    pub fn is_near(&self) -> bool {
        let capacity = self.capacity.get();
        let left = self.counter.parameters.room(self.consumed.get(), self.reserved.get(), capacity);
        let used = i128::from(capacity) - i128::from(left);
        used > 0 && used * 100 >= i128::from(capacity) * i128::from(self.counter.near_percent())
    }

    /// The length of its window; of a bucket, how long it takes to fill.
    pub fn window_seconds(&self) -> i64 {
        match self.counter.window() {
            Some(window) => (window.end_ms - window.start_ms) / 1000,
            None => self.counter.ends_at_ms(0).saturating_add(999) / 1000,
        }
    }
}

/// Every limit checked, as far as its figures are those of now.
pub(super) fn limit_statuses(
    resolved: Resolved,
    subjects: &[Subject],
    readings: &[CounterReading],
    now_ms: i64,
) -> Vec<LimitStatus> {
    let all = resolved.counters.into_iter().zip(readings).filter(|(_, reading)| reading.current);
    all.map(|(counter, reading)| LimitStatus::new(counter, subjects, reading, now_ms)).collect()
}
