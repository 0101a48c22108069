//! Gauges that are read from the ledger now and then.

use std::sync::Arc;
use std::time::Duration;

use super::overdue::{Watchdog, overdue};
use super::work;
use crate::beat::every;
use crate::ledger::{Ledger, LedgerError};
use crate::operations::Operations;

const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Updates the gauges until `stop` resolves: events in quarantine, parked calls, the age of each job's last success,
/// and how far back the outboxes' tails reach. Names in the log the jobs that have not succeeded for long.
pub async fn show_gauges(operations: Arc<Operations>, ledger: Ledger, stop: impl Future<Output = ()>) {
    let watchdog = Watchdog::default();
    let look = || async {
        if let Err(error) = show(&operations, &ledger, &watchdog).await {
            tracing::debug!(%error, "the ledger's figures could not be read");
        }
        match ledger.count_parked().await {
            Ok(counts) => operations.metrics().parked(counts.waiting, counts.conflicts),
            Err(error) => tracing::debug!(%error, "parked calls could not be counted"),
        }
        if let Err(error) = operations.calls.admission.show_tails().await {
            tracing::debug!(%error, "the outboxes' tails could not be looked at");
        }
    };
    every(LOOK_EVERY, stop, look).await;
}

async fn show(operations: &Operations, ledger: &Ledger, watchdog: &Watchdog) -> Result<(), LedgerError> {
    let metrics = operations.metrics();
    metrics.quarantine_open(ledger.count_quarantined().await?);
    metrics.damaged_items(u64::try_from(ledger.damages().await?.len()).unwrap_or(u64::MAX));
    let jobs = ledger.jobs().await?;
    for late in watchdog.to_name(overdue(&jobs, operations.now_ms())) {
        tracing::warn!(job = %late.job, "a job is overdue: {late}");
    }
    for state in jobs {
        if let Some(job) = work::of_name(&state.name) {
            let age = Duration::from_secs(state.unsuccessful_seconds.unsigned_abs());
            metrics.job_succeeded_before(job, age);
        }
    }
    Ok(())
}
