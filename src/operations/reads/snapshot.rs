//! Reports of one instant, however many pages they have.

use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::Reads;
use crate::clock::Clock;
use crate::operations::error::{Answer, OperationError};

/// For how long a snapshot may be read: the database keeps what is deleted meanwhile.
const READ_WITHIN: Duration = Duration::from_secs(15 * 60);

/// Reads of the books as they were when it began.
pub struct Snapshot {
    reads: Reads,
    begun: Instant,
    _turn: OwnedSemaphorePermit,
}

impl Reads {
    /// The same reads of the books as they are now.
    ///
    /// Errors: [`OperationError::Overloaded`] where many are read already.
    pub async fn snapshot(&self) -> Answer<Snapshot> {
        let turn = self.files.clone().try_acquire_owned().map_err(|_| OperationError::Overloaded)?;
        let reads = Self { books: self.books.snapshot().await?, ..self.clone() };
        Ok(Snapshot { reads, begun: Clock::monotonic(), _turn: turn })
    }
}

impl Snapshot {
    /// The reads.
    ///
    /// Errors: it was made a quarter of an hour ago.
    pub fn reads(&self) -> Answer<&Reads> {
        if self.begun.elapsed() > READ_WITHIN {
            let late = "a file was not taken within a quarter of an hour";
            return Err(OperationError::LedgerUnavailable(late.into()));
        }
        Ok(&self.reads)
    }
}
