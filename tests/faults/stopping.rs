//! A stop in the middle of things.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate::app::Role;

use crate::support::app::*;
use crate::support::process::Up;
use crate::support::services::directory;
use crate::support::wait::wait_for;

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_under_load_cuts_no_accepted_call_off_and_leaves_nothing_unbooked() {
    let mut app = spawn_app().await;
    app.with_day_of("100000").await;
    let done = Arc::new(AtomicU64::new(0));
    let (url, key) = (format!("{}/v1/usage", app.url()), app.key().to_owned());
    let callers: Vec<_> = (0..16)
        .map(|caller| {
            let (done, url, key, client) = (done.clone(), url.clone(), key.clone(), app.client().clone());
            tokio::spawn(async move {
                let mut call = 0;
                loop {
                    let body = pages("1");
                    let request = client.post(&url).bearer_auth(&key).json(&body);
                    let request = request.header("Idempotency-Key", format!("{caller}-{call}"));
                    // Refused or closed before it was read: nothing was accepted.
                    let Ok(response) = request.send().await else { return };
                    let answer = answered(response).await;
                    match answer.status {
                        200 | 201 => {
                            done.fetch_add(1, Ordering::SeqCst);
                            call += 1;
                        }
                        // Repeated: it may have been done.
                        503 => {}
                        _ => panic!("{answer:?}"),
                    }
                }
            })
        })
        .collect();
    wait_for("calls flow", Duration::from_secs(60), async || {
        (done.load(Ordering::SeqCst) >= 100).then_some(())
    })
    .await;
    let began = Instant::now();
    app.stop().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    for caller in callers {
        caller.await.unwrap();
    }
    // No writer is started again: everything booked was booked by the stop.
    let books = app.another_with(&[], &[]).await;
    let usage = books.ledger.cursors().await.unwrap();
    let events: u64 = usage
        .iter()
        .filter(|cursor| cursor.event_hash.is_some())
        .map(|cursor| cursor.booked.sequence + 1)
        .sum();
    assert_eq!(events, done.load(Ordering::SeqCst));
    books.stop().await;
    app.restart().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_stops_says_so_first_and_still_takes_calls() {
    let app = spawn_app().await;
    app.without_limits().await;
    let stopping = app.another_with(&[Role::Http], &[("http.shutdown_grace_ms", "3000".to_owned())]).await;
    let url = stopping.url();
    let ready =
        async || answered(app.client().get(format!("{url}/readyz?verbose")).send().await.unwrap()).await;
    ready().await.expect(200);
    let stop = tokio::spawn(stopping.stop());
    let down = wait_for("it is no longer ready", Duration::from_secs(2), async || {
        let answer = ready().await;
        (answer.status == 503).then_some(answer)
    })
    .await;
    assert!(down.body.to_string().contains("It is stopping."), "{down:?}");
    let body = pages("1");
    let call = app.client().post(format!("{url}/v1/reservations")).bearer_auth(app.key()).json(&body);
    answered(call.send().await.unwrap()).await.expect(201);
    stop.await.unwrap();
    assert!(app.client().get(format!("{url}/readyz")).send().await.is_err());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_the_calls_whose_callers_have_hung_up() {
    let mut app = an_app().without_writer().start().await;
    app.without_limits().await;
    let answering = app.another_with(&[Role::Http], &[]).await;
    let body = pages("1").with("ack", "ledger");
    let call = app.client().post(format!("{}/v1/usage", answering.url())).bearer_auth(app.key());
    let call = tokio::spawn(call.header("Idempotency-Key", "left").json(&body).send());
    wait_for("the call waits for the books", Duration::from_secs(20), async || {
        let standings = app.app().gate.look(|| app.clock.now_ms()).await.ok()?;
        standings.iter().any(|standing| standing.waiting() > 0).then_some(())
    })
    .await;
    call.abort();
    let _ = call.await;
    let stop = tokio::spawn(answering.stop());
    let early = tokio::time::timeout(Duration::from_millis(700), async {
        while !stop.is_finished() {
            tokio::task::yield_now().await;
        }
    });
    assert!(early.await.is_err(), "the call that was left behind still runs");
    let began = Instant::now();
    let writer = app.another_instance_with(&[Role::Writer]).await;
    stop.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    writer.stop().await;
    app.restart().await;
    app.finish().await;
}

/// The process of this id and those it has started.
fn with_children(pid: u32) -> Vec<nix::unistd::Pid> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let numbers = children.split_whitespace().map(|child| child.parse().unwrap());
    numbers.chain([pid]).map(|pid: u32| nix::unistd::Pid::from_raw(pid.cast_signed())).collect()
}

#[test]
fn asked_to_end_the_whole_installation_is_gone_within_ten_seconds_although_its_servers_are_frozen() {
    use nix::sys::signal::{Signal, kill};
    let data_dir = directory();
    let mut up = Up::start(data_dir.path(), &[]);
    let servers = std::fs::read_to_string(data_dir.path().join("servers.json")).unwrap();
    let servers: serde_json::Value = serde_json::from_str(&servers).unwrap();
    let id = |name: &str| u32::try_from(servers[name].as_u64().unwrap()).unwrap();
    let frozen: Vec<_> =
        with_children(id("postgres_id")).into_iter().chain(with_children(id("redis_id"))).collect();
    for pid in &frozen {
        kill(*pid, Signal::SIGSTOP).unwrap();
    }
    let began = Instant::now();
    up.ask_to_end();
    let status = up.child.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(status.success(), "{status}");
    for server in ["postgres_id", "redis_id"] {
        let pid = nix::unistd::Pid::from_raw(id(server).cast_signed());
        assert!(kill(pid, None).is_err(), "{server} is left over");
    }
}
