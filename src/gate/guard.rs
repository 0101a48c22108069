//! The guard between callers and the node: the breaker, the bound on concurrent calls, and the check of its clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use redis::{RedisError, ServerErrorKind};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::breaker::{Breaker, BreakerState, Turned};
use super::error::GateError;
use super::scripts::Script;
use super::time_check::{Measurement, TimeCheck, TimeTurned};

/// Shared by all calls to one node.
pub(super) struct Guard {
    breaker: Mutex<Breaker>,
    time: Mutex<TimeCheck>,
    calls: Semaphore,
    calls_max: usize,
    silences: watch::Sender<u64>,
    takes_writes: AtomicBool,
    /// Whether the host's clock agrees with the ledger's, as far as they were compared.
    host_agrees: AtomicBool,
    doubts: AtomicU64,
}

/// What a call tells the breaker.
pub(super) enum Heard {
    /// The node answered, perhaps with an error.
    Answer,
    /// It did not answer in time, or the connection failed.
    Silence,
    /// It answered that it cannot serve at all now, which says nothing about the next call.
    Busy,
}

impl Guard {
    pub(super) fn new(calls_max: usize) -> Self {
        Self {
            breaker: Mutex::default(),
            time: Mutex::default(),
            calls: Semaphore::new(calls_max.clamp(1, Semaphore::MAX_PERMITS)),
            calls_max: calls_max.clamp(1, Semaphore::MAX_PERMITS),
            silences: watch::Sender::new(0),
            takes_writes: AtomicBool::new(true),
            host_agrees: AtomicBool::new(true),
            doubts: AtomicU64::new(0),
        }
    }

    /// Lets a plain command through or fails.
    pub(super) fn check(&self) -> Result<(), GateError> {
        if self.lock_breaker().admits() { Ok(()) } else { Err(GateError::BreakerOpen) }
    }

    /// Lets a script call through or says at once why not. Calls for callers are bounded; those of the service itself
    /// are few, and free what callers wait for.
    pub(super) fn enter(&self, script: Script) -> Result<Option<SemaphorePermit<'_>>, GateError> {
        self.check()?;
        if !script.serves_callers() {
            return Ok(None);
        }
        self.calls.try_acquire().map(Some).map_err(|_| GateError::Overloaded)
    }

    /// How many calls for callers wait for their answers, and how many may.
    pub(super) fn waiting_calls(&self) -> (usize, usize) {
        (self.calls_max.saturating_sub(self.calls.available_permits()), self.calls_max)
    }

    /// Records the outcome of a call that began at this instant.
    pub(super) fn heard(&self, began: Instant, heard: &Heard) {
        let turned = match heard {
            Heard::Answer => return self.lock_breaker().answered(),
            Heard::Busy => return,
            Heard::Silence => self.lock_breaker().failed(began),
        };
        self.tell(turned);
    }

    /// Records the outcome of a probe that began at this instant.
    pub(super) fn probed(&self, began: Instant, answered: bool) {
        let turned = if answered {
            self.lock_breaker().probe_answered(Instant::now())
        } else {
            self.lock_breaker().probe_failed(began)
        };
        self.tell(turned);
    }

    pub(super) fn breaker_state(&self) -> BreakerState {
        self.lock_breaker().state()
    }

    /// Resolves when the next call is not answered.
    pub(super) async fn falls_silent(&self) {
        // The sender lives as long as self, so waiting cannot fail.
        let _ = self.silences.subscribe().changed().await;
    }

    /// Takes a measurement of the watch; `wall_ms` is the host's clock after it.
    pub(super) fn measured(&self, measurement: Measurement, wall_ms: i64) {
        let turned = self.lock_time().measured(measurement, wall_ms);
        self.tell_time(turned);
    }

    /// Takes the time that a script's answer carried.
    pub(super) fn time_answered(&self, measurement: Measurement) {
        let turned = self.lock_time().answered(measurement);
        self.tell_time(turned);
    }

    /// Records whether the node takes writes.
    pub(super) fn told_of_writes(&self, takes_writes: bool) {
        match (self.takes_writes.swap(takes_writes, Ordering::Relaxed), takes_writes) {
            (true, false) => {
                tracing::error!("Redis takes no writes: its memory or disk is full, or it is a replica");
            }
            (false, true) => tracing::warn!("Redis takes writes again"),
            _ => {}
        }
    }

    pub(super) fn takes_writes(&self) -> bool {
        self.takes_writes.load(Ordering::Relaxed)
    }

    /// Whether the gate's time is trusted. Where Redis has not answered since the start, it is the host's, unless that
    /// differs from the ledger's.
    pub(super) fn trusts_time(&self) -> bool {
        let is_trusted = self.lock_time().is_trusted();
        let is_hosts = || !self.has_measured_time() && self.breaker_state() != BreakerState::Closed;
        is_trusted || (is_hosts() && self.host_agrees.load(Ordering::Relaxed))
    }

    /// Records whether the host's clock agrees with the ledger's.
    pub(super) fn compared_host(&self, agrees: bool) {
        if self.host_agrees.swap(agrees, Ordering::Relaxed) && !agrees {
            tracing::error!(
                "this host's clock differs from Postgres's: until they agree or Redis answers, nothing is admitted"
            );
        }
    }

    /// Whether Redis has said its time since the start.
    pub(super) fn has_measured_time(&self) -> bool {
        self.lock_time().is_measured()
    }

    pub(super) fn knows_time(&self, steady_ms: i64, wall_ms: i64) -> bool {
        self.trusts_time() && self.lock_time().keeps_time(steady_ms, wall_ms)
    }

    pub(super) fn time_difference_ms(&self) -> i64 {
        self.lock_time().difference_ms()
    }

    pub(super) fn accept_time(&self) -> bool {
        let accepted = self.lock_time().accept();
        if accepted {
            tracing::warn!("an operator accepted Redis's clock as it is");
        }
        accepted
    }

    /// How often the clock came into doubt; only rises.
    pub(super) fn time_doubts(&self) -> u64 {
        self.doubts.load(Ordering::Relaxed)
    }

    fn tell(&self, turned: Option<Turned>) {
        let silences = self.lock_breaker().silences();
        self.silences.send_if_modified(|known| std::mem::replace(known, silences) != silences);
        let Some(Turned { from, to }) = turned else { return };
        match to {
            BreakerState::Closed => tracing::warn!(?from, "Redis answers again: the breaker is closed"),
            BreakerState::HalfOpen => {
                tracing::info!(?from, "Redis answered a probe: the breaker is half open")
            }
            BreakerState::Open => {
                tracing::error!(?from, "Redis does not answer: the breaker is open, calls fail at once");
            }
        }
    }

    fn tell_time(&self, turned: Option<TimeTurned>) {
        match turned {
            None => {}
            Some(TimeTurned::Agrees) => {
                tracing::warn!("Redis's clock agrees with this host's: it is trusted again")
            }
            Some(TimeTurned::Differs(difference_ms)) => {
                self.doubts.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    difference_ms,
                    "Redis's clock differs from this host's: nothing is admitted and nothing expires until they agree"
                );
            }
            Some(TimeTurned::Stepped(step_ms)) => {
                self.doubts.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    step_ms,
                    "Redis's clock stepped: nothing is admitted and nothing expires until it agrees with this host's"
                );
            }
        }
    }

    fn lock_breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_time(&self) -> MutexGuard<'_, TimeCheck> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    /// Judges an answer of the client; the outer error is the gate's own time limit.
    pub(super) fn of<T, E>(answer: &Result<Result<T, RedisError>, E>) -> Self {
        match answer {
            Ok(Ok(_)) => Self::Answer,
            Err(_) => Self::Silence,
            Ok(Err(error)) => match error.kind() {
                redis::ErrorKind::Server(
                    ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown | ServerErrorKind::ClusterDown,
                ) => Self::Busy,
                redis::ErrorKind::Server(_) | redis::ErrorKind::Extension => Self::Answer,
                _ => Self::Silence,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::BREAKER_FAILURES_MAX;
    use super::*;

    #[test]
    fn before_redis_has_said_its_time_the_hosts_counts_where_it_agrees_with_the_ledgers() {
        let guard = Guard::new(1);
        assert!(!guard.trusts_time(), "Redis may answer");
        (0..BREAKER_FAILURES_MAX).for_each(|_| guard.probed(Instant::now(), false));
        assert!(guard.trusts_time());
        guard.compared_host(false);
        assert!(!guard.trusts_time());
        guard.compared_host(true);
        assert!(guard.trusts_time());
    }
}
