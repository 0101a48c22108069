//! Reports of one instant, however many pages they have.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::Reads;
use crate::clock::Clock;
use crate::operations::error::{Answer, OperationError};

/// For how long a snapshot may be read: the database keeps what is deleted meanwhile.
const READ_WITHIN: Duration = Duration::from_secs(15 * 60);
/// How long a reader may let it wait; longer than any page takes.
const NEXT_WITHIN: Duration = Duration::from_secs(120);
/// How often both are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long the database leaves it alone: it is ended here first.
const LEFT_ALONE: Duration = Duration::from_secs(150);
/// How long a file waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(3);

/// Reads of the books as they were when it began. Its turn and its connection end with it, or once it was not read for
/// two minutes: a client that takes nothing more is not asked for.
pub struct Snapshot {
    open: Arc<Mutex<Option<Open>>>,
}

struct Open {
    reads: Reads,
    begun: Instant,
    read: Instant,
    _turn: OwnedSemaphorePermit,
}

impl Open {
    fn is_over(&self) -> bool {
        self.begun.elapsed() > READ_WITHIN || self.read.elapsed() > NEXT_WITHIN
    }
}

impl Reads {
    /// The same reads of the books as they are now.
    ///
    /// Errors: [`OperationError::Overloaded`] where many are read already.
    pub async fn snapshot(&self) -> Answer<Snapshot> {
        let turn = tokio::time::timeout(TURN_WITHIN, self.files.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(OperationError::Overloaded) };
        let reads = Self { books: self.books.snapshot(LEFT_ALONE).await?, ..self.clone() };
        let now = Clock::monotonic();
        let open = Arc::new(Mutex::new(Some(Open { reads, begun: now, read: now, _turn: turn })));
        tokio::spawn(end_in_time(Arc::downgrade(&open)));
        Ok(Snapshot { open })
    }
}

impl Snapshot {
    /// The reads, for one page.
    ///
    /// Errors: it was made a quarter of an hour ago, or not read for two minutes.
    pub fn reads(&self) -> Answer<Reads> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.as_mut().filter(|open| !open.is_over()) {
            Some(open) => {
                open.read = Clock::monotonic();
                Ok(open.reads.clone())
            }
            None => Err(OperationError::LedgerUnavailable("a file was not taken in time".into())),
        }
    }
}

/// Ends a snapshot that nobody reads any more, although its reader is still there.
async fn end_in_time(open: Weak<Mutex<Option<Open>>>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(open) = open.upgrade() else { return };
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_none_or(Open::is_over) {
            *open = None;
            return;
        }
    }
}
