//! Whether anything new may be admitted now: what the watch over the gate finds out, and what follows from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::requests::Principal;
use super::{Answer, OperationError, Operations};
use crate::gate::{BreakerState, OutboxStanding};
use crate::telemetry::labels;

/// How far the books are behind the gate, as of the watch's last look.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    events: AtomicU64,
    /// Doubts of Redis's clock that were told of already.
    doubts_told: AtomicU64,
}

/// What became of an operator's word that Redis's clock is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeAccepted {
    /// Whether this instance was in doubt until now.
    pub was_in_doubt: bool,
    /// Redis's time now (RFC 3339).
    pub redis_time: String,
    /// How far it is ahead of this host's clock, in ms; negative is behind.
    pub difference_ms: i64,
}

impl Operations {
    /// Looks at the whole node once and notes what follows: breaker, trust in its clock, backlog. Bounded by the gate's
    /// response timeout. Answers where the breaker stands.
    pub async fn watch_gate(&self) -> BreakerState {
        match self.gate.look(|| self.wall_clock.now_ms()).await {
            Ok(standings) => self.note_backlog(&standings).await,
            Err(error) => tracing::debug!(%error, "the watch got no answer"),
        }
        let doubts = self.gate.time_doubts();
        if self.backlog.doubts_told.swap(doubts, Ordering::Relaxed) < doubts {
            self.metrics.alarm(labels::Alarm::Clock);
        }
        self.gate.breaker_state()
    }

    /// A reserve or usage may go on only while Redis's clock is trusted and the books are near enough. A dry run adds nothing.
    pub(super) fn may_admit(&self, dry_run: bool) -> Answer<()> {
        if !self.gate.trusts_time() {
            return Err(OperationError::GateUnavailable("its clock is not trusted".into()));
        }
        self.within(if dry_run { u64::MAX } else { self.options.backlog_events_max })
    }

    /// A partial consume or an extend adds an event and frees nothing.
    pub(super) fn may_go_on_holding(&self) -> Answer<()> {
        self.within(self.options.backlog_events_hard_max)
    }

    fn within(&self, events_max: u64) -> Answer<()> {
        if self.backlog.events.load(Ordering::Relaxed) < events_max {
            return Ok(());
        }
        Err(OperationError::Overloaded)
    }

    async fn note_backlog(&self, standings: &[OutboxStanding]) {
        let events = standings.iter().fold(0_u64, |sum, standing| sum.saturating_add(standing.waiting()));
        let before = self.backlog.events.swap(events, Ordering::Relaxed);
        for bound in [self.options.backlog_events_max, self.options.backlog_events_hard_max] {
            match (before >= bound, events >= bound) {
                (false, true) => {
                    tracing::error!(events, bound, "too many events wait to be booked: calls are refused")
                }
                (true, false) => {
                    tracing::warn!(events, bound, "fewer events wait to be booked: calls are taken again")
                }
                _ => {}
            }
        }
        match self.gate.oldest_waiting_ms(standings).await {
            Ok(oldest_ms) => {
                let age_ms = oldest_ms.map_or(0, |at_ms| self.now_ms().saturating_sub(at_ms).max(0));
                self.metrics.outbox(events, Duration::from_millis(age_ms.unsigned_abs()));
            }
            Err(error) => tracing::debug!(%error, "the oldest event could not be read"),
        }
    }

    /// What the metrics say of the gate, as it is at this moment.
    pub(super) fn show_gate(&self) {
        let state = match self.gate.breaker_state() {
            BreakerState::Closed => labels::BreakerState::Closed,
            BreakerState::HalfOpen => labels::BreakerState::HalfOpen,
            BreakerState::Open => labels::BreakerState::Open,
        };
        self.metrics.breaker(labels::Guarded::Redis, state);
        let difference = Duration::from_millis(self.gate.time_difference_ms().unsigned_abs());
        self.metrics.gate_clock(self.gate.trusts_time(), difference);
    }

    /// Takes Redis's clock as it is, on every instance: in the audit log, and then by notice.
    pub async fn accept_time(&self, actor: &Principal) -> Answer<TimeAccepted> {
        let difference_ms = self.gate.time_difference_ms();
        // Before the notice is out: it comes back to this instance too.
        let was_in_doubt = !self.gate.trusts_time();
        self.ledger.note_time_accepted(&actor.key_id, difference_ms).await?;
        let was_in_doubt = self.gate.accept_time() || was_in_doubt;
        let redis_time = super::present::instant(self.gate.redis_time_ms());
        Ok(TimeAccepted { was_in_doubt, redis_time, difference_ms })
    }
}
