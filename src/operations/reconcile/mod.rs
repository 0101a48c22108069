//! Compares the gate with the books and repairs differences.

mod checkpoint;
mod compared;
mod repair;
mod verify;

use std::sync::Arc;

pub use checkpoint::{CheckpointTaken, TenantsPage};
pub use verify::GateCheck;

use crate::operations::core::Core;
use crate::operations::memory::Memory;
use compared::Compared;

/// Compares the gate with the books, and repairs it.
pub struct Reconcile {
    core: Arc<Core>,
    memory: Arc<Memory>,
    compared: Compared,
}

impl Reconcile {
    /// Nothing is compared yet.
    pub(super) fn new(core: Arc<Core>, memory: Arc<Memory>) -> Self {
        Self { core, memory, compared: Compared::default() }
    }
}
