//! Redelivers parked calls as soon as the gate answers again.

use std::sync::Arc;
use std::time::Duration;

use crate::beat::until;
use crate::clock::Clock;
use crate::operations::Operations;

const BEAT: Duration = Duration::from_millis(250);
/// A parked call whose notice was lost is found within this time.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Redelivers the calls known to wait, and looks for unknown ones now and then, until `stop` resolves. Any number of
/// instances may do so at once.
pub async fn redeliver_parked(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    let replaying = async {
        let mut looked_at = Clock::monotonic();
        loop {
            if looked_at.elapsed() >= LOOK_EVERY {
                looked_at = Clock::monotonic();
                if let Err(error) = operations.outage.look_for_parked().await {
                    tracing::debug!(%error, "parked calls could not be looked up");
                }
            }
            operations.outage.redeliver_parked().await;
            tokio::time::sleep(BEAT).await;
        }
    };
    until(stop, replaying).await;
}
