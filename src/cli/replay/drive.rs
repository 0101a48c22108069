//! Runs the jobs: workers take rows in order, send their calls, and retry unanswered ones.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::ReplayArguments;
use super::answer::{Answer, Stage, Step};
use super::caller::{Caller, Target};
use super::job::{Job, JobShape};
use super::pace::{Pace, Speed};
use super::progress::Progress;
use super::tally::Tally;
use super::trace::{Row, Trace, TraceFacts};
use crate::cli::client::{Unanswered, Waits};
use crate::cli::failure::{Exit, Failure};

/// How often a job may meet a fault of the service, or lose its reservation, before it counts as failed.
const SETBACKS_MAX: u32 = 5;

/// Everything the workers share.
pub(super) struct Drive {
    target: Arc<Target>,
    shape: Arc<JobShape>,
    path: PathBuf,
    speed: Speed,
    first_us: i64,
    concurrency: u16,
    batch: u16,
    give_up: Duration,
    progress: Progress,
}

/// A finished run.
pub(super) struct Done {
    /// Its totals.
    pub(super) tally: Tally,
    /// How long it took.
    pub(super) elapsed: Duration,
}

/// What each caller keeps for itself.
struct Worker {
    caller: Caller,
    tally: Tally,
}

impl Drive {
    pub(super) fn new(
        arguments: &ReplayArguments,
        target: Target,
        shape: Arc<JobShape>,
        facts: &TraceFacts,
    ) -> Self {
        Self {
            target: Arc::new(target),
            shape,
            path: arguments.file.clone(),
            speed: arguments.speed,
            first_us: facts.first_us,
            concurrency: arguments.concurrency,
            batch: arguments.batch,
            give_up: Duration::from_secs(arguments.give_up_seconds),
            progress: Progress::new(facts.rows),
        }
    }

    /// Runs all rows of the trace.
    pub(super) async fn run(self) -> Result<Done, Failure> {
        let drive = Arc::new(self);
        let trace = Arc::new(Mutex::new(Trace::open(&drive.path)?));
        let pace = Pace::start(drive.speed, drive.first_us);

        let mut workers = JoinSet::new();
        for _ in 0..drive.concurrency {
            workers.spawn(drive.clone().work(trace.clone(), pace));
        }
        let merged = tokio::select! {
            merged = merge(workers) => merged,
            () = drive.progress.show() => Err(Failure::new("the progress display ended")),
        };
        let tally = merged.map_err(|failure| drive.resumable(failure))?;
        Ok(Done { tally, elapsed: drive.progress.elapsed() })
    }

    async fn work(self: Arc<Self>, trace: Arc<Mutex<Trace>>, pace: Pace) -> Result<Tally, Failure> {
        let mut worker = Worker { caller: Caller::new(self.target.clone()), tally: Tally::new()? };
        loop {
            // The whole file was read a moment ago: its rows come from memory.
            let rows: Vec<Row> =
                trace.lock().await.by_ref().take(usize::from(self.batch)).collect::<Result<_, _>>()?;
            let Some(last) = rows.last() else { return Ok(worker.tally) };
            pace.wait(last.at_us).await;
            let jobs = rows.iter().map(|row| Running::new(self.shape.job(row))).collect();
            self.finish(jobs, &mut worker).await?;
        }
    }

    /// Brings all jobs to an end, repeating what the service does not answer.
    async fn finish(&self, mut jobs: Vec<Running>, worker: &mut Worker) -> Result<(), Failure> {
        let since = Instant::now();
        let mut waits = Waits::default();
        while !jobs.is_empty() {
            let mut pause = None;
            for stage in [Stage::Reserve, Stage::Consume] {
                let round = self.round(stage, &mut jobs, worker).await?;
                pause = pause.max(round);
            }
            let before = jobs.len();
            jobs.retain(|job| !job.has_ended);
            let Some(Pause { asked, why }) = pause else { continue };
            if before > jobs.len() {
                waits = Waits::default();
            }
            worker.tally.retries += u64::from(!jobs.is_empty());
            if self.progress.stalled(since) >= self.give_up {
                return Err(self.gave_up(&why));
            }
            waits.pause(asked).await;
        }
        Ok(())
    }

    /// Sends one call for every job at `stage`; returns whether to pause before the next round, and why.
    async fn round(
        &self,
        stage: Stage,
        jobs: &mut [Running],
        worker: &mut Worker,
    ) -> Result<Option<Pause>, Failure> {
        let mut at_stage: Vec<&mut Running> =
            jobs.iter_mut().filter(|job| !job.has_ended && job.stage() == stage).collect();
        if at_stage.is_empty() {
            return Ok(None);
        }
        let began = Instant::now();
        let Worker { caller, tally } = worker;
        let answers = match send(caller, stage, &at_stage).await {
            Ok(answers) => answers,
            Err(unanswered) => return Ok(Some(Pause { asked: None, why: unanswered.why })),
        };
        let took = began.elapsed();
        let mut pause: Option<Pause> = None;
        for (job, answer) in at_stage.iter_mut().zip(answers) {
            let step = answer.step(stage);
            if !matches!(step, Step::Again(_) | Step::Stop) {
                tally.took(stage, took);
                self.progress.moved(0);
            }
            if matches!(step, Step::Stop) {
                return Err(self.not_allowed());
            }
            pause = pause.max(job.take(step, tally));
            if job.has_ended {
                self.progress.moved(1);
            }
        }
        Ok(pause)
    }

    fn gave_up(&self, why: &str) -> Failure {
        let seconds = self.give_up.as_secs();
        Failure::new(format!("the service at {} has done nothing for {seconds} s: {why}", self.target.url))
            .exit(Exit::Unreachable)
    }

    fn not_allowed(&self) -> Failure {
        Failure::new(format!("the service at {} does not take this key for the gate", self.target.url))
            .remedy("pass an unbound key of role service or admin with --key or TOLLGATE_KEY")
    }

    fn resumable(&self, failure: Failure) -> Failure {
        let done = format!("{} of {} jobs had ended", self.progress.done(), self.progress.total());
        let again = "run the same command again to go on: what is done stays done, once";
        Failure {
            message: format!("{}; {done}", failure.message),
            remedy: failure.remedy.or_else(|| Some(again.to_owned())),
            exit: failure.exit,
        }
    }
}

/// Why and how long to wait before the next round; the longest asked for wins.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pause {
    asked: Option<Duration>,
    why: String,
}

/// A job on its way.
struct Running {
    job: Job,
    reservation: Option<String>,
    setbacks: u32,
    has_ended: bool,
}

impl Running {
    fn new(job: Job) -> Self {
        Self { job, reservation: None, setbacks: 0, has_ended: false }
    }

    fn stage(&self) -> Stage {
        if self.reservation.is_none() { Stage::Reserve } else { Stage::Consume }
    }

    /// Takes the step and counts it; returns whether to pause before the next.
    fn take(&mut self, step: Step, tally: &mut Tally) -> Option<Pause> {
        match step {
            Step::Held(id) => {
                self.reservation = Some(id);
                return None;
            }
            Step::Again(asked) => {
                return Some(Pause { asked, why: "it asks to wait".to_owned() });
            }
            Step::Fault(why) | Step::Unknown(why) if self.setbacks >= SETBACKS_MAX => tally.fail(why),
            Step::Fault(why) => {
                self.setbacks += 1;
                return Some(Pause { asked: None, why });
            }
            Step::Unknown(why) => {
                self.setbacks += 1;
                self.reservation = None;
                return Some(Pause { asked: None, why });
            }
            Step::Accepted(consumed) => tally.accept(self.job.tenant, &consumed),
            Step::Refused => tally.refused += 1,
            Step::Failed(why) => tally.fail(why),
            Step::Stop => {}
        }
        self.has_ended = true;
        None
    }
}

async fn send(caller: &mut Caller, stage: Stage, jobs: &[&mut Running]) -> Result<Vec<Answer>, Unanswered> {
    let reply = match (jobs, stage) {
        ([job], Stage::Reserve) => {
            let Job { key, reserve, .. } = &job.job;
            caller.attempt("/v1/reservations", Some(key), reserve.clone()).await?
        }
        ([job], Stage::Consume) => {
            let id = job.reservation.as_deref().unwrap_or_default();
            let path = format!("/v1/reservations/{id}/consume");
            caller.attempt(&path, None, job.job.consume.clone()).await?
        }
        _ => caller.attempt("/v1/batch", None, batch_body(stage, jobs)).await?,
    };
    Ok(if jobs.len() == 1 { vec![Answer::of(&reply)] } else { Answer::of_batch(&reply, jobs.len()) })
}

fn batch_body(stage: Stage, jobs: &[&mut Running]) -> String {
    let item = |job: &&mut Running| {
        let Running { job, reservation, .. } = &**job;
        match stage {
            Stage::Reserve => {
                format!(r#"{{"call":"reserve","idempotency_key":"{}","body":{}}}"#, job.key, job.reserve)
            }
            Stage::Consume => format!(
                r#"{{"call":"consume","id":"{}","idempotency_key":"{}-consume","body":{}}}"#,
                reservation.as_deref().unwrap_or_default(),
                job.key,
                job.consume
            ),
        }
    };
    let items: Vec<String> = jobs.iter().map(item).collect();
    format!(r#"{{"items":[{}]}}"#, items.join(","))
}

async fn merge(mut workers: JoinSet<Result<Tally, Failure>>) -> Result<Tally, Failure> {
    let mut tally = Tally::new()?;
    // The first failure ends the run; dropping the set stops the other workers.
    while let Some(ended) = workers.join_next().await {
        let ended = ended.map_err(|error| Failure::new(format!("a worker of the replay ended: {error}")))?;
        tally.merge(ended?)?;
    }
    Ok(tally)
}
