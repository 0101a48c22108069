//! Callers that reserve and consume without a pause, repeat unanswered calls, and count exactly what they did.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Callers, PATIENCE, Storm, wide};
use crate::support::wait::wait_for;

/// What a job consumes of the three units that it holds.
const UNITS_PER_JOB: u64 = 2;
/// How long a caller pauses after an answer that asks to retry.
const PAUSE: Duration = Duration::from_millis(20);

/// What the callers of a load have seen.
#[derive(Default)]
pub(super) struct Seen {
    stop: AtomicBool,
    /// Calls begun while this is set are timed.
    timed: AtomicBool,
    pub(super) jobs: AtomicU64,
    pub(super) held: AtomicU64,
    pub(super) timed_answers: AtomicU64,
    slowest_us: AtomicU64,
    /// How much later than asked this machine wakes a task at the worst: not the service's doing.
    noise_us: AtomicU64,
}

impl Seen {
    /// Times a call where calls are timed now.
    pub(super) async fn time<T>(&self, call: impl Future<Output = T>) -> T {
        let is_timed = self.timed.load(Ordering::SeqCst);
        let began = Instant::now();
        let answer = call.await;
        if is_timed {
            self.slowest_us.fetch_max(micros(began.elapsed()), Ordering::SeqCst);
            self.timed_answers.fetch_add(1, Ordering::SeqCst);
        }
        answer
    }

    pub(super) fn set_timed(&self, timed: bool) {
        self.timed.store(timed, Ordering::SeqCst);
    }

    pub(super) fn slowest(&self) -> Duration {
        Duration::from_micros(self.slowest_us.load(Ordering::SeqCst))
    }

    pub(super) fn noise(&self) -> Duration {
        Duration::from_micros(self.noise_us.load(Ordering::SeqCst))
    }

    async fn measure_noise(&self) {
        const NAP: Duration = Duration::from_millis(10);
        while !self.stop.load(Ordering::SeqCst) {
            let began = Instant::now();
            tokio::time::sleep(NAP).await;
            self.noise_us.fetch_max(micros(began.elapsed() - NAP), Ordering::SeqCst);
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

/// Callers at work.
pub(super) struct Load {
    pub(super) seen: Arc<Seen>,
    tenants: u64,
    ack: &'static str,
    callers: Vec<JoinHandle<u64>>,
    noise: JoinHandle<()>,
}

/// What a load did: how many jobs each caller.
pub(super) struct Done {
    tenants: u64,
    ack: &'static str,
    jobs: Vec<u64>,
}

/// Makes the meter `page` and tenants with a limit and a quota on it that admit everything.
pub(super) async fn prepare(storm: &Storm, tenants: u64) {
    prepare_on(storm, tenants, wide(&["page"])).await;
}

/// As [`prepare`], on this plan.
pub(super) async fn prepare_on(storm: &Storm, tenants: u64, plan: Value) {
    storm.put("/v1/admin/meters/page", json!({ "unit": "page", "without_limit": "unlimited" })).await;
    storm.put("/v1/admin/plans/load", plan).await;
    for tenant in names(tenants) {
        storm.put(&format!("/v1/admin/tenants/{tenant}"), json!({ "plan": "load" })).await;
    }
}

/// The tenants of a load.
pub(super) fn names(tenants: u64) -> Vec<String> {
    (0..tenants).map(|number| format!("load-{number}")).collect()
}

/// A job of a caller.
struct Job {
    tenant: String,
    key: String,
    ack: &'static str,
}

impl Job {
    fn reserve(&self) -> Value {
        json!({ "tenant": self.tenant, "meter": "page", "amount": "3", "ttl_seconds": 3600 })
    }

    /// Does the job; `None` where a limit does not allow it.
    async fn run(&self, caller: &Callers, seen: &Seen) -> Option<()> {
        loop {
            let id = self.hold(caller, seen).await?;
            seen.held.fetch_add(1, Ordering::SeqCst);
            let body = json!({ "amount": UNITS_PER_JOB.to_string(), "ack": self.ack });
            let path = format!("/v1/reservations/{id}/consume");
            if until_answered(caller, seen, &path, &self.key, body).await.0 == 200 {
                return Some(());
            }
            // The hold went with a memory that was lost before the books had it: it is made again under the same key.
        }
    }

    async fn hold(&self, caller: &Callers, seen: &Seen) -> Option<String> {
        let (status, answer) =
            until_answered(caller, seen, "/v1/reservations", &self.key, self.reserve()).await;
        match status {
            200 | 201 => Some(answer["id"].as_str().unwrap().to_owned()),
            429 => None,
            _ => panic!("{status} {answer}"),
        }
    }
}

/// Repeats a call until it is decided.
async fn until_answered(caller: &Callers, seen: &Seen, path: &str, key: &str, body: Value) -> (u16, Value) {
    loop {
        let call = caller.call(Method::POST, path, Some(key), body.clone());
        match seen.time(call).await {
            Some((status @ (200 | 201 | 404 | 429), answer)) => return (status, answer),
            Some((503, _)) | None => tokio::time::sleep(PAUSE).await,
            Some((status, answer)) => panic!("{path}: {status} {answer}"),
        }
    }
}

impl Load {
    /// Starts so many callers, each by one of these ways, over so many tenants; their consumes wait for `ack`.
    pub(super) fn start(ways: &[Callers], callers: u64, tenants: u64, ack: &'static str) -> Self {
        let seen = Arc::new(Seen::default());
        let start = |(number, way): (u64, &Callers)| {
            let (caller, seen) = (way.clone(), seen.clone());
            tokio::spawn(async move {
                let mut jobs = 0;
                while !seen.stop.load(Ordering::SeqCst) {
                    job(number, jobs, tenants, ack).run(&caller, &seen).await;
                    jobs += 1;
                    seen.jobs.fetch_add(1, Ordering::SeqCst);
                }
                jobs
            })
        };
        let callers = (0..callers).zip(ways.iter().cycle()).map(start).collect();
        let noise = tokio::spawn({
            let seen = seen.clone();
            async move { seen.measure_noise().await }
        });
        Self { seen, tenants, ack, callers, noise }
    }

    /// Waits until so many more jobs are done.
    pub(super) async fn goes_on(&self, jobs: u64) {
        let goal = self.seen.jobs.load(Ordering::SeqCst) + jobs;
        wait_for("more jobs are done", PATIENCE, async || {
            (self.seen.jobs.load(Ordering::SeqCst) >= goal).then_some(())
        })
        .await;
    }

    /// Lets every caller finish its job.
    pub(super) async fn end(self) -> Done {
        self.seen.stop.store(true, Ordering::SeqCst);
        let mut jobs = Vec::new();
        for caller in self.callers {
            jobs.push(caller.await.unwrap());
        }
        self.noise.await.unwrap();
        Done { tenants: self.tenants, ack: self.ack, jobs }
    }
}

fn job(caller: u64, number: u64, tenants: u64, ack: &'static str) -> Job {
    Job {
        tenant: format!("load-{}", (caller + number) % tenants),
        key: format!("job-{caller}-{number}"),
        ack,
    }
}

impl Done {
    pub(super) fn jobs(&self) -> u64 {
        self.jobs.iter().sum()
    }

    /// What all jobs consumed, where none was refused.
    pub(super) fn units(&self) -> u64 {
        self.jobs() * UNITS_PER_JOB
    }

    /// Does every job once more.
    pub(super) async fn repeat(&self, caller: &Callers) {
        let repeat = |(number, jobs): (usize, &u64)| {
            let (caller, jobs, tenants, ack) = (caller.clone(), *jobs, self.tenants, self.ack);
            tokio::spawn(async move {
                let seen = Seen::default();
                for done in 0..jobs {
                    job(number as u64, done, tenants, ack).run(&caller, &seen).await;
                }
            })
        };
        for repeating in self.jobs.iter().enumerate().map(repeat).collect::<Vec<_>>() {
            repeating.await.unwrap();
        }
    }
}
