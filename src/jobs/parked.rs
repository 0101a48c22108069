//! Parked calls, brought to the gate as soon as it answers again.

use std::sync::Arc;
use std::time::Duration;

use crate::beat::until;
use crate::clock::Clock;
use crate::operations::Operations;

const BEAT: Duration = Duration::from_millis(250);
/// What a lost notice would leave behind is found this late.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Replays what is known to wait, beat by beat, and looks for what is not known, until `stop` resolves. Any number of
/// instances may do so at once.
pub async fn redeliver_parked(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    let replaying = async {
        let mut looked_at = Clock::monotonic();
        loop {
            if looked_at.elapsed() >= LOOK_EVERY {
                looked_at = Clock::monotonic();
                if let Err(error) = operations.look_for_parked().await {
                    tracing::debug!(%error, "parked calls could not be looked up");
                }
            }
            operations.redeliver_parked().await;
            tokio::time::sleep(BEAT).await;
        }
    };
    until(stop, replaying).await;
}
