//! Servers killed and emptied at random points of a replay, again and again. A short storm in every run of the tests; a
//! long one by `make storm`, which sets how many faults there are and prints the seed that repeats their choice.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use reqwest::Client;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::embedded::{EmbeddedPostgres, EmbeddedRedis, PostgresOptions, RedisOptions};
use tollgate::ledger::Ledger;

use crate::support::services::directory;
use crate::support::wait::wait_for;

const KEY: &str = "tg_test_0123456789abcdef0123456789abcdef0123456789abcdef";
const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef";
const ROWS: u64 = 400;
const TENANTS: u32 = 8;
/// How long after the servers are back an active tenant may wait for its first right answer, on a machine that does
/// nothing else; the other tests of a run are something else.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(3);
const FIRST_ANSWER_AMONG_OTHERS_MAX: Duration = Duration::from_secs(30);
/// What a replay's holds last at most, and the sweep after that.
const HOLDS_GONE_WITHIN: Duration = Duration::from_secs(120);

#[allow(clippy::disallowed_methods, reason = "how a long storm is told its length and its seed")]
fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// How many faults of each kind; a long storm says it.
fn rounds() -> Option<u64> {
    from_environment("TOLLGATE_STORM_ROUNDS")
}

/// What is to be hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    RedisKilled,
    PostgresKilled,
    ServiceKilled,
    RedisEmptied,
}

/// A service in a process of its own, on servers of its own, under traffic.
struct Storm {
    redis: EmbeddedRedis,
    postgres: EmbeddedPostgres,
    service: Option<Child>,
    address: String,
    client: Client,
    trace: PathBuf,
    /// Requests, input tokens, output tokens of one run of the trace.
    sums: [u64; 3],
    random: StdRng,
    slowest_answer: Duration,
    _directory: TempDir,
}

impl Storm {
    async fn begin() -> Self {
        let seed = from_environment("TOLLGATE_STORM_SEED").unwrap_or_else(|| rand::rng().next_u64() >> 1);
        eprintln!("TOLLGATE_STORM_SEED={seed}");
        let directory = directory();
        let at = directory.path().to_owned();
        let (redis, postgres) = tokio::task::spawn_blocking(move || {
            let redis = EmbeddedRedis::start(RedisOptions::new(at.join("redis"))).expect("a Redis");
            (redis, EmbeddedPostgres::start(PostgresOptions::new(at.join("postgres"))).expect("a Postgres"))
        })
        .await
        .unwrap();
        Ledger::migrate(&postgres.url()).await.unwrap();
        let mut random = StdRng::seed_from_u64(seed);
        let (text, sums) = made_up_trace(&mut random);
        let trace = directory.path().join("trace.csv");
        std::fs::write(&trace, text).unwrap();
        let mut storm = Self {
            redis,
            postgres,
            service: None,
            address: "127.0.0.1:0".into(),
            client: Client::builder().timeout(Duration::from_secs(15)).build().unwrap(),
            trace,
            sums,
            random,
            slowest_answer: Duration::ZERO,
            _directory: directory,
        };
        storm.serve().await;
        storm
    }

    /// Starts the service; the second time at the address of the first.
    async fn serve(&mut self) {
        let started = Instant::now();
        loop {
            let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
                .args(["serve", "--listen", &self.address])
                .env("TOLLGATE__REDIS__URL", self.redis.url())
                .env("TOLLGATE__POSTGRES__URL", self.postgres.url())
                .env("TOLLGATE__POSTGRES__ROLE", "tollgate_service")
                .env("TOLLGATE__INSTALLATION__SECRET", SECRET)
                .env("TOLLGATE__HTTP__OPS_LISTEN", "127.0.0.1:0")
                .env("TOLLGATE__LOGS__LEVEL", "error")
                .env("TOLLGATE_ADMIN_KEY", KEY)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            if let Some(url) =
                lines.find_map(|line| line.ok()?.strip_prefix("ready http://").map(str::to_owned))
            {
                self.address = url;
                self.service = Some(child);
                return;
            }
            child.wait().unwrap();
            assert!(started.elapsed() < Duration::from_secs(60), "the service does not start");
        }
    }

    async fn call(
        &self,
        method: reqwest::Method,
        path: &str,
        key: Option<&str>,
        body: Value,
    ) -> Option<(u16, Value)> {
        let url = format!("http://{}{path}", self.address);
        let mut request = self.client.request(method, url).bearer_auth(KEY);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.ok()?;
        Some((answer.status().as_u16(), answer.json().await.ok()?))
    }

    /// Repeats a call until it is answered as done.
    async fn insist(&self, method: reqwest::Method, path: &str, key: Option<&str>, body: Value) -> Value {
        wait_for(path, Duration::from_secs(60), async || {
            let (status, answer) = self.call(method.clone(), path, key, body.clone()).await?;
            (status < 300).then_some(answer)
        })
        .await
    }

    /// One fault, made good at once; then how long an active tenant waits for a right answer.
    async fn strike(&mut self, fault: Fault, number: u64) {
        match fault {
            Fault::RedisKilled => {
                self.redis.kill9().unwrap();
                self.redis.restart().unwrap();
            }
            Fault::PostgresKilled => {
                self.postgres.kill9().unwrap();
                self.postgres.restart().unwrap();
            }
            Fault::ServiceKilled => {
                let mut child = self.service.take().unwrap();
                child.kill().unwrap();
                child.wait().unwrap();
                self.serve().await;
            }
            Fault::RedisEmptied => {
                let client = redis::Client::open(self.redis.url()).unwrap();
                redis::cmd("FLUSHALL").exec(&mut client.get_connection().unwrap()).unwrap();
            }
        }
        let back = Instant::now();
        // What the gate alone has acknowledged may go with its memory; what the ledger has may not.
        let usage = json!({ "tenant": "replay-001", "meter": "probe", "amount": "1", "ack": "ledger" });
        self.insist(reqwest::Method::POST, "/v1/usage", Some(&format!("probe-{number}")), usage).await;
        self.slowest_answer = self.slowest_answer.max(back.elapsed());
    }

    fn replay(&self, run: u64, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.arg("replay").arg(&self.trace).args([
            "--url",
            &format!("http://{}", self.address),
            "--key",
            KEY,
        ]);
        command.args(["--output", "json", "--concurrency", "8", "--run", &format!("run-{run}")]);
        command.args(["--tenants", &TENANTS.to_string()]).args(more).stdin(Stdio::null());
        command
    }

    /// Replays the trace as run after run, until told to stop; the last run is finished.
    fn replay_until(
        &self,
        stop: Arc<AtomicBool>,
        more: &'static [&'static str],
    ) -> tokio::task::JoinHandle<u64> {
        let commands: Vec<_> = (0..10_000).map(|run| self.replay(run, more)).collect();
        tokio::task::spawn_blocking(move || {
            let mut runs = 0;
            for mut command in commands {
                assert_done(&command.output().unwrap());
                runs += 1;
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
            runs
        })
    }

    /// Hits the servers at random moments while the trace is replayed; answers how many runs of it there were.
    async fn rage(&mut self, faults: &[Fault], rounds: u64, more: &'static [&'static str]) -> u64 {
        // Its first run makes the meters and the tenants.
        assert_done(&self.replay(0, more).output().unwrap());
        let meter = json!({ "unit": "call", "without_limit": "unlimited" });
        self.insist(reqwest::Method::PUT, "/v1/admin/meters/probe", None, meter).await;
        let stop = Arc::new(AtomicBool::new(false));
        let replaying = self.replay_until(stop.clone(), more);
        for round in 0..rounds {
            for (at, fault) in faults.iter().enumerate() {
                let pause_ms = self.random.random_range(20..400);
                // The moment of the fault is what is random: there is no condition to wait for.
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                self.strike(*fault, round * faults.len() as u64 + at as u64).await;
            }
        }
        stop.store(true, Ordering::SeqCst);
        let runs = replaying.await.unwrap();
        eprintln!("{runs} runs, slowest first answer {:?}", self.slowest_answer);
        let alone = from_environment("TOLLGATE_STORM_ROUNDS").is_some();
        let most = if alone { FIRST_ANSWER_MAX } else { FIRST_ANSWER_AMONG_OTHERS_MAX };
        assert!(self.slowest_answer < most, "{:?}", self.slowest_answer);
        runs
    }

    async fn booked(&self, meter: &str) -> Decimal {
        let report =
            self.insist(reqwest::Method::GET, "/v1/reports/usage?group_by=meter", None, Value::Null).await;
        let rows = report["data"].as_array().unwrap();
        let row = rows.iter().find(|row| row["meter"] == meter);
        row.map_or(Decimal::ZERO, |row| row["consumed"].as_str().unwrap().parse().unwrap())
    }

    async fn books_hold(&self, meter: &str, expected: u64) {
        wait_for("the ledger has everything", Duration::from_secs(60), async || {
            (self.booked(meter).await >= Decimal::from(expected)).then_some(())
        })
        .await;
        assert_eq!(self.booked(meter).await, Decimal::from(expected), "{meter}");
    }

    /// No tenant has anything reserved any more.
    async fn holds_are_gone(&self) {
        wait_for("holds have expired", HOLDS_GONE_WITHIN, async || {
            for tenant in 1..=TENANTS {
                let path = format!("/v1/tenants/replay-{tenant:03}/reservations?status=reserved");
                let (status, open) = self.call(reqwest::Method::GET, &path, None, Value::Null).await?;
                if status != 200 || !open["data"].as_array()?.is_empty() {
                    return None;
                }
            }
            Some(())
        })
        .await;
    }

    /// The books are whole and the gate equals them.
    fn verify(&self) {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .arg("verify")
            .env("TOLLGATE__REDIS__URL", self.redis.url())
            .env("TOLLGATE__POSTGRES__URL", self.postgres.url())
            .env("TOLLGATE__INSTALLATION__SECRET", SECRET)
            .output()
            .unwrap();
        assert_done(&output);
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        if let Some(mut service) = self.service.take() {
            // It may be gone already.
            let _ = service.kill();
            let _ = service.wait();
        }
    }
}

#[track_caller]
fn assert_done(output: &std::process::Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// A trace, and what it adds up to.
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

const METERS: [&str; 3] = ["llm.request", "llm.input_token", "llm.output_token"];

#[tokio::test(flavor = "multi_thread")]
async fn redis_postgres_and_the_service_killed_again_and_again_leave_totals_exact_and_holds_expire() {
    let mut storm = Storm::begin().await;
    let rounds = rounds().unwrap_or(2);
    let faults = [Fault::RedisKilled, Fault::PostgresKilled, Fault::ServiceKilled];
    let runs = storm.rage(&faults, rounds, &[]).await;
    for (meter, sum) in METERS.into_iter().zip(storm.sums) {
        storm.books_hold(meter, sum * runs).await;
    }
    storm.books_hold("probe", rounds * faults.len() as u64).await;
    // Every job once more: nothing counts twice.
    for run in 0..runs {
        assert_done(&storm.replay(run, &[]).output().unwrap());
    }
    for (meter, sum) in METERS.into_iter().zip(storm.sums) {
        storm.books_hold(meter, sum * runs).await;
    }
    storm.holds_are_gone().await;
    storm.verify();
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_emptied_again_and_again_breaks_no_limit_and_loses_nothing_that_the_ledger_acknowledged() {
    let mut storm = Storm::begin().await;
    for meter in METERS {
        let meter_body = json!({ "unit": "one", "without_limit": "unlimited" });
        storm.insist(reqwest::Method::PUT, &format!("/v1/admin/meters/{meter}"), None, meter_body).await;
    }
    let capacity = ROWS / u64::from(TENANTS) / 2;
    let limit = json!({ "id": "month", "meter": "llm.request", "algorithm": "calendar", "window": "month", "capacity": capacity.to_string() });
    storm.insist(reqwest::Method::PUT, "/v1/admin/plans/narrow", None, json!({ "limits": [limit] })).await;
    let rounds = rounds().unwrap_or(3);
    let narrow = &["--plan", "narrow", "--ack", "ledger"];
    let runs = storm.rage(&[Fault::RedisEmptied], rounds, narrow).await;
    storm.books_hold("probe", rounds).await;
    let path = "/v1/reports/usage?group_by=tenant,meter";
    let report = storm.insist(reqwest::Method::GET, path, None, Value::Null).await;
    for row in report["data"].as_array().unwrap().iter().filter(|row| row["meter"] == "llm.request") {
        let consumed: Decimal = row["consumed"].as_str().unwrap().parse().unwrap();
        assert!(consumed <= Decimal::from(capacity), "above the limit: {row}");
    }
    let before = storm.booked(METERS[0]).await;
    assert!(before > Decimal::ZERO, "a limit that admits nothing is never exceeded either");
    // Every job once more: what was done is not done again, and the limit is still full.
    for run in 0..runs {
        assert_done(&storm.replay(run, narrow).output().unwrap());
    }
    storm.holds_are_gone().await;
    assert_eq!(storm.booked(METERS[0]).await, before);
    storm.verify();
}
