//! Abandons the tails of old epochs: their events are never booked, so nobody may wait for them.

use super::Outbox;
use super::failure::Failure;
use super::observer::{Alarm, WriterObserver};
use super::outbox::OutboxEntry;
use super::run::Writer;
use crate::domain::ids::{Epoch, OutboxId, Partition};
use crate::ledger::AbandonedTail;

impl<O: Outbox, W: WriterObserver> Writer<O, W> {
    /// Abandons the tails of the cursors' epochs, because they do not continue what was booked.
    pub(super) async fn abandon_mismatched_tails(
        &mut self,
        cursors: Vec<(Partition, OutboxId)>,
    ) -> Result<(), Failure> {
        let tail = |(partition, booked): (Partition, OutboxId)| AbandonedTail {
            partition,
            booked,
            epoch: booked.epoch,
        };
        for tail in self.give_up(cursors.into_iter().map(tail).collect()).await? {
            self.watch.alarm(&Alarm::GivenUp { partition: tail.partition, cursor: tail.booked });
        }
        Ok(())
    }

    /// Abandons the lost tails of idle partitions, whose outboxes hold nothing after the cursor: no call would reveal
    /// the loss.
    pub(super) async fn give_up_lost(&mut self, silent: &[Partition]) -> Result<(), Failure> {
        let lagging: Vec<_> = silent.iter().copied().filter(|partition| self.lags(*partition)).collect();
        if lagging.is_empty() {
            return Ok(());
        }
        let adopted = self.outbox.epochs(&lagging).await?;
        let from = adopted.into_iter().filter_map(|(partition, epoch)| {
            let position = self.partitions.get(&partition)?;
            (epoch == Some(position.issued)).then(|| (partition, position.read_from()))
        });
        let from: Vec<_> = from.collect();
        if from.is_empty() {
            return Ok(());
        }
        // Reads once more: no script appends to an older epoch once the newest one is adopted.
        let read = self.outbox.read(&from, 2).await?;
        let tails = read.into_iter().filter_map(|(partition, events)| {
            let position = self.partitions.get(&partition)?;
            let tail = AbandonedTail { partition, booked: position.booked, epoch: before(position.issued) };
            is_silent(&events, position.booked).then_some(tail)
        });
        let tails = tails.collect();
        self.give_up(tails).await?;
        Ok(())
    }

    /// Whether older epochs of the partition have ended that the ledger neither booked to their end nor abandoned.
    fn lags(&self, partition: Partition) -> bool {
        let position = self.partitions.get(&partition);
        position.is_some_and(|at| at.issued > at.booked.epoch && before(at.issued) > at.given_up)
    }

    /// Returns the tails that are abandoned now.
    async fn give_up(&mut self, tails: Vec<AbandonedTail>) -> Result<Vec<AbandonedTail>, Failure> {
        if tails.is_empty() {
            return Ok(tails);
        }
        let noted = self.ledger.abandon_tails(&tails).await?;
        if noted.len() < tails.len() {
            // Another writer has moved a cursor: read the positions again first.
            self.leased_until = None;
        }
        for tail in &noted {
            if let Some(position) = self.partitions.get_mut(&tail.partition) {
                position.given_up = position.given_up.max(tail.epoch);
            }
        }
        Ok(noted)
    }
}

/// Whether none of these events comes after the cursor.
pub(super) fn is_silent(events: &[OutboxEntry], booked: OutboxId) -> bool {
    events.iter().all(|(id, _)| *id <= booked)
}

fn before(epoch: Epoch) -> Epoch {
    Epoch(epoch.0.saturating_sub(1))
}
