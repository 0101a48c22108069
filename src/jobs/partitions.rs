//! Month partitions of the entries, made ahead. Cron only rings; the ledger knows which months are there.

use std::sync::Arc;

use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

use crate::ledger::Ledger;
use crate::operations::Operations;

/// Every hour, at the seventh minute, in UTC.
const BELL: &str = "0 7 * * * *";
const AHEAD_MS: i64 = 62 * 86_400_000;

/// Makes the partitions of this month and the next two now, and looks again every hour until `stop` resolves.
///
/// Errors: the bell could not be hung up.
pub async fn keep_partitions_ahead(
    operations: Arc<Operations>,
    ledger: Ledger,
    stop: impl Future<Output = ()>,
) -> Result<(), JobSchedulerError> {
    make_ahead(&operations, &ledger).await;
    let mut bell = JobScheduler::new().await?;
    let job = Job::new_async(BELL, move |_, _| {
        let (operations, ledger) = (operations.clone(), ledger.clone());
        Box::pin(async move { make_ahead(&operations, &ledger).await })
    })?;
    bell.add(job).await?;
    bell.start().await?;
    stop.await;
    bell.shutdown().await
}

async fn make_ahead(operations: &Operations, ledger: &Ledger) {
    let now_ms = operations.now_ms();
    match ledger.ensure_month_partitions(now_ms, now_ms.saturating_add(AHEAD_MS)).await {
        Ok(0) => {}
        Ok(made) => tracing::info!(made, "made month partitions of the entries ahead"),
        Err(error) => {
            tracing::warn!(%error, "month partitions could not be made ahead; the writer makes what it needs")
        }
    }
}
