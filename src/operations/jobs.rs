//! The jobs, from the ledger's rows: when each is due, what its last run ended with, and runs that somebody asks for.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::ledger::Manner;
use crate::ledger::jobs::{CLOSE, GRANTS, PERIODS, STATEMENTS, UPGRADES};
use crate::operations::answers::{JobState, Rows};
use crate::operations::core::Core;
use crate::operations::error::{Answer, FieldError, OperationError};
use crate::operations::requests::Page;

/// The jobs that run as of an instant in the past, if somebody asks for it.
const AS_OF_AN_INSTANT: [&str; 2] = [CLOSE, STATEMENTS];
/// The jobs that change the books: each has a dry run.
const WITH_DRY_RUN: [&str; 5] = [CLOSE, STATEMENTS, GRANTS, PERIODS, UPGRADES];

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

    /// A page of them.
    pub async fn page(&self, page: Page) -> Answer<Rows<JobState>> {
        Ok(Rows::part(self.list().await?, &page, |job| job.name.clone()))
    }

    /// Asks for a run of the job `name` at once, whatever its time, and answers the job's state. An instance with the
    /// jobs role takes the run. The audit log names `actor`.
    ///
    /// Errors: no job has this name, or it knows no such manner, or the instant is in the future.
    pub async fn ask_for(&self, name: &str, manner: Manner, actor: &str) -> Answer<JobState> {
        let unknown = || OperationError::NotFound(format!("no job is called `{name}`"));
        self.check(name, manner)?;
        if !self.core.ledger.ask_for_job(name, manner, actor).await? {
            return Err(unknown());
        }
        let asked_for = self.list().await?.into_iter().find(|job| job.name == name);
        self.ring();
        asked_for.ok_or_else(unknown)
    }

    fn check(&self, name: &str, manner: Manner) -> Answer<()> {
        let mut errors = Vec::new();
        let mut refuse = |pointer: &str, given: bool, message: &str| {
            if given {
                errors.push(FieldError::new(pointer, message));
            }
        };
        let is_ahead = manner.as_of_ms.is_some_and(|at_ms| at_ms > self.core.gate_now_ms());
        if AS_OF_AN_INSTANT.contains(&name) {
            refuse("/at", is_ahead, "must not be in the future");
        } else {
            let message = format!("the job `{name}` does what is due now; leave this out");
            refuse("/at", manner.as_of_ms.is_some(), &message);
        }
        if !WITH_DRY_RUN.contains(&name) {
            let message = format!("the job `{name}` changes no books and has no dry run; leave this out");
            refuse("/dry_run", manner.dry_run, &message);
        }
        if errors.is_empty() { Ok(()) } else { Err(OperationError::Invalid(errors)) }
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
