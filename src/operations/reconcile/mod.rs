//! The gate held against the books, and what differs repaired.

pub(super) mod checkpoint;
pub(super) mod compared;
pub(super) mod damage;
pub(super) mod repair;
pub(super) mod verify;
