//! Whether the node's clock can be trusted; a pure function of measurements. Redis `TIME` is first compared with the
//! host's wall clock, and later with this instance's steady clock, so that a step of either shows. Agreement with the
//! host's clock then restores trust.

/// In ms: a larger step is no drift, and a larger difference from the host's clock is no agreement.
pub const STEP_MAX_MS: i64 = 2_000;
/// How many measurements in a row must agree with the host's clock before the time is trusted again.
const AGREEING_MIN: u32 = 2;

/// One reading of the node's clock, between two readings of this instance's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// The time that Redis answered (unix ms).
    pub redis_ms: i64,
    /// This instance's steady clock before the question, in ms.
    pub before_ms: i64,
    /// The same after the answer.
    pub after_ms: i64,
}

impl Measurement {
    /// How far Redis's clock is ahead of the steady one: at least, at most.
    fn offset_ms(&self) -> (i64, i64) {
        (self.redis_ms.saturating_sub(self.after_ms), self.redis_ms.saturating_sub(self.before_ms))
    }
}

/// A change that a measurement made, to be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeTurned {
    /// The first measurement differs from the host's clock by at least this many milliseconds; negative means slow.
    Differs(i64),
    /// The clock stepped by at least this many milliseconds; negative means back.
    Stepped(i64),
    /// It agrees with the host's clock again.
    Agrees,
}

/// What is known about the node's clock.
#[derive(Debug, Clone, Default)]
pub struct TimeCheck {
    last: Option<Measurement>,
    /// The host's wall clock after it (unix ms).
    last_wall_ms: i64,
    state: ClockState,
    difference_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ClockState {
    #[default]
    Unmeasured,
    Trusted,
    Doubted {
        /// How many measurements in a row agreed with the host's clock.
        agreeing: u32,
    },
}

impl TimeCheck {
    /// Whether calls may be admitted and holds expired by this time.
    pub fn is_trusted(&self) -> bool {
        self.state == ClockState::Trusted
    }

    /// Whether the node's time was measured yet.
    pub fn is_measured(&self) -> bool {
        self.state != ClockState::Unmeasured
    }

    /// Whether the time that was measured last can be reckoned from it: since then the steady clock has gone as far as
    /// the host's wall clock. It stands still while the host is suspended. Both are read now: the steady one in ms, the
    /// wall clock as unix ms. Where nothing was measured, there is nothing to be wrong.
    pub fn keeps_time(&self, steady_ms: i64, wall_ms: i64) -> bool {
        self.last.is_none_or(|last| {
            let by_wall_ms = wall_ms.saturating_sub(self.last_wall_ms);
            let by_steady_ms = steady_ms.saturating_sub(last.after_ms);
            by_wall_ms.saturating_sub(by_steady_ms).saturating_abs() <= STEP_MAX_MS
        })
    }

    /// How far the node's clock was ahead of the host's at the last measurement, at least, in ms; negative when slow.
    pub fn difference_ms(&self) -> i64 {
        self.difference_ms
    }

    /// Takes a measurement of the watch; `wall_ms` is the host's wall clock after it (unix ms).
    pub fn measured(&mut self, measurement: Measurement, wall_ms: i64) -> Option<TimeTurned> {
        let step_ms = self.step_ms(&measurement);
        (self.last, self.last_wall_ms) = (Some(measurement), wall_ms);
        let wall =
            (wall_ms.saturating_sub(measurement.after_ms), wall_ms.saturating_sub(measurement.after_ms));
        self.difference_ms = distance_ms(wall, measurement.offset_ms());
        let agrees = self.difference_ms.abs() <= STEP_MAX_MS;
        let stepped = step_ms.abs() > STEP_MAX_MS;
        let (state, turned) = match self.state {
            ClockState::Unmeasured if agrees => (ClockState::Trusted, None),
            ClockState::Unmeasured => {
                (ClockState::Doubted { agreeing: 0 }, Some(TimeTurned::Differs(self.difference_ms)))
            }
            ClockState::Trusted if stepped => {
                (ClockState::Doubted { agreeing: u32::from(agrees) }, Some(TimeTurned::Stepped(step_ms)))
            }
            ClockState::Trusted => (ClockState::Trusted, None),
            ClockState::Doubted { .. } if !agrees => (ClockState::Doubted { agreeing: 0 }, None),
            ClockState::Doubted { agreeing } if stepped || agreeing + 1 < AGREEING_MIN => {
                (ClockState::Doubted { agreeing: if stepped { 1 } else { agreeing + 1 } }, None)
            }
            ClockState::Doubted { .. } => (ClockState::Trusted, Some(TimeTurned::Agrees)),
        };
        self.state = state;
        turned
    }

    /// Takes the time from a script's answer: it can raise doubt at once, but never restores trust. An answer to a call
    /// that began before the last measurement is ignored.
    pub fn answered(&mut self, measurement: Measurement) -> Option<TimeTurned> {
        if !self.is_trusted() || !self.is_step(&measurement) {
            return None;
        }
        self.state = ClockState::Doubted { agreeing: 0 };
        Some(TimeTurned::Stepped(self.step_ms(&measurement)))
    }

    /// An operator accepts the node's clock as it was measured. Returns whether it was in doubt.
    pub fn accept(&mut self) -> bool {
        let in_doubt = matches!(self.state, ClockState::Doubted { .. });
        if in_doubt {
            self.state = ClockState::Trusted;
        }
        in_doubt
    }

    fn is_step(&self, measurement: &Measurement) -> bool {
        self.last.is_some_and(|last| measurement.before_ms >= last.after_ms)
            && self.step_ms(measurement).abs() > STEP_MAX_MS
    }

    /// By how much the clock has stepped at least since the last measurement; a slow answer proves less.
    fn step_ms(&self, measurement: &Measurement) -> i64 {
        self.last.map_or(0, |last| distance_ms(last.offset_ms(), measurement.offset_ms()))
    }
}

/// How far the second interval lies above the first at least, negative if below; 0 where they touch.
fn distance_ms(first: (i64, i64), second: (i64, i64)) -> i64 {
    if second.0 > first.1 {
        second.0 - first.1
    } else if second.1 < first.0 {
        second.1 - first.0
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wall clock at the steady clock's zero.
    const BASE_MS: i64 = 1_800_000_000_000;

    /// One beat: the steady clock, how long the answer took, how far Redis's clock is ahead of the right time, and how
    /// far the host's is.
    type Beat = (i64, i64, i64, i64);

    fn measurement((at_ms, took_ms, redis_ahead_ms, _): Beat) -> Measurement {
        Measurement {
            redis_ms: BASE_MS + at_ms + took_ms / 2 + redis_ahead_ms,
            before_ms: at_ms,
            after_ms: at_ms + took_ms,
        }
    }

    fn trusted(beats: &[Beat]) -> Vec<bool> {
        let mut check = TimeCheck::default();
        let wall_ms = |beat: &Beat| BASE_MS + beat.0 + beat.1 + beat.3;
        let each = beats.iter().map(|beat| {
            check.measured(measurement(*beat), wall_ms(beat));
            check.is_trusted()
        });
        each.collect()
    }

    #[rstest::rstest]
    #[case::steady(&[(0, 2, 0, 0), (200, 2, 0, 0), (400, 2, 0, 0)], &[true, true, true])]
    #[case::always_wrong_by_an_hour(&[(0, 2, 3_600_000, 0), (200, 2, 3_600_000, 0)], &[false, false])]
    #[case::behind_from_the_start(&[(0, 2, -86_400_000, 0), (200, 2, -86_400_000, 0)], &[false, false])]
    #[case::two_seconds_from_the_start_are_agreement(&[(0, 0, 2_000, 0), (200, 0, 2_000, 0)], &[true, true])]
    #[case::wrong_from_the_start_and_put_right(
        &[(0, 2, 86_400_000, 0), (200, 2, 0, 0), (400, 2, 0, 0)], &[false, false, true])]
    #[case::the_host_is_wrong_from_the_start_and_put_right(
        &[(0, 2, 0, 60_000), (200, 2, 0, 0), (400, 2, 0, 0)], &[false, false, true])]
    #[case::slewed_away_from_the_host_without_a_step(
        &[(0, 2, 1_900, 0), (200, 2, 2_500, 0), (400, 2, 3_000, 0)], &[true, true, true])]
    #[case::slewed_by_ntp(&[(0, 2, 0, 0), (200, 2, 100, 0), (400, 2, 200, 0)], &[true, true, true])]
    #[case::two_seconds_are_not_a_step(&[(0, 0, 0, 0), (200, 0, 2_000, 0)], &[true, true])]
    #[case::forwards(&[(0, 2, 0, 0), (200, 2, 60_000, 0), (400, 2, 60_000, 0), (600, 2, 60_000, 0)], &[true, false, false, false])]
    #[case::back(&[(0, 2, 0, 0), (200, 2, -60_000, 0), (400, 2, -60_000, 0)], &[true, false, false])]
    #[case::forwards_and_put_right(
        &[(0, 2, 0, 0), (200, 2, 60_000, 0), (400, 2, 0, 0), (600, 2, 0, 0)], &[true, false, false, true])]
    #[case::one_agreement_is_not_enough(
        &[(0, 2, 0, 0), (200, 2, 60_000, 0), (400, 2, 0, 0), (600, 2, 60_000, 0), (800, 2, 0, 0), (1_000, 2, 0, 0)],
        &[true, false, false, false, false, true])]
    #[case::failover_to_another_clock_that_is_right(
        &[(0, 2, 2_000, 0), (5_000, 2, -1_000, 0), (5_200, 2, -1_000, 0)], &[true, false, true])]
    #[case::failover_to_a_clock_that_is_wrong(
        &[(0, 2, 0, 0), (5_000, 2, 30_000, 0), (5_200, 2, 30_000, 0)], &[true, false, false])]
    #[case::this_process_was_suspended_while_asking(&[(0, 2, 0, 0), (200, 60_000, 0, 0), (60_400, 2, 0, 0)], &[true, true, true])]
    #[case::redis_was_frozen_for_long(&[(0, 2, 0, 0), (90_000, 2, 0, 0)], &[true, true])]
    #[case::the_host_slept_and_its_steady_clock_with_it(
        &[(0, 2, 0, 0), (200, 2, 60_000, 60_000), (400, 2, 60_000, 60_000)], &[true, false, true])]
    #[case::the_hosts_own_clock_stepped(&[(0, 2, 0, 0), (200, 2, 0, 60_000), (400, 2, 0, 60_000)], &[true, true, true])]
    fn a_difference_at_the_start_and_a_step_raise_doubt_until_two_measurements_agree_with_the_hosts_clock(
        #[case] beats: &[Beat],
        #[case] expected: &[bool],
    ) {
        assert_eq!(trusted(beats), expected);
    }

    #[test]
    fn a_difference_at_the_start_is_told_once() {
        let mut check = TimeCheck::default();
        let differs = check.measured(measurement((0, 0, 86_400_000, 0)), BASE_MS);
        assert_eq!(differs, Some(TimeTurned::Differs(86_400_000)));
        assert_eq!(check.measured(measurement((200, 0, 86_400_000, 0)), BASE_MS + 200), None);
        assert_eq!(check.measured(measurement((400, 0, 0, 0)), BASE_MS + 400), None);
        assert_eq!(check.measured(measurement((600, 0, 0, 0)), BASE_MS + 600), Some(TimeTurned::Agrees));
    }

    #[rstest::rstest]
    #[case::at_once(200, 200, true)]
    #[case::redis_was_away_for_a_day(86_400_200, 86_400_200, true)]
    #[case::two_seconds_are_within_what_clocks_differ(1_200, 3_200, true)]
    #[case::the_host_was_suspended_for_five_minutes(1_200, 301_200, false)]
    #[case::it_was_suspended_and_runs_for_a_day_since(86_400_200, 86_700_200, false)]
    #[case::for_just_longer_than_clocks_differ(1_200, 3_201, false)]
    #[case::the_wall_clock_was_set_back(10_200, 200, false)]
    fn an_instance_knows_the_time_while_its_steady_clock_goes_as_far_as_the_hosts_since_the_last_measurement(
        #[case] steady_ms: i64,
        #[case] wall_ms: i64,
        #[case] keeps_time: bool,
    ) {
        let mut check = TimeCheck::default();
        check.measured(measurement((0, 2, 0, 0)), BASE_MS + 5_002);
        // The host's clock was right only afterwards: what it was then no longer matters.
        check.measured(measurement((200, 0, 0, 0)), BASE_MS + 200);
        assert_eq!(check.keeps_time(steady_ms, BASE_MS + wall_ms), keeps_time);
    }

    #[test]
    fn what_was_never_measured_is_neither_trusted_nor_accepted() {
        let mut check = TimeCheck::default();
        assert!(!check.is_trusted() && !check.is_measured());
        assert!(!check.accept());
        assert!(!check.is_trusted());
        check.measured(measurement((0, 2, 0, 0)), BASE_MS + 2);
        assert!(check.is_trusted());
    }

    #[test]
    fn what_a_step_was_is_told_once() {
        let mut check = TimeCheck::default();
        check.measured(measurement((0, 0, 0, 0)), BASE_MS);
        let stepped = check.measured(measurement((200, 0, -5_000, 0)), BASE_MS + 200);
        assert_eq!(stepped, Some(TimeTurned::Stepped(-5_000)));
        assert_eq!(check.difference_ms(), -5_000);
        assert_eq!(check.measured(measurement((400, 0, 0, 0)), BASE_MS + 400), None);
        assert_eq!(check.measured(measurement((600, 0, 0, 0)), BASE_MS + 600), Some(TimeTurned::Agrees));
    }

    #[test]
    fn a_scripts_answer_raises_doubt_at_once_and_settles_nothing() {
        let mut check = TimeCheck::default();
        assert_eq!(check.answered(measurement((0, 2, 60_000, 0))), None, "nothing to compare with yet");
        check.measured(measurement((200, 2, 0, 0)), BASE_MS + 202);
        assert_eq!(check.answered(measurement((100, 50, 60_000, 0))), None, "begun before the measurement");
        assert_eq!(check.answered(measurement((300, 2, 500, 0))), None);
        assert!(matches!(check.answered(measurement((310, 2, 60_000, 0))), Some(TimeTurned::Stepped(_))));
        assert!(!check.is_trusted());
        for at_ms in [320, 330, 340] {
            assert_eq!(check.answered(measurement((at_ms, 2, 0, 0))), None);
        }
        assert!(!check.is_trusted());
    }

    #[test]
    fn an_operator_may_accept_the_time_and_a_further_step_is_one_again() {
        let mut check = TimeCheck::default();
        check.measured(measurement((0, 2, 0, 0)), BASE_MS + 2);
        check.measured(measurement((200, 2, 60_000, 0)), BASE_MS + 202);
        assert!(check.accept());
        assert!(!check.accept());
        check.measured(measurement((400, 2, 60_000, 0)), BASE_MS + 402);
        assert!(check.is_trusted());
        check.measured(measurement((600, 2, 120_000, 0)), BASE_MS + 602);
        assert!(!check.is_trusted());
    }
}
