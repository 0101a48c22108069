//! What every handler shares: the verbs, the options, and what protects them.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::auth::FailedKeys;
use super::cursor::CursorKey;
use super::headers::HeaderOptions;
use super::mutations::Mutations;
use super::problem::{Code, Problem};
use crate::operations::{Answer, Operations};
use ipnet::IpNet;
use tokio::time::Instant;

/// One answered request, for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// The route's pattern, `unmatched` if there is none: never a path with ids in it.
    pub route: &'static str,
    /// The answer's status.
    pub status: u16,
    /// From the request's head to the answer's head.
    pub elapsed: Duration,
}

/// Called once for every answered request.
pub type Observe = Arc<dyn Fn(Observation) + Send + Sync>;

/// How the HTTP servers run.
#[derive(Clone)]
pub struct HttpOptions {
    /// The public address; port 0 picks a free one. None where no calls are taken.
    pub listen: Option<SocketAddr>,
    /// The operator's address, with health and `/metrics`; loopback unless the network is trusted.
    pub ops_listen: SocketAddr,
    /// Threads of the public server, at least 1.
    pub workers: usize,
    /// How long a caller waits for an answer before 503.
    pub request_timeout: Duration,
    /// How long a request's head and its body may take to arrive.
    pub body_timeout: Duration,
    /// How long a kept connection may be silent before it is closed.
    pub keep_alive: Duration,
    /// How long a stop waits for running requests.
    pub shutdown_timeout: Duration,
    /// Connections open at once, over all threads.
    pub max_connections: usize,
    /// Networks of the proxies that say where a request came from.
    pub trusted_proxies: Vec<IpNet>,
    /// How many calls that destroy something a key may make in a minute, over all instances.
    pub destructive_calls_per_minute: u32,
    /// Older rate limit headers.
    pub headers: HeaderOptions,
    /// Called for every answered request.
    pub observe: Observe,
}

/// What every handler shares.
pub(super) struct State {
    pub(super) operations: Arc<Operations>,
    pub(super) options: HttpOptions,
    pub(super) cursor_key: CursorKey,
    pub(super) failed_keys: FailedKeys,
    mutations: Mutations,
    closing: AtomicBool,
}

impl State {
    /// Must be called within the runtime that outlives the servers: mutations run there.
    pub(super) fn new(operations: Arc<Operations>, options: HttpOptions) -> Self {
        Self {
            cursor_key: CursorKey::new(&operations.cursor_key()),
            failed_keys: FailedKeys::new(),
            mutations: Mutations::new(options.request_timeout, options.max_connections),
            closing: AtomicBool::new(false),
            operations,
            options,
        }
    }

    /// Runs a mutation in a task of its own, to its end even if the caller hangs up or stops waiting.
    pub(super) async fn mutate<T: Send + 'static>(
        &self,
        work: Pin<Box<dyn Future<Output = T> + Send>>,
    ) -> Result<T, Problem> {
        self.mutations.run(work).await
    }

    /// Waits for a read, within the request's time.
    pub(super) async fn read<T>(&self, work: impl Future<Output = Answer<T>>) -> Result<T, Problem> {
        match tokio::time::timeout(self.options.request_timeout, work).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                Err(Problem::new(Code::Overloaded, "The answer took too long; ask again.")
                    .retry_after_ms(1_000))
            }
        }
    }

    /// From now on every answer is the last one of its connection.
    pub(super) fn close_connections(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Whether answers are the last ones of their connections.
    pub(super) fn closes_connections(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Waits until no mutation runs, at most until then; returns whether none runs.
    pub(super) async fn idle(&self, deadline: Instant) -> bool {
        self.mutations.idle(deadline.saturating_duration_since(Instant::now())).await
    }
}
