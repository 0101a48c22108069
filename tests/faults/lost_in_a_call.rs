//! Memory lost at any moment of a call: booked work is not done again.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tollgate::app::Role;

use crate::support::app::*;
use crate::support::wait::wait_for;

/// What a request has in it that names a reservation.
const RESERVATION: &[u8] = b":rsv:";
/// More requests about its reservation than a repeated call makes.
const MOMENTS: i64 = 8;

fn empty(redis_url: &str) {
    let client = redis::Client::open(redis_url).unwrap();
    redis::cmd("FLUSHALL").exec(&mut client.get_connection().unwrap()).unwrap();
}

/// A proxy to Redis that empties it between the answer to a request about a reservation and its arrival: the request
/// that brings `left` to zero.
async fn emptying(app: &TestApp, left: Arc<AtomicI64>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let (socket, redis_url) = (app.redis.socket(), app.redis.url());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = UnixStream::connect(&socket).await else { return };
            tokio::spawn(pass_on(client, server, redis_url.clone(), left.clone()));
        }
    });
    url
}

async fn pass_on(mut client: TcpStream, mut server: UnixStream, redis_url: String, left: Arc<AtomicI64>) {
    let (mut request, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_last = false;
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(read @ 1..) = read else { return };
                let names = request[..read].windows(RESERVATION.len()).any(|window| window == RESERVATION);
                is_last |= names && left.fetch_sub(1, Ordering::SeqCst) == 1;
                if server.write_all(&request[..read]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut answer) => {
                let Ok(read @ 1..) = read else { return };
                if std::mem::take(&mut is_last) {
                    empty(&redis_url);
                }
                if client.write_all(&answer[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_in_a_repeated_call_the_memory_goes_the_call_is_done_once() {
    let app = spawn_app().await;
    app.with_day_of("1000").await;
    let left = Arc::new(AtomicI64::new(0));
    let url = emptying(&app, left.clone()).await;
    let behind = app.another_with(&[Role::Http], &[("redis.url", url)]).await;
    let caller = app.caller().at(behind.url());
    let mut fired = 0;
    for moment in 1..=MOMENTS {
        let (key, usage) = (format!("job-{moment}"), pages("5").with("ack", "ledger"));
        let answered = async || {
            wait_for("the call is answered", Duration::from_secs(60), async || {
                let answer = caller.post_keyed(USAGE, &key, usage.clone()).await;
                (answer.status < 300).then_some(answer)
            })
            .await
        };
        answered().await.expect(201);
        // Now only the ledger has it.
        empty(&app.redis.url());
        left.store(moment, Ordering::SeqCst);
        let again = answered().await;
        fired += i64::from(left.swap(0, Ordering::SeqCst) <= 0);
        assert_eq!(
            (again.status, &again.body["replayed"]),
            (200, &json!(true)),
            "at moment {moment}: {again:?}"
        );
    }
    assert!(fired >= 3, "every moment of a call was met: {fired}");
    app.drained().await;
    let quota = app.quota().await;
    assert_eq!(quota.text("/limits/0/consumed"), (5 * MOMENTS).to_string(), "{quota:?}");
    behind.stop().await;
    app.finish().await;
}
