//! What the writer reports to its observer.

use std::time::Duration;

use crate::domain::ids::{OutboxId, Partition};
use crate::ledger::Reconciliation;

/// A fault to report to an operator or to the memory check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alarm {
    /// The entry at the cursor is missing or differs: the partition's memory went back. Nothing more of it is booked
    /// until it has a new epoch. Reported every few seconds until then.
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
        /// The first event after.
        found: OutboxId,
    },
    /// The tail of the cursor's epoch does not continue what was booked: it is abandoned, and the partition goes on
    /// with its new epoch.
    GivenUp {
        /// Which partition.
        partition: Partition,
        /// The last event booked of the epoch.
        cursor: OutboxId,
    },
    /// The gate may have lost its memory, or begun an unknown epoch; reported until the node is checked.
    Doubt {
        /// The partition that shows it.
        partition: Partition,
        /// What it shows.
        reason: String,
    },
    /// The outbox cannot be read: nothing of it is booked until it can. Reported at each pass.
    Unreadable {
        /// Which partition.
        partition: Partition,
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

/// Receives the writer's reports; every method has a default that does nothing.
pub trait WriterObserver: Send + Sync + 'static {
    /// A transaction with so many events was committed after this time.
    fn committed(&self, events: usize, took: Duration) {
        let _ = (events, took);
    }
    /// The ledger has booked these partitions up to these places, so `ack: ledger` holds for what is not in quarantine.
    fn booked(&self, places: &[(Partition, OutboxId)]) {
        let _ = places;
    }
    /// Resolves while a caller waits for the books: events are then booked without gathering.
    fn wanted(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
    /// A checkpoint was compared with the books.
    fn judged(&self, judged: &Reconciliation) {
        let _ = judged;
    }
    /// Booked operations came again as new events: the gate has to give back what they moved.
    fn repeated(&self, operations: usize) {
        let _ = operations;
    }
    /// Something is wrong.
    fn alarm(&self, alarm: &Alarm) {
        let _ = alarm;
    }
    /// This many events are known to wait after the cursors, the oldest since this gate time (unix ms).
    fn lag(&self, events: usize, oldest_ms: Option<i64>) {
        let _ = (events, oldest_ms);
    }
    /// A pass failed and is retried after a pause.
    fn failed(&self, error: &str) {
        let _ = error;
    }
}

/// Ignores every report.
impl WriterObserver for () {}
