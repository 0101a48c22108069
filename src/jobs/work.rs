//! How often each job is due, and what it does.

use std::time::Duration;

use super::{dry_runs, retention};
use crate::ledger::jobs::{CLOSE, GRANTS, PERIODS, RESTORE, STATEMENTS, UPGRADES};
use crate::ledger::{Closed, Ledger, Manner};
use crate::operations::{Answer, FollowedGrants, Operations, RunProgress};
use crate::telemetry::labels::Job;

/// The settings that the jobs need.
#[derive(Debug, Clone)]
pub struct JobOptions {
    /// How long repeats of a resolved reservation are recognised, in days.
    pub idempotency_horizon_days: u64,
    /// How long after its end a period still takes what happened in it, before it is closed.
    pub close_grace: Duration,
    /// For how many months entries are kept at least.
    pub entries_kept_months: u32,
}

/// Every job.
pub(super) const ALL: [Job; 12] = [
    Job::Restore,
    Job::Periods,
    Job::Grants,
    Job::Upgrades,
    Job::Close,
    Job::Statements,
    Job::Notices,
    Job::Webhooks,
    Job::Estimates,
    Job::Partitions,
    Job::Keys,
    Job::Retention,
];

const MINUTE_MS: i64 = 60_000;
const MONTHS_AHEAD_MS: i64 = 62 * 24 * 60 * MINUTE_MS;
/// How many times a run is tried while a server does not answer.
const TRIES: usize = 5;
/// Of how many quotas notices are raised in one transaction.
const QUOTAS: usize = 2_000;
const PAUSE: Duration = Duration::from_secs(1);
/// How long sealing keys waits until everything that the gate had admitted when it began is booked.
const BOOKS_WITHIN: Duration = Duration::from_secs(10);

/// A job's name in the ledger.
pub(super) fn name(job: Job) -> &'static str {
    match job {
        Job::Restore => RESTORE,
        Job::Periods => PERIODS,
        Job::Grants => GRANTS,
        Job::Upgrades => UPGRADES,
        Job::Close => CLOSE,
        Job::Statements => STATEMENTS,
        Job::Notices => "notices",
        Job::Webhooks => "webhooks",
        Job::Estimates => "estimates",
        Job::Partitions => "partitions",
        Job::Keys => "keys",
        Job::Retention => "retention",
    }
}

/// The job of this name.
pub(super) fn of_name(found: &str) -> Option<Job> {
    ALL.into_iter().find(|job| name(*job) == found)
}

/// How often the job is due.
pub(super) fn beat(job: Job) -> Duration {
    Duration::from_millis(every_ms(job).unsigned_abs())
}

fn every_ms(job: Job) -> i64 {
    match job {
        Job::Webhooks => MINUTE_MS / 6,
        Job::Restore | Job::Grants | Job::Upgrades | Job::Notices => MINUTE_MS,
        Job::Periods | Job::Close | Job::Statements => 5 * MINUTE_MS,
        Job::Estimates | Job::Partitions | Job::Keys | Job::Retention => 60 * MINUTE_MS,
    }
}

/// The next time at which the job is due. Missed times are not made good one by one.
pub(super) fn next_tick_ms(job: Job, now_ms: i64) -> i64 {
    let every_ms = every_ms(job);
    (now_ms.div_euclid(every_ms) + 1).saturating_mul(every_ms)
}

/// Runs the job to its end in this manner, and shows how far it is. Returns the outcome, or why it failed, in words.
pub(super) async fn run(
    job: Job,
    manner: Manner,
    progress: &RunProgress,
    operations: &Operations,
    ledger: &Ledger,
    options: &JobOptions,
) -> Result<String, String> {
    let mut tries = 1;
    loop {
        match once(job, manner, progress, operations, ledger, options).await {
            Ok(outcome) => return Ok(outcome),
            Err(error) if tries < TRIES && error.is_server_away() => {
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

async fn once(
    job: Job,
    manner: Manner,
    progress: &RunProgress,
    operations: &Operations,
    ledger: &Ledger,
    options: &JobOptions,
) -> Answer<String> {
    if manner.dry_run
        && let Some(said) = dry_runs::said(job, operations).await?
    {
        return Ok(said);
    }
    match job {
        Job::Restore => restore(operations).await,
        Job::Periods => {
            let ahead = operations.memory.open_next_periods().await?;
            let (opened, delivered, followed) = (ahead.opened, ahead.delivered, ahead.followed);
            Ok(format!("opened {opened} and delivered {delivered}; {followed} followed policy"))
        }
        Job::Grants => follow_grants(operations).await,
        Job::Upgrades => {
            let applied = operations.upgrades.follow().await?;
            let followed = operations.plan_changes.follow().await?;
            Ok(format!(
                "put {applied} tenants on approved plans; the quotas of {followed} changes of plan followed"
            ))
        }
        Job::Close => {
            let done = operations.periods.close_showing(manner, options.close_grace, progress).await?;
            Ok(if manner.dry_run { dry_runs::of_close(&done) } else { of_close(&done) })
        }
        Job::Statements => {
            let done = operations.statements.issue(manner, options.close_grace).await?;
            let verb = if manner.dry_run { "would issue" } else { "issued" };
            let (statements, notes) = (done.statements, done.notes);
            let (waiting, failed) = (done.waiting, done.failed.len());
            Ok(format!(
                "{verb} {statements} statements and {notes} credit notes; {waiting} periods wait, {failed} failed"
            ))
        }
        Job::Notices => {
            let done = ledger.raise_quota_notices(operations.now_ms(), QUOTAS).await?;
            Ok(format!("raised {} notices and resolved {}", done.raised, done.resolved))
        }
        Job::Webhooks => {
            let done = operations.webhooks.deliver().await?;
            let (delivered, waiting, failed) = (done.delivered, done.waiting, done.failed);
            Ok(format!("delivered {delivered}; {waiting} are tried again, {failed} were given up"))
        }
        Job::Estimates => {
            let counted = operations.estimates.learn().await?;
            Ok(format!("learned from {counted} pieces of work"))
        }
        Job::Partitions => {
            let now_ms = operations.now_ms();
            let made = ledger.ensure_month_partitions(now_ms, now_ms.saturating_add(MONTHS_AHEAD_MS)).await?;
            Ok(format!("made {made} months"))
        }
        Job::Keys => {
            let (sealed, merged) = operations.memory.key_filters.seal_keys(BOOKS_WITHIN).await?;
            Ok(format!("sealed {sealed} keys and merged {merged} partitions"))
        }
        Job::Retention => {
            let (now_ms, late_ms) = (operations.now_ms(), operations.jobs.longest_late_ms());
            let cleared = retention::clear(now_ms, late_ms, ledger, options.idempotency_horizon_days).await?;
            let may_leave = retention::months_that_may_leave(now_ms, ledger, options.entries_kept_months);
            Ok(may_leave.await?.map_or(cleared.clone(), |months| format!("{cleared}; {months}")))
        }
    }
}

fn of_close(done: &Closed) -> String {
    let failed = if done.failed > 0 { format!(", {} failed", done.failed) } else { String::new() };
    format!("closed {} periods; {} wait{failed}", done.closed, done.waiting)
}

async fn restore(operations: &Operations) -> Answer<String> {
    let restored = operations.memory.restore_open_holds().await;
    // A tenant that cannot be restored keeps no other's hold forgotten.
    let forgotten = operations.memory.tell_forgotten_holds().await;
    let (restored, forgotten) = (restored?, forgotten?);
    let (tenants, subjects) = (restored.tenants, restored.subjects);
    Ok(format!("restored {tenants} tenants, {subjects} subjects and {forgotten} forgotten holds"))
}

async fn follow_grants(operations: &Operations) -> Answer<String> {
    // An adjustment that cannot be carried out now holds up no grant.
    let (adjusted, done) = (operations.adjustments.follow().await, operations.grants.follow().await?);
    adjusted?;
    let FollowedGrants { begun, settled, advanced, told } = done;
    Ok(format!(
        "booked {begun} grants that began and {settled} that ended, advanced those of {advanced} quotas that go on, \
         and sent {told} capacities"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_missed_days_is_due_once_and_then_at_its_next_time() {
        let day_ms = 24 * 60 * MINUTE_MS;
        for job in ALL {
            let next = next_tick_ms(job, 3 * day_ms + 1);
            assert!((3 * day_ms + 1..=3 * day_ms + 60 * MINUTE_MS).contains(&next), "{job:?}");
            assert!(next_tick_ms(job, next) > next, "{job:?}");
            assert_eq!(of_name(name(job)), Some(job));
        }
    }
}
