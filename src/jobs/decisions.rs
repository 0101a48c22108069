//! Writes the decisions of sampled tenants, a second's at once.

use std::sync::Arc;
use std::time::Duration;

use crate::beat::every;
use crate::operations::Operations;

const BEAT: Duration = Duration::from_secs(1);

/// Writes what waits until `stop` resolves, and once more then.
pub async fn write_decisions(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    every(BEAT, stop, || operations.decisions.write()).await;
    // First what was being written, then what came meanwhile.
    operations.decisions.write().await;
    operations.decisions.write().await;
}
