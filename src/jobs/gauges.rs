//! Figures that only the ledger knows, shown in the metrics.

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::Ledger;
use crate::operations::Operations;

const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Shows how many events wait in quarantine and how many calls are parked, again and again, until `stop` resolves.
pub async fn show_gauges(operations: Arc<Operations>, ledger: Ledger, stop: impl Future<Output = ()>) {
    let showing = async {
        loop {
            match ledger.count_quarantined().await {
                Ok(open) => operations.metrics().quarantine_open(open),
                Err(error) => tracing::debug!(%error, "the quarantine could not be counted"),
            }
            match ledger.count_parked().await {
                Ok(counts) => operations.metrics().parked(counts.waiting, counts.conflicts),
                Err(error) => tracing::debug!(%error, "parked calls could not be counted"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        () = showing => {}
        () = stop => {}
    }
}
