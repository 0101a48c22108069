//! The two listeners: the public one, where calls are taken, and the operator's.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::{Server, ServerHandle};
use actix_web::middleware::from_fn;
use actix_web::web::{self, ServiceConfig};
use actix_web::{App, HttpServer};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::state::{HttpOptions, State};
use super::{envelope, routes};
use crate::operations::Operations;

/// The settings that name the two addresses.
const PUBLIC: &str = "http.listen";
const OPERATORS: &str = "http.ops_listen";

/// Servers that accept calls.
pub struct Running {
    /// The public address, with the port that was bound; none where no calls are taken.
    pub address: Option<SocketAddr>,
    /// The operator's address, with the port that was bound.
    pub ops_address: SocketAddr,
    stopped: JoinHandle<io::Result<()>>,
}

impl Running {
    /// Waits until the servers have stopped and every mutation they began has ended.
    pub async fn stopped(self) -> io::Result<()> {
        self.stopped.await.map_err(io::Error::other)?
    }
}

/// Why calls cannot be taken at an address.
#[derive(Debug, thiserror::Error)]
#[error("{key} = {address} cannot be listened on: {source}")]
pub struct ListenError {
    /// The setting that names the address.
    key: &'static str,
    address: SocketAddr,
    source: io::Error,
}

impl ListenError {
    /// What to do next.
    pub fn remedy(&self) -> String {
        let Self { key, .. } = self;
        let ways = match *key {
            PUBLIC => "--listen, a variable or --config",
            _ => "a variable or --config",
        };
        match self.source.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another process listens there: stop it, or give another {key} ({ways}); port 0 takes a free one"
            ),
            _ => format!("give another {key} ({ways})"),
        }
    }
}

/// Starts the operator's server, and the public one where calls are to be taken; once `shutdown` resolves they stop
/// accepting and finish what is running.
///
/// Must be called within the multi-threaded runtime that outlives them: mutations run there to their end.
/// Fails if an address cannot be bound.
pub async fn serve(
    operations: Arc<Operations>,
    options: HttpOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<Running, ListenError> {
    let state = web::Data::new(State::new(operations, options));
    let (listen, ops_listen) = (state.options.listen, state.options.ops_listen);
    let (mut servers, mut address) = (Vec::new(), None);
    if let Some(listen) = listen {
        let (public, bound) = bind(state.clone(), listen, state.options.workers, public_config)
            .map_err(|source| ListenError { key: PUBLIC, address: listen, source })?;
        servers.push(public);
        address = Some(bound);
    }
    let (ops, ops_address) = bind(state.clone(), ops_listen, 1, ops_config)
        .map_err(|source| ListenError { key: OPERATORS, address: ops_listen, source })?;
    servers.push(ops);
    let stopped = tokio::spawn(run(servers, state, shutdown));
    Ok(Running { address, ops_address, stopped })
}

async fn run(
    servers: Vec<Server>,
    state: web::Data<State>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let handles: Vec<ServerHandle> = servers.iter().map(Server::handle).collect();
    let servers = async { futures::future::try_join_all(servers).await.map(|_| ()) };
    let stop = async {
        shutdown.await;
        let deadline = Instant::now() + state.options.shutdown_timeout;
        state.close_connections();
        futures::future::join_all(handles.iter().map(ServerHandle::pause)).await;
        // Before the workers end: mutations whose callers left still use the workers' timers.
        state.idle(deadline).await;
        futures::future::join_all(handles.iter().map(|handle| handle.stop(true))).await;
        deadline
    };
    let (served, deadline) = tokio::join!(servers, stop);
    if !state.idle(deadline).await {
        tracing::warn!("stopping although mutations are still running");
    }
    served
}

type Configure = fn(web::Data<State>, &mut ServiceConfig);

fn bind(
    state: web::Data<State>,
    address: SocketAddr,
    workers: usize,
    configure: Configure,
) -> io::Result<(Server, SocketAddr)> {
    let options = state.options.clone();
    let workers = workers.max(1);
    let server = HttpServer::new(move || {
        let state = state.clone();
        App::new().configure(move |config| configure(state, config))
    })
    .workers(workers)
    .max_connections(options.max_connections.div_ceil(workers).max(1))
    .client_request_timeout(options.body_timeout)
    .keep_alive(options.keep_alive)
    .shutdown_timeout(whole_seconds(options.shutdown_timeout))
    .tcp_nodelay(true)
    .disable_signals()
    .bind(address)?;
    let bound = server.addrs().first().copied().unwrap_or(address);
    Ok((server.run(), bound))
}

/// Rounded up: actix takes whole seconds only, and zero would cut off every call.
fn whole_seconds(timeout: Duration) -> u64 {
    timeout.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX)
}

/// The public listener's handlers and everything around them, for a test of a whole request in one process.
pub fn app_config(operations: Arc<Operations>, options: HttpOptions) -> impl FnOnce(&mut ServiceConfig) {
    let state = web::Data::new(State::new(operations, options));
    move |config| public_config(state, config)
}

fn public_config(state: web::Data<State>, config: &mut ServiceConfig) {
    let scope = web::scope("").wrap(from_fn(envelope::public)).configure(routes::public);
    config.app_data(state).service(scope);
}

fn ops_config(state: web::Data<State>, config: &mut ServiceConfig) {
    let scope = web::scope("").wrap(from_fn(envelope::ops)).configure(routes::ops);
    config.app_data(state).service(scope);
}
