//! The gate's memory: whether it can be trusted, and how the ledger restores what it has lost.

mod anchors;
mod capacities;
mod due;
mod ended_grants;
mod followed_periods;
mod forgotten;
mod key_filters;
mod losses;
mod memory_check;
mod next_period;
mod opened;
mod readings;
mod recovery;
mod refetch;
mod restore;
mod restore_open;
mod restore_subjects;
mod restore_turns;
mod told;

use std::sync::Arc;

pub use anchors::AnchorCheck;
pub use ended_grants::FollowedGrants;
pub(super) use ended_grants::quota_period;
pub use key_filters::KeyFilters;
pub(super) use losses::{Acknowledged, Lines};
pub use losses::{Losses, watch_losses};
pub use memory_check::MemoryCheck;
pub use next_period::NextPeriods;
pub(super) use recovery::{Recovery, Tries};
pub(super) use restore::cold_subjects;
pub use restore_open::RestoredHolds;
pub(super) use restore_subjects::Asks;

use crate::operations::core::Core;
use opened::Opened;
use restore_turns::RestoreTurns;

/// The check of the gate's memory, restores, key filters and losses.
pub struct Memory {
    core: Arc<Core>,
    turns: RestoreTurns,
    opened: Opened,
    /// Whether the gate's memory can be trusted.
    pub check: MemoryCheck,
    /// The keys that it may have forgotten.
    pub key_filters: Arc<KeyFilters>,
    /// The acknowledged events that it lost.
    pub losses: Arc<Losses>,
}

impl Memory {
    /// For a gate that remembers keyed calls for `keyed_memory_ms`.
    pub(super) fn new(core: Arc<Core>, keyed_memory_ms: i64) -> Self {
        Self {
            check: MemoryCheck::new(core.clone()),
            key_filters: Arc::new(KeyFilters::new(core.clone(), keyed_memory_ms)),
            losses: Arc::new(Losses::new(core.clone())),
            turns: RestoreTurns::default(),
            opened: Opened::default(),
            core,
        }
    }
}
