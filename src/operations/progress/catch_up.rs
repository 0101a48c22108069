//! Waits until the ledger has all that a restore must find in it, and nothing older can be booked any more.

use std::time::Duration;

use super::BookingProgress;
use crate::domain::ids::{Epoch, OutboxId, Partition};
use crate::gate::{GateError, OutboxState};
use crate::ledger::AbandonedTail;
use crate::operations::error::{Answer, OperationError};

/// How often a writer may book part of an old epoch's tail first before the caller is sent away.
const CLOSING_TRIES_MAX: usize = 16;
/// How often the ledger is asked while every partition is waited for.
const ASK_ALL_EVERY: Duration = Duration::from_millis(50);

impl BookingProgress {
    /// Waits, within bounds, until everything up to `last_id` is booked or abandoned.
    pub(in crate::operations) async fn catch_up(
        &self,
        partition: Partition,
        last_id: OutboxId,
    ) -> Answer<()> {
        if self.ledger.cursor_row(partition).await?.settles(last_id) {
            return Ok(());
        }
        let reached = tokio::time::timeout(self.restore_wait, self.wait_for_cursor(partition, last_id));
        let late = || {
            OperationError::GateUnavailable(
                "the ledger has not caught up with it yet; repeat the call".into(),
            )
        };
        tokio::select! {
            biased;
            reached = reached => reached.map_err(|_| late()),
            // The writer reads from the same silent gate, so waiting longer would not help.
            () = self.gate.falls_silent() => Err(silent()),
        }
    }

    /// The epoch in force, once the ledger has booked what the outbox holds.
    pub(in crate::operations) async fn settled_epoch(&self, partition: Partition) -> Answer<Epoch> {
        let epoch = self.gate.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
        let facts = self.gate.meta_facts(partition).await?;
        let last_id = self.gate.last_event(partition).await?;
        self.catch_up(partition, last_id.unwrap_or_default()).await?;
        if facts.epoch == Some(epoch) {
            self.close_epochs_before(partition, epoch).await?;
        }
        Ok(epoch)
    }

    /// Abandons the tails of the epochs before this one: nothing of them is booked any more. A writer may still hold
    /// events that it read before the gate lost them; booked after a snapshot, the gate would never count them. To be
    /// called once the outbox of this epoch, as it is now, is settled.
    pub(in crate::operations) async fn close_epochs_before(
        &self,
        partition: Partition,
        epoch: Epoch,
    ) -> Answer<()> {
        let before = Epoch(epoch.0.saturating_sub(1));
        for _ in 0..CLOSING_TRIES_MAX {
            let cursor = self.ledger.cursor_row(partition).await?;
            if cursor.booked.epoch >= epoch || cursor.given_up >= before {
                return Ok(());
            }
            let rest = AbandonedTail { partition, booked: cursor.booked, epoch: before };
            // Where nothing was abandoned, the writer was faster: what it has booked is in every later snapshot.
            if !self.ledger.abandon_tails(&[rest]).await?.is_empty() {
                return Ok(());
            }
        }
        Err(OperationError::GateUnavailable(
            "the end of its lost memory is still being booked; repeat the call".into(),
        ))
    }

    /// What all outboxes hold now.
    pub(in crate::operations) async fn look_at_all(&self) -> Answer<Vec<OutboxState>> {
        let standings = self.gate.look(|| self.wall_clock.now_ms()).await?;
        if standings.len() != self.gate.partitions().count() {
            return Err(OperationError::GateUnavailable("an outbox could not be looked at".into()));
        }
        Ok(standings)
    }

    /// Waits at most `patience` until the ledger has booked all that any outbox holds now.
    pub(in crate::operations) async fn catch_up_all(&self, patience: Duration) -> Answer<()> {
        let standings = self.look_at_all().await?;
        let booked = async {
            loop {
                let cursors = self.ledger.cursors().await?;
                let is_settled = standings.iter().all(|standing| {
                    let mut cursors = cursors.iter();
                    cursors.any(|at| at.partition == standing.partition && at.settles(standing.last))
                });
                if is_settled {
                    return Ok(());
                }
                tokio::time::sleep(ASK_ALL_EVERY).await;
            }
        };
        let late = |_| OperationError::GateUnavailable("the ledger has not caught up with it yet".into());
        tokio::time::timeout(patience, booked).await.map_err(late)?
    }
}

/// The error for a caller that waited for a gate which stopped answering.
pub(in crate::operations) fn silent() -> OperationError {
    OperationError::GateUnavailable("it fell silent while a tenant was being restored".into())
}
