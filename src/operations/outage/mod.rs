//! While the gate is away: the ledger judges calls and parks them; they are redelivered once the gate answers.

mod conflicts;
mod degraded;
mod parking;
mod redelivered_calls;
mod redelivery;

use std::sync::Arc;

pub use conflicts::{ConflictChoice, ConflictView};
pub(super) use degraded::{keep_restorable, lives_of, standing};
use parking::Parking;

use crate::operations::core::Core;
use crate::operations::memory::Memory;
use crate::operations::preparation::Preparation;

/// The work done without the gate, and its redelivery.
pub struct Outage {
    core: Arc<Core>,
    preparation: Arc<Preparation>,
    memory: Arc<Memory>,
    pub(super) parking: Parking,
    /// How many parked calls may wait at once.
    parked_calls_max: u64,
}

impl Outage {
    /// Allows this many parked calls.
    pub(super) fn new(
        core: Arc<Core>,
        preparation: Arc<Preparation>,
        memory: Arc<Memory>,
        parked_calls_max: u64,
    ) -> Self {
        Self { core, preparation, memory, parking: Parking::default(), parked_calls_max }
    }
}
