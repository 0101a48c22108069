//! The jobs, from the ledger's rows: when each is due, what its last run ended with, and runs that somebody asks for.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::operations::answers::JobState;
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};

/// The jobs of the installation, as the ledger's rows have them.
pub struct Jobs {
    core: Arc<Core>,
    bell: Notify,
}

impl Jobs {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, bell: Notify::new() }
    }

    /// Every planned job with its last run, by name.
    pub async fn list(&self) -> Answer<Vec<JobState>> {
        Ok(self.core.ledger.jobs().await?)
    }

    /// Asks for a run of the job `name` at once, whatever its time, and answers the job's state. An instance with the
    /// jobs role takes the run. The audit log names `actor`.
    ///
    /// Errors: no job has this name.
    pub async fn ask_for(&self, name: &str, actor: &str) -> Answer<JobState> {
        let unknown = || OperationError::NotFound(format!("no job is called `{name}`"));
        if !self.core.ledger.ask_for_job(name, actor).await? {
            return Err(unknown());
        }
        let asked_for = self.list().await?.into_iter().find(|job| job.name == name);
        self.ring();
        asked_for.ok_or_else(unknown)
    }

    /// For how long after its expiry a reservation may be consumed: the longest of all meters, in ms.
    pub fn longest_late_ms(&self) -> i64 {
        let policy = self.core.policy.current();
        let meters = policy.definitions().meters.values();
        meters
            .map(|meter| i64::from(meter.late_within_seconds))
            .max()
            .unwrap_or_default()
            .saturating_mul(1000)
    }

    /// Rings the bell, so that due jobs are looked for at once.
    pub fn ring(&self) {
        self.bell.notify_one();
    }

    /// Resolves when the bell has rung since the last time.
    pub async fn rung(&self) {
        self.bell.notified().await;
    }
}
