//! `tollgate replay` of a whole trace against the service: jobs a second, what each process spends on one, and how long
//! the ledger needs after the end.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::process::Command;

use super::Options;
use super::cpu;
use super::figures::{Figure, Figures};
use super::service::{KEY, Service};

/// Rows of the trace that is made up where none is given.
const ROWS: u64 = 8_800;
/// Of so many runs the middle one counts.
const RUNS: usize = 3;

/// Measures the replay.
pub async fn measure(options: &Options, figures: &mut Figures) {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = options.trace.clone().unwrap_or_else(|| made_up(directory.path()));
    let service = Service::start("http,writer,jobs").await;
    // The first run makes meters and tenants.
    run(&service, &trace, "first", options.callers).await;
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(run(&service, &trace, &format!("run-{number}"), options.callers).await);
    }
    runs.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    figures.add(runs.swap_remove(RUNS / 2));
}

async fn run(service: &Service, trace: &Path, name: &str, callers: usize) -> Figure {
    service.vacuum().await;
    let (service_before, client_before) = (service.cpu(), cpu::of_ended_children());
    let began = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("replay")
        .arg(trace)
        .args(["--url", &format!("http://{}", service.host), "--run", name, "--output", "json"])
        .args(["--concurrency", &callers.to_string(), "--ledger-wait-seconds", "0"])
        .env("TOLLGATE_KEY", KEY)
        .stderr(Stdio::inherit())
        .output()
        .await
        .expect("the replay runs");
    service.caught_up().await;
    let whole = began.elapsed();
    let tables: Value = serde_json::from_slice(&output.stdout).expect("the replay's tables");
    let [jobs, accepted] = ["in the trace", "accepted"].map(|row| value(&tables, row) as u64);
    assert_eq!(accepted, jobs, "every job is accepted");
    let took = Duration::from_secs_f64(value(&tables, "seconds"));
    let client = cpu::of_ended_children() - client_before;
    let figure = Figure::new("replay: jobs of a trace", jobs, took)
        .costing(service.cost_since(service_before), jobs)
        // The start of the process is in it.
        .behind(whole.saturating_sub(took));
    Figure { client_us: Some(client as f64 / jobs as f64), ..figure }
}

fn value(tables: &Value, name: &str) -> f64 {
    let rows = tables["jobs"].as_array().expect("the table of jobs");
    let row = rows.iter().find(|row| row["jobs"] == name).expect("a row of this name");
    row["value"].as_f64().expect("a number")
}

/// A trace of calls a few milliseconds apart, long inputs and short outputs among them; the same every time.
fn made_up(directory: &Path) -> PathBuf {
    let path = directory.join("trace.csv");
    let mut text = "TIMESTAMP,ContextTokens,GeneratedTokens\n".to_owned();
    let mut state = 1_u64;
    for row in 0..ROWS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (input, output, ms) = (1 + (state >> 33) % 6_000, 1 + (state >> 45) % 500, row * 37);
        let _ = writeln!(
            text,
            "2025-01-01 00:{:02}:{:02}.{:03},{input},{output}",
            ms / 60_000 % 60,
            ms / 1000 % 60,
            ms % 1000
        );
    }
    std::fs::write(&path, text).expect("a file");
    path
}
