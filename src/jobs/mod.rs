//! What time does: due reservations expire, months get their partitions ahead, the gate is watched. Cron only wakes; rows decide.

mod gauges;
mod holders;
mod partitions;
mod sweep;
mod watch;

pub use gauges::show_gauges;
pub use holders::warm_holders;
pub use partitions::keep_partitions_ahead;
pub use sweep::sweep_due;
pub use watch::watch_gate;
