//! What time does: due reservations expire, parked calls reach the gate, months get their partitions ahead. Cron only wakes; rows decide.

mod gauges;
mod holders;
mod parked;
mod partitions;
mod sweep;

pub use gauges::show_gauges;
pub use holders::warm_holders;
pub use parked::replay_parked;
pub use partitions::keep_partitions_ahead;
pub use sweep::sweep_due;
