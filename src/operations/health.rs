//! Whether this instance can do its work: what readiness tells.

use super::Operations;

impl Operations {
    /// Each dependency by name: whether it answers, and in words. The gate alone decides whether calls can be admitted.
    pub async fn readiness(&self) -> Vec<(&'static str, bool, String)> {
        let (gate, ledger) = tokio::join!(self.gate.run_id(), self.ledger.policy_version());
        let gate = match gate {
            Ok(run_id) => ("gate", true, format!("Redis answers, run id {run_id}")),
            Err(error) => ("gate", false, error.to_string()),
        };
        let ledger = match ledger {
            Ok(version) => ("ledger", true, format!("Postgres answers, policy version {version}")),
            Err(error) => ("ledger", false, error.to_string()),
        };
        vec![gate, ledger]
    }
}
