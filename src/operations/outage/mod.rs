//! While the gate is away: calls are judged by the ledger, parked, and replayed once it answers.

pub(super) mod conflicts;
pub(super) mod degraded;
pub(super) mod parking;
pub(super) mod redelivered_calls;
pub(super) mod redelivery;
