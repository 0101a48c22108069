//! Limits over all tenants, where a call breaks off between its two steps: nothing stays taken beyond the window, and a
//! retry takes nothing twice.

mod cut_ways;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tollgate::app::Role;

use super::gate_away::{PATIENCE, impatient};
use crate::http::global::used;
use crate::support::app::*;
use crate::support::wait::wait_for;

/// Tenants `acme` under these limits, and all of them under 10 pages in an hour.
async fn with_fair(limits: Value, on_gate_failure: &str) -> TestApp {
    let app = impatient().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(limits, json!([])).await;
    app.define(
        "limits/fair",
        json!({
            "meter": "page", "scope": "global", "algorithm": "fixed_window", "window_seconds": 3_600, "capacity": "10",
            "on_gate_failure": on_gate_failure
        }),
    )
    .await;
    app
}

/// Where a way to Redis ends, as a caller's does who is killed.
struct Cut {
    /// Of requests that have one of these in them.
    needles: &'static [&'static str],
    /// At which of them, counted down.
    left: AtomicI64,
    /// Whether the request still arrives, and its answer is lost.
    loses_answer: AtomicBool,
    /// Whether each later one is cut too.
    is_lasting: bool,
}

impl Cut {
    /// Whether the way ends at this request.
    fn ends_at(&self, request: &[u8]) -> bool {
        let names = |needle: &&str| request.windows(needle.len()).any(|window| window == needle.as_bytes());
        if !self.needles.iter().any(names) {
            return false;
        }
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        left == 1 || (left < 1 && self.is_lasting)
    }
}

/// A way to Redis that ends there.
async fn ending(app: &TestApp, cut: Arc<Cut>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let socket = app.redis.socket();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = UnixStream::connect(&socket).await else { return };
            tokio::spawn(pass_on(client, server, cut.clone()));
        }
    });
    url
}

async fn pass_on(mut client: TcpStream, mut server: UnixStream, cut: Arc<Cut>) {
    let (mut request, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_last = false;
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(read @ 1..) = read else { return };
                is_last = is_last || cut.ends_at(&request[..read]);
                let is_over = is_last && !cut.loses_answer.load(Ordering::SeqCst);
                if is_over || server.write_all(&request[..read]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut answer) => {
                let Ok(read @ 1..) = read else { return };
                if is_last || client.write_all(&answer[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// A caller of an instance whose way to Redis ends before the request that has one of the `needles` in it for the
/// `left`-th time, and before each later one.
async fn caller_ending(
    app: &TestApp,
    needles: &'static [&'static str],
    left: i64,
) -> (Caller, tollgate::app::App) {
    let (left, loses_answer) = (AtomicI64::new(left), AtomicBool::new(false));
    let url = ending(app, Arc::new(Cut { needles, left, loses_answer, is_lasting: true })).await;
    let behind = app.another_with(&[Role::Http], &[("redis.url", url)]).await;
    (app.caller().at(behind.url()), behind)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_the_tenants_step_strands_nothing_beyond_the_window_and_a_retry_takes_nothing_twice() {
    let app = with_fair(json!([]), "deny").await;
    let (caller, behind) = caller_ending(&app, &[":rsv:"], 1).await;
    assert_eq!(caller.post_keyed(RESERVATIONS, "k", pages(6)).await.status, 503);
    assert_eq!(used(&app).await, "6", "it was taken, and nobody was there to admit it or to give it back");
    let retried = app.post_keyed(RESERVATIONS, "k", pages(6)).await.expect(201);
    assert_eq!((&retried.body["replayed"], used(&app).await.as_str()), (&json!(false), "6"));
    assert_eq!(caller.post_keyed(USAGE, "lost", pages(4)).await.status, 503);
    assert_eq!(used(&app).await, "10");
    app.move_clock("2026-03-10T13:00:00Z").await;
    assert_eq!(used(&app).await, "0", "the window is over");
    app.post_keyed(USAGE, "lost", pages(4)).await.expect(201);
    assert_eq!(used(&app).await, "4");
    behind.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_give_back_that_is_lost_ends_with_the_window_and_a_retry_goes_by_what_was_taken() {
    let app = with_fair(json!([day_of("5")]), "deny").await;
    let (caller, behind) = caller_ending(&app, &[":taken:"], 2).await;
    let refused = caller.post_keyed(RESERVATIONS, "k", pages(6)).await;
    refused.is_problem(402, "exceeds_plan");
    assert_eq!(used(&app).await, "6", "it is still taken");
    app.post_keyed(RESERVATIONS, "k", pages(6)).await.is_problem(402, "exceeds_plan");
    app.define("plans/plan", json!({ "limits": [day_of("8")] })).await;
    app.post_keyed(RESERVATIONS, "k", pages(6)).await.expect(201);
    assert_eq!(used(&app).await, "6", "once");
    app.move_clock("2026-03-10T13:00:00Z").await;
    assert_eq!(used(&app).await, "0");
    behind.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_give_back_is_lost_is_a_release_all_the_same() {
    let app = with_fair(json!([]), "deny").await;
    let (caller, behind) = caller_ending(&app, &[":taken:"], 1).await;
    let id = app.hold(6).await;
    let released = caller.post(&reservation(&id, "release"), json!({})).await.expect(200);
    assert_eq!(released.text("/status"), "released");
    assert_eq!(used(&app).await, "6");
    app.move_clock("2026-03-10T13:00:00Z").await;
    assert_eq!(used(&app).await, "0");
    behind.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn while_the_gate_is_away_its_own_policy_answers() {
    for (on_gate_failure, statuses) in [("deny", [503, 503]), ("allow", [201, 201])] {
        let app = with_fair(json!([]), on_gate_failure).await;
        app.hold(6).await;
        let frozen = app.redis.freeze();
        let answers = [app.post_keyed(RESERVATIONS, "k", pages(6)).await, app.use_pages("u", 6).await];
        assert_eq!(answers.map(|answer| answer.status), statuses, "{on_gate_failure}");
        drop(frozen);
        let counted = wait_for("the gate answers", PATIENCE, async || {
            let look = app.post(RESERVATIONS, pages(1).with("dry_run", true)).await;
            (look.status == 200).then(|| look.text("/limits/0/consumed").to_owned())
        })
        .await;
        assert_eq!(counted, "6", "{on_gate_failure}: what was allowed meanwhile is not counted later");
        app.finish().await;
    }
}

#[tokio::test]
async fn after_a_loss_of_memory_it_begins_anew() {
    let app = with_fair(json!([]), "deny").await;
    app.post_keyed(RESERVATIONS, "k", pages(6)).await.expect(201);
    app.drained().await;
    app.redis.flush().await;
    let again = wait_for("the memory is checked", PATIENCE, async || {
        let answer = app.post_keyed(RESERVATIONS, "k", pages(6)).await;
        (answer.status < 300).then_some(answer)
    })
    .await;
    assert_eq!((again.status, &again.body["replayed"]), (200, &json!(true)));
    assert_eq!(used(&app).await, "0", "the repeat took nothing");
    app.finish().await;
}
