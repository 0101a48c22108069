//! The status of a limit or quota: its counter with the figures of the gate or of the books.

use std::borrow::Borrow;

use crate::domain::amount::Units;
use crate::domain::counter::{Counter, need};
use crate::domain::ids::Subject;
use crate::domain::plan::{MEASURED, QuotaMode};
use crate::domain::policy::Resolved;
use crate::domain::punishment::Conduct;
use crate::gate::CounterReading;

/// The status of a limit or quota.
#[derive(Debug, Clone)]
pub struct LimitStatus {
    /// The counter: what it counts, and how.
    pub counter: Counter,
    /// The subject that it counts, if it counts one.
    pub subject: Option<Subject>,
    /// The capacity: a limit's from policy, as the load scales it; a quota's as it was read.
    pub capacity: Units,
    /// Used up.
    pub consumed: Units,
    /// Held by running work.
    pub reserved: Units,
    /// What is left.
    pub remaining: Units,
    /// When what it counts is forgotten (unix ms).
    pub resets_at_ms: i64,
    /// When one of its holds ends (unix ms), the earliest known.
    pub next_hold_ends_at_ms: Option<i64>,
    /// When these figures were right (unix ms).
    pub as_of_ms: i64,
    /// Whether it went, or would go, beyond its capacity without refusing.
    pub is_exceeded: bool,
    /// Whether the work was not counted here, by a shadow limit that would have refused it.
    pub would_refuse: bool,
    /// Whether its figures are kept from the caller: they are those of all tenants together.
    pub is_hidden: bool,
    /// What it remembers of whom it counts, where it has a punishment.
    pub conduct: Conduct,
}

/// Whether this capacity of the gate has room for more than is ever used, because its quota only measures. One that has
/// become soft lately has not.
fn is_measured(quota: &Counter, capacity: Units) -> bool {
    quota.quota_mode() == Some(QuotaMode::Soft) && capacity >= MEASURED
}

impl LimitStatus {
    pub(super) fn new<T: Borrow<Subject>>(
        counter: Counter,
        subjects: &[T],
        reading: &CounterReading,
        now_ms: i64,
    ) -> Self {
        let CounterReading { consumed, reserved, room, .. } = *reading;
        let told_capacity = room.filter(|_| counter.is_quota());
        let capacity = told_capacity
            .and_then(|room| Units::new(room + consumed.get() + reserved.get()))
            .unwrap_or_else(|| counter.scaled_capacity());
        let is_measured = is_measured(&counter, capacity);
        // What counts without bound has more room at the gate than its capacity leaves.
        let room = room.filter(|_| counter.kind.is_bounded() && !is_measured);
        let capacity = if is_measured { capacity.saturating_sub(MEASURED) } else { capacity };
        let left = || counter.parameters.room(consumed.get(), reserved.get(), capacity.get());
        let subject: Option<&Subject> = counter.subject(subjects).map(T::borrow);
        let status = Self {
            subject: subject.cloned(),
            capacity,
            consumed,
            reserved,
            remaining: Units::new(room.unwrap_or_else(left).max(0)).unwrap_or_default(),
            resets_at_ms: counter.resets_at_ms(reading.resets_at_ms, now_ms),
            next_hold_ends_at_ms: reading.next_hold_ends_at_ms,
            as_of_ms: now_ms,
            is_exceeded: false,
            would_refuse: reading.would_refuse,
            is_hidden: counter.is_global(),
            conduct: reading.conduct,
            counter,
        };
        status.with(0)
    }

    /// What it would come to with so much more.
    fn with(mut self, more: i64) -> Self {
        let is_above = self.used() + i128::from(more) > i128::from(self.capacity.get());
        self.is_exceeded = !self.counter.kind.is_bounded() && is_above;
        self
    }

    /// What it would come to if these amounts by line were admitted.
    pub(super) fn with_amounts(self, amounts: &[Units]) -> Self {
        let more = need(&self.counter.lines, amounts);
        self.with(more)
    }

    /// How much of its capacity is taken.
    fn used(&self) -> i128 {
        let capacity = self.capacity.get();
        let left = self.counter.parameters.room(self.consumed.get(), self.reserved.get(), capacity);
        i128::from(capacity) - i128::from(left)
    }

    /// Whether it has come near its capacity; of a least time between calls each call would.
    pub fn is_near(&self) -> bool {
        let (used, capacity) = (self.used(), i128::from(self.capacity.get()));
        !self.counter.is_interval()
            && used > 0
            && used * 100 >= capacity * i128::from(self.counter.near_percent())
    }

    /// What is left of its capacity, in percent, rounded down; none where that says nothing: of a least time between
    /// calls, of an anomaly, of no capacity.
    pub fn remaining_percent(&self) -> Option<u8> {
        let is_share = !self.counter.is_interval() && !self.counter.is_anomaly();
        let capacity = i128::from(self.capacity.get());
        let percent = (i128::from(self.remaining.get()) * 100).checked_div(capacity).filter(|_| is_share)?;
        u8::try_from(percent.clamp(0, 100)).ok()
    }

    /// Whether the last admitted call of whom it counts came much sooner than usual.
    pub fn is_anomalous(&self) -> bool {
        self.counter.is_anomaly() && self.consumed > Units::ZERO
    }

    /// How long the ban lasts under which the call stands, or which it has placed, in ms.
    pub fn ban_left_ms(&self) -> Option<i64> {
        self.conduct.ban_ends_at_ms().map(|until_ms| until_ms.saturating_sub(self.as_of_ms).max(0))
    }

    /// The length of its window; for a bucket, the time until it is full again.
    pub fn window_seconds(&self) -> i64 {
        match self.counter.window() {
            Some(window) => (window.end_ms - window.start_ms) / 1000,
            None => self.counter.ends_at_ms(0).saturating_add(999) / 1000,
        }
    }
}

/// Every limit checked whose figures are current.
pub(super) fn limit_statuses(
    resolved: Resolved,
    subjects: &[Subject],
    readings: &[CounterReading],
    now_ms: i64,
) -> Vec<LimitStatus> {
    let all = resolved.counters.into_iter().zip(readings).filter(|(_, reading)| reading.current);
    all.map(|(counter, reading)| LimitStatus::new(counter, subjects, reading, now_ms)).collect()
}
