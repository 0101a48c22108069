//! While the gate is away: the ledger judges calls and parks them; they are redelivered once the gate answers.

mod conflicts;
mod degraded;
mod fallback;
mod parking;
mod redelivered_calls;
mod redelivery;
mod shares;

use std::sync::Arc;

pub use conflicts::{ConflictChoice, ConflictView};
pub(super) use degraded::{keep_restorable, lives_of, standing};
pub(super) use fallback::{LetThrough, Stranded};
pub(super) use shares::Refused;
pub use shares::SHARE_BEAT;

use fallback::Fallbacks;
use parking::Parking;
use shares::Shares;

use crate::operations::core::Core;
use crate::operations::memory::Memory;
use crate::operations::preparation::Preparation;

/// The work done without the gate, and its redelivery.
pub struct Outage {
    core: Arc<Core>,
    preparation: Arc<Preparation>,
    memory: Arc<Memory>,
    pub(super) parking: Parking,
    fallbacks: Fallbacks,
    shares: Shares,
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
        let (parking, fallbacks, shares) = (Parking::default(), Fallbacks::default(), Shares::default());
        Self { core, preparation, memory, parking, fallbacks, shares, parked_calls_max }
    }
}
