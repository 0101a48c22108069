//! Postgres frozen under a running service: the gate goes on, and calls that wait for the books get an answer that says
//! so.

use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tollgate::app::Role;

use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

/// Two seconds of silence, plus a loaded machine's delay: less than two waits in a row.
const PATIENCE: Duration = Duration::from_millis(3_500);

async fn app() -> TestApp {
    let app = an_app().with("ledger.ack_timeout_ms", "500").on_own_postgres().start().await;
    app.with_plan(json!([day_of("1000")]), json!([quota_of("900")])).await;
    news_is_taken(&app).await;
    app.define("meters/settled", json!({ "unit": "settled" })).await;
    news_is_taken(&app).await;
    let warm = pages("1");
    app.post_until_answered(USAGE, "warm", warm).await.expect(201);
    app
}

/// Waits until the instance has applied the last change of policy: it reads a changed tenant again, which needs the
/// Postgres that is to be frozen.
async fn news_is_taken(app: &TestApp) {
    let version = app.app().ledger.policy_version().await.unwrap();
    let line = format!("tollgate_policy_version {version}");
    wait_for("the policy is followed", Duration::from_secs(20), async || {
        let metrics = app.app().operations.metrics_text();
        metrics.lines().any(|found| found == line).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_postgres_is_frozen_the_gate_goes_on_and_a_consume_that_waits_for_the_books_says_what_is_done()
{
    let app = app().await;
    let frozen = app.database.freeze();
    let pages = pages("3");
    let reserved = app.post_keyed(RESERVATIONS, "job", pages.clone()).await.expect(201);
    let path = reservation(reserved.text("/id"), "consume");
    let waits = app.post(&path, json!({ "amount": "2", "ack": "ledger" })).await;
    waits.is_problem(503, "ledger_timeout");
    assert_eq!(waits.text("/applied"), "gate");
    let released = app.post(RESERVATIONS, pages).await.expect(201);
    app.release(released.text("/id")).await.expect(200);
    let began = Instant::now();
    let ready = app.get("/readyz").await.expect(200);
    assert_eq!(ready.text("/status"), "degraded");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    drop(frozen);
    let repeated = app.post_until_answered(&path, "again", json!({ "amount": "2", "ack": "ledger" })).await;
    assert_eq!(repeated.expect(200).body["replayed"], true);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_refuses_a_keyed_call_of_what_is_not_booked_without_a_question_to_postgres() {
    let app = app().await;
    let call = json!({ "unit": "call", "booked": false, "without_limit": "deny" });
    app.define("meters/call", call).await;
    news_is_taken(&app).await;
    app.define("meters/later", json!({ "unit": "later" })).await;
    news_is_taken(&app).await;
    app.post_until_answered(USAGE, "warm again", pages("1")).await.expect(201);
    let frozen = app.database.freeze();
    let asked = json!({ "tenant": "acme", "meter": "call", "amount": "1" });
    app.post_keyed(RESERVATIONS, "job", asked).await.is_problem(402, "exceeds_plan");
    drop(frozen);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_read_after_its_change_is_not_forgotten_for_the_notice_of_that_change() {
    let app = app().await;
    app.define("tenants/newcomer", json!({ "plan": "plan" })).await;
    let pages = pages("1").of("newcomer");
    app.post_until_answered(USAGE, "first", pages.clone()).await.expect(201);
    let (late, connection) = tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let notice = r#"{"kind":"tenant","id":"newcomer","version":1}"#;
    late.execute("SELECT pg_notify('tollgate_changes', $1)", &[&notice]).await.unwrap();
    connection.abort();
    // Changed by another instance: this one needs no notice of its own changes.
    let second = app.another_instance_with(&[Role::Http]).await;
    let put = app.client().put(format!("{}/v1/admin/tenants/later", second.url())).bearer_auth(app.key());
    assert_eq!(put.json(&json!({ "plan": "plan" })).send().await.unwrap().status(), 201);
    second.stop().await;
    news_is_taken(&app).await;
    let frozen = app.database.freeze();
    app.post(RESERVATIONS, pages).await.expect(201);
    drop(frozen);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_takes_less_than_ten_seconds_although_postgres_is_frozen_and_a_client_is_slow() {
    let mut app = app().await;
    let frozen = app.database.freeze();
    let address = app.url().trim_start_matches("http://").to_owned();
    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    slow.write_all(b"POST /v1/reservations HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        .await
        .unwrap();
    let pages = pages("3");
    let reserved = app.post_keyed(RESERVATIONS, "job", pages.clone()).await.expect(201);
    let began = Instant::now();
    app.stop().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(frozen);
    app.restart().await;
    let again = app.post_until_answered(RESERVATIONS, "job", pages).await;
    assert_eq!(again.expect(200).text("/id"), reserved.text("/id"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_needs_postgres_says_within_seconds_that_it_does_not_answer() {
    let app = app().await;
    app.define("tenants/cold", json!({ "plan": "plan" })).await;
    news_is_taken(&app).await;
    let cold = pages("1").of("cold");
    let key = json!({ "name": "worker", "role": "service" });
    let calls = [
        (Method::GET, "/v1/admin/plans", Value::Null),
        (Method::GET, "/v1/admin/jobs", Value::Null),
        (Method::GET, "/v1/admin/keys", Value::Null),
        (Method::GET, "/v1/tenants/acme/usage", Value::Null),
        (Method::GET, "/v1/tenants/acme/entries", Value::Null),
        (Method::GET, "/v1/tenants/acme/reservations", Value::Null),
        (Method::GET, "/v1/tenants/unknown/quota", Value::Null),
        (Method::GET, "/v1/reports/usage", Value::Null),
        (Method::GET, "/v1/reports/reconciliation", Value::Null),
        (Method::PUT, "/v1/admin/plans/another", json!({})),
        (Method::PUT, "/v1/admin/tenants/another", json!({ "plan": "plan" })),
        (Method::DELETE, "/v1/admin/plans/another", Value::Null),
        (Method::POST, "/v1/admin/keys", key),
        (Method::POST, RESERVATIONS, cold.clone()),
    ];
    let frozen = app.database.freeze();
    // In the first round connections wait for an answer, in the later ones for a connection.
    for _ in 0..3 {
        all_are_told_in_time(&app, &calls).await;
    }
    // Callers that wait for one another: the tenant is read once for all.
    let same = vec![(Method::POST, RESERVATIONS, cold); 20];
    all_are_told_in_time(&app, &same).await;
    drop(frozen);
    app.finish().await;
}

async fn all_are_told_in_time(app: &TestApp, calls: &[(Method, &'static str, Value)]) {
    let asked = calls.iter().map(async |(method, path, body)| {
        let began = Instant::now();
        let answer = app.call(method.clone(), path, body.clone()).await;
        assert_eq!(answer.status, 503, "{method} {path}: {answer:?}");
        assert!(answer.header("retry-after").parse::<u64>().is_ok(), "{method} {path}");
        let took = began.elapsed();
        assert!(took < PATIENCE, "{method} {path} took {took:?}");
    });
    futures::future::join_all(asked).await;
}

/// Stops one of Postgres's processes until the answer is dropped.
struct Stopped(nix::unistd::Pid);

impl Stopped {
    fn new(pid: i32) -> Self {
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(self.0, nix::sys::signal::Signal::SIGCONT);
    }
}

/// A new plan that waits for this connection to let go.
async fn held_up(
    app: &TestApp,
    holder: &tokio_postgres::Client,
    plan: usize,
) -> tokio::task::JoinHandle<u16> {
    holder.batch_execute("BEGIN; UPDATE policy_version SET version = version").await.unwrap();
    let (caller, path) = (app.caller(), format!("/v1/admin/plans/new-{plan}"));
    tokio::spawn(async move { caller.put(&path, json!({})).await.status })
}

#[tokio::test(flavor = "multi_thread")]
async fn while_postgres_answers_others_it_is_not_called_silent_for_the_question_that_hangs() {
    let app = app().await;
    let connect = async || {
        let (client, connection) =
            tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    };
    let (holder, watch) = (connect().await, connect().await);
    let change = held_up(&app, &holder, 0).await;
    let asks = "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT 1'";
    let pid: i32 = wait_for("Postgres is asked", Duration::from_secs(20), async || {
        watch.query_opt(asks, &[]).await.unwrap().map(|row| row.get(0))
    })
    .await;
    holder.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(change.await.unwrap(), 201);
    let question = Stopped::new(pid);
    // On a machine so busy that the others wait, too, the silence may be real: only a smooth round counts.
    for plan in 1..=20 {
        let change = held_up(&app, &holder, plan).await;
        let (began, mut is_smooth) = (Instant::now(), true);
        while began.elapsed() < PATIENCE && is_smooth {
            let asked = Instant::now();
            let answer = app.get("/v1/admin/jobs").await;
            is_smooth = asked.elapsed() < Duration::from_millis(700);
            assert!(!is_smooth || answer.status == 200, "{answer:?}");
        }
        let waits = !change.is_finished();
        holder.batch_execute("ROLLBACK").await.unwrap();
        let status = change.await.unwrap();
        if is_smooth {
            assert_eq!((waits, status), (true, 201));
            break;
        }
        assert!(plan < 20, "this machine is too busy to tell");
    }
    drop(question);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_both_away_what_comes_beyond_what_can_be_parked_in_time_is_refused_at_once_and_nothing_is_lost()
{
    const CALLS: usize = 1_400;
    const AT_ONCE: usize = 32;
    let mut app = app().await;
    app.define("meters/free", json!({ "unit": "page", "without_limit": "unlimited" })).await;
    news_is_taken(&app).await;
    let work = || json!({ "tenant": "acme", "meter": "free", "amount": "1" });
    app.redis.kill9().unwrap();
    app.post_until_answered(USAGE, "first", work()).await.expect(201);
    let frozen = app.database.freeze();
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let (caller, work) = (app.caller(), work());
        calls.spawn(async move {
            let key = format!("call-{number}");
            let answer = caller.post_keyed(USAGE, &key, work).await;
            (key, answer)
        });
    }
    let (began, mut undecided) = (Instant::now(), Vec::new());
    while let Some(answered) = calls.join_next().await {
        let (key, answer) = answered.unwrap();
        assert_eq!(answer.status, 503, "{answer:?}");
        let is_refused = answer.text("/code") == "overloaded";
        undecided.push(key);
        if is_refused {
            break;
        }
    }
    assert!(!calls.is_empty() && began.elapsed() < PATIENCE, "refused after {:?}", began.elapsed());
    drop(frozen);
    while let Some(answered) = calls.join_next().await {
        let (key, answer) = answered.unwrap();
        assert!([201, 503].contains(&answer.status), "{answer:?}");
        undecided.extend((answer.status == 503).then_some(key));
    }
    let repeated = stream::iter(undecided).map(async |key| {
        let answer = app.post_until_answered(USAGE, &key, work()).await;
        assert!([200, 201].contains(&answer.status), "{answer:?}");
    });
    repeated.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
    app.redis.restart().unwrap();
    app.drained().await;
    let sum = "SELECT sum(consumed)::bigint FROM usage_hourly WHERE subject = 0 AND meter = 'free'";
    assert_eq!(rows(&app.database, sum).await, [(CALLS + 1).to_string()]);
    app.finish().await;
}
