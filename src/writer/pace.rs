//! How long events gather before they are booked: longer under load.

use std::time::Duration;

use tokio::time::Instant;

/// At this rate and above, the wait is longest.
const BUSY_EVENTS_PER_SECOND: u32 = 5_000;

/// The recent rate of events.
#[derive(Debug)]
pub(super) struct Pace {
    since: Instant,
    events_per_second: u32,
}

impl Pace {
    /// No events yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, events_per_second: 0 }
    }

    /// Notes that `events` have come since the last note, or since the start.
    pub(super) fn note(&mut self, events: usize, now: Instant) {
        let microseconds = now.duration_since(self.since).as_micros().max(1);
        let per_second = u128::try_from(events).unwrap_or(u128::MAX).saturating_mul(1_000_000) / microseconds;
        self.events_per_second = u32::try_from(per_second).unwrap_or(u32::MAX);
        self.since = now;
    }

    /// The wait for more events: from `quiet` to `busy`, in proportion to the rate.
    pub(super) fn wait(&self, quiet: Duration, busy: Duration) -> Duration {
        let share = self.events_per_second.min(BUSY_EVENTS_PER_SECOND);
        quiet + busy.saturating_sub(quiet) * share / BUSY_EVENTS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_millis(10);
    const BUSY: Duration = Duration::from_millis(110);

    #[test]
    fn the_more_events_come_the_longer_they_are_let_come_together() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(pace.wait(QUIET, BUSY), QUIET);
        for (events, wait_ms) in [(0, 10), (250, 60), (500, 110), (50_000, 110), (25, 15), (0, 10)] {
            now += Duration::from_millis(100);
            pace.note(events, now);
            assert_eq!(pace.wait(QUIET, BUSY), Duration::from_millis(wait_ms), "{events} events in 100 ms");
        }
        assert_eq!(pace.wait(BUSY, QUIET), BUSY, "never less than in quiet");
    }

    #[test]
    fn events_within_no_time_are_as_many_as_can_be() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.note(usize::MAX, now);
        assert_eq!(pace.wait(QUIET, BUSY), BUSY);
    }
}
