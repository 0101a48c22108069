//! The watch over the jobs: which of them have not succeeded for long.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::work;
use crate::ledger::jobs::JobState;

/// A job is overdue once it has not succeeded for so many of its beats, ...
const BEATS: u32 = 2;
/// ... and for so long at least.
const AT_LEAST: Duration = Duration::from_secs(15 * 60);
/// How many looks later a job that stays overdue is named in the log again: an hour at a look every 15 s.
const NAMED_EVERY: u32 = 240;

/// A job that has not succeeded for long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// Its name.
    pub job: String,
    /// Since how many seconds.
    pub seconds: u64,
    /// What its last run ended with, if that failed.
    pub reason: Option<String>,
}

impl fmt::Display for Overdue {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} has not succeeded for {} s: ", self.job, self.seconds)?;
        match &self.reason {
            Some(reason) => write!(to, "its last run failed: {reason}"),
            None => write!(to, "it is due, and no run of it has ended"),
        }
    }
}

/// Those of these jobs that are overdue at `now_ms` (service time). One that waits for its next time is not: on a test
/// clock nothing is due for as long as nobody moves it.
pub fn overdue(jobs: &[JobState], now_ms: i64) -> Vec<Overdue> {
    let of = |state: &JobState| {
        let beat = work::beat(work::of_name(&state.name)?);
        let age = Duration::from_secs(u64::try_from(state.unsuccessful_seconds).unwrap_or_default());
        let failed = state.last.as_ref().filter(|last| last.succeeded == Some(false));
        let is_waiting = failed.is_none() && state.next_due_ms > now_ms;
        let is_overdue = age > AT_LEAST.max(beat * BEATS) && !is_waiting;
        is_overdue.then(|| Overdue {
            job: state.name.clone(),
            seconds: age.as_secs(),
            reason: failed.and_then(|last| last.outcome.clone()),
        })
    };
    jobs.iter().filter_map(of).collect()
}

/// In how many looks running each job was overdue.
#[derive(Debug, Default)]
pub(super) struct Watchdog(Mutex<HashMap<String, u32>>);

impl Watchdog {
    /// Those that are to be named in the log: at the second look, since an installation that was stopped for long runs
    /// its jobs right after its start, and then once in a while.
    pub(super) fn to_name(&self, overdue: Vec<Overdue>) -> Vec<Overdue> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|job, _| overdue.iter().any(|one| one.job == *job));
        let is_named = |one: &Overdue| {
            let looks = seen.entry(one.job.clone()).or_default();
            *looks += 1;
            *looks % NAMED_EVERY == 2
        };
        let mut named = overdue;
        named.retain(is_named);
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::jobs::LastRun;

    const NOW_MS: i64 = 1_700_000_000_000;

    fn state(name: &str, unsuccessful_seconds: i64, succeeded: Option<bool>, due_in_ms: i64) -> JobState {
        let last = LastRun {
            scheduled_for_ms: NOW_MS,
            owner: "one".into(),
            started_at_ms: NOW_MS,
            finished_at_ms: succeeded.map(|_| NOW_MS),
            succeeded,
            outcome: succeeded.map(|_| "as it went".into()),
            dry_run: false,
            done: None,
            total: None,
        };
        JobState {
            name: name.into(),
            next_due_ms: NOW_MS + due_in_ms,
            is_asked_for: false,
            last: Some(last),
            succeeded_at_ms: None,
            unsuccessful_seconds,
        }
    }

    #[rstest::rstest]
    #[case::it_fails("close", 901, Some(false), 1, Some("as it went"))]
    #[case::not_for_long("close", 900, Some(false), 1, None)]
    #[case::it_hangs("notices", 901, None, -1, Some("no run of it has ended"))]
    #[case::nobody_runs_it("grants", 5_000, Some(true), -1, Some("no run of it has ended"))]
    #[case::its_clock_stands("grants", 5_000, Some(true), 1, None)]
    #[case::twice_its_beat("retention", 7_200, Some(false), 1, None)]
    #[case::more_than_that(
        "retention",
        7_201,
        Some(false),
        1,
        Some("retention has not succeeded for 7201 s")
    )]
    #[case::one_of_another_version("unheard of", 9_000, Some(false), -1, None)]
    fn a_job_is_overdue(
        #[case] name: &str,
        #[case] seconds: i64,
        #[case] succeeded: Option<bool>,
        #[case] due_in_ms: i64,
        #[case] said: Option<&str>,
    ) {
        let found = overdue(&[state(name, seconds, succeeded, due_in_ms)], NOW_MS);
        match said {
            Some(said) => assert!(found[0].to_string().contains(said), "{found:?}"),
            None => assert_eq!(found, []),
        }
    }

    #[test]
    fn it_is_named_at_the_second_look_once_an_hour_and_after_it_has_recovered() {
        let dog = Watchdog::default();
        let looks = |count: usize| -> usize {
            let failing = || overdue(&[state("close", 901, Some(false), 1)], NOW_MS);
            (0..count).map(|_| dog.to_name(failing()).len()).sum()
        };
        assert_eq!([looks(1), looks(1), looks(239), looks(1)], [0, 1, 0, 1]);
        assert_eq!(dog.to_name(Vec::new()), []);
        assert_eq!([looks(1), looks(1)], [0, 1]);
    }
}
