//! The cursor of each partition, as far as this instance knows it.

use std::time::Duration;

use tokio::sync::{Mutex as Turn, watch};
use tokio::time::Instant;

use super::BookingProgress;
use crate::domain::ids::{Epoch, OutboxId, Partition};
use crate::ledger::Cursor;

/// How often the ledger is asked while somebody waits.
pub(super) const ASK_EVERY: Duration = Duration::from_millis(20);

/// The cursor of each partition, as far as this instance knows it. The writer of this instance moves it, or a question
/// to the ledger.
pub struct Positions {
    cursors: watch::Sender<Vec<BookedPosition>>,
    waiting: watch::Sender<usize>,
    asked_at: Turn<Option<Instant>>,
}

/// What this instance knows about a partition's cursor.
#[derive(Debug, Clone, Copy, Default)]
struct BookedPosition {
    booked: OutboxId,
    given_up: Epoch,
}

/// Counts a waiting caller while it lives.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

impl Positions {
    /// Nothing known yet of `partitions` partitions.
    pub fn new(partitions: u16) -> Self {
        Self {
            cursors: watch::Sender::new(vec![BookedPosition::default(); usize::from(partitions)]),
            waiting: watch::Sender::new(0),
            asked_at: Turn::new(None),
        }
    }

    /// Records the cursors of these partitions. They only rise.
    pub fn note(&self, places: &[(Partition, OutboxId)]) {
        self.raise(places.iter().map(|(partition, booked)| (*partition, *booked, Epoch::default())));
    }

    fn note_cursors(&self, cursors: &[Cursor]) {
        self.raise(cursors.iter().map(|cursor| (cursor.partition, cursor.booked, cursor.given_up)));
    }

    fn raise(&self, places: impl Iterator<Item = (Partition, OutboxId, Epoch)>) {
        self.cursors.send_if_modified(|cursors| {
            let mut rises = false;
            for (partition, booked, given_up) in places {
                if let Some(known) = cursors.get_mut(partition.index()) {
                    rises |= known.booked < booked || known.given_up < given_up;
                    known.booked = known.booked.max(booked);
                    known.given_up = known.given_up.max(given_up);
                }
            }
            rises
        });
    }

    /// Resolves when anybody waits.
    pub async fn wanted(&self) {
        // The sender lives as long as self, so waiting cannot fail.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await;
    }

    /// Waits until everything up to `id` of `partition` is booked or abandoned.
    async fn reach(&self, partition: Partition, id: OutboxId) {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let _waiting = Waiting(&self.waiting);
        let mut receiver = self.cursors.subscribe();
        let settled = |cursors: &Vec<BookedPosition>| {
            let known = cursors.get(partition.index());
            known.is_some_and(|known| Cursor::is_settled(known.booked, known.given_up, id))
        };
        // The sender lives as long as self, so waiting cannot fail.
        let _ = receiver.wait_for(settled).await;
    }
}

impl BookingProgress {
    /// Waits until everything up to `id` of `partition` is booked or abandoned. The caller bounds the wait.
    pub(super) async fn wait_for_cursor(&self, partition: Partition, id: OutboxId) {
        let asking = async {
            loop {
                tokio::time::sleep(ASK_EVERY).await;
                self.ask_for_cursors().await;
            }
        };
        tokio::select! {
            () = self.positions.reach(partition, id) => {}
            () = asking => {}
        }
    }

    /// One question serves all who wait, and no more often than each of them would ask.
    async fn ask_for_cursors(&self) {
        let Ok(mut asked_at) = self.positions.asked_at.try_lock() else { return };
        if asked_at.is_some_and(|at| at.elapsed() < ASK_EVERY) {
            return;
        }
        if let Ok(cursors) = self.ledger.cursors().await {
            self.positions.note_cursors(&cursors);
            cursors.iter().for_each(|cursor| self.gate.note_cursor(cursor.partition, cursor.booked));
        }
        *asked_at = Some(Instant::now());
    }
}
