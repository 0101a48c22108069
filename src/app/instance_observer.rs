//! Turns the writer's reports into metrics and log lines, and wakes callers that wait for the books.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify};

use crate::domain::checkpoint::ReconciliationState;
use crate::domain::ids::{OutboxId, Partition};
use crate::gate::Gate;
use crate::ledger::Reconciliation;
use crate::operations::{Operations, Positions, Work};
use crate::telemetry::labels;
use crate::writer::{Alarm, WriterObserver};

const DOUBT_AGAIN: Duration = Duration::from_secs(1);
/// How often the node is checked for one report of amnesia: while it lasts, the writer reports it again.
const DOUBTS_OF_A_REPORT: u32 = 5;

/// The observer of this instance's writer.
pub(super) struct InstanceObserver {
    operations: Arc<Operations>,
    gate: Arc<Gate>,
    positions: Arc<Positions>,
    repeated: Arc<Notify>,
    /// Locked while the node is checked for the writer.
    checking: Arc<Mutex<()>>,
}

impl InstanceObserver {
    /// Reports to `operations`' metrics and to the gate, wakes those who wait on `positions`, and rings `repeated`.
    pub(super) fn new(
        operations: Arc<Operations>,
        gate: Arc<Gate>,
        positions: Arc<Positions>,
        repeated: Arc<Notify>,
    ) -> Self {
        Self { operations, gate, positions, repeated, checking: Arc::default() }
    }

    /// An instance that only books learns of a new epoch here alone: without the check its positions would never be
    /// published again.
    fn check_memory(&self, partition: Partition, reason: &str) {
        let Ok(checking) = self.checking.clone().try_lock_owned() else { return };
        let (operations, reason) = (self.operations.clone(), reason.to_owned());
        tokio::spawn(async move {
            if let Err(error) = operations.memory.check.after_alarm(partition, &reason).await {
                tracing::warn!(%partition, %error, "the gate's memory could not be checked yet");
                tokio::time::sleep(DOUBT_AGAIN).await;
            }
            drop(checking);
        });
    }

    fn tell_drift(&self, judged: &Reconciliation) {
        let metrics = self.operations.metrics();
        metrics.alarm(labels::Alarm::Drift);
        for difference in &judged.differences {
            let (consumed, reserved) = difference.delta();
            let counter = &difference.counter;
            tracing::error!(
                tenant = %judged.tenant, limit = counter.name, window_start_ms = counter.window_ms.0, subject = ?counter.subject,
                consumed_missing = consumed, reserved_missing = reserved, gaps = judged.gaps, quarantined = judged.quarantined,
                parked = judged.parked, checkpoint = %judged.checkpoint, "a counter of the gate differs from the books"
            );
            match consumed.signum() {
                -1 => metrics.drifted(labels::Drift::ConsumedMore),
                1 => metrics.drifted(labels::Drift::ConsumedLess),
                _ => {}
            }
            match reserved.signum() {
                -1 => metrics.drifted(labels::Drift::ReservedMore),
                1 => metrics.drifted(labels::Drift::ReservedLess),
                _ => {}
            }
        }
    }
}

impl WriterObserver for InstanceObserver {
    async fn wanted(&self) {
        self.positions.wanted().await;
    }

    fn committed(&self, events: usize, _took: Duration) {
        self.operations.metrics().batch_booked(u32::try_from(events).unwrap_or(u32::MAX));
    }

    fn booked(&self, places: &[(Partition, OutboxId)]) {
        places.iter().for_each(|(partition, id)| self.gate.note_cursor(*partition, *id));
        self.positions.note(places);
    }

    fn judged(&self, judged: &Reconciliation) {
        let metrics = self.operations.metrics();
        match judged.state {
            ReconciliationState::Clean => metrics.checkpoint_judged(labels::Judged::Clean),
            ReconciliationState::Refused => metrics.checkpoint_judged(labels::Judged::Refused),
            ReconciliationState::Drift | ReconciliationState::Repaired => {
                metrics.checkpoint_judged(labels::Judged::Drift);
                if !judged.is_known {
                    self.tell_drift(judged);
                }
            }
        }
    }

    fn repeated(&self, _operations: usize) {
        self.repeated.notify_one();
    }

    fn alarm(&self, alarm: &Alarm) {
        let metrics = self.operations.metrics();
        match alarm {
            Alarm::Amnesia { partition, cursor } => {
                metrics.alarm(labels::Alarm::Memory);
                tracing::error!(%partition, %cursor, "the outbox no longer holds the last event booked; a new epoch is needed");
                let operations = self.operations.clone();
                let (partition, cursor) = (*partition, *cursor);
                tokio::spawn(async move {
                    for _ in 0..DOUBTS_OF_A_REPORT {
                        let Err(error) = operations.memory.check.doubt(partition, cursor).await else {
                            return;
                        };
                        tracing::error!(%partition, %error, "no new epoch could be issued yet");
                        tokio::time::sleep(DOUBT_AGAIN).await;
                    }
                });
            }
            Alarm::Gap { partition, after, found } => {
                let lost = found.sequence.saturating_sub(after.sequence).saturating_sub(1);
                metrics.gap(lost);
                metrics.alarm(labels::Alarm::Gap);
                tracing::error!(%partition, %after, %found, "events were lost between these two");
            }
            Alarm::GivenUp { partition, cursor } => {
                metrics.alarm(labels::Alarm::Memory);
                tracing::error!(%partition, %cursor, "the tail of this epoch after the cursor does not continue what was booked; it is abandoned");
            }
            Alarm::Unreadable { partition } => {
                let (operations, outbox) = (self.operations.clone(), format!("outbox of {partition}"));
                tokio::spawn(async move {
                    operations.damage.pass_over(Work::Booking, &outbox, &"it cannot be read").await;
                });
            }
            Alarm::Doubt { partition, reason } => self.check_memory(*partition, reason),
            Alarm::Quarantined { partition, outbox_id, reason } => {
                metrics.events_quarantined(1);
                metrics.alarm(labels::Alarm::Quarantine);
                tracing::error!(%partition, %outbox_id, reason, "an event waits in quarantine; see tollgate quarantine list");
            }
        }
    }

    fn lag(&self, events: usize, _oldest_ms: Option<i64>) {
        self.operations.metrics().writer_lag(u64::try_from(events).unwrap_or(u64::MAX));
    }

    fn failed(&self, error: &str) {
        tracing::warn!(error, "the writer could not go on; it retries");
    }
}
