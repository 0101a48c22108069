//! The jobs that write books, which run to their end or break off somewhere.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::timeout;
use tollgate::ledger::Manner;
use tollgate::operations::Operations;

use crate::ledger::rows;
use crate::support::app::{TestApp, done};
use crate::support::wait::wait_for;

const GRACE: Duration = Duration::from_secs(3600);
/// So long a job runs that is done at some time.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long a job takes of which no run has been measured.
const UNMEASURED: Duration = Duration::from_millis(60);

/// A job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    NextPeriods,
    Adjustments,
    Grants,
    PlanChanges,
    Close,
    Issue,
}

/// All of them, in the order in which they run.
const ALL: [Job; 6] =
    [Job::NextPeriods, Job::Adjustments, Job::Grants, Job::PlanChanges, Job::Close, Job::Issue];

impl Job {
    /// Runs it. Returns how many periods it has closed or billed; none if it is due again.
    async fn run(self, operations: &Operations) -> Option<u64> {
        match self {
            Self::NextPeriods => done(operations.memory.open_next_periods().await).map(|_| 0),
            Self::Adjustments => done(operations.adjustments.follow().await).map(|_| 0),
            Self::Grants => done(operations.grants.follow().await).map(|_| 0),
            Self::PlanChanges => done(operations.plan_changes.follow().await).map(|_| 0),
            Self::Close => {
                done(operations.periods.close(Manner::default(), GRACE).await).map(|run| run.closed)
            }
            Self::Issue => {
                done(operations.statements.issue(Manner::default(), GRACE).await).map(|run| run.billed)
            }
        }
    }

    /// How many periods it has to close or to bill now.
    async fn due(self, app: &TestApp) -> u64 {
        let (ledger, operations) = (&app.app().ledger, &app.app().operations);
        let dry = Manner { dry_run: true, ..Manner::default() };
        let ended_by_ms = app.clock.now_ms() - i64::try_from(GRACE.as_millis()).unwrap();
        match self {
            Self::Close => ledger.count_periods_to_close(ended_by_ms).await.unwrap(),
            Self::Issue => operations.statements.issue(dry, GRACE).await.unwrap().billed,
            _ => 0,
        }
    }

    /// How many periods it has closed or billed in all.
    async fn count_done(self, app: &TestApp) -> u64 {
        let query = match self {
            Self::Close => "SELECT count(*) FROM period_closures",
            Self::Issue => "SELECT count(*) FROM statements WHERE corrects IS NULL",
            _ => return 0,
        };
        rows(&app.database, query).await[0].parse().unwrap()
    }
}

/// How the jobs of one run of a year ran.
#[derive(Default)]
pub struct Jobs {
    /// How long each has taken at most.
    longest: BTreeMap<Job, Duration>,
    /// How often they have broken off.
    breaks: usize,
    /// How often each has broken off after the first of the periods that it had to close or to bill, and before the
    /// last.
    broken_inside: BTreeMap<Job, usize>,
}

impl Jobs {
    /// Runs every job to its end: what cannot be done yet is due again.
    pub async fn run(&mut self, app: &TestApp) {
        for job in ALL {
            loop {
                let started = Instant::now();
                let run = async || job.run(&app.app().operations).await;
                let closed = wait_for("a job is done", PATIENCE, run).await;
                let longest = self.longest.entry(job).or_default();
                *longest = started.elapsed().max(*longest);
                if job != Job::Close || closed == 0 {
                    break;
                }
            }
        }
    }

    /// Runs every job, and each breaks off: at some part of the longest time that it took, or, two times of three, once
    /// it has closed or billed some of what is due.
    pub async fn break_off(&mut self, app: &TestApp, random: &mut StdRng) {
        let by_time = self.breaks % 3 == 2;
        self.breaks += 1;
        for job in ALL {
            let (share, part) = (random.random_range(0.0..1.2), random.random_range(0..3));
            let (due, before) = (job.due(app).await, job.count_done(app).await);
            let running = job.run(&app.app().operations);
            let has_ended = if by_time || due < 2 {
                let longest = self.longest.get(&job).copied().unwrap_or(UNMEASURED);
                timeout(longest.mul_f64(share), running).await.is_ok()
            } else {
                let some = before + 1 + part * due / 9;
                let are_done = async || (job.count_done(app).await >= some).then_some(());
                tokio::select! {
                    _ = running => true,
                    () = wait_for("some of what is due is done", PATIENCE, are_done) => false,
                }
            };
            let has_done = job.count_done(app).await - before;
            if !has_ended && 0 < has_done && has_done < due {
                *self.broken_inside.entry(job).or_default() += 1;
            }
        }
    }

    /// Checks that closes and bills have broken off between their first period and their last one.
    pub fn have_broken_inside(&self, seed: u64) {
        let count = |job: Job| self.broken_inside.get(&job).copied().unwrap_or_default();
        let counts = (count(Job::Close), count(Job::Issue));
        println!("{counts:?} closes and bills have broken off inside, {:?}", self.longest);
        assert!(counts.0 >= 3 && counts.1 >= 1, "seed {seed}: {counts:?} have broken off inside");
    }
}
