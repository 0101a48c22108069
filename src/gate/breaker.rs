//! The circuit breaker of one Redis node; pure, with the instant of each step as an argument.
//!
//! Silence opens it, and only the watch's probes close it. An answer of any kind, even a refusal or a script's error,
//! proves that the node is alive.

use std::time::Instant;

/// How many failures in a row, without an answer in between, open it.
pub const FAILURES_MAX: u32 = 3;

/// Whether calls go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// They go through.
    Closed,
    /// A probe was answered; after one more, calls go through again.
    HalfOpen,
    /// They fail at once.
    Open,
}

/// A change that a step made, to be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turned {
    /// The state before.
    pub from: BreakerState,
    /// The state now.
    pub to: BreakerState,
}

/// What is known about the node's silence.
#[derive(Debug, Clone)]
pub struct Breaker {
    state: BreakerState,
    failures: u32,
    /// When it last closed: failures of calls that began before are ignored.
    closed_at: Option<Instant>,
    /// Whether anybody probes. Without probes nothing would close it again, so it never opens.
    watched: bool,
    silences: u64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: BreakerState::Closed, failures: 0, closed_at: None, watched: false, silences: 0 }
    }
}

impl Breaker {
    /// Its state.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Whether a call may be made now.
    pub fn admits(&self) -> bool {
        self.state == BreakerState::Closed
    }

    /// How often a call or probe was not answered; only rises.
    pub fn silences(&self) -> u64 {
        self.silences
    }

    /// A call was answered.
    pub fn answered(&mut self) {
        if self.state == BreakerState::Closed {
            self.failures = 0;
        }
    }

    /// A call begun at this instant was not answered.
    pub fn failed(&mut self, began: Instant) -> Option<Turned> {
        self.silences += 1;
        let is_old = self.closed_at.is_some_and(|closed_at| began < closed_at);
        if self.state != BreakerState::Closed || is_old {
            return None;
        }
        self.count_failure()
    }

    /// A probe was answered at this instant.
    pub fn probe_answered(&mut self, at: Instant) -> Option<Turned> {
        self.watched = true;
        self.failures = 0;
        match self.state {
            BreakerState::Closed => None,
            BreakerState::Open => self.turn(BreakerState::HalfOpen),
            BreakerState::HalfOpen => {
                self.closed_at = Some(at);
                self.turn(BreakerState::Closed)
            }
        }
    }

    /// A probe that began at this instant was not answered, or answered with an error.
    pub fn probe_failed(&mut self, began: Instant) -> Option<Turned> {
        self.watched = true;
        match self.state {
            BreakerState::HalfOpen => {
                self.silences += 1;
                self.turn(BreakerState::Open)
            }
            _ => self.failed(began),
        }
    }

    fn count_failure(&mut self) -> Option<Turned> {
        self.failures = self.failures.saturating_add(1);
        if self.watched && self.failures >= FAILURES_MAX { self.turn(BreakerState::Open) } else { None }
    }

    fn turn(&mut self, to: BreakerState) -> Option<Turned> {
        let from = std::mem::replace(&mut self.state, to);
        self.failures = 0;
        Some(Turned { from, to })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// One step, at this many milliseconds: `f`ailed and `F`ailed probe with the instant they began, `a`nswered,
    /// `A`nswered probe.
    type Step = (char, u64);

    fn after(steps: &[Step]) -> Breaker {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        for (step, at_ms) in steps {
            let at = start + Duration::from_millis(*at_ms);
            match step {
                'f' => drop(breaker.failed(at)),
                'a' => breaker.answered(),
                'F' => drop(breaker.probe_failed(at)),
                _ => drop(breaker.probe_answered(at)),
            }
        }
        breaker
    }

    #[rstest::rstest]
    #[case::new(&[], BreakerState::Closed)]
    #[case::two_failures(&[('A', 0), ('f', 1), ('f', 2)], BreakerState::Closed)]
    #[case::three_failures_in_a_row(&[('A', 0), ('f', 1), ('f', 2), ('f', 3)], BreakerState::Open)]
    #[case::probes_alone_open_it(&[('F', 0), ('F', 250), ('F', 500)], BreakerState::Open)]
    #[case::calls_and_probes_count_together(&[('f', 0), ('F', 1), ('f', 2)], BreakerState::Open)]
    #[case::an_answer_between(&[('A', 0), ('f', 1), ('f', 2), ('a', 3), ('f', 4), ('f', 5)], BreakerState::Closed)]
    #[case::an_answered_probe_between(&[('f', 1), ('f', 2), ('A', 3), ('f', 4), ('f', 5)], BreakerState::Closed)]
    #[case::nobody_probes(&[('f', 1), ('f', 2), ('f', 3), ('f', 4)], BreakerState::Closed)]
    #[case::a_late_answer_does_not_close_it(&[('F', 0), ('F', 1), ('F', 2), ('a', 3)], BreakerState::Open)]
    #[case::one_probe(&[('F', 0), ('F', 1), ('F', 2), ('A', 3)], BreakerState::HalfOpen)]
    #[case::two_probes(&[('F', 0), ('F', 1), ('F', 2), ('A', 3), ('A', 4)], BreakerState::Closed)]
    #[case::the_second_probe_fails(&[('F', 0), ('F', 1), ('F', 2), ('A', 3), ('F', 4)], BreakerState::Open)]
    #[case::calls_do_not_move_it_while_half_open(&[('F', 0), ('F', 1), ('F', 2), ('A', 3), ('a', 4), ('f', 4), ('f', 4)], BreakerState::HalfOpen)]
    #[case::old_calls_fail_after_it_closed(
        &[('F', 0), ('F', 1), ('F', 2), ('A', 10), ('A', 11), ('f', 8), ('f', 9), ('f', 10), ('F', 10)], BreakerState::Closed)]
    #[case::new_calls_fail_after_it_closed(
        &[('F', 0), ('F', 1), ('F', 2), ('A', 10), ('A', 11), ('f', 8), ('f', 12), ('f', 13), ('f', 14)], BreakerState::Open)]
    #[case::old_calls_do_not_count_towards_new_ones(
        &[('F', 0), ('F', 1), ('F', 2), ('A', 10), ('A', 11), ('f', 8), ('f', 9), ('f', 12), ('f', 13)], BreakerState::Closed)]
    fn silence_opens_it_and_only_probes_close_it(#[case] steps: &[Step], #[case] state: BreakerState) {
        let breaker = after(steps);
        assert_eq!(breaker.state(), state);
        assert_eq!(breaker.admits(), state == BreakerState::Closed);
    }

    #[test]
    fn each_change_is_told_once() {
        let at = Instant::now();
        let mut breaker = Breaker::default();
        let seen: Vec<_> = (0..5).map(|_| breaker.probe_failed(at)).collect();
        let opened = Turned { from: BreakerState::Closed, to: BreakerState::Open };
        assert_eq!(seen, [None, None, Some(opened), None, None]);
        let half = Turned { from: BreakerState::Open, to: BreakerState::HalfOpen };
        assert_eq!(breaker.probe_answered(at), Some(half));
        assert_eq!(
            breaker.probe_answered(at),
            Some(Turned { from: BreakerState::HalfOpen, to: BreakerState::Closed })
        );
        assert_eq!(breaker.probe_answered(at), None);
    }

    #[test]
    fn every_silence_is_counted_in_whatever_state() {
        assert_eq!(
            after(&[('f', 0), ('F', 1), ('f', 2), ('F', 3), ('A', 4), ('F', 5), ('f', 6)]).silences(),
            6
        );
    }
}
