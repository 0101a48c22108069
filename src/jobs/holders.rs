//! Subjects named by restored holds, told to the gate without waiting for their next call, so that the holds can expire.

use std::sync::Arc;
use std::time::Duration;

use crate::operations::Operations;

const BEAT: Duration = Duration::from_millis(250);

/// Restores them beat by beat until `stop` resolves. Every instance runs it: only the one that restored a tenant knows
/// which subjects its holds name.
pub async fn warm_holders(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    let warming = async {
        loop {
            if let Err(error) = operations.warm_holders().await {
                tracing::warn!(%error, "subjects of restored holds could not be restored yet");
            }
            tokio::time::sleep(BEAT).await;
        }
    };
    tokio::select! {
        () = warming => {}
        () = stop => {}
    }
}
