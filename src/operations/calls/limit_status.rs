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
    pub(in crate::operations) fn new<T: Borrow<Subject>>(
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
        let left = || capacity.saturating_sub(consumed).saturating_sub(reserved);
        let subject: Option<&Subject> = counter.subject(subjects).map(T::borrow);
        Self {
            subject: subject.cloned(),
            capacity,
            consumed,
            reserved,
            remaining: room.map_or_else(left, |room| Units::new(room.max(0)).unwrap_or_default()),
            resets_at_ms: counter.resets_at_ms(reading.resets_at_ms, now_ms),
            next_hold_ends_at_ms: reading.next_hold_ends_at_ms,
            as_of_ms: now_ms,
            counter,
        }
    }

    /// Whether it has come near its capacity.
    pub fn is_near(&self) -> bool {
        let used = i128::from(self.consumed.get()) + i128::from(self.reserved.get());
        used > 0 && used * 100 >= i128::from(self.capacity.get()) * i128::from(self.counter.near_percent())
    }

    /// The length of its window, where it counts in one.
    pub fn window_seconds(&self) -> Option<i64> {
        let of_calendar = self.counter.window().map(|window| (window.end_ms - window.start_ms) / 1000);
        of_calendar.or(self.counter.span().seconds().map(i64::from))
    }
}

/// Every limit checked, as far as its figures are those of now.
pub(in crate::operations) fn limit_statuses(
    resolved: Resolved,
    subjects: &[Subject],
    readings: &[CounterReading],
    now_ms: i64,
) -> Vec<LimitStatus> {
    let all = resolved.counters.into_iter().zip(readings).filter(|(_, reading)| reading.current);
    all.map(|(counter, reading)| LimitStatus::new(counter, subjects, reading, now_ms)).collect()
}
