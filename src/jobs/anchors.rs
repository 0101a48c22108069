//! Anchors the heads of the hash chains outside the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::beat::until;
use crate::operations::Operations;

const ANCHOR_EVERY: Duration = Duration::from_secs(60);

/// Anchors the heads of the ledger's chains once a minute, until `stop` resolves.
pub async fn anchor_chains(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    let anchoring = async {
        let mut reported = BTreeMap::new();
        loop {
            if let Err(error) = operations.memory.anchor_chains(&mut reported).await {
                tracing::warn!(%error, "the heads of the chains could not be anchored yet");
            }
            tokio::time::sleep(ANCHOR_EVERY).await;
        }
    };
    until(stop, anchoring).await;
}
