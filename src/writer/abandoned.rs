//! What is never booked: the tails of old epochs, given up so that nobody waits for them.

use super::Outbox;
use super::observer::{Alarm, WriterObserver};
use super::outbox::OutboxEntry;
use super::run::{Failure, Writer};
use crate::domain::ids::{Epoch, OutboxId, Partition};
use crate::ledger::AbandonedTail;

impl<O: Outbox, W: WriterObserver> Writer<O, W> {
    /// Gives up what the outbox holds of the cursors' epochs, because it does not follow what was booked.
    pub(super) async fn abandon_mismatched_tails(
        &mut self,
        cursors: Vec<(Partition, OutboxId)>,
    ) -> Result<(), Failure> {
        let rest = |(partition, booked): (Partition, OutboxId)| AbandonedTail {
            partition,
            booked,
            epoch: booked.epoch,
        };
        for rest in self.give_up(cursors.into_iter().map(rest).collect()).await? {
            self.watch.alarm(&Alarm::GivenUp { partition: rest.partition, cursor: rest.booked });
        }
        Ok(())
    }

    /// Gives up what is lost of old epochs behind the cursors of these partitions, in whose outboxes nothing stands there: a
    /// partition that nobody calls would else never say so.
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
        // Read once more: since the newest epoch was adopted, no script appends to an older one.
        let read = self.outbox.read(&from, 2).await?;
        let tails = read.into_iter().filter_map(|(partition, events)| {
            let position = self.partitions.get(&partition)?;
            let rest = AbandonedTail { partition, booked: position.booked, epoch: before(position.issued) };
            is_silent(&events, position.booked).then_some(rest)
        });
        let tails = tails.collect();
        self.give_up(tails).await?;
        Ok(())
    }

    /// Whether old epochs of the partition are over that the ledger does not know to be settled.
    fn lags(&self, partition: Partition) -> bool {
        let position = self.partitions.get(&partition);
        position.is_some_and(|at| at.issued > at.booked.epoch && before(at.issued) > at.given_up)
    }

    /// Answers the tails that are given up now.
    async fn give_up(&mut self, tails: Vec<AbandonedTail>) -> Result<Vec<AbandonedTail>, Failure> {
        if tails.is_empty() {
            return Ok(tails);
        }
        let noted = self.ledger.abandon_tails(&tails).await?;
        if noted.len() < tails.len() {
            // Another writer went on meanwhile: read the positions again first.
            self.leased_until = None;
        }
        for rest in &noted {
            if let Some(position) = self.partitions.get_mut(&rest.partition) {
                position.given_up = position.given_up.max(rest.epoch);
            }
        }
        Ok(noted)
    }
}

/// Whether none of these stands behind the cursor.
pub(super) fn is_silent(events: &[OutboxEntry], booked: OutboxId) -> bool {
    events.iter().all(|(id, _)| *id <= booked)
}

fn before(epoch: Epoch) -> Epoch {
    Epoch(epoch.0.saturating_sub(1))
}
