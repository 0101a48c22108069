//! `ack: ledger`: waits until the books have an event, or say they do not. Those who wait ask together.

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, oneshot, watch};
use tokio::time::Instant;

use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId};
use crate::ledger::{AwaitedEvent, Booked, Cursor, Ledger};
use crate::operations::{Answer, OperationError, Operations};

/// How far the ledger has booked each partition, as far as this instance knows; moved by the writer or by asking.
pub struct Positions {
    cursors: watch::Sender<Vec<BookedPosition>>,
    waiting: watch::Sender<usize>,
    asked_at: Turn<Option<Instant>>,
}

/// What is known of a partition's cursor.
#[derive(Debug, Clone, Copy, Default)]
struct BookedPosition {
    booked: OutboxId,
    given_up: Epoch,
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
            cursors: watch::Sender::new(vec![BookedPosition::default(); usize::from(partitions)]),
            waiting: watch::Sender::new(0),
            asked_at: Turn::new(None),
        }
    }

    /// Notes how far the ledger has booked these partitions. Only rises.
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

    /// Resolves while anybody waits.
    pub async fn wanted(&self) {
        // The sender lives as long as self, so waiting cannot fail.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await;
    }

    /// Waits until nothing up to `id` of `partition` is still to be booked.
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

/// Questions whether events are booked. While some are asked, the next ones gather and are then asked in one statement.
#[derive(Default)]
pub(in crate::operations) struct Questions {
    gathered: Mutex<Vec<Gathered>>,
    turn: Turn<()>,
}

type Gathered = (AwaitedEvent, oneshot::Sender<Booked>);

impl Questions {
    /// None when the ledger did not answer.
    async fn ask(&self, ledger: &Ledger, event: AwaitedEvent) -> Option<Booked> {
        let (sender, mut answer) = oneshot::channel();
        self.lock().push((event, sender));
        // Those who were woken together put their questions beside this one.
        tokio::task::yield_now().await;
        let turn = tokio::select! {
            biased;
            answered = &mut answer => return answered.ok(),
            turn = self.turn.lock() => turn,
        };
        let gathered = mem::take(&mut *self.lock());
        if !gathered.is_empty() {
            let events: Vec<_> = gathered.iter().map(|(event, _)| *event).collect();
            let answers = ledger.are_booked(&events).await.ok()?;
            for ((_, sender), booked) in gathered.into_iter().zip(answers) {
                // One who does not wait any more needs no answer.
                let _ = sender.send(booked);
            }
        }
        drop(turn);
        answer.try_recv().ok()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Gathered>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const ASK_EVERY: Duration = Duration::from_millis(20);
/// How long the cursor alone is waited for before the reservation's row is asked.
const ASK_ROW_AFTER: Duration = Duration::from_millis(200);

impl Operations {
    /// Returns once the ledger has booked `event`, the `step`-th change of `id`; the time limit is `ack_timeout`. A repeat asks
    /// for the row at once: what it repeats is booked as a rule, and often under an epoch that no cursor is in any more.
    ///
    /// Errors: `LedgerTimeout` when it has not by then, or when the event is in quarantine.
    pub(super) async fn wait_until_booked(
        &self,
        id: ReservationId,
        step: u32,
        event: OutboxId,
        is_repeat: bool,
    ) -> Answer<()> {
        let cursor_alone = if is_repeat { Duration::ZERO } else { ASK_ROW_AFTER };
        let awaited = AwaitedEvent { reservation: id, step, event };
        let booked = async {
            // Bounded: the place of a restored record's event is one of its old epoch, which no cursor need ever reach.
            let reached = self.wait_for_cursor(id.partition(), event);
            let _ = tokio::time::timeout(cursor_alone, reached).await;
            loop {
                match self.questions.ask(&self.ledger, awaited).await {
                    Some(Booked::Yes) => return Ok(()),
                    Some(Booked::Quarantined) => return Err(OperationError::LedgerTimeout),
                    Some(Booked::NotYet) | None => tokio::time::sleep(ASK_EVERY).await,
                }
            }
        };
        match tokio::time::timeout(self.options.ack_timeout, booked).await {
            Ok(result) => result,
            Err(_) => Err(OperationError::LedgerTimeout),
        }
    }

    /// Waits until nothing up to `id` of `partition` is still to be booked; the caller bounds the wait.
    pub(in crate::operations) async fn wait_for_cursor(&self, partition: Partition, id: OutboxId) {
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

    /// One asks for all who wait, and not more often than each of them would.
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
