//! The service killed in the middle of a replay, as its user would see it: through the command line.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::services::directory;
use crate::support::wait::wait_blocking_for;

const KEY: &str = "tg_test_0123456789abcdef0123456789abcdef0123456789abcdef";

struct Up {
    child: Child,
    url: String,
}

fn up(data_dir: &Path) -> Up {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["up", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(data_dir)
        .env("TOLLGATE_ADMIN_KEY", KEY)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.find_map(|line| line.ok()?.strip_prefix("ready ").map(str::to_owned));
    // What it prints later must find a reader.
    std::thread::spawn(move || lines.for_each(drop));
    Up { child, url: ready.expect("it says ready") }
}

fn trace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/trace.csv")
}

fn replay(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("replay").arg(trace()).args([
        "--url",
        url,
        "--key",
        KEY,
        "--output",
        "json",
        "--concurrency",
        "4",
    ]);
    command.stdin(Stdio::null());
    command
}

fn ledger_units(url: &str) -> Vec<String> {
    let output = replay(url).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let tables: Value = serde_json::from_slice(&output.stdout).unwrap();
    tables["meters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["ledger"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn killed_in_the_middle_of_a_replay_and_repeated_the_totals_are_those_without_the_kill() {
    let data_dir = directory();
    let mut first = up(data_dir.path());
    let mut replaying = replay(&first.url)
        .args(["--give-up-seconds", "2"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_blocking_for("some jobs are done", Duration::from_secs(60), || {
        let report = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args([
                "report",
                "usage",
                "--group-by",
                "meter",
                "--output",
                "csv",
                "--url",
                &first.url,
                "--key",
                KEY,
            ])
            .output()
            .ok()?;
        String::from_utf8_lossy(&report.stdout).contains("llm.request").then_some(())
    });
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    replaying.wait().unwrap();
    let mut second = up(data_dir.path());
    assert_eq!(ledger_units(&second.url), ["200", "504386", "72930"]);
    assert_eq!(ledger_units(&second.url), ["200", "504386", "72930"]);
    let verified = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("verify")
        .arg("--data-dir")
        .arg(data_dir.path())
        .output()
        .unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    // SIGTERM ends it in order; the children go with it.
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(second.child.id().cast_signed()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    assert!(second.child.wait().unwrap().success());
    let status = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("status")
        .arg("--data-dir")
        .arg(data_dir.path())
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&status.stdout).contains("stopped"),
        "{}",
        String::from_utf8_lossy(&status.stdout)
    );
}
