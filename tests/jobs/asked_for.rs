//! Runs that somebody asks for.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::app::Role;
use tollgate::ledger::Manner;

use super::statements::{ISSUED, in_march, per_page};
use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

const RUNS: &str = "/v1/admin/jobs/retention/runs";

async fn retention(app: &TestApp) -> Option<Value> {
    let list = app.get("/v1/admin/jobs").await.expect(200).body["data"].take();
    list.as_array().unwrap().iter().find(|job| job["name"] == "retention").cloned()
}

/// The job once no run of it is asked for or under way.
async fn rested(app: &TestApp) -> Value {
    wait_for("the job has run", Duration::from_secs(30), async || {
        let job = retention(app).await?;
        (job["is_asked_for"] == false && job["last_run"]["succeeded"] == true).then_some(job)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_asked_for_begins_at_once_and_is_audited() {
    let app = spawn_app().await;
    let before = rested(&app).await;
    let asked = app.post(RUNS, json!({})).await.expect(202).body;
    assert_eq!(asked["name"], "retention");
    let after = rested(&app).await;
    let of =
        |job: &Value| job["last_run"]["scheduled_for"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(of(&after) > of(&before), "{before} {after}");
    assert_eq!(after["next_due"], before["next_due"], "its own time stays");
    let audit = app.get("/v1/admin/audit?object_kind=job&action=run").await.expect(200).body;
    assert_eq!(audit["data"].as_array().unwrap().len(), 1, "{audit}");
    assert_eq!(audit["data"][0]["object_id"], "retention");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_anyone_to_take_it_stays_asked_for() {
    let app = an_app().without_jobs().start().await;
    app.post(RUNS, json!({})).await.is_problem(404, "not_found");
    app.app().ledger.plan_jobs(&[("retention", 0)]).await.unwrap();
    app.post(RUNS, json!({})).await.expect(202);
    assert_eq!(retention(&app).await.unwrap()["is_asked_for"], true);
    let words = ["job", "run", "retention", "--wait-seconds", "0", "--url", app.url(), "--key", app.key()];
    let output = app.command(&words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("has not ended within 0 s") && error.contains("jobs role"), "{error}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_made_so_names_what_to_leave_out() {
    let app = spawn_app().await;
    let refused = app.post(RUNS, json!({ "at": "2026-02-01T00:00:00Z", "dry_run": true })).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), ["/at", "/dry_run"]);
    app.post("/v1/admin/jobs/lunch/runs", json!({})).await.is_problem(404, "not_found");
    assert_eq!(app.get("/v1/admin/audit?object_kind=job").await.body["data"], json!([]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_runs_a_job_and_prints_what_it_ended_with() {
    let app = spawn_app().await;
    rested(&app).await;
    let given = ["--output", "json", "--url", app.url(), "--key", app.key()];
    let output = app.command(&[&["job", "run", "partitions"], &given[..]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&rows[0]["job"], &rows[0]["last_run"]), (&json!("partitions"), &json!("succeeded")));
    assert!(rows[0]["outcome"].as_str().unwrap().starts_with("made "), "{rows}");
    let output = app.command(&[&["job", "list"], &given[..]].concat());
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["job"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "close",
            "estimates",
            "grants",
            "keys",
            "notices",
            "partitions",
            "periods",
            "restore",
            "retention",
            "statements",
            "upgrades",
            "webhooks"
        ]
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_issues_the_statements_of_an_instant_after_a_dry_run_of_it() {
    let app = in_march(json!([per_page("1")])).await;
    app.use_pages("a", 7).await.expect(201);
    app.move_clock("2026-05-02T12:00:00Z").await;
    app.drained().await;
    app.app().operations.periods.close(Manner::default(), Duration::from_secs(3600)).await.unwrap();
    app.app().ledger.plan_jobs(&[("statements", app.clock.now_ms())]).await.unwrap();
    // The run that is due as an instance starts is asked to be a dry one.
    app.post("/v1/admin/jobs/statements/runs", json!({ "dry_run": true })).await.expect(202);
    let other = app.another_instance_with(&[Role::Jobs]).await;
    let outcome = |options: &[&str]| {
        let given = ["job", "run", "statements", "--url", app.url(), "--key", app.key(), "--output", "json"];
        let output = app.command(&[&given[..], options].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        rows[0]["outcome"].as_str().unwrap().to_owned()
    };
    let said = outcome(&["--at", "2026-04-01T01:00:00Z", "--dry-run"]);
    assert!(said.starts_with("would issue 1 statements and 0 credit notes"), "{said}");
    assert_eq!(rows(&app.database, ISSUED).await, [""; 0]);
    let said = outcome(&["--at", "2026-04-01T01:00:00Z"]);
    assert!(said.starts_with("issued 1 statements and 0 credit notes"), "{said}");
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 7"], "and not April's");
    other.stop().await;
    app.finish().await;
}

const WITH_DRY_RUN: [&str; 5] = ["close", "statements", "grants", "periods", "upgrades"];

/// The job of this name once no run of it is asked for.
async fn done(app: &TestApp, name: &str) -> Value {
    wait_for("the run has ended", Duration::from_secs(30), async || {
        let list = app.get("/v1/admin/jobs").await.expect(200).body["data"].take();
        let found = list.as_array().unwrap().iter().find(|job| job["name"] == name).cloned()?;
        (found["is_asked_for"] == false && found["last_run"]["finished_at"].is_string()).then_some(found)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_would_be_done_and_is_no_success() {
    let app = an_app().at("2026-03-31T12:00:00Z").start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    for name in WITH_DRY_RUN {
        let before = done(&app, name).await;
        app.post(&format!("/v1/admin/jobs/{name}/runs"), json!({ "dry_run": true })).await.expect(202);
        let after = done(&app, name).await;
        assert_eq!(
            (&after["last_run"]["dry_run"], &before["last_run"]["dry_run"]),
            (&json!(true), &json!(false))
        );
        assert!(after["last_run"]["outcome"].as_str().unwrap().starts_with("would "), "{after}");
        assert_eq!(after["succeeded_at"], before["succeeded_at"], "{name}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_said_without_doing_it() {
    let app = an_app().at("2026-03-31T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app.define("plans/large", json!({ "quotas": [quota_of("90")] })).await.expect(201);
    app.use_pages("march", "1").await.expect(201);
    let asked = app.post("/v1/tenants/acme/upgrade-requests", json!({ "plan": "large" })).await.expect(201);
    let approve = format!("/v1/admin/upgrade-requests/{}/approve", asked.text("/id"));
    app.post(&approve, json!({ "effective": "next_period" })).await.expect(200);
    let grant = json!({
        "tenant": "acme", "meter": "page", "amount": "5", "kind": "promotional", "effective_at": "2026-03-31T13:00:00Z"
    });
    app.post_keyed("/v1/admin/grants", "later", grant).await.expect(201);
    app.move_clock("2026-03-31T13:30:00Z").await;
    app.drained().await;
    let operations = &app.app().operations;
    let count = "SELECT count(*) FROM entries";
    let before = rows(&app.database, count).await;
    for _ in 0..2 {
        let periods = operations.memory.next_periods_due().await.unwrap();
        assert_eq!((periods.opened, periods.delivered), (1, 1));
        let grants = operations.memory.grants_due().await.unwrap();
        assert_eq!((grants.begun, grants.settled), (1, 0));
        assert_eq!(rows(&app.database, count).await, before);
    }
    operations.grants.follow().await.unwrap();
    operations.memory.open_next_periods().await.unwrap();
    assert_eq!(operations.memory.grants_due().await.unwrap().begun, 0);
    assert_eq!(operations.memory.next_periods_due().await.unwrap().opened, 0);
    assert_eq!(operations.upgrades.due().await.unwrap(), 0);
    app.move_clock("2026-04-01T00:00:00Z").await;
    assert_eq!(operations.upgrades.due().await.unwrap(), 1);
    assert_eq!(operations.upgrades.follow().await.unwrap(), 1);
    assert_eq!(operations.upgrades.due().await.unwrap(), 0);
    app.finish().await;
}
