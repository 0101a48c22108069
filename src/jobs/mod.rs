//! Work that time triggers: due reservations expire, parked calls are redelivered, the gate is watched and compared
//! with the ledger, and jobs run when they are due. Cron only wakes an instance; rows of the ledger decide what is due.

mod anchors;
mod cpu;
mod decisions;
mod dry_runs;
mod gauges;
mod load;
mod memory;
mod overdue;
mod parked;
mod reconcile;
mod retention;
mod schedule;
mod shares;
mod sweep;
mod violations;
mod watch;
mod work;

pub use anchors::anchor_chains;
pub use decisions::write_decisions;
pub use gauges::show_gauges;
pub use load::follow_load;
pub use memory::recheck_memory;
pub use overdue::{Overdue, overdue};
pub use parked::redeliver_parked;
pub use reconcile::{ReconcileOptions, reconcile_tenants, repair_drifts, undo_repeats};
pub use schedule::run_jobs;
pub use shares::renew_shares;
pub use sweep::sweep_due;
pub use violations::write_violations;
pub use watch::watch_gate;
pub use work::JobOptions;
