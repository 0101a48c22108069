//! Jobs: when each is due, who runs it, how its runs ended. Every run is a row that one instance claims and holds by a
//! lease.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::dsl::{exists, not};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Interval, Nullable, Text, Timestamptz};
use diesel::upsert::excluded;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde_json::json;

use super::columns::{Milliseconds, MillisecondsIfAny};
use super::functions::{clock_timestamp, greatest, interval, later, least};
use super::prepared::sql_query;
use super::schema::{job_runs, jobs};
use super::{BEGIN, Ledger, LedgerError, audit, instant, notices, number};

/// The job that restores what the gate forgot by a new epoch; issuing an epoch makes it due.
pub const RESTORE: &str = "restore";
/// The job that closes periods.
pub const CLOSE: &str = "close";
/// The job that issues statements.
pub const STATEMENTS: &str = "statements";
/// The job that books grants and sends capacities to the gate.
pub const GRANTS: &str = "grants";
/// The job that opens the next periods.
pub const PERIODS: &str = "periods";
/// The job that puts tenants on approved plans.
pub const UPGRADES: &str = "upgrades";

/// A run that its owner has claimed. The fence distinguishes it from an earlier claim of the same run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRun {
    /// Its job.
    pub job: String,
    /// Who runs it.
    pub owner: String,
    /// How often the run has been claimed. Above 1: it was taken over from an owner that died.
    pub fence: i64,
    /// How it is to be made.
    pub manner: Manner,
    scheduled_for: DateTime<Utc>,
    rings: i64,
}

/// How a run is to be made: usually at the current instant and for real; somebody may ask for another one or a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Manner {
    /// The instant as of which to run (unix ms); none for the current one.
    pub as_of_ms: Option<i64>,
    /// Whether to say only what would be done.
    pub dry_run: bool,
}

/// A job's schedule and its last run.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct JobState {
    /// Its job.
    #[diesel(sql_type = Text)]
    pub name: String,
    /// When it is due next (service time, unix ms).
    #[diesel(sql_type = Timestamptz, column_name = next_due, deserialize_as = Milliseconds)]
    pub next_due_ms: i64,
    /// Whether it was asked for and no run that began since has ended.
    #[diesel(sql_type = Bool)]
    pub is_asked_for: bool,
    /// Its last run, if there was one.
    #[diesel(embed)]
    pub last: Option<LastRun>,
    /// When a run that was no dry run last succeeded (the database's clock, unix ms).
    #[diesel(sql_type = Nullable<Timestamptz>, column_name = succeeded_at, deserialize_as = MillisecondsIfAny)]
    pub succeeded_at_ms: Option<i64>,
    /// Seconds since then, or since the job was first planned.
    #[diesel(sql_type = BigInt)]
    pub unsuccessful_seconds: i64,
}

/// A job's last run.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct LastRun {
    /// The time for which it ran (service time, unix ms).
    #[diesel(sql_type = Timestamptz, column_name = scheduled_for, deserialize_as = Milliseconds)]
    pub scheduled_for_ms: i64,
    /// Who ran it; after a takeover, the last owner.
    #[diesel(sql_type = Text)]
    pub owner: String,
    /// When it began (the database's clock, unix ms).
    #[diesel(sql_type = Timestamptz, column_name = started_at, deserialize_as = Milliseconds)]
    pub started_at_ms: i64,
    /// When it ended; none while it runs.
    #[diesel(sql_type = Nullable<Timestamptz>, column_name = finished_at, deserialize_as = MillisecondsIfAny)]
    pub finished_at_ms: Option<i64>,
    /// Whether it succeeded; none while it runs.
    #[diesel(sql_type = Nullable<Bool>)]
    pub succeeded: Option<bool>,
    /// Its outcome, in words.
    #[diesel(sql_type = Nullable<Text>)]
    pub outcome: Option<String>,
    /// Whether it was a dry run.
    #[diesel(sql_type = Bool)]
    pub dry_run: bool,
    /// How much of its work is done; none unless it says so.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub done: Option<i64>,
    /// Of how much; likewise.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub total: Option<i64>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = jobs)]
struct Due {
    name: String,
    next_due: DateTime<Utc>,
    rings: i64,
    asked_as_of: Option<DateTime<Utc>>,
    asked_dry_run: bool,
}

#[derive(Queryable, QueryableByName, Selectable)]
#[diesel(table_name = job_runs)]
struct Claimed {
    scheduled_for: DateTime<Utc>,
    fence: i64,
}

/// The unfinished run of this claim, unless another instance has claimed it since.
#[diesel::dsl::auto_type(no_type_alias)]
fn claimed(job: String, scheduled_for: DateTime<Utc>, owner: String, fence: i64) -> _ {
    job_runs::table
        .filter(job_runs::job.eq(job))
        .filter(job_runs::scheduled_for.eq(scheduled_for))
        .filter(job_runs::owner.eq(owner))
        .filter(job_runs::fence.eq(fence))
        .filter(job_runs::finished_at.is_null())
}

impl Ledger {
    /// Plans jobs that are not planned yet; each is due at the given time (service time, unix ms) at the latest.
    pub async fn plan_jobs(&self, due: &[(&str, i64)]) -> Result<(), LedgerError> {
        let row = |(name, at_ms): &(&str, i64)| {
            Ok((jobs::name.eq((*name).to_owned()), jobs::next_due.eq(instant::from_ms(*at_ms)?)))
        };
        let rows = due.iter().map(row).collect::<Result<Vec<_>, LedgerError>>()?;
        let plan = diesel::insert_into(jobs::table)
            .values(rows)
            .on_conflict(jobs::name)
            .do_update()
            .set(jobs::next_due.eq(least(jobs::next_due, excluded(jobs::next_due))));
        self.execute(plan).await.map(drop)
    }

    /// Wakes the instances that wait for a job that was made due.
    pub async fn wake_jobs(&self) -> Result<(), LedgerError> {
        self.transact(BEGIN, move |connection| notices::tell(connection, "job", RESTORE, 0).boxed()).await
    }

    /// Makes a planned job due at once, in the name of `actor`, and wakes the instances that run jobs; false if no job
    /// has this name. The manner holds for the next run; the last one that is asked for counts.
    pub async fn ask_for_job(&self, job: &str, manner: Manner, actor: &str) -> Result<bool, LedgerError> {
        let (job, actor) = (job.to_owned(), actor.to_owned());
        let as_of = manner.as_of_ms.map(instant::from_ms).transpose()?;
        self.transact(BEGIN, move |connection| {
            async move {
                if !ring(connection, &job).await? {
                    return Ok(false);
                }
                let asked = (jobs::asked_as_of.eq(as_of), jobs::asked_dry_run.eq(manner.dry_run));
                diesel::update(jobs::table.find(&job)).set(asked).execute(connection).await?;
                let detail = match manner {
                    Manner { as_of_ms: None, dry_run: false } => json!({}),
                    Manner { dry_run, .. } => {
                        json!({ "at": as_of.map(|at| at.to_rfc3339()), "dry_run": dry_run })
                    }
                };
                audit::note(connection, &actor, "run", &format!("job {job}"), detail).await?;
                notices::tell(connection, "job", &job, 0).await?;
                Ok(true)
            }
            .boxed()
        })
        .await
    }

    /// Claims a run of one of these jobs that is due at `now_ms` (service time) or was made due at once, and that no
    /// living owner runs. That is a new run, or one whose owner's lease has ended.
    pub async fn claim_job(
        &self,
        jobs: &[&str],
        owner: &str,
        lease: Duration,
        now_ms: i64,
    ) -> Result<Option<JobRun>, LedgerError> {
        let names: Vec<String> = jobs.iter().map(|name| (*name).to_owned()).collect();
        let (owner, now) = (owner.to_owned(), instant::from_ms(now_ms)?);
        self.transact(BEGIN, move |connection| {
            async move {
                let running = job_runs::table
                    .filter(job_runs::job.eq(jobs::name))
                    .filter(job_runs::finished_at.is_null())
                    .filter(job_runs::lease_until.gt(clock_timestamp()));
                let due = jobs::table
                    .select(Due::as_select())
                    .filter(jobs::name.eq_any(names))
                    .filter(jobs::next_due.le(now).or(jobs::rings.gt(jobs::served)))
                    .filter(not(exists(running)))
                    .order((jobs::next_due, jobs::name))
                    .for_update()
                    .skip_locked();
                match due.first(connection).await.optional()? {
                    Some(due) => claim(connection, due, owner, lease, now).await,
                    None => Ok(None),
                }
            }
            .boxed()
        })
        .await
    }

    /// Renews the lease of a run; false when another instance has taken it over.
    pub async fn renew_job(&self, run: &JobRun, lease: Duration) -> Result<bool, LedgerError> {
        let JobRun { job, owner, fence, scheduled_for, .. } = run.clone();
        let until = later(clock_timestamp(), interval(lease));
        let claimed = claimed(job, scheduled_for, owner, fence);
        Ok(self.execute(diesel::update(claimed).set(job_runs::lease_until.eq(until))).await? == 1)
    }

    /// Notes how far a run is: how much is done of how much. Nothing is noted when another instance has taken it over.
    pub async fn note_progress(&self, run: &JobRun, done: u64, total: u64) -> Result<(), LedgerError> {
        let JobRun { job, owner, fence, scheduled_for, .. } = run.clone();
        let so_far =
            (job_runs::done.eq(Some(number::signed(done))), job_runs::total.eq(Some(number::signed(total))));
        let claimed = claimed(job, scheduled_for, owner, fence);
        self.execute(diesel::update(claimed).set(so_far)).await.map(drop)
    }

    /// Ends a run and sets when the job is due next (service time, unix ms). Returns false and changes nothing when
    /// another instance has taken the run over. A job that was made due during the run stays due.
    pub async fn finish_job(
        &self,
        run: &JobRun,
        succeeded: bool,
        outcome: &str,
        next_due_ms: i64,
    ) -> Result<bool, LedgerError> {
        let JobRun { job, owner, fence, scheduled_for, rings, .. } = run.clone();
        let (outcome, next_due) = (outcome.to_owned(), instant::from_ms(next_due_ms)?);
        self.transact(BEGIN, move |connection| {
            async move {
                let end = diesel::update(claimed(job.clone(), scheduled_for, owner, fence)).set((
                    job_runs::finished_at.eq(clock_timestamp().nullable()),
                    job_runs::succeeded.eq(succeeded),
                    job_runs::outcome.eq(outcome),
                ));
                if end.execute(connection).await? == 0 {
                    return Ok(false);
                }
                let next = (jobs::next_due.eq(next_due), jobs::served.eq(greatest(jobs::served, rings)));
                diesel::update(jobs::table.find(&job)).set(next).execute(connection).await?;
                let served = diesel::update(jobs::table.find(&job).filter(jobs::rings.eq(rings)));
                let as_usual = (jobs::asked_as_of.eq(None::<DateTime<Utc>>), jobs::asked_dry_run.eq(false));
                served.set(as_usual).execute(connection).await?;
                Ok(true)
            }
            .boxed()
        })
        .await
    }

    /// Gives back the unfinished runs of an owner that stops, so that another takes them over at once.
    pub async fn give_back_jobs(&self, owner: &str) -> Result<(), LedgerError> {
        let owned = job_runs::table.filter(job_runs::owner.eq(owner.to_owned()));
        let unfinished = owned.filter(job_runs::finished_at.is_null());
        let give_back = diesel::update(unfinished).set(job_runs::lease_until.eq(clock_timestamp()));
        self.execute(give_back).await.map(drop)
    }

    /// Every planned job with its last run, by name.
    pub async fn jobs(&self) -> Result<Vec<JobState>, LedgerError> {
        self.load(|| sql_query(include_str!("sql/jobs.sql"))).await
    }
}

async fn claim(
    connection: &mut AsyncPgConnection,
    due: Due,
    owner: String,
    lease: Duration,
    now: DateTime<Utc>,
) -> Result<Option<JobRun>, LedgerError> {
    let ended = job_runs::table
        .filter(job_runs::job.eq(&due.name))
        .filter(job_runs::finished_at.is_null())
        .filter(job_runs::lease_until.le(clock_timestamp()));
    let take_over = diesel::update(ended)
        .set((
            job_runs::owner.eq(&owner),
            job_runs::fence.eq(job_runs::fence + 1),
            job_runs::started_at.eq(clock_timestamp()),
            job_runs::dry_run.eq(due.asked_dry_run),
            job_runs::lease_until.eq(later(clock_timestamp(), interval(lease))),
        ))
        .returning(Claimed::as_returning());
    let claimed: Option<Claimed> = match take_over.get_result(connection).await.optional()? {
        Some(taken) => Some(taken),
        None => {
            let begin = sql_query(include_str!("sql/begin_job_run.sql"))
                .bind::<Text, _>(&due.name)
                .bind::<Text, _>(&owner)
                .bind::<Interval, _>(interval(lease))
                .bind::<Timestamptz, _>(due.next_due)
                .bind::<Timestamptz, _>(now)
                .bind::<Bool, _>(due.asked_dry_run);
            begin.get_result(connection).await.optional()?
        }
    };
    let as_of_ms = due.asked_as_of.map(|at| at.timestamp_millis());
    let manner = Manner { as_of_ms, dry_run: due.asked_dry_run };
    Ok(claimed.map(|Claimed { scheduled_for, fence }| JobRun {
        manner,
        job: due.name,
        owner,
        fence,
        scheduled_for,
        rings: due.rings,
    }))
}

/// Makes a job due at once, as part of this transaction; false if it is not planned.
pub(crate) async fn ring(connection: &mut AsyncPgConnection, job: &str) -> Result<bool, LedgerError> {
    let rung = diesel::update(jobs::table.find(job)).set(jobs::rings.eq(jobs::rings + 1));
    Ok(rung.execute(connection).await? == 1)
}
