//! An operator's confirmation that the gate's clock is right: recorded in the audit log and sent to every instance.

use futures::FutureExt;
use serde_json::json;

use super::{BEGIN, Ledger, LedgerError, audit, notices};

/// The kind of notice that announces it.
pub const TIME_ACCEPTED: &str = "gate_time";

impl Ledger {
    /// Records who accepted the gate's clock although it is so far ahead of a host's, and notifies every instance.
    pub async fn note_time_accepted(&self, actor: &str, difference_ms: i64) -> Result<(), LedgerError> {
        let actor = actor.to_owned();
        self.transact(BEGIN, move |connection| {
            async move {
                let detail = json!({ "difference_ms": difference_ms });
                audit::note(connection, &actor, "accept", "gate/time", detail).await?;
                notices::tell(connection, TIME_ACCEPTED, "", 0).await
            }
            .boxed()
        })
        .await
    }
}
