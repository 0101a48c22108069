//! The jobs as the ledger's rows have them.

use super::answers::{JobAnswer, JobRunAnswer};
use super::present::instant;
use super::{Answer, Operations};
use crate::ledger::{JobState, LastRun};

impl Operations {
    /// For how long after its expiry a reservation of any meter may be consumed, in ms.
    pub fn longest_late_ms(&self) -> i64 {
        let policy = self.policy.current();
        let meters = policy.definitions().meters.values();
        meters
            .map(|meter| i64::from(meter.late_within_seconds))
            .max()
            .unwrap_or_default()
            .saturating_mul(1000)
    }

    /// Every planned job with its last run, by name.
    pub async fn list_jobs(&self) -> Answer<Vec<JobAnswer>> {
        Ok(self.ledger.jobs().await?.into_iter().map(job).collect())
    }
}

fn job(state: JobState) -> JobAnswer {
    JobAnswer {
        name: state.name,
        next_due: instant(state.next_due_ms),
        succeeded_at: state.succeeded_at_ms.map(instant),
        last_run: state.last.map(run),
    }
}

fn run(last: LastRun) -> JobRunAnswer {
    JobRunAnswer {
        scheduled_for: instant(last.scheduled_for_ms),
        owner: last.owner,
        started_at: instant(last.started_at_ms),
        finished_at: last.finished_at_ms.map(instant),
        succeeded: last.succeeded,
        outcome: last.outcome,
    }
}
