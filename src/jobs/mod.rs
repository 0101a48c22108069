//! What time does: due reservations expire, months get their partitions ahead. Cron only wakes; rows decide.

mod gauges;
mod holders;
mod partitions;
mod sweep;

pub use gauges::show_gauges;
pub use holders::warm_holders;
pub use partitions::keep_partitions_ahead;
pub use sweep::sweep_due;
