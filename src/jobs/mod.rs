//! What time does: due reservations expire, months get their partitions ahead, gate and ledger are compared. Cron only wakes; rows decide.

mod gauges;
mod holders;
mod partitions;
mod reconcile;
mod sweep;

pub use gauges::show_gauges;
pub use holders::warm_holders;
pub use partitions::keep_partitions_ahead;
pub use reconcile::{ReconcileOptions, reconcile_tenants, repair_drifts, undo_repeats};
pub use sweep::sweep_due;
