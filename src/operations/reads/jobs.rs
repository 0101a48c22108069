//! The jobs as the ledger's rows have them.

use super::Reads;
use crate::operations::answers::JobState;
use crate::operations::error::Answer;

impl Reads {
    /// For how long after its expiry a reservation of any meter may be consumed, in ms.
    pub fn longest_late_ms(&self) -> i64 {
        let policy = self.core.policy.current();
        let meters = policy.definitions().meters.values();
        meters
            .map(|meter| i64::from(meter.late_within_seconds))
            .max()
            .unwrap_or_default()
            .saturating_mul(1000)
    }

    /// Every planned job with its last run, by name.
    pub async fn list_jobs(&self) -> Answer<Vec<JobState>> {
        Ok(self.core.ledger.jobs().await?)
    }
}
