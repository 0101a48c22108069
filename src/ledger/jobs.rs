//! Jobs: when each is due, who runs it, how its runs ended. Every run is a row, claimed once and held by a lease.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::{BEGIN, Ledger, LedgerError, instant, notices};

/// The job that tells the gate what a new epoch made it forget; rung whenever an epoch is issued.
pub const RESTORE: &str = "restore";
/// The job that opens the next periods.
pub const PERIODS: &str = "periods";

/// A run that its owner has claimed. The fence tells it from an earlier owner's claim of the same run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRun {
    /// Which job.
    pub job: String,
    /// Who runs it.
    pub owner: String,
    /// How often the run has been claimed: above 1 it was taken over from an owner that died.
    pub fence: i64,
    scheduled_for: DateTime<Utc>,
    rings: i64,
}

/// How a job stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobState {
    /// Which job.
    pub name: String,
    /// When it is due next (service time, unix ms).
    pub next_due_ms: i64,
    /// Its last run, if there was one.
    pub last: Option<LastRun>,
    /// When a run last succeeded (the database's clock, unix ms).
    pub succeeded_at_ms: Option<i64>,
    /// Seconds since then, or since the job was first planned.
    pub unsuccessful_seconds: i64,
}

/// A job's last run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRun {
    /// For which time it ran (service time, unix ms).
    pub scheduled_for_ms: i64,
    /// Who ran it, the last one who took it over.
    pub owner: String,
    /// When it began (the database's clock, unix ms).
    pub started_at_ms: i64,
    /// When it ended; none while it runs.
    pub finished_at_ms: Option<i64>,
    /// Whether it succeeded; none while it runs.
    pub succeeded: Option<bool>,
    /// What it came to, in words.
    pub outcome: Option<String>,
}

#[derive(QueryableByName)]
struct Due {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Timestamptz)]
    next_due: DateTime<Utc>,
    #[diesel(sql_type = BigInt)]
    rings: i64,
}

#[derive(QueryableByName)]
struct Claimed {
    #[diesel(sql_type = Timestamptz)]
    scheduled_for: DateTime<Utc>,
    #[diesel(sql_type = BigInt)]
    fence: i64,
}

const DUE: &str = "SELECT j.name, j.next_due, j.rings FROM jobs j \
    WHERE j.name = ANY($1) AND (j.next_due <= $2 OR j.rings > j.served) \
      AND NOT EXISTS (SELECT FROM job_runs r WHERE r.job = j.name AND r.finished_at IS NULL AND r.lease_until > clock_timestamp()) \
    ORDER BY j.next_due, j.name LIMIT 1 FOR UPDATE SKIP LOCKED";

const TAKE_OVER: &str = "UPDATE job_runs SET owner = $2, fence = fence + 1, started_at = clock_timestamp(), \
        lease_until = clock_timestamp() + $3 * interval '1 millisecond' \
    WHERE job = $1 AND finished_at IS NULL AND lease_until <= clock_timestamp() RETURNING scheduled_for, fence";

/// Rung twice at one instant of a clock that stands still, each run still has a time of its own.
const BEGIN_RUN: &str = "INSERT INTO job_runs (job, scheduled_for, owner, fence, lease_until) \
    SELECT $1, greatest(least($4, $5), (SELECT max(scheduled_for) + interval '1 microsecond' FROM job_runs WHERE job = $1)), \
        $2, 1, clock_timestamp() + $3 * interval '1 millisecond' \
    WHERE NOT EXISTS (SELECT FROM job_runs WHERE job = $1 AND finished_at IS NULL) RETURNING scheduled_for, fence";

/// Binds what tells one claim of a run from any other.
macro_rules! of_run {
    ($query:expr, $run:expr) => {
        $query
            .bind::<Text, _>(&$run.job)
            .bind::<Timestamptz, _>($run.scheduled_for)
            .bind::<Text, _>(&$run.owner)
            .bind::<BigInt, _>($run.fence)
    };
}

impl Ledger {
    /// Plans jobs that are not planned yet, each with the time (service time, unix ms) at which it is due at the latest.
    pub async fn plan_jobs(&self, due: &[(&str, i64)]) -> Result<(), LedgerError> {
        let names: Vec<String> = due.iter().map(|(name, _)| (*name).to_owned()).collect();
        let due = instant::all_from_ms(due.iter().map(|(_, at_ms)| *at_ms))?;
        let plan = "INSERT INTO jobs AS j (name, next_due) SELECT * FROM unnest($1::text[], $2::timestamptz[]) \
                    ON CONFLICT (name) DO UPDATE SET next_due = least(j.next_due, excluded.next_due)";
        self.transact(BEGIN, move |connection| {
            async move {
                let plan = sql_query(plan).bind::<Array<Text>, _>(names).bind::<Array<Timestamptz>, _>(due);
                plan.execute(connection).await?;
                Ok(())
            }
            .boxed()
        })
        .await
    }

    /// Wakes the instances that wait for a rung job.
    pub async fn wake_jobs(&self) -> Result<(), LedgerError> {
        self.transact(BEGIN, move |connection| notices::tell(connection, "job", RESTORE, 0).boxed()).await
    }

    /// Claims the run of one of these jobs that is due at `now_ms` (service time) or rung, and of which no living owner has
    /// a run: a new one, or one whose owner's lease has ended.
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
                let due: Vec<Due> = sql_query(DUE)
                    .bind::<Array<Text>, _>(names)
                    .bind::<Timestamptz, _>(now)
                    .load(connection)
                    .await?;
                match due.into_iter().next() {
                    Some(due) => claim(connection, due, owner, lease, now).await,
                    None => Ok(None),
                }
            }
            .boxed()
        })
        .await
    }

    /// Goes on holding a run; false when it is another's by now.
    pub async fn renew_job(&self, run: &JobRun, lease: Duration) -> Result<bool, LedgerError> {
        let (run, lease_ms) = (run.clone(), milliseconds(lease));
        let renew = "UPDATE job_runs SET lease_until = clock_timestamp() + $5 * interval '1 millisecond' \
                     WHERE job = $1 AND scheduled_for = $2 AND owner = $3 AND fence = $4 AND finished_at IS NULL";
        self.transact(BEGIN, move |connection| {
            async move {
                let renew = of_run!(sql_query(renew), run).bind::<BigInt, _>(lease_ms);
                Ok(renew.execute(connection).await? == 1)
            }
            .boxed()
        })
        .await
    }

    /// Ends a run and says when the job is due next (service time, unix ms); false when the run is another's by now, and
    /// then nothing changes. A job that was rung during the run stays due.
    pub async fn finish_job(
        &self,
        run: &JobRun,
        succeeded: bool,
        outcome: &str,
        next_due_ms: i64,
    ) -> Result<bool, LedgerError> {
        let (run, outcome, next_due) = (run.clone(), outcome.to_owned(), instant::from_ms(next_due_ms)?);
        let finish = "UPDATE job_runs SET finished_at = clock_timestamp(), succeeded = $5, outcome = $6 \
                      WHERE job = $1 AND scheduled_for = $2 AND owner = $3 AND fence = $4 AND finished_at IS NULL";
        self.transact(BEGIN, move |connection| {
            async move {
                let finish =
                    of_run!(sql_query(finish), run).bind::<Bool, _>(succeeded).bind::<Text, _>(outcome);
                if finish.execute(connection).await? == 0 {
                    return Ok(false);
                }
                sql_query("UPDATE jobs SET next_due = $2, served = greatest(served, $3) WHERE name = $1")
                    .bind::<Text, _>(&run.job)
                    .bind::<Timestamptz, _>(next_due)
                    .bind::<BigInt, _>(run.rings)
                    .execute(connection)
                    .await?;
                Ok(true)
            }
            .boxed()
        })
        .await
    }

    /// Lets go of the unfinished runs of an owner that stops, so that another takes them over at once.
    pub async fn give_back_jobs(&self, owner: &str) -> Result<(), LedgerError> {
        let owner = owner.to_owned();
        let give_back =
            "UPDATE job_runs SET lease_until = clock_timestamp() WHERE owner = $1 AND finished_at IS NULL";
        self.transact(BEGIN, move |connection| {
            async move {
                sql_query(give_back).bind::<Text, _>(owner).execute(connection).await?;
                Ok(())
            }
            .boxed()
        })
        .await
    }

    /// Every planned job with its last run, by name.
    pub async fn jobs(&self) -> Result<Vec<JobState>, LedgerError> {
        let query = "SELECT j.name, j.next_due, r.scheduled_for, r.owner, r.started_at, r.finished_at, r.succeeded, r.outcome, \
                         s.succeeded_at, extract(epoch FROM clock_timestamp() - coalesce(s.succeeded_at, j.planned_at))::bigint AS unsuccessful \
                     FROM jobs j \
                     LEFT JOIN LATERAL (SELECT * FROM job_runs WHERE job = j.name ORDER BY scheduled_for DESC LIMIT 1) r ON true \
                     LEFT JOIN LATERAL (SELECT finished_at AS succeeded_at FROM job_runs WHERE job = j.name AND succeeded \
                                        ORDER BY scheduled_for DESC LIMIT 1) s ON true \
                     ORDER BY j.name";
        let rows = self
            .read(|connection| async move { Ok(sql_query(query).load::<Row>(connection).await?) }.boxed())
            .await?;
        Ok(rows.into_iter().map(Row::read).collect())
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

async fn claim(
    connection: &mut AsyncPgConnection,
    due: Due,
    owner: String,
    lease: Duration,
    now: DateTime<Utc>,
) -> Result<Option<JobRun>, LedgerError> {
    let lease_ms = milliseconds(lease);
    let taken: Vec<Claimed> = sql_query(TAKE_OVER)
        .bind::<Text, _>(&due.name)
        .bind::<Text, _>(&owner)
        .bind::<BigInt, _>(lease_ms)
        .load(connection)
        .await?;
    let claimed = match taken.into_iter().next() {
        Some(taken) => Some(taken),
        None => sql_query(BEGIN_RUN)
            .bind::<Text, _>(&due.name)
            .bind::<Text, _>(&owner)
            .bind::<BigInt, _>(lease_ms)
            .bind::<Timestamptz, _>(due.next_due)
            .bind::<Timestamptz, _>(now)
            .load::<Claimed>(connection)
            .await?
            .into_iter()
            .next(),
    };
    Ok(claimed.map(|Claimed { scheduled_for, fence }| JobRun {
        job: due.name,
        owner,
        fence,
        scheduled_for,
        rings: due.rings,
    }))
}

/// Makes a job due whatever its time, as part of this transaction.
pub(crate) async fn ring(connection: &mut AsyncPgConnection, job: &str) -> Result<(), LedgerError> {
    sql_query("UPDATE jobs SET rings = rings + 1 WHERE name = $1")
        .bind::<Text, _>(job)
        .execute(connection)
        .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Timestamptz)]
    next_due: DateTime<Utc>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    scheduled_for: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Text>)]
    owner: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    started_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    finished_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Bool>)]
    succeeded: Option<bool>,
    #[diesel(sql_type = Nullable<Text>)]
    outcome: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    succeeded_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = BigInt)]
    unsuccessful: i64,
}

impl Row {
    fn read(self) -> JobState {
        let ms = |at: DateTime<Utc>| at.timestamp_millis();
        let last = match (self.scheduled_for, self.owner, self.started_at) {
            (Some(scheduled_for), Some(owner), Some(started_at)) => Some(LastRun {
                scheduled_for_ms: ms(scheduled_for),
                owner,
                started_at_ms: ms(started_at),
                finished_at_ms: self.finished_at.map(ms),
                succeeded: self.succeeded,
                outcome: self.outcome,
            }),
            _ => None,
        };
        JobState {
            name: self.name,
            next_due_ms: ms(self.next_due),
            last,
            succeeded_at_ms: self.succeeded_at.map(ms),
            unsuccessful_seconds: self.unsuccessful.max(0),
        }
    }
}
