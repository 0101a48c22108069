//! Connections to one Redis node: multiplexed, rebuilt after a fault. They never repeat a command by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};
use thread_local::ThreadLocal;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Mutex;

use super::error::GateError;
use crate::domain::codec::Undecodable;

const PIPELINE_BUFFER: usize = 1024;

/// The server in a URL, without secrets.
pub fn address_of(url: &str) -> String {
    Client::open(url).map_or_else(
        |_| "an address that cannot be read".to_owned(),
        |client| client.get_connection_info().addr().to_string(),
    )
}

/// One connection that is rebuilt when it breaks. A failed command is never sent again.
pub(super) struct Link {
    client: Client,
    config: AsyncConnectionConfig,
    connect_timeout: Duration,
    /// The runtime of the connection's own task, which must outlive the worker thread that rebuilt it; none: that of
    /// the asking thread, when only that thread uses the link.
    runtime: Option<Handle>,
    current: Arc<ArcSwapOption<MultiplexedConnection>>,
    connecting: Mutex<()>,
}

impl Link {
    /// Prepares a link; it connects at its first command. No `response_timeout` is for commands that block.
    pub(super) fn new(
        client: Client,
        connect_timeout: Duration,
        response_timeout: Option<Duration>,
        runtime: Option<Handle>,
    ) -> Self {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect_timeout))
            .set_response_timeout(response_timeout)
            .set_pipeline_buffer_size(PIPELINE_BUFFER);
        Self { client, config, connect_timeout, runtime, current: Arc::default(), connecting: Mutex::new(()) }
    }

    /// Connects, within its own time limit, so that the first command need not.
    pub(super) async fn connect(&self) -> Result<(), RedisError> {
        self.connection().await.map(drop)
    }

    /// Sends one command and waits for its answer.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        let shared = self.connection().await?;
        let mut connection = shared.as_ref().clone();
        let answer = connection.send_packed_command(command).await.and_then(Value::extract_error);
        self.drop_broken(&shared, answer.as_ref().err());
        answer
    }

    /// Sends a pipeline and waits for all its answers.
    pub(super) async fn send_all(&self, pipeline: &Pipeline, count: usize) -> Result<Vec<Value>, RedisError> {
        let shared = self.connection().await?;
        let mut connection = shared.as_ref().clone();
        let answers = connection.send_packed_commands(pipeline, 0, count).await;
        self.drop_broken(&shared, answers.as_ref().err());
        answers
    }

    /// Drops the connection, so that the next command does not wait for one that is still blocked.
    pub(super) fn abandon(&self) {
        self.current.store(None);
    }

    async fn connection(&self) -> Result<Arc<MultiplexedConnection>, RedisError> {
        if let Some(connection) = self.current.load_full() {
            return Ok(connection);
        }
        let _only_one = self.connecting.lock().await;
        if let Some(connection) = self.current.load_full() {
            return Ok(connection);
        }
        let (client, config) = (self.client.clone(), self.config.clone());
        let current = Arc::clone(&self.current);
        let connect = async move {
            let connection = Arc::new(client.get_multiplexed_async_connection_with_config(&config).await?);
            // Stored here, so that a connection is not lost when it is ready after its asker stopped waiting.
            current.store(Some(Arc::clone(&connection)));
            Ok(connection)
        };
        let runtime = self.runtime.clone().unwrap_or_else(Handle::current);
        let task = runtime.spawn(tokio::time::timeout(self.connect_timeout, connect));
        match task.await {
            Ok(Ok(connected)) => connected,
            Ok(Err(_)) => Err((ErrorKind::Io, "connecting took too long").into()),
            Err(_) => Err((ErrorKind::Io, "the runtime is stopping").into()),
        }
    }

    fn drop_broken(&self, used: &Arc<MultiplexedConnection>, error: Option<&RedisError>) {
        if error.is_some_and(is_broken) {
            let current = self.current.load();
            if current.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, used)) {
                self.current.store(None);
            }
        }
    }
}

/// The connections that calls are spread over. A thread with a runtime of its own, such as each HTTP worker, has its
/// own connection: an answer then wakes no other thread.
pub(super) struct Links {
    shared: Vec<Link>,
    next: AtomicUsize,
    own: ThreadLocal<Link>,
    make_own: Box<dyn Fn() -> Link + Send + Sync>,
}

impl Links {
    /// `count` shared ones, at least one, and one for each worker's thread; `make` makes them on this runtime or none.
    pub(super) fn new(
        count: usize,
        runtime: &Handle,
        make: impl Fn(Option<Handle>) -> Link + Send + Sync + 'static,
    ) -> Self {
        Self {
            shared: (0..count.max(1)).map(|_| make(Some(runtime.clone()))).collect(),
            next: AtomicUsize::new(0),
            own: ThreadLocal::new(),
            make_own: Box::new(move || make(None)),
        }
    }

    /// Connects all shared ones.
    pub(super) async fn connect(&self) -> Result<(), RedisError> {
        futures::future::try_join_all(self.shared.iter().map(Link::connect)).await.map(drop)
    }

    /// The connection for the next call.
    pub(super) fn pick(&self) -> &Link {
        let is_own = Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread);
        if is_own {
            return self.own.get_or(|| (self.make_own)());
        }
        &self.shared[self.next.fetch_add(1, Ordering::Relaxed) % self.shared.len()]
    }
}

/// Whether a new connection may help: after an I/O fault or silence, or where this node no longer takes writes.
fn is_broken(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse => true,
        ErrorKind::Server(kind) => matches!(
            kind,
            ServerErrorKind::ReadOnly | ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown
        ),
        _ => error.is_unrecoverable_error(),
    }
}

/// The gate's error for a fault of the first command. A server that lets nobody in is there: only another URL helps.
pub(super) fn first_error(error: &RedisError) -> GateError {
    let lets_nobody_in = error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED"));
    match lets_nobody_in {
        true => GateError::Settings(format!("it refuses this user and password: {error}")),
        false => plain_error(error),
    }
}

/// The gate's error for a fault of a plain command.
pub(super) fn plain_error(error: &RedisError) -> GateError {
    match error.code() {
        _ if error.is_timeout() => GateError::Timeout,
        Some("WRONGTYPE") => Undecodable("a value of another type").into(),
        _ => GateError::Unavailable(error.to_string()),
    }
}
