//! What an operator's dashboard reads.

use serde_json::json;
use tollgate::app::Role;

use super::ratelimit::{CHECK, minute, of, with_limits};
use crate::support::app::*;
use crate::support::process::PATIENCE;
use crate::support::wait::wait_for;

/// What only an instance that books looks up.
const OF_WRITERS: [&str; 1] = ["tollgate_writer_lag_events"];
/// What only one that runs jobs looks up.
const OF_JOBS: [&str; 6] = [
    "tollgate_quarantine_open_events",
    "tollgate_damaged_items",
    "tollgate_parked_waiting_calls",
    "tollgate_parked_conflicting_calls",
    "tollgate_job_success_age_seconds",
    "tollgate_outbox_tail_seconds",
];

async fn metrics_at(app: &TestApp, ops_url: &str) -> String {
    let answer = app.client().get(format!("{ops_url}/metrics")).send().await.unwrap();
    answer.text().await.unwrap()
}

async fn metrics_of(app: &TestApp) -> String {
    metrics_at(app, &app.ops_url()).await
}

fn assert_has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line} is missing in:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_decisions_and_name_neither_tenant_nor_subject() {
    let app = spawn_app().await;
    app.with_day_of("5").await;
    let body = pages("3").by("ada-lovelace");
    assert_eq!(app.post(RESERVATIONS, body.clone()).await.status, 201);
    assert_eq!(app.post(RESERVATIONS, body).await.status, 429);
    app.drained().await;
    let text = metrics_of(&app).await;
    let lines = [
        "tollgate_decisions_total{call=\"reserve\",outcome=\"admitted\"} 1",
        "tollgate_decisions_total{call=\"reserve\",outcome=\"refused\"} 1",
        concat!(
            "tollgate_limits_refused_total{kind=\"limit\",algorithm=\"calendar\",cause=\"reserved\",",
            "code=\"quota_exceeded\"} 1"
        ),
        "tollgate_restores_total{kind=\"tenant\"} 1",
    ];
    assert_has(&text, &lines);
    assert!(!text.contains("acme") && !text.contains("ada-lovelace"), "{text}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_no_limit_makes_is_counted_by_its_reason() {
    let app = spawn_app().await;
    app.with_day_of("5").await;
    app.define("bans/spam", json!({ "tenant": "acme", "reason": "spam" })).await;
    app.post(RESERVATIONS, pages(1)).await.is_problem(429, "banned");
    let refused = "tollgate_limits_refused_total{kind=\"admin_ban\",algorithm=\"none\",cause=\"none\",";
    assert_has(&metrics_of(&app).await, &[&format!("{refused}code=\"banned\"}} 1")]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_by_a_quota_by_an_interval_and_for_want_of_any_limit_are_counted_by_their_kind() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([]), json!([quota_of("5")])).await;
    let scan = json!({ "costs": [{ "meter": "token", "base": "1" }], "min_interval_seconds": 5 });
    app.define("operations/scan", scan).await;
    app.use_pages("used", 4).await.expect(201);
    app.use_pages("more", 2).await.is_problem(429, "quota_exceeded");
    app.post(RESERVATIONS, of("scan")).await.expect(201);
    app.post(RESERVATIONS, of("scan")).await.is_problem(429, "rate_limited");
    app.define("meters/token", json!({ "unit": "token", "without_limit": "deny" })).await;
    app.post(RESERVATIONS, pages(1).with("meter", "token")).await.is_problem(402, "exceeds_plan");
    let refused = |kind: &str, algorithm: &str, cause: &str, code: &str| {
        let labels = format!("kind=\"{kind}\",algorithm=\"{algorithm}\",cause=\"{cause}\",code=\"{code}\"");
        format!("tollgate_limits_refused_total{{{labels}}} 1")
    };
    let lines = [
        refused("quota", "calendar", "consumed", "quota_exceeded"),
        refused("interval", "interval", "interval", "rate_limited"),
        refused("without_limit", "none", "none", "exceeds_plan"),
    ];
    assert_has(&metrics_of(&app).await, &lines.each_ref().map(String::as_str));
    app.finish().await;
}

/// How many calls of this script were timed, and the sum of their seconds.
async fn timed(app: &TestApp, script: &str) -> (u64, f64) {
    let text = metrics_of(app).await;
    let figure = |name: &str| {
        let name = format!("tollgate_gate_call_seconds_{name}{{script=\"{script}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("{name}: {text}"))
    };
    (figure("count").parse().unwrap(), figure("sum").parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_of_the_service_is_timed_by_the_script_that_decides_it() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    with_limits(&app, json!([day_of("100"), minute("100")])).await;
    let [used, freed] = [app.hold(1).await, app.hold(1).await];
    for script in ["reserve", "consume", "extend", "release", "check"] {
        let (calls, seconds) = timed(&app, script).await;
        match script {
            "reserve" => app.post(RESERVATIONS, pages(1)).await.expect(201),
            "consume" => app.consume(&used, "1").await.expect(200),
            "extend" => app.resolve(&freed, "extend", json!({ "ttl_seconds": 900 })).await.expect(200),
            "release" => app.release(&freed).await.expect(200),
            _ => app.post(CHECK, of("read")).await.expect(200),
        };
        let after = timed(&app, script).await;
        assert!(after.0 > calls && after.1 > seconds, "{script}: {after:?} after {calls} of {seconds} s");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dry_run_or_a_look_would_have_refused_is_counted_as_refused() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    with_limits(&app, json!([day_of("5"), minute("5")])).await;
    let submit = |pages: u32| of("submit").with("attributes", json!({ "pages": pages }));
    for (amount, is_allowed) in [(5, true), (6, false)] {
        let dry = app.post(RESERVATIONS, pages(amount).with("dry_run", true)).await.expect(200);
        assert_eq!(dry.body["allowed"], is_allowed, "{dry:?}");
        for look in [submit(amount), of("read").with("cost", amount)] {
            let look = app.post(CHECK, look.with("peek", true)).await.expect(200);
            assert_eq!(look.body["allowed"], is_allowed, "{look:?}");
        }
    }
    let lines = ["reserve", "usage", "check"].map(|call| {
        ["admitted", "refused"]
            .map(|outcome| format!("tollgate_decisions_total{{call=\"{call}\",outcome=\"{outcome}\"}} 1"))
    });
    let lines: Vec<_> = lines.iter().flatten().map(String::as_str).collect();
    let text = metrics_of(&app).await;
    assert_has(&text, &lines);
    let of_limits = ["limits_near", "limits_refused_total", "limits_remaining_percent_count"];
    let is_of_limits =
        |line: &&str| of_limits.iter().any(|name| line.starts_with(&format!("tollgate_{name}")));
    assert_eq!(text.lines().find(is_of_limits), None, "no limit saw it");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_comes_near_a_limit_is_counted_by_it_and_what_is_left_is_observed() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    with_limits(&app, json!([day_of("100"), minute("10")])).await;
    app.post(RESERVATIONS, pages(70)).await.expect(201);
    app.post(RESERVATIONS, pages(15)).await.expect(201);
    app.post(CHECK, of("read").with("cost", 8)).await.expect(200);
    app.post(CHECK, of("read").with("cost", 8).with("peek", true)).await.expect(200);
    let lines = [
        "tollgate_limits_near_total{limit=\"day\"} 1",
        "tollgate_limits_near_total{limit=\"minute\"} 1",
        "tollgate_limits_remaining_percent_bucket{le=\"20.0\",algorithm=\"calendar\"} 0",
        "tollgate_limits_remaining_percent_bucket{le=\"50.0\",algorithm=\"calendar\"} 1",
        "tollgate_limits_remaining_percent_count{algorithm=\"calendar\"} 1",
    ];
    assert_has(&metrics_of(&app).await, &lines);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_decides_nothing_is_counted_with_its_reason() {
    let app = spawn_app().await;
    with_limits(&app, json!([minute("5")])).await;
    app.post(CHECK, of("read")).await.expect(200);
    assert!(!metrics_of(&app).await.contains("tollgate_gate_errors_total{script=\"check\""));
    let frozen = app.redis.freeze();
    app.post(CHECK, of("read")).await.expect(503);
    let text = metrics_of(&app).await;
    // By the time of the call the breaker may have opened.
    let reasons = ["timeout", "breaker_open"];
    let is_counted = |reason: &str| {
        text.contains(&format!("tollgate_gate_errors_total{{script=\"check\",error=\"{reason}\"}}"))
    };
    assert!(reasons.into_iter().any(is_counted), "{text}");
    drop(frozen);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_of_each_role_serves_health_and_metrics_and_names_no_figure_that_it_never_looks_up() {
    let app = an_app().only(Role::Http).start().await;
    app.without_limits().await;
    // Planned before the instance starts, so that its first look finds one.
    app.app().ledger.plan_jobs(&[("notices", app.clock.now_ms())]).await.unwrap();
    let writer = app.another_instance_with(&[Role::Writer]).await;
    let jobs = app.another_instance_with(&[Role::Jobs]).await;
    app.post_keyed(USAGE, "k", pages(1)).await.expect(201);
    app.drained().await;
    let instances: [(String, &[&str]); 3] =
        [(app.ops_url(), &[]), (writer.ops_url(), &OF_WRITERS), (jobs.ops_url(), &OF_JOBS)];
    let has = |text: &str, name: &str| text.lines().any(|line| line.starts_with(name));
    for (url, own) in instances {
        let operator = app.caller().at(url.as_str()).with_key(None);
        operator.get("/livez").await.expect(200);
        operator.get("/readyz").await.expect(200);
        operator.get(RESERVATIONS).await.is_problem(404, "not_found");
        let text = wait_for("it has looked its figures up", PATIENCE, async || {
            let text = metrics_at(&app, &url).await;
            own.iter().all(|name| has(&text, name)).then_some(text)
        })
        .await;
        for other in OF_WRITERS.iter().chain(&OF_JOBS).filter(|name| !own.contains(name)) {
            assert!(!has(&text, other), "{other} is at {url}:\n{text}");
        }
    }
    assert_eq!((writer.url(), jobs.url()), (String::new(), String::new()), "they take no calls");
    writer.stop().await;
    jobs.stop().await;
    app.finish().await;
}
