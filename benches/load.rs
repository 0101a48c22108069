//! Callers over HTTP: each has a connection of its own and sends its next call when the last is answered. They run on
//! the same cores as all they call, so they are as plain as can be: the call as text, the answer's status, length and
//! body.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::figures;

/// More than the longest answer of a batch.
const ROOM: usize = 256 * 1024;
/// How long a service may go on to say that it cannot say now.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

static REPEATED: AtomicU64 = AtomicU64::new(0);

/// Calls so far that were answered with 503 and sent again: those of new tenants, and any others disturb the figures.
pub fn repeated() -> u64 {
    REPEATED.load(Ordering::Relaxed)
}

/// One connection to the service, made again where the service has closed it.
pub struct Caller {
    host: Arc<str>,
    key: Arc<str>,
    open: Option<TcpStream>,
    answer: Vec<u8>,
}

impl Caller {
    /// A caller of `host:port`.
    pub fn new(host: &str, key: &str) -> Self {
        Self { host: host.into(), key: key.into(), open: None, answer: Vec::new() }
    }

    /// Sends one call until it is answered with one of these statuses; a service that cannot say now is asked again.
    pub async fn must(&mut self, method: &str, path: &str, body: &str, statuses: &[u16]) -> &str {
        let since = Instant::now();
        loop {
            let status = self.call(method, path, body).await;
            if statuses.contains(&status) {
                return self.body();
            }
            let is_busy = status == 503 && since.elapsed() < PATIENCE;
            assert!(is_busy, "{path}: {status} {}", self.body());
            REPEATED.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn call(&mut self, method: &str, path: &str, body: &str) -> u16 {
        let call = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.host,
            self.key,
            body.len()
        );
        let kept = self.open.take();
        // The service may have closed an open connection; every call here may be repeated.
        if kept.is_none() || self.exchange(kept, &call).await.is_err() {
            let stream = TcpStream::connect(&*self.host).await.expect("the service takes connections");
            stream.set_nodelay(true).expect("a socket option");
            self.exchange(Some(stream), &call).await.expect("an answer");
        }
        head(&self.answer).expect("a whole answer").0
    }

    fn body(&self) -> &str {
        let (_, start, _) = head(&self.answer).expect("a whole answer");
        std::str::from_utf8(&self.answer[start..]).expect("text")
    }

    async fn exchange(&mut self, stream: Option<TcpStream>, call: &str) -> io::Result<()> {
        let mut stream = stream.ok_or(io::ErrorKind::NotConnected)?;
        stream.write_all(call.as_bytes()).await?;
        self.answer.clear();
        self.answer.reserve(ROOM);
        loop {
            if stream.read_buf(&mut self.answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((_, start, length)) = head(&self.answer)
                && self.answer.len() >= start + length
            {
                break;
            }
        }
        self.open = Some(stream);
        Ok(())
    }
}

/// Status, where the body starts, and how long it is; nothing while the head has not come whole.
fn head(answer: &[u8]) -> Option<(u16, usize, usize)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let mut lines = std::str::from_utf8(&answer[..end]).expect("a head is text").split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().expect("a status");
    let length = lines.filter_map(|line| line.split_once(": ")).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().expect("a length"))
    });
    Some((status, end + 4, length.expect("the service says how long its answers are")))
}

/// How many callers repeat their work for how long.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// How many there are.
    pub callers: usize,
    /// How long they go on.
    pub duration: Duration,
}

/// The result of the callers.
pub struct Done {
    /// How many times the work was done.
    pub count: u64,
    /// How long all of it took.
    pub took: Duration,
    /// How long each took, in µs.
    pub times: Histogram<u64>,
}

/// Lets callers repeat `work`. Each gets its caller and the number of its turn, unique over all.
pub async fn run<W, F>(host: &str, key: &str, load: Load, work: W) -> Done
where
    W: Fn(Caller, u64) -> F + Send + Sync + 'static,
    F: Future<Output = Caller> + Send,
{
    let work = Arc::new(work);
    let over = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    let ready = ready(host, key, load.callers).await;
    let began = Instant::now();
    for mut caller in ready {
        let (work, over, turns) = (work.clone(), over.clone(), turns.clone());
        running.spawn(async move {
            let mut times = figures::times();
            while !over.load(Ordering::Relaxed) {
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                let started = Instant::now();
                caller = work(caller, turn).await;
                times.saturating_record(started.elapsed().as_micros() as u64);
            }
            times
        });
    }
    tokio::time::sleep(load.duration).await;
    over.store(true, Ordering::Relaxed);
    done(running, began).await
}

/// Lets callers do `work` so many times a second until `over` is done, whether or not the work before has ended: every
/// turn has its time. A turn takes from then on, or from when a waiting caller begins it.
pub async fn run_at<W, F>(
    host: &str,
    key: &str,
    callers: usize,
    a_second: f64,
    over: impl Future<Output = ()>,
    work: W,
) -> Done
where
    W: Fn(Caller, u64) -> F + Send + Sync + 'static,
    F: Future<Output = Caller> + Send,
{
    let (work, is_over, turns) =
        (Arc::new(work), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let ready = ready(host, key, callers).await;
    let began = Instant::now();
    let mut running = JoinSet::new();
    for mut caller in ready {
        let (work, is_over, turns) = (work.clone(), is_over.clone(), turns.clone());
        running.spawn(async move {
            let mut times = figures::times();
            loop {
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                let due = began + Duration::from_secs_f64(turn as f64 / a_second);
                let waits = Instant::now() < due;
                tokio::time::sleep_until(due.into()).await;
                if is_over.load(Ordering::Relaxed) {
                    return times;
                }
                let since = if waits { Instant::now() } else { due };
                caller = work(caller, turn).await;
                times.saturating_record(since.elapsed().as_micros() as u64);
            }
        });
    }
    over.await;
    is_over.store(true, Ordering::Relaxed);
    done(running, began).await
}

/// Callers whose connections are open.
async fn ready(host: &str, key: &str, callers: usize) -> Vec<Caller> {
    let mut ready = Vec::new();
    for _ in 0..callers {
        let mut caller = Caller::new(host, key);
        caller.must("GET", "/livez", "", &[200]).await;
        ready.push(caller);
    }
    ready
}

async fn done(mut running: JoinSet<Histogram<u64>>, began: Instant) -> Done {
    let mut times = figures::times();
    while let Some(one) = running.join_next().await {
        times.add(one.expect("a caller ends well")).expect("histograms of one kind");
    }
    Done { count: times.len(), took: began.elapsed(), times }
}
