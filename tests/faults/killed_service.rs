//! The service killed in the middle of a replay, as its user would see it: through the command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::process::{Up, tollgate};
use crate::support::services::directory;
use crate::support::wait::wait_blocking_for;

fn trace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/trace.csv")
}

fn replay(url: &str) -> Command {
    let mut command = tollgate(&["replay"]);
    command.arg(trace()).args(["--url", url, "--key", Up::KEY, "--output", "json", "--concurrency", "4"]);
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
    let mut first = Up::start(data_dir.path(), &[]);
    let mut replaying = replay(&first.url)
        .args(["--give-up-seconds", "2"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_blocking_for("some jobs are done", Duration::from_secs(60), || {
        let report = tollgate(&[
            "report",
            "usage",
            "--group-by",
            "meter",
            "--output",
            "csv",
            "--url",
            &first.url,
            "--key",
            Up::KEY,
        ])
        .output()
        .ok()?;
        String::from_utf8_lossy(&report.stdout).contains("llm.request").then_some(())
    });
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    replaying.wait().unwrap();
    let mut second = Up::start(data_dir.path(), &[]);
    assert_eq!(ledger_units(&second.url), ["200", "504386", "72930"]);
    assert_eq!(ledger_units(&second.url), ["200", "504386", "72930"]);
    let verified = tollgate(&["verify", "--data-dir"]).arg(data_dir.path()).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    // SIGTERM ends it in order; the children go with it.
    second.ask_to_end();
    assert!(second.child.wait().unwrap().success());
    let status = tollgate(&["status", "--data-dir"]).arg(data_dir.path()).output().unwrap();
    assert!(
        String::from_utf8_lossy(&status.stdout).contains("stopped"),
        "{}",
        String::from_utf8_lossy(&status.stdout)
    );
}
