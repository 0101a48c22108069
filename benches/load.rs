//! Callers over HTTP: each has a connection of its own and sends its next call when the last is answered.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// One connection to the service.
pub struct Caller {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    authorization: String,
}

/// An answer.
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Bytes,
}

impl Caller {
    /// Connects to `host:port`.
    pub async fn connect(host: &str, key: &str) -> Self {
        let stream = TcpStream::connect(host).await.expect("the service takes connections");
        stream.set_nodelay(true).expect("a socket option");
        let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        Self { sender, host: host.to_owned(), authorization: format!("Bearer {key}") }
    }

    /// Sends one call and reads its answer.
    pub async fn call(&mut self, method: Method, path: &str, body: String) -> Reply {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("authorization", &self.authorization)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        let answer = self.sender.send_request(request).await.expect("an answer");
        let status = answer.status().as_u16();
        Reply { status, body: answer.into_body().collect().await.expect("a body").to_bytes() }
    }

    /// Sends one call that must be answered with one of these statuses.
    pub async fn must(&mut self, method: Method, path: &str, body: String, statuses: &[u16]) -> Bytes {
        let reply = self.call(method, path, body).await;
        let text = String::from_utf8_lossy(&reply.body);
        assert!(statuses.contains(&reply.status), "{path}: {} {text}", reply.status);
        reply.body
    }
}

/// What the callers came to.
pub struct Load {
    /// How many times the work was done.
    pub count: u64,
    /// How long all of it took.
    pub took: Duration,
    /// How long each took, in µs.
    pub times: Histogram<u64>,
}

/// Lets `callers` repeat `work` for this long. Each is told its caller and the number of its turn, unique over all.
pub async fn run<W, F>(host: &str, key: &str, callers: usize, duration: Duration, work: W) -> Load
where
    W: Fn(Caller, u64) -> F + Send + Sync + 'static,
    F: Future<Output = Caller> + Send,
{
    let work = Arc::new(work);
    let over = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    let mut ready = Vec::new();
    for _ in 0..callers {
        ready.push(Caller::connect(host, key).await);
    }
    let began = Instant::now();
    for mut caller in ready {
        let (work, over, turns) = (work.clone(), over.clone(), turns.clone());
        running.spawn(async move {
            let mut times = Histogram::<u64>::new(3).expect("a histogram");
            while !over.load(Ordering::Relaxed) {
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                let started = Instant::now();
                caller = work(caller, turn).await;
                times.saturating_record(started.elapsed().as_micros() as u64);
            }
            times
        });
    }
    tokio::time::sleep(duration).await;
    over.store(true, Ordering::Relaxed);
    let mut times = Histogram::<u64>::new(3).expect("a histogram");
    while let Some(one) = running.join_next().await {
        times.add(one.expect("a caller ends well")).expect("histograms of one kind");
    }
    Load { count: times.len(), took: began.elapsed(), times }
}
