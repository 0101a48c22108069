//! Servers killed and emptied at random points of a replay, again and again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use reqwest::Method;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{KEY, PATIENCE, Storm, assert_done, from_environment, rounds, said, sized, wide};
use crate::support::process::tollgate;
use crate::support::wait::wait_for;

const ROWS: u64 = 400;
const TENANTS: u32 = 8;
const METERS: [&str; 3] = ["llm.request", "llm.input_token", "llm.output_token"];
/// A limit and a quota for each meter of a wide plan.
const COUNTERS: usize = 2 * METERS.len();
/// How long after the servers are back an active tenant may wait for its first right answer, on a machine that does
/// nothing else; other tests of a run are load.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(3);
const FIRST_ANSWER_AMONG_OTHERS_MAX: Duration = Duration::from_secs(30);
/// What a replay's holds last at most, and the sweep after that.
const HOLDS_GONE_WITHIN: Duration = Duration::from_secs(120);
/// The exit code of a replay when the ledger lacks acknowledged work.
const DIFFERS: i32 = 3;
/// What it ends with when no service answers.
const UNREACHABLE: i32 = 4;
/// How often a run is begun at most.
const STARTS_MAX: usize = 10;

/// What is to be hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    RedisKilled,
    PostgresKilled,
    ServiceKilled,
    RedisEmptied,
}

/// A storm over a service that a trace is replayed against.
struct ReplayStorm {
    storm: Storm,
    trace: PathBuf,
    /// Requests, input tokens, output tokens of one run of the trace.
    sums: [u64; 3],
    random: StdRng,
    /// How long each first right answer took.
    first_answers: BTreeMap<Fault, Vec<Duration>>,
    /// The arguments of every run.
    options: &'static [&'static str],
}

impl ReplayStorm {
    /// Begins with its tenants on this plan.
    async fn begin(plan: Value, options: &'static [&'static str]) -> Self {
        let seed = from_environment("TOLLGATE_STORM_SEED").unwrap_or_else(|| rand::rng().next_u64() >> 1);
        eprintln!("TOLLGATE_STORM_SEED={seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let storm = Storm::begin(Vec::new()).await;
        let (text, sums) = made_up_trace(&mut random);
        let trace = storm.directory.path().join("trace.csv");
        std::fs::write(&trace, text).unwrap();
        for meter in METERS.iter().chain(&["probe"]) {
            let body = json!({ "unit": "one", "without_limit": "unlimited" });
            storm.put(&format!("/v1/admin/meters/{meter}"), body).await;
        }
        storm.put("/v1/admin/plans/stormy", plan).await;
        Self { storm, trace, sums, random, first_answers: BTreeMap::new(), options }
    }

    /// One fault, made good at once; then how long an active tenant waits for a right answer.
    async fn strike(&mut self, fault: Fault, number: u64) {
        let storm = &mut self.storm;
        match fault {
            Fault::RedisKilled => {
                storm.redis.kill9().unwrap();
                storm.redis.restart().unwrap();
            }
            Fault::PostgresKilled => {
                storm.postgres.kill9().unwrap();
                storm.postgres.restart().unwrap();
            }
            Fault::ServiceKilled => {
                let mut service = storm.service.take().unwrap();
                service.kill();
                // At the address of the first, which the replay goes on calling.
                storm.service = Some(storm.serve(&service.address).await);
            }
            Fault::RedisEmptied => {
                let client = redis::Client::open(storm.redis.url()).unwrap();
                redis::cmd("FLUSHALL").exec(&mut client.get_connection().unwrap()).unwrap();
            }
        }
        let back = Instant::now();
        // Work that only the gate has acknowledged may be lost with its memory; booked work may not.
        let usage = json!({ "tenant": "replay-001", "meter": "probe", "amount": "1", "ack": "ledger" });
        let caller = storm.caller();
        caller.insist(Method::POST, "/v1/usage", Some(&format!("probe-{number}")), usage).await;
        self.first_answers.entry(fault).or_default().push(back.elapsed());
    }

    fn replay(&self, run: usize) -> Command {
        let mut command = tollgate(&["replay"]);
        let url = format!("http://{}", self.storm.address());
        command.arg(&self.trace).args(["--url", &url, "--key", KEY, "--plan", "stormy"]);
        command.args(["--output", "json", "--concurrency", "8", "--run", &format!("run-{run}")]);
        command.args(["--tenants", &TENANTS.to_string()]).args(self.options).stdin(Stdio::null());
        command
    }

    /// Replays the trace, run after run, until it is stopped; the last run is finished. Returns the output of each run.
    fn replay_until(&self, stop: Arc<AtomicBool>, may_differ: bool) -> JoinHandle<Vec<Value>> {
        let commands: Vec<_> = (1..10_000).map(|run| self.replay(run)).collect();
        tokio::task::spawn_blocking(move || {
            let mut told = Vec::new();
            for mut command in commands {
                told.push(tables_of(&mut command, may_differ));
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
            told
        })
    }

    /// Hits the servers at random moments while the trace is replayed; returns the output of each run.
    async fn rage(&mut self, faults: &[Fault], rounds: u64, may_differ: bool) -> Vec<Value> {
        // Its first run puts the tenants on the plan.
        let mut told = vec![tables_of(&mut self.replay(0), may_differ)];
        let stop = Arc::new(AtomicBool::new(false));
        let replaying = self.replay_until(stop.clone(), may_differ);
        for round in 0..rounds {
            for (at, fault) in faults.iter().enumerate() {
                let pause_ms = self.random.random_range(20..400);
                // The moment of the fault is random: there is no condition to wait for.
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                self.strike(*fault, round * faults.len() as u64 + at as u64).await;
            }
        }
        stop.store(true, Ordering::SeqCst);
        told.extend(replaying.await.unwrap());
        eprintln!("{} runs", told.len());
        told
    }

    /// Every job of so many runs once more.
    fn repeat(&self, runs: usize) {
        for run in 0..runs {
            assert_done(&self.replay(run).output().unwrap());
        }
    }

    async fn books_hold_runs(&self, runs: usize) {
        for (meter, sum) in METERS.into_iter().zip(self.sums) {
            self.storm.books_hold(meter, sum * runs as u64).await;
        }
    }

    /// Checked last, because time matters least of a storm's results.
    fn answered_in_time(&self) {
        for (fault, took) in &self.first_answers {
            let mut took = took.clone();
            took.sort();
            let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
            eprintln!("{fault:?} x {}: first answers median {median:?}, slowest {slowest:?}", took.len());
            let most = sized(FIRST_ANSWER_MAX, FIRST_ANSWER_AMONG_OTHERS_MAX);
            assert!(slowest < most, "{fault:?}: {took:?}");
        }
    }

    /// No tenant has anything reserved any more.
    async fn holds_are_gone(&self) {
        let caller = self.storm.caller();
        wait_for("holds have expired", HOLDS_GONE_WITHIN, async || {
            for tenant in tenants() {
                let path = format!("/v1/tenants/{tenant}/reservations?status=reserved");
                let (status, open) = caller.get(&path).await?;
                if status != 200 || !open["data"].as_array()?.is_empty() {
                    return None;
                }
            }
            Some(())
        })
        .await;
    }

    /// What was acknowledged of a meter and is reported as lost.
    async fn lost(&self, meter: &str) -> Decimal {
        let query = format!(
            "SELECT COALESCE(sum(u.consumed), 0)::text AS lost FROM losses l, \
             unnest(l.meters, l.held, l.consumed) AS u(meter, held, consumed) WHERE u.meter = '{meter}'"
        );
        self.storm.rows(&query).await[0].parse().unwrap()
    }
}

fn tenants() -> Vec<String> {
    (1..=TENANTS).map(|tenant| format!("replay-{tenant:03}")).collect()
}

fn tables_of(command: &mut Command, may_differ: bool) -> Value {
    // A run that met no service is begun again: its jobs change nothing twice.
    let mut starts = (0..STARTS_MAX).map(|_| command.output().unwrap());
    let output =
        starts.find(|output| output.status.code() != Some(UNREACHABLE)).expect("the service is back");
    let ended = output.status.success() || may_differ && output.status.code() == Some(DIFFERS);
    assert!(ended, "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What the answers to the runs say is consumed of a meter.
fn acknowledged(told: &[Value], meter: &str) -> Decimal {
    let rows = told.iter().flat_map(|tables| tables["meters"].as_array().unwrap());
    rows.filter(|row| row["meter"] == meter)
        .map(|row| row["accepted"].as_str().unwrap().parse::<Decimal>().unwrap())
        .sum()
}

/// A trace and its totals.
fn made_up_trace(random: &mut StdRng) -> (String, [u64; 3]) {
    let mut text = String::from("TIMESTAMP,ContextTokens,GeneratedTokens\n");
    let mut sums = [ROWS, 0, 0];
    for row in 0..ROWS {
        let (input, output) = (random.random_range(1..5_000), random.random_range(1..500));
        let _ = writeln!(text, "2024-03-07 09:{:02}:{:02}.0000000,{input},{output}", row / 60 % 60, row % 60);
        sums = [ROWS, sums[1] + input, sums[2] + output];
    }
    (text, sums)
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_postgres_and_the_service_killed_again_and_again_leave_totals_exact_and_holds_expire() {
    let mut storm = ReplayStorm::begin(wide(&METERS), &[]).await;
    let rounds = rounds().unwrap_or(2);
    let faults = [Fault::RedisKilled, Fault::PostgresKilled, Fault::ServiceKilled];
    let runs = storm.rage(&faults, rounds, false).await.len();
    storm.books_hold_runs(runs).await;
    storm.storm.books_hold("probe", rounds * faults.len() as u64).await;
    storm.repeat(runs);
    storm.books_hold_runs(runs).await;
    storm.holds_are_gone().await;
    storm.storm.verify(&tenants(), COUNTERS).await;
    storm.answered_in_time();
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_emptied_again_and_again_breaks_no_limit_and_loses_nothing_that_the_ledger_acknowledged() {
    let capacity = ROWS / u64::from(TENANTS) / 2;
    let limit =
        json!({ "id": "month", "meter": METERS[0], "window": "month", "capacity": capacity.to_string() });
    let mut storm = ReplayStorm::begin(json!({ "limits": [limit] }), &["--ack", "ledger"]).await;
    let rounds = rounds().unwrap_or(3);
    let runs = storm.rage(&[Fault::RedisEmptied], rounds, false).await.len();
    storm.storm.books_hold("probe", rounds).await;
    let path = "/v1/reports/usage?group_by=tenant,meter";
    let report = storm.storm.caller().insist(Method::GET, path, None, Value::Null).await;
    for row in report["data"].as_array().unwrap().iter().filter(|row| row["meter"] == METERS[0]) {
        let consumed: Decimal = row["consumed"].as_str().unwrap().parse().unwrap();
        assert!(consumed <= Decimal::from(capacity), "above the limit: {row}");
    }
    let before = storm.storm.booked(METERS[0]).await;
    assert!(before > Decimal::ZERO, "a limit that admits nothing is never exceeded either");
    // What was done is not done again, and the limit is still full.
    storm.repeat(runs);
    storm.holds_are_gone().await;
    assert_eq!(storm.storm.booked(METERS[0]).await, before);
    storm.storm.verify(&tenants(), 1).await;
    storm.answered_in_time();
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_emptied_under_work_that_it_alone_acknowledged_is_reported_in_units_and_made_good_by_repeating()
{
    let mut storm = ReplayStorm::begin(wide(&METERS), &["--ledger-wait-seconds", "0"]).await;
    let told = storm.rage(&[Fault::RedisEmptied], rounds().unwrap_or(3), true).await;
    for (meter, sum) in METERS.into_iter().zip(storm.sums) {
        let acknowledged = acknowledged(&told, meter);
        assert_eq!(acknowledged, Decimal::from(sum * told.len() as u64), "every job was done");
        wait_for("what was acknowledged is booked or reported as lost", PATIENCE, async || {
            let reported = storm.lost(meter).await;
            (storm.storm.booked(meter).await + reported >= acknowledged).then_some(())
        })
        .await;
        let (booked, lost) = (storm.storm.booked(meter).await, storm.lost(meter).await);
        eprintln!("{meter}: {acknowledged} acknowledged, {booked} booked, {lost} reported as lost");
        assert_eq!(booked + lost, acknowledged, "nothing is reported that was not lost");
    }
    storm.options = &[];
    storm.repeat(told.len());
    storm.books_hold_runs(told.len()).await;
    storm.holds_are_gone().await;
    storm.storm.verify(&tenants(), COUNTERS).await;
    storm.answered_in_time();
}
