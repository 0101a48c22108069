//! What each call reads and adds to of the load: the level of limits that follow it, and how long the gate took.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use crate::domain::load::{LoadFactor, LoadLevel};

/// The level of the load, which each call reads.
#[derive(Default)]
pub(super) struct CurrentLoad(AtomicU8);

impl CurrentLoad {
    pub(super) fn level(&self) -> LoadLevel {
        LoadLevel::of_number(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, level: LoadLevel) {
        self.0.store(level.number(), Ordering::Relaxed);
    }
}

/// In how many steps of the response timeout calls are counted.
const STEPS: usize = 20;

/// How long the gate's calls took since the last look, as shares of the response timeout.
pub(super) struct GateTimes {
    /// How many took how many whole steps; the last one counts those that took the timeout or longer.
    counts: [AtomicU32; STEPS + 1],
    step: Duration,
}

impl GateTimes {
    pub(super) fn within(timeout: Duration) -> Self {
        let steps = u32::try_from(STEPS).unwrap_or(u32::MAX);
        Self { counts: Default::default(), step: (timeout / steps).max(Duration::from_nanos(1)) }
    }

    pub(super) fn note(&self, took: Duration) {
        let steps = took.as_nanos() / self.step.as_nanos();
        let place = usize::try_from(steps).unwrap_or(STEPS).min(STEPS);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The share of the timeout that 99 of 100 calls took less than, and begins again; nothing where there were none.
    pub(super) fn take_slowest(&self) -> LoadFactor {
        let counts: Vec<u64> =
            self.counts.iter().map(|count| u64::from(count.swap(0, Ordering::Relaxed))).collect();
        let above_allowed = counts.iter().sum::<u64>() / 100;
        let mut above = 0;
        for (place, count) in counts.iter().enumerate().rev() {
            above += count;
            if above > above_allowed {
                let steps = u64::try_from(place).unwrap_or(u64::MAX);
                return LoadFactor::of(steps, u64::try_from(STEPS).unwrap_or(u64::MAX));
            }
        }
        LoadFactor::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_hundredth_of_the_calls_says_which_share_of_the_timeout_they_take() {
        let times = GateTimes::within(Duration::from_millis(200));
        let note = |count: usize, took_ms: u64| {
            (0..count).for_each(|_| times.note(Duration::from_millis(took_ms)));
        };
        assert_eq!(times.take_slowest().thousandths(), 0);
        note(99, 3);
        note(1, 150);
        assert_eq!(times.take_slowest().thousandths(), 0, "one of a hundred");
        note(98, 3);
        note(2, 150);
        assert_eq!(times.take_slowest().thousandths(), 750);
        note(2, 3_000);
        assert_eq!(times.take_slowest().thousandths(), 1_000);
        assert_eq!(times.take_slowest().thousandths(), 0, "each look begins again");
    }
}
