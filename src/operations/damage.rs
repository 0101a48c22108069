//! Damage: work on a record, counter or row that cannot be decoded is skipped, reported once a minute and retried;
//! other work goes on.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::telemetry::Metrics;
use crate::telemetry::labels::Alarm;

/// How long a damage is neither reported again nor, in loops without a pause of their own, retried.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// With more damages than this at once, each is reported every time.
const REMEMBERED_MAX: usize = 10_000;
/// How long the ledger may take to record a damage.
const NOTED_WITHIN: Duration = Duration::from_secs(2);

/// The work that is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// Expiring a hold.
    Expiry,
    /// Restoring a tenant.
    Restore,
    /// Delivering a quota's next period to the gate.
    NextPeriod,
    /// Booking a grant, or sending a quota's capacity to the gate.
    Capacity,
    /// Closing periods.
    Close,
    /// Issuing a statement.
    Statement,
    /// Putting a tenant on an approved plan.
    Upgrade,
    /// Carrying out an adjustment.
    Adjustment,
    /// Comparing a tenant with the books.
    Comparison,
    /// Repairing a drift.
    Repair,
    /// Undoing a repeat.
    Undo,
    /// Redelivering parked calls.
    Replay,
    /// Booking what an outbox holds.
    Booking,
    /// Sending deliveries of a webhook, or listing it.
    Delivery,
}

impl Work {
    fn as_str(self) -> &'static str {
        match self {
            Self::Expiry => "expiry",
            Self::Restore => "restore",
            Self::NextPeriod => "next period",
            Self::Capacity => "capacity",
            Self::Close => "close",
            Self::Statement => "statement",
            Self::Upgrade => "upgrade",
            Self::Adjustment => "adjustment",
            Self::Comparison => "comparison",
            Self::Repair => "repair",
            Self::Undo => "undo",
            Self::Replay => "replay of parked calls",
            Self::Booking => "booking",
            Self::Delivery => "delivery",
        }
    }
}

/// Damages, and where they are reported.
pub struct Damage {
    ledger: Ledger,
    metrics: Arc<Metrics>,
    /// What was skipped within the last minute.
    passed_over: Mutex<HashMap<(Work, String), Instant>>,
}

impl Damage {
    /// Nothing is skipped yet.
    pub(super) fn new(ledger: Ledger, metrics: Arc<Metrics>) -> Self {
        Self { ledger, metrics, passed_over: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Work, String), Instant>> {
        self.passed_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was skipped within the last minute.
    pub(super) fn is_passed_over(&self, work: Work, item: &str) -> bool {
        self.lock().get(&(work, item.to_owned())).is_some_and(|at| at.elapsed() < AGAIN_AFTER)
    }

    /// Remembers it; returns whether it was not skipped lately.
    fn note(&self, work: Work, item: &str) -> bool {
        if self.is_passed_over(work, item) {
            return false;
        }
        let mut all = self.lock();
        if all.len() >= REMEMBERED_MAX {
            all.retain(|_, at| at.elapsed() < AGAIN_AFTER);
        }
        if all.len() < REMEMBERED_MAX {
            all.insert((work, item.to_owned()), Clock::monotonic());
        }
        true
    }

    /// Reports something that is skipped: in the log, as an alarm, and in the ledger, where `tollgate status` reads it.
    pub async fn pass_over(&self, work: Work, item: &str, why: &(impl Display + Sync)) {
        if !self.note(work, item) {
            return;
        }
        self.metrics.alarm(Alarm::Damage);
        let (work, why) = (work.as_str(), why.to_string());
        tracing::error!(
            work,
            item,
            why,
            "skipped, because it cannot be done; it is retried, and other work goes on"
        );
        let noting = tokio::time::timeout(NOTED_WITHIN, self.ledger.note_damage(work, item, &why));
        if !matches!(noting.await, Ok(Ok(()))) {
            tracing::debug!(work, item, "the ledger could not record what was skipped");
        }
    }
}
