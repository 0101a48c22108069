//! The schedule: cron wakes it once a second; the ledger's rows say what is due and who has claimed it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio_cron_scheduler::{Job as Bell, JobScheduler, JobSchedulerError};

use super::work::{self, JobOptions};
use crate::beat::until;
use crate::ledger::lease::lost;
use crate::ledger::{JobRun, Ledger, LedgerError};
use crate::operations::{Operations, RunProgress};
use crate::telemetry::labels::Job;

/// Every second.
const BELL: &str = "* * * * * *";
/// The rows are read after this time even if nothing rings.
const SILENCE_MAX: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(6);
/// How long it may take to note how far a run is.
const NOTED_WITHIN: Duration = Duration::from_secs(1);
/// How soon a failed run is followed by another, in ms of the service's time.
const RETRY_AFTER_MS: i64 = 10_000;

/// Runs due jobs until `stop` resolves, then gives unfinished runs back. Any number of instances may do so: each run is
/// claimed by one, and another takes it over when its owner dies.
///
/// Errors: cron could not be started.
pub async fn run_jobs(
    operations: Arc<Operations>,
    ledger: Ledger,
    options: JobOptions,
    stop: impl Future<Output = ()>,
) -> Result<(), JobSchedulerError> {
    let mut bell = JobScheduler::new().await?;
    // Cron's own tasks live on after its end, and must not keep the connections of an instance that has stopped.
    let rung = Arc::downgrade(&operations);
    let ring = Bell::new_async(BELL, move |_, _| {
        let rung = rung.upgrade();
        Box::pin(async move {
            if let Some(operations) = rung {
                operations.jobs.ring();
            }
        })
    })?;
    bell.add(ring).await?;
    bell.start().await?;
    let owner = format!("jobs/{}", uuid::Uuid::now_v7());
    let runner = Arc::new(Runner { operations, ledger, options, owner });
    until(stop, runner.clone().run_what_is_due()).await;
    if let Err(error) = runner.ledger.give_back_jobs(&runner.owner).await {
        tracing::debug!(%error, "runs under way were not given back; their leases end by themselves");
    }
    bell.shutdown().await
}

struct Runner {
    operations: Arc<Operations>,
    ledger: Ledger,
    options: JobOptions,
    owner: String,
}

impl Runner {
    async fn run_what_is_due(self: Arc<Self>) {
        // Dropping this future ends the runs in it.
        let mut running = JoinSet::new();
        let mut planned = false;
        loop {
            while running.try_join_next().is_some() {}
            if !planned {
                planned = self.plan().await.is_ok();
            }
            loop {
                match self.claim().await {
                    Ok(Some((job, run))) => {
                        running.spawn(self.clone().run(job, run));
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(%error, "the ledger does not say what is due");
                        break;
                    }
                }
            }
            // Rung, or the longest silence is over: look again.
            let _ = tokio::time::timeout(SILENCE_MAX, self.operations.jobs.rung()).await;
        }
    }

    /// Makes every job due at a start, so that missed runs are made good at once.
    async fn plan(&self) -> Result<(), LedgerError> {
        let now_ms = self.operations.now_ms();
        let due: Vec<_> = work::ALL.iter().map(|job| (work::name(*job), now_ms)).collect();
        self.ledger.plan_jobs(&due).await
    }

    async fn claim(&self) -> Result<Option<(Job, JobRun)>, LedgerError> {
        let names: Vec<_> = work::ALL.iter().map(|job| work::name(*job)).collect();
        let run = self.ledger.claim_job(&names, &self.owner, LEASE, self.operations.now_ms()).await?;
        Ok(run.and_then(|run| Some((work::of_name(&run.job)?, run))))
    }

    async fn run(self: Arc<Self>, job: Job, run: JobRun) {
        let progress = RunProgress::default();
        let working = work::run(job, run.manner, &progress, &self.operations, &self.ledger, &self.options);
        // A run that panicked would stay claimed, and be claimed again at once when its lease ends, for ever.
        let working = AssertUnwindSafe(working)
            .catch_unwind()
            .map(|ended| ended.unwrap_or_else(|_| Err("it panicked; the log says where".to_owned())));
        tokio::select! {
            outcome = working => {
                self.note(&run, &progress).await;
                self.finish(job, &run, outcome).await
            }
            () = lost(LEASE, || self.renew(&run, &progress)) => {
                tracing::warn!(job = run.job, "another instance has taken this run over");
            }
        }
    }

    /// Renews the lease, and notes how far the run is.
    async fn renew(&self, run: &JobRun, progress: &RunProgress) -> Result<bool, LedgerError> {
        let renewed = self.ledger.renew_job(run, LEASE).await;
        // A lease does not wait for what is only shown.
        let _ = tokio::time::timeout(NOTED_WITHIN, self.note(run, progress)).await;
        renewed
    }

    async fn note(&self, run: &JobRun, progress: &RunProgress) {
        let Some((done, total)) = progress.now() else { return };
        if let Err(error) = self.ledger.note_progress(run, done, total).await {
            tracing::debug!(job = run.job, %error, "how far a run is was not noted");
        }
    }

    async fn finish(&self, job: Job, run: &JobRun, outcome: Result<String, String>) {
        let now_ms = self.operations.now_ms();
        let next_tick_ms = work::next_tick_ms(job, now_ms);
        let (succeeded, words, next_due_ms) = match outcome {
            Ok(words) => (true, words, next_tick_ms),
            Err(words) => {
                tracing::warn!(job = run.job, error = words, "a job failed; it is tried again");
                (false, words, next_tick_ms.min(now_ms.saturating_add(RETRY_AFTER_MS)))
            }
        };
        match self.ledger.finish_job(run, succeeded, &words, next_due_ms).await {
            Ok(true) => tracing::debug!(job = run.job, outcome = words, "a job ended"),
            Ok(false) => tracing::warn!(job = run.job, "another instance has taken this run over"),
            Err(error) => {
                tracing::warn!(job = run.job, %error, "the end of a run was not booked; it is run again")
            }
        }
    }
}
