//! The only place that asks for the time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Instant,
};

/// The wall clock of an installation: the system's, or a test clock that moves only when it is set. Cheap to clone;
/// clones of a test clock share its time.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    Test(Arc<AtomicI64>),
}

/// Why a clock could not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    /// The system's clock cannot be set.
    #[error("the clock is the system's: only a service started with --test-clock can move it")]
    NotATestClock,
    /// A test clock never goes back.
    #[error("the clock is at {now_ms} ms and moves forwards only: {asked_ms} ms is before that")]
    Backwards {
        /// The clock's time, in milliseconds since 1970 UTC.
        now_ms: i64,
        /// The time asked for.
        asked_ms: i64,
    },
}

impl Clock {
    /// The system's clock.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that shows `start_ms` (milliseconds since 1970 UTC) until it is advanced.
    #[must_use]
    pub fn test(start_ms: i64) -> Self {
        Self(Source::Test(Arc::new(AtomicI64::new(start_ms))))
    }

    /// The time in milliseconds since 1970 UTC.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this is the place that asks")]
    pub fn now_ms(&self) -> i64 {
        match &self.0 {
            Source::System => jiff::Timestamp::now().as_millisecond(),
            Source::Test(now_ms) => now_ms.load(Ordering::SeqCst),
        }
    }

    /// Moves a test clock to `asked_ms`; its present time is accepted and changes nothing.
    ///
    /// # Errors
    /// The system's clock, or a time before the present one.
    pub fn advance_to(&self, asked_ms: i64) -> Result<(), ClockError> {
        let Source::Test(clock) = &self.0 else { return Err(ClockError::NotATestClock) };
        let now_ms = clock.fetch_max(asked_ms, Ordering::SeqCst);
        if asked_ms < now_ms { Err(ClockError::Backwards { now_ms, asked_ms }) } else { Ok(()) }
    }

    /// Whether this is a test clock.
    #[must_use]
    pub const fn is_test(&self) -> bool {
        matches!(self.0, Source::Test(_))
    }

    /// A point of the monotonic clock, for measuring durations. It is real even under a test clock: timeouts and
    /// latencies are about the machine.
    #[must_use]
    pub fn monotonic() -> Instant {
        Instant::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_clock_stands_still_until_it_is_advanced_and_its_clones_follow() {
        let clock = Clock::test(1_000);
        let clone = clock.clone();
        assert_eq!(clone.now_ms(), 1_000);
        clock.advance_to(5_000).unwrap();
        assert_eq!(clone.now_ms(), 5_000);
        assert!(clock.is_test());
    }

    #[test]
    fn a_test_clock_never_goes_back() {
        let clock = Clock::test(1_000);
        assert_eq!(clock.advance_to(999), Err(ClockError::Backwards { now_ms: 1_000, asked_ms: 999 }));
        assert_eq!(clock.now_ms(), 1_000);
        assert_eq!(clock.advance_to(1_000), Ok(()));
    }

    #[test]
    fn the_system_clock_cannot_be_moved() {
        let clock = Clock::system();
        assert!(clock.now_ms() > 1_700_000_000_000);
        assert_eq!(clock.advance_to(i64::MAX), Err(ClockError::NotATestClock));
        assert!(!clock.is_test());
    }
}
