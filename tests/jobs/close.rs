//! The close of periods.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::app::Role;
use tollgate::domain::ids::OutboxId;
use tollgate::ledger::{Closed, Closing, ClosingPeriod, Manner, VerifyOptions, verify};

use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const GRACE: Duration = Duration::from_secs(3600);
const RUNS: &str = "/v1/admin/jobs/close/runs";
const CLOSURES: &str = "SELECT tenant, meter, period_start AT TIME ZONE 'UTC' AS start, closed_at AT TIME ZONE 'UTC' AS at, \
    lapsed::float8 AS l, overage::float8 AS o FROM period_closures ORDER BY 1, 2, 3";
const BOOKS: &str = "SELECT meter, period_start AT TIME ZONE 'UTC' AS start, available::float8 AS a, reserved::float8 AS r, \
    consumed::float8 AS c, lapsed::float8 AS l, overage::float8 AS o FROM balances WHERE tenant = 'acme' ORDER BY 1, 2";
const ENTRIES: &str = "SELECT count(*) FROM entries WHERE class = 'period'";

/// A tenant with a quota of fifty pages a month, in UTC, at this time, where no job runs by itself.
async fn at(now: &str) -> TestApp {
    let app = an_app().at(now).without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app
}

async fn used(app: &TestApp, key: &str, amount: &str) {
    app.use_pages(key, amount).await.expect(201);
}

async fn run(app: &TestApp) -> Closed {
    app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap()
}

fn closed(closed: u64, waiting: u64) -> Closed {
    Closed { closed, waiting, ..Closed::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn once_the_grace_is_over_what_is_unused_lapses_and_what_was_beyond_the_quota_is_overage() {
    let app = at("2026-03-10T12:00:00Z").await;
    used(&app, "pages", "30").await;
    let tokens = json!({ "tenant": "acme", "meter": "token", "amount": "7" });
    app.post_keyed(USAGE, "tokens", tokens).await.expect(201);
    app.move_clock("2026-04-01T00:59:59.999Z").await;
    used(&app, "next", "5").await;
    assert_eq!(run(&app).await, closed(0, 0), "the grace is not over");

    app.move_clock("2026-04-01T01:00:00Z").await;
    assert_eq!(run(&app).await, closed(2, 0));
    let closures = [
        "acme page 2026-03-01T00:00:00 2026-04-01T01:00:00 20 0",
        "acme token 2026-03-01T00:00:00 2026-04-01T01:00:00 0 7",
    ];
    assert_eq!(rows(&app.database, CLOSURES).await, closures);
    let books = [
        "page 2026-03-01T00:00:00 0 0 30 20 0",
        "page 2026-04-01T00:00:00 45 0 5 0 0",
        "token 2026-03-01T00:00:00 0 0 7 0 7",
    ];
    app.drained().await;
    assert_eq!(rows(&app.database, BOOKS).await, books);
    assert_eq!(run(&app).await, closed(0, 0), "a second run finds nothing to do");
    assert_eq!(rows(&app.database, ENTRIES).await, ["2"]);
    used(&app, "all", "45").await;
    assert_eq!(app.use_pages("more", "1").await.status, 429, "the open period has its own amount");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_quota_is_gone_when_it_begins_does_not_keep_its_period_open() {
    let app = at("2026-03-10T12:00:00Z").await;
    used(&app, "pages", "30").await;
    let body = json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "paid", "effective_at": "2026-03-20T00:00:00Z",
        "expires_at": "2026-03-25T00:00:00Z"
    });
    let id = app.post_keyed("/v1/admin/grants", "a", body).await.expect(201).text("/id").to_owned();
    app.with_plan(json!([]), json!([])).await;
    app.move_clock("2026-04-01T01:00:00Z").await;
    assert_eq!(run(&app).await, closed(1, 0));
    let grant = app.get(&format!("/v1/admin/grants/{id}")).await;
    assert_eq!((grant.text("/status"), &grant.body["unburnt"]), ("expired", &Value::Null));
    assert_eq!(rows(&app.database, "SELECT granted::float8 AS g FROM balances").await, ["50"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_after_three_months_closes_each_period_as_of_its_own_end() {
    let app = at("2026-01-10T12:00:00Z").await;
    used(&app, "january", "10").await;
    app.move_clock("2026-02-10T12:00:00Z").await;
    used(&app, "february", "20").await;
    app.move_clock("2026-03-10T12:00:00Z").await;
    used(&app, "march", "50").await;
    app.move_clock("2026-06-10T12:00:00Z").await;
    app.drained().await;
    let dry_run = Manner { dry_run: true, ..Manner::default() };
    let would = app.app().operations.periods.close(dry_run, GRACE).await.unwrap();
    let lapsed = would.units.values().map(|units| units.lapsed.normalize().to_string()).collect::<Vec<_>>();
    assert_eq!((would.closed, would.later, would.waiting, lapsed), (1, 2, 0, vec!["40".to_owned()]));
    assert_eq!(run(&app).await, closed(3, 0));
    let closures = [
        "acme page 2026-01-01T00:00:00 2026-02-01T01:00:00 40 0",
        "acme page 2026-02-01T00:00:00 2026-03-01T01:00:00 30 0",
        "acme page 2026-03-01T00:00:00 2026-04-01T01:00:00 0 0",
    ];
    assert_eq!(rows(&app.database, CLOSURES).await, closures, "one in which nothing is left is closed too");
    assert_eq!(rows(&app.database, ENTRIES).await, ["2"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_between_chunks_is_gone_on_with_and_runs_at_once_close_nothing_twice() {
    let app = at("2026-01-10T12:00:00Z").await;
    for (month, key) in ["2026-02-10", "2026-03-10", "2026-04-10"].into_iter().zip(["a", "b", "c"]) {
        used(&app, key, "10").await;
        app.move_clock(&format!("{month}T12:00:00Z")).await;
    }
    app.drained().await;
    let (ledger, operations) = (&app.app().ledger, &app.app().operations);
    let ended = ledger.periods_to_close(app.clock.now_ms(), None, 10).await.unwrap();
    assert_eq!(ended.len(), 3);
    let partition = app.app().gate.partition_of(&ended[0].tenant);
    let now_ms = app.clock.now_ms();
    let closing = |after| Closing { after, grace: GRACE, dry_run: false, now_ms };
    let january = [ClosingPeriod { ended: ended[0].clone(), next: None, rollover_ends_ms: None }];
    let ahead = OutboxId { sequence: u64::MAX >> 1, ..OutboxId::default() };
    let ahead = OutboxId { epoch: app.app().gate.epoch(partition).unwrap(), ..ahead };
    let early = ledger.close_periods(partition, &january, closing(ahead)).await.unwrap().0;
    assert_eq!(early, closed(0, 1), "what is before the boundary is not booked yet");
    let first = ledger.close_periods(partition, &january, closing(OutboxId::default())).await.unwrap().0;
    assert_eq!(first, closed(1, 0));
    // The process dies here; then two instances run the job at once.
    let runs = (0..2).map(|_| operations.periods.close(Manner::default(), GRACE));
    let done: u64 = futures::future::join_all(runs).await.into_iter().map(|done| done.unwrap().closed).sum();
    assert_eq!(done, 2);
    assert_eq!(rows(&app.database, CLOSURES).await.len(), 3);
    assert_eq!(rows(&app.database, ENTRIES).await, ["3"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_that_fails_half_way_leaves_nothing_of_it() {
    let app = at("2026-03-10T12:00:00Z").await;
    used(&app, "pages", "30").await;
    app.move_clock("2026-04-02T00:00:00Z").await;
    app.drained().await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''refused''; END'; \
        CREATE TRIGGER refuse BEFORE UPDATE ON balances FOR EACH ROW EXECUTE FUNCTION refuse()";
    as_owner(&app.database, refuse).await.unwrap();
    let failed = Closed { failed: 1, ..Closed::default() };
    assert_eq!(run(&app).await, failed, "its tenant is passed over");
    assert_eq!(rows(&app.database, CLOSURES).await, Vec::<String>::new());
    assert_eq!(rows(&app.database, ENTRIES).await, ["0"]);
    as_owner(&app.database, "DROP TRIGGER refuse ON balances").await.unwrap();
    assert_eq!(run(&app).await, closed(1, 0));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_it_would_close_and_changes_nothing() {
    let app = at("2026-03-10T12:00:00Z").await;
    used(&app, "pages", "30").await;
    app.move_clock("2026-04-02T00:00:00Z").await;
    app.drained().await;
    let before = rows(&app.database, BOOKS).await;
    app.app().ledger.plan_jobs(&[("close", app.clock.now_ms())]).await.unwrap();
    let ahead = app.post(RUNS, json!({ "at": "2026-04-02T00:00:01Z" })).await;
    ahead.is_problem(422, "validation_failed");
    assert_eq!(ahead.pointers(), ["/at"]);

    app.post(RUNS, json!({ "dry_run": true })).await.expect(202);
    let other = app.another_instance_with(&[Role::Jobs]).await;
    let would = "would close 1 periods; 0 wait; page: 0 go on, 20 lapse, 0 are overage";
    assert_eq!(ended(&app).await, would);
    assert_eq!(rows(&app.database, BOOKS).await, before);
    assert_eq!(rows(&app.database, CLOSURES).await, Vec::<String>::new());
    let given = ["job", "run", "close", "--url", app.url(), "--key", app.key()];
    let dry = app.command(&[&given[..], &["--dry-run", "--output", "json"]].concat());
    assert_eq!(dry.status.code(), Some(0), "{dry:?}");
    let said = String::from_utf8(dry.stdout).unwrap();
    assert!(said.contains(would) && said.contains("succeeded dry"), "{said}");
    assert_eq!(rows(&app.database, CLOSURES).await, Vec::<String>::new());
    let before_then = app.command(&[&given[..], &["--at", "2026-04-01T00:59:59Z"]].concat());
    assert_eq!(before_then.status.code(), Some(0), "{before_then:?}");
    assert_eq!(ended(&app).await, "closed 0 periods; 0 wait");
    assert_eq!(app.command(&given).status.code(), Some(0));
    assert_eq!(ended(&app).await, "closed 1 periods; 0 wait");
    let list = app.get("/v1/admin/jobs").await.expect(200).body["data"].take();
    let close = list.as_array().unwrap().iter().find(|job| job["name"] == "close").unwrap();
    assert_eq!(close["last_run"]["progress"], json!({ "done": 1, "total": 1 }));
    other.stop().await;
    app.finish().await;
}

/// What the job's last run ended with, once no run of it is asked for or under way.
async fn ended(app: &TestApp) -> String {
    wait_for("the job has run", Duration::from_secs(30), async || {
        let list = app.get("/v1/admin/jobs").await.expect(200).body["data"].take();
        let is_its = |job: &&Value| job["name"] == "close" && job["is_asked_for"] == false;
        let job = list.as_array()?.iter().find(is_its)?.clone();
        (job["last_run"]["succeeded"] == true)
            .then(|| job["last_run"]["outcome"].as_str().map(str::to_owned))?
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_that_is_changed_or_missing_is_found_and_named() {
    let app = at("2026-03-10T12:00:00Z").await;
    used(&app, "pages", "30").await;
    app.move_clock("2026-04-02T00:00:00Z").await;
    assert_eq!(run(&app).await, closed(1, 0));
    for (change, undo, names) in [
        (
            "UPDATE period_closures SET lapsed = lapsed + 1",
            "UPDATE period_closures SET lapsed = lapsed - 1",
            "closed with 21.000000000 lapsed",
        ),
        (
            "CREATE TABLE kept AS TABLE period_closures; DELETE FROM period_closures",
            "INSERT INTO period_closures TABLE kept",
            "not closed",
        ),
    ] {
        as_owner(&app.database, change).await.unwrap();
        let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
        let faults: Vec<_> = report.checks.iter().flat_map(|check| &check.faults).collect();
        assert!(faults.iter().any(|fault| fault.detail.contains(names)), "{faults:?}");
        assert!(faults.iter().all(|fault| fault.what.contains("acme page")), "{faults:?}");
        as_owner(&app.database, undo).await.unwrap();
    }
    as_owner(&app.database, "DROP TABLE kept").await.unwrap();
    app.finish().await;
}
