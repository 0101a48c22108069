//! While the gate is away: calls are judged by the ledger, parked, and delivered once it answers.

mod conflicts;
mod degraded;
mod parking;
mod redelivered_calls;
mod redelivery;

use std::sync::Arc;

pub use conflicts::{ConflictChoice, ConflictView};
pub(super) use degraded::standing;
use parking::Parking;

use crate::operations::core::Core;
use crate::operations::memory::Memory;
use crate::operations::preparation::Preparation;

/// What is done without the gate, and how it gets to the gate afterwards.
pub struct Outage {
    core: Arc<Core>,
    preparation: Arc<Preparation>,
    memory: Arc<Memory>,
    pub(super) parking: Parking,
    /// How many parked calls may wait at once.
    parked_calls_max: u64,
}

impl Outage {
    /// With room for so many parked calls.
    pub(super) fn new(
        core: Arc<Core>,
        preparation: Arc<Preparation>,
        memory: Arc<Memory>,
        parked_calls_max: u64,
    ) -> Self {
        Self { core, preparation, memory, parking: Parking::default(), parked_calls_max }
    }
}
