//! Whether anything new may be admitted now: it follows from what the watch over the gate finds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::domain::ids::Partition;
use crate::gate::{BreakerState, OutboxState, TailStart, Waiting};
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};
use crate::operations::options::OperationsOptions;
use crate::telemetry::labels;

/// How far the books lag the gate, as of the watch's last look.
#[derive(Debug, Default)]
struct Backlog {
    events: AtomicU64,
    bytes: AtomicU64,
    /// The mean size in bytes of a waiting event, over the last looks.
    event_bytes: AtomicU64,
    /// Doubts about Redis's clock that were reported already.
    doubts_told: AtomicU64,
}

impl Backlog {
    /// Adds a look's mean size of a waiting event to that of the looks before; a look sees only some of the events.
    fn mean_bytes(&self, seen: Option<u64>) -> u64 {
        let before = self.event_bytes.load(Ordering::Relaxed);
        let mean = match (before, seen) {
            (before, None) => before,
            (0, Some(seen)) => seen,
            (before, Some(seen)) => (before.saturating_mul(3).saturating_add(seen)) / 4,
        };
        self.event_bytes.store(mean, Ordering::Relaxed);
        mean
    }
}

/// How much may wait to be booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    events: u64,
    bytes: u64,
}

impl Bound {
    fn is_met(self, events: u64, bytes: u64) -> bool {
        events >= self.events || bytes >= self.bytes
    }
}

/// The result of an operator accepting Redis's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeAccepted {
    /// Whether this instance was in doubt until now.
    pub was_in_doubt: bool,
    /// Redis's time now (unix ms).
    pub redis_time_ms: i64,
    /// How far it is ahead of this host's clock, in ms; negative when it is slow.
    pub difference_ms: i64,
}

/// Admits new calls or not, by what the watch over the gate finds.
pub struct Admission {
    core: Arc<Core>,
    backlog: Backlog,
    /// With a backlog above this, nothing new is admitted.
    admission_bound: Bound,
    /// With a backlog above this, holds are neither extended nor consumed in part.
    holding_bound: Bound,
    /// How long booked events stay in the outbox, unless their bytes end that earlier.
    safety_tail: Duration,
}

impl Admission {
    pub(super) fn new(core: Arc<Core>, options: &OperationsOptions) -> Self {
        let admission_bound = Bound { events: options.backlog_events_max, bytes: options.backlog_bytes_max };
        let holding_bound =
            Bound { events: options.backlog_events_hard_max, bytes: options.backlog_bytes_hard_max };
        let safety_tail = options.safety_tail;
        Self { core, backlog: Backlog::default(), admission_bound, holding_bound, safety_tail }
    }

    /// Looks at the whole node once and applies what it finds to breaker, trust in its clock, and backlog. Bounded by
    /// the gate's response timeout. Returns the state of the breaker.
    pub async fn watch_gate(&self) -> BreakerState {
        match self.core.gate.look(|| self.core.wall_clock.now_ms()).await {
            Ok(standings) => self.note_backlog(&standings).await,
            Err(error) => tracing::debug!(%error, "the watch got no answer"),
        }
        let doubts = self.core.gate.time_doubts();
        if self.backlog.doubts_told.swap(doubts, Ordering::Relaxed) < doubts {
            self.core.metrics.alarm(labels::Alarm::Clock);
        }
        self.core.gate.breaker_state()
    }

    /// A reserve or usage may go on only while Redis's clock is trusted and the backlog is small enough. A dry run adds
    /// nothing to it.
    pub(super) fn may_admit(&self, dry_run: bool) -> Answer<()> {
        if !self.core.gate.trusts_time() {
            return Err(OperationError::GateUnavailable("its clock is not trusted".into()));
        }
        if dry_run { Ok(()) } else { self.within(self.admission_bound) }
    }

    /// Work that is done already may be recorded while Redis's clock is trusted, also where nothing new is admitted.
    pub(super) fn may_record(&self) -> Answer<()> {
        self.may_admit(true)?;
        self.may_go_on_holding()
    }

    /// A partial consume or an extend adds an event and frees nothing.
    pub(super) fn may_go_on_holding(&self) -> Answer<()> {
        self.within(self.holding_bound)
    }

    fn within(&self, bound: Bound) -> Answer<()> {
        let events = self.backlog.events.load(Ordering::Relaxed);
        let bytes = self.backlog.bytes.load(Ordering::Relaxed);
        // Nothing is added to the outbox of a gate that is away, and nobody knows how long it is by now.
        let is_met = bound.is_met(events, bytes) && self.core.gate.breaker_state() == BreakerState::Closed;
        if is_met { Err(OperationError::Overloaded) } else { Ok(()) }
    }

    async fn note_backlog(&self, standings: &[OutboxState]) {
        let events = standings.iter().fold(0_u64, |sum, standing| sum.saturating_add(standing.waiting()));
        let events_before = self.backlog.events.swap(events, Ordering::Relaxed);
        let waiting = match self.core.gate.waiting(standings).await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::debug!(%error, "the backlog could not be read");
                Waiting::default()
            }
        };
        let bytes = events.saturating_mul(self.backlog.mean_bytes(waiting.event_bytes));
        let bytes_before = self.backlog.bytes.swap(bytes, Ordering::Relaxed);
        for bound in [self.admission_bound, self.holding_bound] {
            match (bound.is_met(events_before, bytes_before), bound.is_met(events, bytes)) {
                (false, true) => {
                    tracing::error!(events, bytes, ?bound, "too much waits to be booked: calls are refused")
                }
                (true, false) => {
                    tracing::warn!(events, bytes, ?bound, "less waits to be booked: calls are taken again")
                }
                _ => {}
            }
        }
        let age_ms =
            waiting.oldest_ms.map_or(0, |at_ms| self.core.clock.now_ms().saturating_sub(at_ms).max(0));
        self.core.metrics.outbox(events, bytes, Duration::from_millis(age_ms.unsigned_abs()));
    }

    /// How long each partition's booked events have stayed in its outbox.
    pub async fn tails(&self) -> Answer<Vec<(Partition, Duration)>> {
        let now_ms = self.core.clock.now_ms();
        let covered = |start| match start {
            TailStart::Whole => self.safety_tail,
            TailStart::At(at_ms) => {
                let age_ms = now_ms.saturating_sub(at_ms).max(0).unsigned_abs();
                Duration::from_millis(age_ms).min(self.safety_tail)
            }
        };
        let starts = self.core.gate.tail_starts().await?;
        Ok(starts.into_iter().map(|(partition, start)| (partition, covered(start))).collect())
    }

    /// Shows in the metrics how old each partition's oldest booked event in its outbox is.
    pub async fn show_tails(&self) -> Answer<()> {
        for (partition, covered) in self.tails().await? {
            self.core.metrics.outbox_tail(&partition.to_string(), covered);
        }
        Ok(())
    }

    /// Updates the gate's gauges to this moment.
    pub(in crate::operations) fn show_gate(&self) {
        let state = match self.core.gate.breaker_state() {
            BreakerState::Closed => labels::BreakerState::Closed,
            BreakerState::HalfOpen => labels::BreakerState::HalfOpen,
            BreakerState::Open => labels::BreakerState::Open,
        };
        self.core.metrics.breaker(labels::Guarded::Redis, state);
        let difference = Duration::from_millis(self.core.gate.time_difference_ms().unsigned_abs());
        self.core.metrics.gate_clock(self.core.gate.trusts_time(), difference);
    }

    /// Accepts Redis's clock as it is, on every instance: recorded in the audit log, then sent by notice.
    pub async fn accept_time(&self, actor: &str) -> Answer<TimeAccepted> {
        let difference_ms = self.core.gate.time_difference_ms();
        // Read before the notice goes out, because the notice comes back to this instance too.
        let was_in_doubt = !self.core.gate.trusts_time();
        self.core.ledger.note_time_accepted(actor, difference_ms).await?;
        let was_in_doubt = self.core.gate.accept_time() || was_in_doubt;
        Ok(TimeAccepted { was_in_doubt, redis_time_ms: self.core.gate.redis_time_ms(), difference_ms })
    }
}
