//! Calls to servers that administrators name, the receivers of webhooks. A server is called only at addresses that may
//! be reached, without redirects and without proxies.
//!
//! A name is resolved once for each call, each of its addresses is checked, and the connection goes to exactly the
//! addresses that were checked: a name that turns private between the check and the call gains nothing.

mod resolve;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::rustls::RootCertStore;

use self::resolve::SystemResolver;
use self::tls::Tls;
use crate::domain::public_address::is_public;
use crate::domain::webhook::{WebhookHost, WebhookUrl};

pub use resolve::Resolve;

/// The most bytes of an answer that are looked at: its head. The body is never read.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The most characters of a reason that another program gave.
const REASON_CHARACTERS_MAX: usize = 200;

/// Which servers may be called, and for how long.
#[derive(Debug, Clone)]
pub struct OutboundOptions {
    /// Networks that may be reached although they are not public, and by plain http too.
    pub allowed_networks: Vec<IpNet>,
    /// How long a call may take, from the look-up of the name to the head of the answer.
    pub timeout: Duration,
}

/// Calls servers.
pub struct Outbound {
    options: OutboundOptions,
    resolver: Arc<dyn Resolve>,
    tls: Tls,
}

/// A call: the body is JSON.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its own headers.
    pub headers: Vec<(&'static str, String)>,
    /// What is sent.
    pub body: String,
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The server has an address that may not be reached.
    #[error("{0} is not a public address, and `webhooks.allowed_networks` does not contain it")]
    NotAllowed(IpAddr),
    /// Plain http to an address that is not allowed by name of its network.
    #[error("plain http goes only to addresses in `webhooks.allowed_networks`")]
    NotSecure,
    /// The server's name has no address now.
    #[error("the name cannot be resolved: {0}")]
    Unresolved(String),
    /// No connection was made, or it broke off.
    #[error("no connection: {0}")]
    Disconnected(String),
    /// It took too long.
    #[error("no answer within {0} ms")]
    Late(u128),
    /// The call cannot be written down.
    #[error("the call cannot be made: {0}")]
    Unmade(String),
}

impl Outbound {
    /// Calls by the system's resolver and the system's certificate authorities.
    pub fn new(options: OutboundOptions) -> Self {
        Self { options, resolver: Arc::new(SystemResolver), tls: Tls::of_system() }
    }

    /// Resolves names another way.
    #[must_use]
    pub fn resolving(self, resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, ..self }
    }

    /// Trusts only these certificate authorities.
    #[must_use]
    pub fn trusting(self, authorities: RootCertStore) -> Self {
        Self { tls: Tls::of(authorities), ..self }
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// Whether a server may be called, as far as its address says without a look-up.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check(&self, url: &WebhookUrl) -> Result<(), NoAnswer> {
        match url.host() {
            WebhookHost::Address(address) => self.check_addresses(url, &[address]),
            WebhookHost::Name(_) if !url.is_secure() && self.options.allowed_networks.is_empty() => {
                Err(NoAnswer::NotSecure)
            }
            WebhookHost::Name(_) => Ok(()),
        }
    }

    /// Posts a call and returns the answer's status, also one that redirects.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn post(&self, url: &WebhookUrl, call: Call) -> Result<u16, NoAnswer> {
        let within = self.options.timeout;
        let answered = tokio::time::timeout(within, self.exchange(url, call)).await;
        answered.unwrap_or(Err(NoAnswer::Late(within.as_millis())))
    }

    async fn exchange(&self, url: &WebhookUrl, call: Call) -> Result<u16, NoAnswer> {
        let request = request(url, call)?;
        let addresses = match url.host() {
            WebhookHost::Address(address) => vec![address],
            WebhookHost::Name(name) => {
                let found = self.resolver.resolve(name).await;
                found.map_err(|error| NoAnswer::Unresolved(shown(&error)))?
            }
        };
        self.check_addresses(url, &addresses)?;
        let stream = connect(&addresses, url.port(), self.options.timeout).await?;
        if url.is_secure() {
            send(self.tls.connect(url, stream).await?, request).await
        } else {
            send(stream, request).await
        }
    }

    /// One address that may not be reached refuses them all: a name that mixes them is no honest one.
    fn check_addresses(&self, url: &WebhookUrl, addresses: &[IpAddr]) -> Result<(), NoAnswer> {
        for address in addresses {
            let is_allowed = self.options.allowed_networks.iter().any(|network| network.contains(address));
            if !is_allowed && !is_public(*address) {
                return Err(NoAnswer::NotAllowed(*address));
            }
            if !is_allowed && !url.is_secure() {
                return Err(NoAnswer::NotSecure);
            }
        }
        Ok(())
    }
}

fn request(url: &WebhookUrl, call: Call) -> Result<Request<String>, NoAnswer> {
    let unmade = |error: hyper::http::Error| NoAnswer::Unmade(shown(&error));
    let mut request = Request::post(url.target())
        .header(HOST, url.authority())
        .header(USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(CONNECTION, HeaderValue::from_static("close"));
    for (name, value) in call.headers {
        request = request.header(HeaderName::from_static(name), value);
    }
    request.body(call.body).map_err(unmade)
}

/// Connects to the first of these addresses that takes the connection. Each but the last may take its share of this
/// time only, so that one that never answers leaves time for the others.
async fn connect(addresses: &[IpAddr], port: u16, within: Duration) -> Result<TcpStream, NoAnswer> {
    let share = within / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut failure = NoAnswer::Unresolved("it has no address".to_owned());
    for (place, address) in (1..).zip(addresses) {
        let connecting = TcpStream::connect(SocketAddr::new(*address, port));
        let connected = if place < addresses.len() {
            tokio::time::timeout(share, connecting).await
        } else {
            Ok(connecting.await)
        };
        match connected {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = NoAnswer::Disconnected(shown(&error)),
            Err(_) => failure = NoAnswer::Disconnected(format!("{address} did not answer")),
        }
    }
    Err(failure)
}

/// Sends a request on a connection of its own and returns the answer's status.
async fn send<S>(stream: S, request: Request<String>) -> Result<u16, NoAnswer>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let disconnected = |error: hyper::Error| NoAnswer::Disconnected(shown(&error));
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(disconnected)?;
    // Dropped with the call, however that ends.
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let answer = sender.send_request(request).await.map_err(disconnected)?;
    Ok(answer.status().as_u16())
}

/// The innermost reason, on one line of bounded length: the outer ones say only that a call failed.
fn shown(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let text = cause.to_string();
    text.chars().filter(|letter| !letter.is_control()).take(REASON_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests;
