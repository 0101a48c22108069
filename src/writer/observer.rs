//! What the writer tells those who watch it.

use std::time::Duration;

use crate::domain::ids::{OutboxId, Partition};
use crate::ledger::Reconciliation;

/// Something that a person or the memory check has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alarm {
    /// The entry at the cursor is missing or another one: the partition's memory went back. Nothing more is booked of
    /// it until it has a new epoch.
    Amnesia {
        /// Which partition.
        partition: Partition,
        /// The last event booked.
        cursor: OutboxId,
    },
    /// Events were lost between two places.
    Gap {
        /// Which partition.
        partition: Partition,
        /// The last event before.
        after: OutboxId,
        /// The first event behind.
        found: OutboxId,
    },
    /// What the outbox holds of the cursor's epoch does not follow what was booked: it is never booked, and the partition
    /// goes on with its new epoch.
    GivenUp {
        /// Which partition.
        partition: Partition,
        /// The last event booked of the epoch.
        cursor: OutboxId,
    },
    /// The gate may have lost its memory, or begun an epoch that is not known here; told until it is checked.
    Doubt {
        /// The partition that shows it.
        partition: Partition,
        /// What it shows.
        reason: String,
    },
    /// An event went to quarantine.
    Quarantined {
        /// Which partition.
        partition: Partition,
        /// Its place.
        outbox_id: OutboxId,
        /// Why.
        reason: String,
    },
}

/// Told by the writer as it goes; every method may be left as it is.
pub trait WriterObserver: Send + Sync + 'static {
    /// A transaction with so many events was committed after this time.
    fn committed(&self, events: usize, took: Duration) {
        let _ = (events, took);
    }
    /// The ledger has booked these partitions up to these places, so `ack: ledger` holds for what is not in quarantine.
    fn booked(&self, places: &[(Partition, OutboxId)]) {
        let _ = places;
    }
    /// Resolves while somebody waits for the books: events are then booked as they come.
    fn wanted(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
    /// A checkpoint was compared with the books.
    fn judged(&self, judged: &Reconciliation) {
        let _ = judged;
    }
    /// Operations came again that the books already had: the gate has to give back what they moved.
    fn repeated(&self, operations: usize) {
        let _ = operations;
    }
    /// Something is wrong.
    fn alarm(&self, alarm: &Alarm) {
        let _ = alarm;
    }
    /// So many events are known to wait behind the cursors, the oldest since this gate time (unix ms).
    fn lag(&self, events: usize, oldest_ms: Option<i64>) {
        let _ = (events, oldest_ms);
    }
    /// A pass failed and is repeated after a pause.
    fn failed(&self, error: &str) {
        let _ = error;
    }
}

/// Watches nothing.
impl WriterObserver for () {}
