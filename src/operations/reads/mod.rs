//! Reads: quotas, the books, statements, their comparison with the gate, readiness.

mod adjustments;
mod audit;
mod balances;
mod entries;
mod estimates;
mod health;
mod leaked;
mod lists;
mod notices;
mod quota;
mod reconciliations;
mod revenue;
mod rollover;
mod snapshot;
mod statements;

use std::sync::Arc;

use tokio::sync::Semaphore;

pub use entries::EntryExport;
pub use health::{Health, Readiness};
pub use snapshot::Snapshot;

use crate::domain::ids::ReservationIds;
use crate::ledger::Ledger;
use crate::operations::core::Core;
use crate::operations::estimates::Estimates;
use crate::operations::memory::Memory;
use crate::operations::outage::Outage;

/// How many files of reports are read at once: each takes a connection of its own.
const FILES_AT_ONCE: usize = 4;

/// Reads of the gate and of the books.
#[derive(Clone)]
pub struct Reads {
    core: Arc<Core>,
    /// What reports read: the ledger, or a snapshot of it.
    books: Ledger,
    files: Arc<Semaphore>,
    estimates: Arc<Estimates>,
    memory: Arc<Memory>,
    outage: Arc<Outage>,
    ids: ReservationIds,
}

impl Reads {
    /// `ids` parses the ids in cursors.
    pub(super) fn new(
        core: Arc<Core>,
        estimates: Arc<Estimates>,
        memory: Arc<Memory>,
        outage: Arc<Outage>,
        ids: ReservationIds,
    ) -> Self {
        let (books, files) = (core.ledger.clone(), Arc::new(Semaphore::new(FILES_AT_ONCE)));
        Self { core, books, files, estimates, memory, outage, ids }
    }
}
