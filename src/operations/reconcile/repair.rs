//! Repair and undo: where the gate counts something else than the books, the gate is corrected.

use std::time::Duration;

use super::Reconcile;
use crate::domain::checkpoint::{Difference, ReconciliationState};
use crate::domain::event::{Change, Event};
use crate::domain::reservation::Record;
use crate::gate::{GateError, Holder, RepairCall, RepairOutcome, UndoCall, UndoOutcome};
use crate::ledger::{Reconciliation, RepeatToUndo};
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::telemetry::labels::{Repaired, Script};

const DRIFTS_AT_ONCE: usize = 20;
/// Longer than repairing this many takes; after a crash, another instance goes on then.
const CLAIM_DURATION: Duration = Duration::from_secs(30);
const REPEATS_AT_ONCE: usize = 100;

impl Reconcile {
    /// Repairs drifts that the writer has found, oldest first, a bounded number; returns how many. Each counter gets a
    /// checkpoint's delta once, whichever instance tries and how often.
    /// A drift that cannot be repaired is skipped until its claim ends.
    pub async fn repair_drifts(&self) -> Answer<usize> {
        let drifts = self.core.ledger.claim_drifts(DRIFTS_AT_ONCE, CLAIM_DURATION).await?;
        for drift in &drifts {
            match self.repair_drift(drift).await {
                Err(error) if !error.is_server_away() => {
                    self.core
                        .damage
                        .pass_over(Work::Repair, &format!("tenant {}", drift.tenant), &error)
                        .await;
                }
                settled => settled?,
            }
        }
        Ok(drifts.len())
    }

    async fn repair_drift(&self, drift: &Reconciliation) -> Answer<()> {
        let mut quarantined = drift.quarantined;
        if drift.differences.iter().any(Difference::lowers) {
            let now = self.core.ledger.count_quarantined_of(drift.partition, &drift.tenant).await?;
            quarantined = quarantined.max(now);
        }
        let mut told = Vec::with_capacity(drift.differences.len());
        let mut all_done = true;
        for difference in &drift.differences {
            let refused = self.repair_counter(drift, difference, quarantined).await?;
            all_done &= refused.is_none();
            let name = &difference.counter.name;
            told.extend(refused.map(|why| format!("{name}: {why}")));
        }
        let state = if all_done { ReconciliationState::Repaired } else { ReconciliationState::Refused };
        let detail = told.join("; ");
        if self.core.ledger.settle_drift(drift, state, &detail).await? {
            tracing::warn!(tenant = %drift.tenant, checkpoint = %drift.checkpoint, state = state.as_str(), detail, "a drift is settled");
        }
        Ok(())
    }

    /// Repairs one counter; returns why it is left as it is, where it is.
    async fn repair_counter(
        &self,
        drift: &Reconciliation,
        difference: &Difference,
        quarantined: u64,
    ) -> Answer<Option<&'static str>> {
        if difference.lowers() && quarantined > 0 {
            self.core.metrics.repaired(Repaired::Refused);
            return Ok(Some("not lowered while events wait in quarantine"));
        }
        let counter = &difference.counter;
        let holder = match &counter.subject {
            None => Holder::Tenant,
            Some(subject) => Holder::Subject(self.core.gate.subject_hash(&drift.tenant, subject)),
        };
        let call = RepairCall {
            checkpoint: drift.checkpoint,
            place: drift.place,
            partition: drift.partition,
            tenant: &drift.tenant,
            holder,
            field: counter.field,
            window_ms: counter.window_ms,
            delta: difference.delta(),
            now_ms: self.core.script_now(),
        };
        let why = match self.core.timed(Script::Repair, self.core.gate.repair(&call)).await {
            Ok(RepairOutcome::Done) => {
                self.core.metrics.repaired(Repaired::Done);
                return Ok(None);
            }
            Ok(RepairOutcome::DoneBefore) => return Ok(None),
            Ok(RepairOutcome::RepairedSince) => "repaired or restored after the checkpoint",
            Ok(RepairOutcome::WindowMoved) => "its window has ended",
            Ok(RepairOutcome::Cold) => "it is cold at the gate: its next use restores it",
            Ok(RepairOutcome::OutOfBounds) => "it would be out of bounds",
            Ok(RepairOutcome::EpochOver) => "its epoch is over: counters come from the ledger",
            Err(error) => return Err(self.left_undone(error).await),
        };
        self.core.metrics.repaired(Repaired::Refused);
        Ok(Some(why))
    }

    /// Has the gate undo repeats, which the books took once, in order; returns how many. A reservation with a repeat
    /// that cannot be undone is skipped for a while; one whose counters wait for the ledger is left for the next run.
    pub async fn undo_repeats(&self) -> Answer<usize> {
        let (mut undone, mut after) = (0, None);
        loop {
            let repeats = self.core.ledger.repeats_to_undo(after, REPEATS_AT_ONCE).await?;
            let Some(last) = repeats.last() else { return Ok(undone) };
            after = Some((last.partition, last.outbox_id));
            for repeat in &repeats {
                let item = format!("reservation {}", repeat.reservation);
                if self.core.damage.is_passed_over(Work::Undo, &item) {
                    continue;
                }
                match self.undo_repeat(repeat).await {
                    Err(error) if !error.is_server_away() => {
                        self.core.damage.pass_over(Work::Undo, &item, &error).await
                    }
                    done => {
                        undone += usize::from(done?);
                    }
                }
            }
        }
    }

    /// Whether it is undone.
    async fn undo_repeat(&self, repeat: &RepeatToUndo) -> Answer<bool> {
        let place = repeat.outbox_id;
        let outcome = match (record_of(repeat), self.core.ledger.reservation(repeat.reservation).await?) {
            (Some(again), Some(row)) => self.undo_at_gate(repeat, &again, &row.record).await?,
            _ => {
                let why = "the repeat's event cannot be decoded; the next checkpoint compares its counters";
                self.core
                    .damage
                    .pass_over(Work::Undo, &format!("reservation {}", repeat.reservation), &why)
                    .await;
                UndoOutcome::Kept(place)
            }
        };
        // The end of the outbox when the gate no longer counted the repeat; none where its epoch ended first.
        let outbox_at = match outcome {
            UndoOutcome::Done(last) | UndoOutcome::Kept(last) => Some(last.max(place)),
            UndoOutcome::EpochOver => None,
            UndoOutcome::Waits => return Ok(false),
        };
        self.core.ledger.note_undone(repeat, outbox_at).await?;
        Ok(true)
    }

    async fn undo_at_gate(
        &self,
        repeat: &RepeatToUndo,
        again: &Record,
        booked: &Record,
    ) -> Answer<UndoOutcome> {
        let (id, place) = (repeat.reservation, repeat.outbox_id);
        let call = UndoCall { id, place, again, booked, now_ms: self.core.script_now() };
        match self.core.timed(Script::Undo, self.core.gate.undo(&call)).await {
            Ok(outcome) => {
                if matches!(outcome, UndoOutcome::Done(_)) {
                    tracing::warn!(reservation = %id, %place, tenant = %booked.body.tenant, "an operation that was booked already came again; the gate gave its units back");
                }
                Ok(outcome)
            }
            Err(error) => Err(self.left_undone(error).await),
        }
    }

    /// Checks the node after an alarm; the failed work is left for the next run.
    async fn left_undone(&self, error: GateError) -> OperationError {
        if let GateError::Alarm { partition, reason } = &error
            && let Err(failed) = self.memory.check.after_alarm(*partition, reason).await
        {
            return failed;
        }
        error.into()
    }
}

/// The record with which the reservation began again.
fn record_of(repeat: &RepeatToUndo) -> Option<Record> {
    match Event::decode(repeat.outbox_id, &repeat.event).ok()?.change {
        Change::Reserve(record) | Change::Usage(record) => Some(record),
        _ => None,
    }
}
