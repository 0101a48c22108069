//! An attempt that arrives after its caller stopped waiting and was answered by another one: it never ran.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;
use tollgate::app::Role;

use crate::support::app::*;

/// What a request has in it that names a reservation.
const RESERVATION: &[u8] = b":rsv:";

/// A way to Redis on which one request about a reservation is held back until it is let through.
#[derive(Default)]
struct Way {
    holds_back: AtomicBool,
    let_through: Notify,
    arrived: Notify,
}

impl Way {
    async fn begin(app: &TestApp) -> (Arc<Self>, String) {
        let way = Arc::new(Self { holds_back: AtomicBool::new(false), ..Self::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let (socket, here) = (app.redis.socket(), way.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = UnixStream::connect(&socket).await else { return };
                tokio::spawn(here.clone().pass_on(client, server));
            }
        });
        (way, url)
    }

    async fn pass_on(self: Arc<Self>, mut client: TcpStream, mut server: UnixStream) {
        let (mut request, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            tokio::select! {
                read = client.read(&mut request) => {
                    let Ok(read @ 1..) = read else { return };
                    let names = request[..read].windows(RESERVATION.len()).any(|window| window == RESERVATION);
                    let is_held_back = names && self.holds_back.swap(false, Ordering::SeqCst);
                    if is_held_back {
                        self.let_through.notified().await;
                    }
                    if server.write_all(&request[..read]).await.is_err() {
                        return;
                    }
                    if is_held_back {
                        assert!(server.read(&mut answer).await.unwrap() > 0, "Redis has answered it");
                        self.arrived.notify_one();
                        return;
                    }
                }
                read = server.read(&mut answer) => {
                    let Ok(read @ 1..) = read else { return };
                    if client.write_all(&answer[..read]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

#[rstest::rstest]
#[case::reserve(RESERVATIONS)]
#[case::usage(USAGE)]
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_was_refused_stays_refused_though_its_first_attempt_arrives_late(#[case] path: &str) {
    let app = spawn_app().await;
    app.with_day_of("10").await;
    let (way, url) = Way::begin(&app).await;
    let settings = [("redis.url", url), ("redis.response_timeout_ms", "1500".to_owned())];
    let behind = app.another_with(&[Role::Http], &settings).await;
    let other = pages("8").lasting(3600);
    let other = app.post_keyed(RESERVATIONS, "other", other).await.expect(201);
    let work = pages("5");

    way.holds_back.store(true, Ordering::SeqCst);
    let first = app.caller().at(behind.url()).post_keyed(path, "job", work.clone()).await;
    assert_eq!(first.status, 503, "{first:?}");
    app.post_keyed(path, "job", work.clone()).await.expect(429);
    app.release(other.text("/id")).await.expect(200);
    way.let_through.notify_one();
    way.arrived.notified().await;

    let quota = app.quota().await;
    assert_eq!((quota.text("/limits/0/reserved"), quota.text("/limits/0/consumed")), ("0", "0"), "{quota:?}");
    let again = app.post_keyed(path, "job", work).await.expect(201);
    assert_eq!(again.body["replayed"], false, "{again:?}");
    behind.stop().await;
    app.finish().await;
}
