//! Reads: quotas, the books, statements, their comparison with the gate, readiness.

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
mod statements;

use std::sync::Arc;

pub use entries::EntryExport;
pub use health::{Health, Readiness};

use crate::domain::ids::ReservationIds;
use crate::operations::core::Core;
use crate::operations::estimates::Estimates;
use crate::operations::memory::Memory;
use crate::operations::outage::Outage;

/// Reads of the gate and of the books.
pub struct Reads {
    core: Arc<Core>,
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
        Self { core, estimates, memory, outage, ids }
    }
}
