//! Writes the violations that were summed up.

use std::sync::Arc;
use std::time::Duration;

use crate::beat::every;
use crate::operations::Operations;

const BEAT: Duration = Duration::from_secs(10);

/// Writes what waits until `stop` resolves, and once more then.
pub async fn write_violations(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    every(BEAT, stop, || operations.violations.write()).await;
    operations.violations.write().await;
}
