//! What time does: due reservations expire, the gate is watched, and jobs run when they are due. Cron only wakes; rows decide.

mod gauges;
mod retention;
mod schedule;
mod sweep;
mod watch;
mod work;

pub use gauges::show_gauges;
pub use schedule::run_jobs;
pub use sweep::sweep_due;
pub use watch::watch_gate;
pub use work::JobOptions;
