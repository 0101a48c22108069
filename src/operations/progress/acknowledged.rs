//! `ack: ledger`: waits until an event is booked, or cannot be. Callers who wait together ask
//! together.

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, oneshot};

use super::BookingProgress;
use super::positions::ASK_EVERY;
use crate::domain::ids::{OutboxId, ReservationId};
use crate::ledger::{AwaitedEvent, Booked, Ledger};
use crate::operations::error::{Answer, OperationError};

/// Questions whether events are booked. While some are being asked, the next ones gather and go out in one statement.
#[derive(Default)]
pub(super) struct Questions {
    gathered: Mutex<Vec<Gathered>>,
    turn: Turn<()>,
}

type Gathered = (AwaitedEvent, oneshot::Sender<Booked>);

impl Questions {
    /// None when the ledger did not answer.
    async fn ask(&self, ledger: &Ledger, event: AwaitedEvent) -> Option<Booked> {
        let (sender, mut answer) = oneshot::channel();
        self.lock().push((event, sender));
        // Callers that were woken together add their questions.
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
                // A caller that has stopped waiting needs no answer.
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

/// How long to wait for the cursor alone before the reservation's row is asked for.
const ASK_ROW_AFTER: Duration = Duration::from_millis(200);

impl BookingProgress {
    /// Returns once the ledger has booked `event`, the `step`-th change of `id`; the time limit is `ack_timeout`. A
    /// repeat asks for the row at once: its event is usually booked, and often in an epoch that no cursor is in any
    /// more.
    ///
    /// Errors: `LedgerTimeout` when it is not booked in time, or when the event is in quarantine.
    pub(in crate::operations) async fn wait_until_booked(
        &self,
        id: ReservationId,
        step: u32,
        event: OutboxId,
        is_repeat: bool,
    ) -> Answer<()> {
        let cursor_alone = if is_repeat { Duration::ZERO } else { ASK_ROW_AFTER };
        let awaited = AwaitedEvent { reservation: id, step, event };
        let booked = async {
            // Bounded: the event of a restored record is in an old epoch, and no cursor need ever reach it.
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
        match tokio::time::timeout(self.ack_timeout, booked).await {
            Ok(result) => result,
            Err(_) => Err(OperationError::LedgerTimeout),
        }
    }
}
