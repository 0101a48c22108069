//! `ack: ledger`: waits until the books have an event, or say they do not.

use std::time::Duration;

use tokio::sync::watch;

use super::{Answer, OperationError, Operations};
use crate::domain::ids::{OutboxId, Partition, ReservationId};
use crate::ledger::Booked;

/// How far the ledger has booked each partition, as far as this instance knows; moved by the writer or by asking.
pub struct Positions {
    sender: watch::Sender<Vec<OutboxId>>,
    waiting: watch::Sender<usize>,
}

/// Counts one who waits, for as long as it lives.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

impl Positions {
    /// Nothing known yet, for `partitions` partitions.
    pub fn new(partitions: u16) -> Self {
        Self {
            sender: watch::Sender::new(vec![OutboxId::default(); usize::from(partitions)]),
            waiting: watch::Sender::new(0),
        }
    }

    /// Notes that the ledger has booked `partition` up to `id`. Only rises.
    pub fn note(&self, partition: Partition, id: OutboxId) {
        self.sender.send_if_modified(|positions| match positions.get_mut(partition.index()) {
            Some(known) if *known < id => {
                *known = id;
                true
            }
            _ => false,
        });
    }

    /// Resolves while anybody waits.
    pub async fn wanted(&self) {
        // The sender lives as long as self, so waiting cannot fail.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await;
    }

    /// Waits until `partition` is booked up to `id`.
    async fn reach(&self, partition: Partition, id: OutboxId) {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let _waiting = Waiting(&self.waiting);
        let mut receiver = self.sender.subscribe();
        let reached =
            |positions: &Vec<OutboxId>| positions.get(partition.index()).is_some_and(|known| *known >= id);
        // The sender lives as long as self, so waiting cannot fail.
        let _ = receiver.wait_for(reached).await;
    }
}

const ASK_EVERY: Duration = Duration::from_millis(20);
/// How long the cursor alone is waited for before the reservation's row is asked.
const ASK_ROW_AFTER: Duration = Duration::from_millis(200);

impl Operations {
    /// Returns once the ledger has booked `event`, the `step`-th change of `id`; the time limit is `ack_timeout`.
    ///
    /// Errors: `LedgerTimeout` when it has not by then, or when the event is in quarantine.
    pub(super) async fn wait_until_booked(
        &self,
        id: ReservationId,
        step: u32,
        event: OutboxId,
    ) -> Answer<()> {
        let booked = async {
            // Bounded: the place of a restored record's event is one of its old epoch, which no cursor need ever reach.
            let reached = self.wait_for_cursor(id.partition(), event);
            let _ = tokio::time::timeout(ASK_ROW_AFTER, reached).await;
            loop {
                match self.ledger.is_booked(id, step, event).await {
                    Ok(Booked::Yes) => return Ok(()),
                    Ok(Booked::Quarantined) => return Err(OperationError::LedgerTimeout),
                    Ok(Booked::NotYet) | Err(_) => tokio::time::sleep(ASK_EVERY).await,
                }
            }
        };
        match tokio::time::timeout(self.options.ack_timeout, booked).await {
            Ok(result) => result,
            Err(_) => Err(OperationError::LedgerTimeout),
        }
    }

    /// Waits until nothing up to `id` of `partition` is still to be booked; the caller bounds the wait.
    pub(super) async fn wait_for_cursor(&self, partition: Partition, id: OutboxId) {
        let asking = async {
            loop {
                tokio::time::sleep(ASK_EVERY).await;
                if let Ok(cursor) = self.ledger.cursor_row(partition).await {
                    self.positions.note(partition, cursor.booked);
                    self.gate.note_cursor(partition, cursor.booked);
                    if cursor.settles(id) {
                        break;
                    }
                }
            }
        };
        tokio::select! {
            () = self.positions.reach(partition, id) => {}
            () = asking => {}
        }
    }
}
