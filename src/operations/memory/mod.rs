//! What the gate remembers: whether it can be trusted, and how the ledger tells it what it has lost.

pub(super) mod anchors;
pub(super) mod catch_up;
pub(super) mod forgotten;
pub(super) mod key_filters;
pub(super) mod losses;
pub(super) mod memory_check;
pub(super) mod refetch;
pub(super) mod restore;
pub(super) mod restore_open;
pub(super) mod restore_subjects;
pub(super) mod restore_turns;
pub(super) mod told;
