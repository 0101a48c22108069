//! Checks the gate's memory again while it is in doubt, in every instance whatever its roles: one that only books, or
//! only runs jobs, may meet no call whose alarm would lead to a check.

use std::sync::Arc;
use std::time::Duration;

use crate::beat::every;
use crate::operations::Operations;

const BEAT: Duration = Duration::from_secs(2);

/// Checks the memory again beat by beat until `stop` resolves.
pub async fn recheck_memory(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    every(BEAT, stop, || operations.memory.check.check_again()).await;
}
