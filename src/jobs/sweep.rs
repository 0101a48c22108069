//! The expiry sweep: its own short beat, because a hold must return within a second or two of its expiry.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::ids::Partition;
use crate::operations::Operations;

const BEAT: Duration = Duration::from_millis(250);
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Sweeps all partitions, beat by beat, until `stop` resolves. Any number of instances may sweep at once: each
/// reservation expires in one script.
pub async fn sweep_due(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    let sweeping = async {
        loop {
            let pause = if sweep_all(&operations).await { BEAT } else { AFTER_FAILURE };
            tokio::time::sleep(pause).await;
        }
    };
    tokio::select! {
        () = sweeping => {}
        () = stop => {}
    }
}

/// One round over all partitions; false when the gate did not answer, so that a faulty one is not pressed.
async fn sweep_all(operations: &Operations) -> bool {
    for partition in Partition::all(operations.partitions()) {
        loop {
            match operations.expire_due(partition).await {
                Ok(report) if report.more => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(%partition, %error, "the sweep could not go on");
                    return false;
                }
            }
        }
    }
    true
}
