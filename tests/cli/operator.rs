//! What the operator's commands say: which thing is wrong, and what to do next.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::app::Role;

use super::{run, tollgate};
use crate::ledger::as_owner;
use crate::support::app::*;
use crate::support::process::{Service, Up};
use crate::support::wait::wait_for;

/// Runs off the test's own threads.
async fn aside(words: &[&str], variables: &[(String, String)]) -> (i32, String, String) {
    let mut command = tollgate(words);
    command.envs(variables.iter().cloned());
    tokio::task::spawn_blocking(move || run(&mut command)).await.unwrap()
}

/// These variables with one of them changed.
fn with(variables: &[(String, String)], name: &str, value: &str) -> Vec<(String, String)> {
    let others = variables.iter().filter(|(other, _)| other != name).cloned();
    others.chain([(name.to_owned(), value.to_owned())]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_and_a_server_that_does_not_answer_are_named_with_what_to_do() {
    let app = spawn_app().await;
    let variables = app.variables();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    for (roles, name, key) in [
        ("http", "TOLLGATE__HTTP__LISTEN", "http.listen"),
        ("http", "TOLLGATE__HTTP__OPS_LISTEN", "http.ops_listen"),
        ("writer", "TOLLGATE__HTTP__OPS_LISTEN", "http.ops_listen"),
        ("jobs", "TOLLGATE__HTTP__OPS_LISTEN", "http.ops_listen"),
    ] {
        let (code, _, error) = aside(&["serve", "--roles", roles], &with(&variables, name, &taken)).await;
        assert_eq!(code, 1, "{error}");
        assert!(error.contains(&format!("{key} = {taken} cannot be listened on")), "{error}");
        assert!(error.contains("next: another process listens there"), "{error}");
    }
    drop(listener);
    let nowhere = "127.0.0.1:1";
    for (name, url, server, key) in [
        ("TOLLGATE__REDIS__URL", format!("redis://:hush@{nowhere}/"), "Redis", "redis.url"),
        (
            "TOLLGATE__POSTGRES__URL",
            format!("postgresql://a:hush@{nowhere}/books"),
            "Postgres",
            "postgres.url",
        ),
    ] {
        // Without Redis a service starts, and limits say what happens to work under them.
        let serves = (server == "Postgres").then_some(&["serve"][..]);
        for words in serves.into_iter().chain([&["verify"][..], &["status"], &["doctor"]]) {
            let (code, _, error) = aside(words, &with(&variables, name, &url)).await;
            assert_eq!(code, 4, "{words:?}: {error}");
            assert!(error.contains(&format!("error: {server} at {nowhere}")), "{words:?}: {error}");
            assert!(error.contains(&format!("next: start {server}, or correct {key}")), "{words:?}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
    let (code, _, error) = aside(
        &["migrate"],
        &with(&variables, "TOLLGATE__POSTGRES__URL", &format!("postgresql://a@{nowhere}/b")),
    )
    .await;
    assert_eq!(code, 4, "{error}");
    assert!(error.contains(&format!("error: Postgres at {nowhere}/b")), "{error}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_takes_no_calls_says_ready_with_the_operators_address() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    for roles in ["writer", "jobs"] {
        let command = app.serving(roles, "127.0.0.1:0".to_owned());
        let service = tokio::task::spawn_blocking(move || Service::start(command)).await.unwrap();
        let operator = app.caller().at(format!("http://{}", service.address)).with_key(None);
        operator.get("/livez").await.expect(200);
        let metrics = operator.get("/metrics").await.expect(200);
        assert!(metrics.body.as_str().unwrap().contains("tollgate_build_info"), "{metrics:?}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_not_in_quarantine_is_named_and_nothing_is_done() {
    let app = spawn_app().await;
    for words in [
        &["quarantine", "retry", "p07:1-42"][..],
        &["quarantine", "discard", "p07:1-42", "--reason", "test", "--yes"],
    ] {
        let (code, out, error) = aside(words, &app.variables()).await;
        assert_eq!((code, out.as_str()), (1, ""), "{words:?}: {error}");
        assert!(error.contains("there is no open event in quarantine p07:1-42"), "{words:?}: {error}");
        assert!(
            error.contains("next: `tollgate quarantine list` shows those that wait"),
            "{words:?}: {error}"
        );
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_verify_and_status_are_numbers_in_json() {
    let app = spawn_app().await;
    let (code, out, error) = aside(&["verify", "--output", "json"], &app.variables()).await;
    assert_eq!(code, 0, "{error}");
    let checks: Value = serde_json::from_str(&out).unwrap();
    assert!(
        checks.as_array().unwrap().iter().all(|check| check["checked"].is_u64() && check["faults"] == 0),
        "{out}"
    );
    let (code, out, error) = aside(&["status", "--output", "json"], &app.variables()).await;
    assert_eq!(code, 0, "{error}");
    let rows: Value = serde_json::from_str(&out).unwrap();
    let value = |name: &str| {
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("{name}: {out}"))["value"].clone()
    };
    assert_eq!((value("partitions"), value("events not booked")), (json!(PARTITIONS), json!(0)));
    assert!(value("durability").is_string());
    app.finish().await;
}

/// What `doctor` says in JSON with these further words, by name, and its exit code.
async fn doctor(app: &TestApp, words: &[&str]) -> (i32, impl Fn(&str) -> Value + use<>) {
    let words = [&["doctor", "--output", "json"], words].concat();
    let (code, out, error) = aside(&words, &app.variables()).await;
    let rows: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{error}"));
    let row = move |name: &str| {
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("{name}: {rows}")).clone()
    };
    (code, row)
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_what_may_be_lost_and_the_memory_that_a_rate_needs() {
    let app = spawn_app().await;
    let (code, row) = doctor(&app, &["--calls-per-second", "1000"]).await;
    assert_eq!(code, 3, "the Postgres of the tests does not force its writes to disk");
    let result = |name: &str| (row(name)["value"].clone(), row(name)["result"].clone());
    assert_eq!(result("postgres fsync"), (json!("off"), json!("danger")));
    assert_eq!(result("redis appendfsync"), (json!("no"), json!("warning")));
    assert_eq!(result("redis maxmemory-policy"), (json!("noeviction"), json!("ok")));
    assert_eq!(result("postgres role is a superuser").1, json!("ok"));
    let needed = 1_000_u64 * 86_400 * 170 + 268_435_456;
    let memory = "redis memory for 1000 keyed calls a second, bytes";
    assert_eq!(result(memory), (json!(needed), json!("ok")));
    assert!(row("postgres fsync")["advice"].as_str().unwrap().contains("fsync = on"));

    let mut redis = app.redis.connection().await;
    for (name, value) in [("maxmemory", "1gb"), ("maxmemory-policy", "allkeys-lru")] {
        redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec_async(&mut redis).await.unwrap();
    }
    let (code, row) = doctor(&app, &["--calls-per-second", "1000"]).await;
    assert_eq!(code, 3);
    assert_eq!(
        row("redis maxmemory-policy")["result"],
        "danger",
        "it is looked at, though nothing starts on it"
    );
    assert_eq!(row("redis maxmemory, bytes")["value"], 1 << 30);
    assert_eq!(row(memory)["result"], "warning");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_for_long_is_named_by_status_until_it_succeeds() {
    const RUNS: &str = "/v1/admin/jobs/notices/runs";
    let app = an_app().without_jobs().start().await;
    app.app().ledger.plan_jobs(&[("notices", app.clock.now_ms())]).await.unwrap();
    let jobs = app.another_instance_with(&[Role::Jobs]).await;
    let ended = async |succeeded: bool| {
        app.post(RUNS, json!({})).await.expect(202);
        wait_for("the job has run", Duration::from_secs(30), async || {
            let all = app.app().ledger.jobs().await.unwrap();
            let job = all.into_iter().find(|job| job.name == "notices")?;
            let is_over = !job.is_asked_for && job.last.as_ref()?.succeeded == Some(succeeded);
            is_over.then_some(job.unsuccessful_seconds)
        })
        .await
    };
    assert!(ended(true).await < 900);
    let rename = |from: &str, to: &str| format!("ALTER TABLE {from} RENAME TO {to}");
    let an_hour_ago = "UPDATE job_runs SET started_at = started_at - interval '1 hour', finished_at = finished_at - interval '1 hour'";
    as_owner(&app.database, &format!("{an_hour_ago}; {}", rename("quota_notices", "away"))).await.unwrap();
    assert!(ended(false).await >= 3_600, "a run that fails is no success");
    let (code, out, error) = aside(&["status", "--output", "json"], &app.variables()).await;
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("overdue job") && out.contains("notices has not succeeded for 36"), "{out}");
    as_owner(&app.database, &rename("away", "quota_notices")).await.unwrap();
    assert!(ended(true).await < 900);
    let (_, out, _) = aside(&["status", "--output", "json"], &app.variables()).await;
    assert!(!out.contains("notices has not succeeded"), "{out}");
    jobs.stop().await;
    app.finish().await;
}

#[test]
fn config_check_prints_json_and_names_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    let good = "[redis]\nurl = \"redis://:hush@127.0.0.1:1/\"\n[postgres]\nurl = \"postgresql://a:hush@127.0.0.1:1/b\"\n\
        [installation]\nsecret = \"0123456789abcdef0123456789abcdef\"\n[gate]\npartitions = 8\n";
    std::fs::write(&file, good).unwrap();
    let file = file.to_str().unwrap();
    let words = ["config", "check", "--output", "json", "--config", file];
    let (code, out, error) = run(&mut tollgate(&words));
    assert_eq!(code, 0, "{error}");
    let rows: Value = serde_json::from_str(&out).unwrap();
    let row = |key: &str| rows.as_array().unwrap().iter().find(|row| row["key"] == key).unwrap().clone();
    assert_eq!(
        row("gate.partitions"),
        json!({ "key": "gate.partitions", "value": 8, "source": format!("{file}:8") })
    );
    assert_eq!(row("redis.url")["value"], "(hidden)");
    assert!(!out.contains("hush") && !error.contains("hush"), "{out}{error}");

    for (text, key, line) in [
        (good.replace("partitions = 8", "partitions = 0"), "gate.partitions", 8),
        (good.replace("partitions = 8", "partition = 8"), "gate.partition", 8),
        (good.replace("partitions = 8", "partitions = \"8\""), "gate.partitions", 8),
        (good.replace("partitions = 8", "partitions = "), file, 8),
    ] {
        std::fs::write(file, text).unwrap();
        let (code, out, error) = run(&mut tollgate(&words));
        assert_eq!(code, 1, "{error}");
        let problems: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (problems[0]["file"].as_str(), problems[0]["line"].as_u64()),
            (Some(file), Some(line)),
            "{out}"
        );
        assert!(problems[0]["key"].as_str().unwrap().starts_with(key), "{out}");
        assert!(error.contains(&format!("{file}:{line}")), "{error}");
        assert!(!error.contains("hush") && !out.contains("hush"), "{out}{error}");
    }
}

#[test]
fn a_wrong_setting_outside_files_is_named_without_file_and_line() {
    let mut check = tollgate(&["config", "check", "--output", "json"]);
    let (code, out, error) = run(check.env("TOLLGATE__REDIS__RESPONSE_TIMEOUT_MS", "-5"));
    assert_eq!(code, 1, "{out}{error}");
    let problems: Value = serde_json::from_str(&out).unwrap();
    let problem = &problems[0];
    assert_eq!((&problem["file"], &problem["line"]), (&json!(null), &json!(null)), "{out}");
    assert_eq!(problem["key"], "redis.response_timeout_ms", "{out}");
    let message = problem["message"].as_str().unwrap();
    assert!(message.contains("expected a whole number, zero or more"), "{message}");
}

/// Starts an installation and stops it; returns its warnings.
fn warnings_of_a_first_start() -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let writes = std::fs::File::create(&log).unwrap();
    let mut up = Up::start_logging(&directory.path().join("data"), &[], writes.into());
    let place = directory.path().join("data");
    let (code, out, error) = run(tollgate(&["verify", "--data-dir"]).arg(place));
    assert_eq!(code, 0, "{out}{error}");
    assert!(!out.contains("warning"), "{out}");
    assert!(out.contains("note: 1 tenant is cold"), "{out}");
    up.ask_to_end();
    assert!(up.child.wait().unwrap().success());
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("\"level\":\"INFO\""), "{log}");
    let is_loud = |line: &&str| line.contains("\"WARN\"") || line.contains("\"ERROR\"");
    log.lines().filter(is_loud).map(str::to_owned).collect()
}

#[test]
fn a_healthy_first_start_warns_of_nothing() {
    // On a busy machine a start may meet a timeout, and says so.
    let mut warnings = Vec::new();
    for _ in 0..3 {
        warnings = warnings_of_a_first_start();
        if warnings.is_empty() {
            return;
        }
    }
    panic!("{warnings:#?}");
}
