//! One caller of a replay: a connection of its own that stays open from call to call.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::cli::client::{CONNECT_TIMEOUT, Reply, Unanswered, key_header, seconds};
use crate::cli::connection::Connection;
use crate::cli::failure::{Exit, Failure};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Where all callers of a replay call, worked out once.
#[derive(Debug)]
pub(super) struct Target {
    /// The service's address as it is shown to people.
    pub(super) url: String,
    host: String,
    port: u16,
    /// The prefix of every path.
    prefix: String,
    headers: HeaderMap,
    timeout: Duration,
}

impl Target {
    /// The service of `connection`; a call fails after `timeout`.
    pub(super) fn new(connection: &Connection, timeout: Duration) -> Result<Self, Failure> {
        let wrong = || Failure::new(format!("`{}` cannot be called", connection.url)).exit(Exit::Usage);
        let url = reqwest::Url::parse(&connection.url).map_err(|_| wrong())?;
        let authority = HeaderValue::from_str(url.authority()).map_err(|_| wrong())?;
        let headers = HeaderMap::from_iter([
            (HOST, authority),
            (AUTHORIZATION, key_header(&connection.key)?),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ]);
        Ok(Self {
            url: connection.url.clone(),
            // The URL has an IPv6 address in brackets; everything else needs it without.
            host: url.host_str().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned(),
            port: url.port_or_known_default().ok_or_else(wrong)?,
            prefix: url.path().trim_end_matches('/').to_owned(),
            headers,
            timeout,
        })
    }

    fn request(&self, path: &str, key: Option<&str>, body: String) -> Result<Request<String>, Unanswered> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::try_from(format!("{}{path}", self.prefix))
            .map_err(|error| Unanswered::because_of(&error))?;
        *request.headers_mut() = self.headers.clone();
        if let Some(key) = key {
            let key = HeaderValue::from_str(key).map_err(|error| Unanswered::because_of(&error))?;
            request.headers_mut().insert(IDEMPOTENCY_KEY, key);
        }
        Ok(request)
    }

    async fn connect(&self) -> Result<SendRequest<String>, Unanswered> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream = timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| Unanswered::late())?;
        let stream = stream.map_err(|error| Unanswered::because_of(&error))?;
        stream.set_nodelay(true).map_err(|error| Unanswered::because_of(&error))?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| Unanswered::because_of(&error))?;
        // The call that waits on the connection reports how it ended.
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// One caller.
pub(super) struct Caller {
    target: Arc<Target>,
    open: Option<SendRequest<String>>,
}

impl Caller {
    pub(super) fn new(target: Arc<Target>) -> Self {
        Self { target, open: None }
    }

    /// One attempt at one POST.
    pub(super) async fn attempt(
        &mut self,
        path: &str,
        key: Option<&str>,
        body: String,
    ) -> Result<Reply, Unanswered> {
        let request = self.target.request(path, key, body)?;
        let within = self.target.timeout;
        timeout(within, self.exchange(request)).await.map_err(|_| Unanswered::late())?
    }

    /// A connection without an answer is dropped: the next answer on it might be this call's.
    async fn exchange(&mut self, request: Request<String>) -> Result<Reply, Unanswered> {
        let mut sender = self.ready().await?;
        let reply = send(&mut sender, request).await?;
        self.open = Some(sender);
        Ok(reply)
    }

    /// The open connection, or a new one if the service has closed it.
    async fn ready(&mut self) -> Result<SendRequest<String>, Unanswered> {
        if let Some(mut sender) = self.open.take()
            && sender.ready().await.is_ok()
        {
            return Ok(sender);
        }
        self.target.connect().await
    }
}

async fn send(sender: &mut SendRequest<String>, request: Request<String>) -> Result<Reply, Unanswered> {
    let answer = sender.send_request(request).await.map_err(|error| Unanswered::because_of(&error))?;
    let status = answer.status().as_u16();
    let retry_after = answer.headers().get(RETRY_AFTER).and_then(seconds);
    let body = answer.into_body().collect().await.map_err(|error| Unanswered::because_of(&error))?.to_bytes();
    Ok(Reply { status, retry_after, body })
}
