//! An operator's word that the gate's clock is right: in the audit log, and told to every instance.

use futures::FutureExt;
use serde_json::json;

use super::{BEGIN, Ledger, LedgerError, audit, notices};

/// The kind of notice that tells of it.
pub const TIME_ACCEPTED: &str = "gate_time";

impl Ledger {
    /// Notes who accepted the gate's clock although it is so far ahead of a host's, and tells every instance.
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
