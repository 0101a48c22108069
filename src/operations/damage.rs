//! What cannot be done for what it is done to: a record, counter or row that does not read. It is passed over, told once a minute, and
//! tried again; the rest goes on.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::telemetry::Metrics;
use crate::telemetry::labels::Alarm;

/// For so long something damaged is neither told again nor, in loops without a pace of their own, tried again.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Beyond so many at once, everything is told each time.
const REMEMBERED_MAX: usize = 10_000;
/// For so long the ledger may take to note it.
const NOTED_WITHIN: Duration = Duration::from_secs(2);

/// What was to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// A hold was to expire.
    Expiry,
    /// A tenant was to be restored.
    Restore,
    /// A quota's next period was to be told.
    NextPeriod,
    /// A tenant was to be compared with the books.
    Comparison,
    /// A drift was to be repaired.
    Repair,
    /// An operation that came again was to be taken back.
    Undo,
    /// Parked calls were to be told to the gate.
    Replay,
}

impl Work {
    fn as_str(self) -> &'static str {
        match self {
            Self::Expiry => "expiry",
            Self::Restore => "restore",
            Self::NextPeriod => "next period",
            Self::Comparison => "comparison",
            Self::Repair => "repair",
            Self::Undo => "undo",
            Self::Replay => "replay of parked calls",
        }
    }
}

/// What cannot be done, and where that is told.
pub struct Damage {
    ledger: Ledger,
    metrics: Arc<Metrics>,
    /// What was passed over within the last minute.
    passed_over: Mutex<HashMap<(Work, String), Instant>>,
}

impl Damage {
    /// Nothing yet.
    pub(super) fn new(ledger: Ledger, metrics: Arc<Metrics>) -> Self {
        Self { ledger, metrics, passed_over: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Work, String), Instant>> {
        self.passed_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was passed over within the last minute.
    pub(super) fn is_passed_over(&self, work: Work, item: &str) -> bool {
        self.lock().get(&(work, item.to_owned())).is_some_and(|at| at.elapsed() < AGAIN_AFTER)
    }

    /// Notes it; says whether it was not passed over lately.
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

    /// Tells of something that is passed over: log, alarm, and the ledger, from which `tollgate status` has it.
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
            "passed over, as it cannot be done; it is tried again, and the rest goes on"
        );
        let noting = tokio::time::timeout(NOTED_WITHIN, self.ledger.note_damage(work, item, &why));
        if !matches!(noting.await, Ok(Ok(()))) {
            tracing::debug!(work, item, "the ledger could not note what was passed over");
        }
    }
}
