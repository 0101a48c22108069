//! A small HTTP client of the service: timeouts, retries with back-off, lists read page by page.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;

use super::connection::Connection;
use super::failure::{Exit, Failure};
use super::problem;

/// How often an ordinary call is tried before the service counts as unreachable.
const TRIES: u32 = 6;
const FIRST_WAIT_MS: u64 = 50;
const LONGEST_WAIT_MS: u64 = 2_000;
/// How long a file may take in all, and each of its parts.
const FILE_TIMEOUT: Duration = Duration::from_secs(86_400);
const PART_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection may take to be made.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The client. Cheap to clone; connections are shared.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    url: String,
}

/// An answer with any status.
#[derive(Debug)]
pub(super) struct Reply {
    /// The HTTP status.
    pub(super) status: u16,
    /// How long the service asks to wait.
    pub(super) retry_after: Option<Duration>,
    /// The body as it came.
    pub(super) body: bytes::Bytes,
}

/// No answer came: refused, reset, cut off, or too late. The call may or may not have been carried out.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// In words.
    pub(super) why: String,
}

impl Unanswered {
    /// Given up after its time.
    pub(super) fn late() -> Self {
        Self { why: "no answer in time".to_owned() }
    }

    /// Uses the innermost reason: the outer ones say only that a call failed.
    pub(super) fn because_of(error: &dyn std::error::Error) -> Self {
        let mut cause = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        Self { why: cause.to_string() }
    }
}

impl Client {
    /// A client for one service; `connections` are kept open, a call fails after `timeout`.
    pub(super) fn new(
        connection: &Connection,
        connections: usize,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, key_header(&connection.key)?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .no_proxy()
            .tcp_nodelay(true)
            .pool_max_idle_per_host(connections)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Failure::new(format!("the HTTP client cannot be made: {error}")))?;
        Ok(Self { http, url: connection.url.clone() })
    }

    /// One attempt at one call.
    pub(super) async fn attempt(
        &self,
        method: Method,
        path: &str,
        header: Option<(HeaderName, &str)>,
        body: Option<String>,
    ) -> Result<Reply, Unanswered> {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let answer = request.send().await.map_err(unanswered)?;
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(seconds);
        let body = answer.bytes().await.map_err(unanswered)?;
        Ok(Reply { status, retry_after, body })
    }

    /// One call with retries; returns the body of a 2xx, any other status is an error with a sentence.
    /// For a POST that must not be repeated use [`Self::attempt`].
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        header: Option<(HeaderName, &str)>,
        body: Option<String>,
    ) -> Result<bytes::Bytes, Failure> {
        let reply = self.reply(method.clone(), path, header, body).await?;
        if StatusCode::from_u16(reply.status).is_ok_and(|status| status.is_success()) {
            return Ok(reply.body);
        }
        Err(problem::failure(&format!("{method} {path}"), reply.status, &reply.body))
    }

    /// One call with retries; returns the last answer.
    pub(super) async fn reply(
        &self,
        method: Method,
        path: &str,
        header: Option<(HeaderName, &str)>,
        body: Option<String>,
    ) -> Result<Reply, Failure> {
        let mut waits = Waits::default();
        loop {
            let last = waits.count + 1 == TRIES;
            let asked = match self.attempt(method.clone(), path, header.clone(), body.clone()).await {
                Ok(reply) if reply.status != 503 || last => return Ok(reply),
                Ok(reply) => reply.retry_after,
                Err(unanswered) if last => return Err(self.unreachable(&unanswered)),
                Err(_) => None,
            };
            waits.pause(asked).await;
        }
    }

    /// Reads `path` and parses the answer.
    pub(super) async fn get<Answer: DeserializeOwned>(&self, path: &str) -> Result<Answer, Failure> {
        let body = self.call(Method::GET, path, None, None).await?;
        parse(path, &body)
    }

    /// Reads all pages of a list; `path` may carry filters.
    pub(super) async fn list<Item: DeserializeOwned>(&self, path: &str) -> Result<Vec<Item>, Failure> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let joint = if path.contains('?') { '&' } else { '?' };
            let mut page_path = format!("{path}{joint}limit=1000");
            if !cursor.is_empty() {
                page_path.push_str(&format!("&cursor={}", encoded(&cursor)));
            }
            let page: Page<Item> = self.get(&page_path).await?;
            items.extend(page.data);
            match page.next_cursor {
                Some(next) if !next.is_empty() && next != cursor => cursor = next,
                _ => return Ok(items),
            }
        }
    }

    /// Reads a file that the service writes while it reads, part by part: each part has to come in time, the whole may
    /// take as long as it takes.
    pub(super) async fn download(
        &self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut waits = Waits::default();
        let mut answer = loop {
            let last = waits.count + 1 == TRIES;
            let request = self.http.get(format!("{}{path}", self.url)).timeout(FILE_TIMEOUT);
            let asked = match in_time(request.send()).await {
                Ok(answer) if answer.status() != StatusCode::SERVICE_UNAVAILABLE || last => break answer,
                Ok(answer) => answer.headers().get(RETRY_AFTER).and_then(seconds),
                Err(unanswered) if last => return Err(self.unreachable(&unanswered)),
                Err(_) => None,
            };
            waits.pause(asked).await;
        };
        let status = answer.status();
        if !status.is_success() {
            let body = in_time(answer.bytes()).await.unwrap_or_default();
            return Err(problem::failure(&format!("GET {path}"), status.as_u16(), &body));
        }
        let mut has_some = false;
        loop {
            match in_time(answer.chunk()).await {
                Ok(Some(part)) => take(&part)?,
                Ok(None) => return Ok(()),
                Err(cut) if has_some => return Err(self.broken_off(&cut)),
                Err(cut) => return Err(self.unreachable(&cut)),
            }
            has_some = true;
        }
    }

    /// The failure of a service that stopped in the middle of a file.
    fn broken_off(&self, cut: &Unanswered) -> Failure {
        Failure::new(format!("the service at {} has not sent the whole file: {}", self.url, cut.why))
            .exit(Exit::Unreachable)
            .remedy("what was printed is not whole: run the command again, and write it to a file, which does not wait")
    }

    /// The failure of a service that does not answer.
    pub(super) fn unreachable(&self, unanswered: &Unanswered) -> Failure {
        Failure::new(format!("the service at {} does not answer: {}", self.url, unanswered.why))
            .exit(Exit::Unreachable)
            .remedy("start it with `tollgate up`, or name another with --url")
    }
}

#[derive(serde::Deserialize)]
struct Page<Item> {
    data: Vec<Item>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// Waits between attempts: doubled each time, with jitter, never shorter than the service asks.
#[derive(Debug, Default)]
pub(super) struct Waits {
    count: u32,
}

impl Waits {
    /// Sleeps until the next attempt makes sense.
    pub(super) async fn pause(&mut self, asked: Option<Duration>) {
        tokio::time::sleep(self.next(asked)).await;
    }

    fn next(&mut self, asked: Option<Duration>) -> Duration {
        let longest_ms = (FIRST_WAIT_MS << self.count.min(10)).min(LONGEST_WAIT_MS);
        self.count = self.count.saturating_add(1);
        let own = Duration::from_millis(rand::random_range(longest_ms / 2..=longest_ms));
        // A service that asks for minutes is called again sooner: another instance may answer by then.
        asked.map_or(own, |asked| own.max(asked.min(Duration::from_secs(10))))
    }
}

async fn in_time<T>(part: impl Future<Output = reqwest::Result<T>>) -> Result<T, Unanswered> {
    let answered = tokio::time::timeout(PART_TIMEOUT, part).await;
    answered.map_err(|_| Unanswered::late())?.map_err(unanswered)
}

fn unanswered(error: reqwest::Error) -> Unanswered {
    if error.is_timeout() { Unanswered::late() } else { Unanswered::because_of(&error) }
}

/// The header that carries a key.
pub(super) fn key_header(key: &SecretString) -> Result<HeaderValue, Failure> {
    let mut header = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret()))
        .map_err(|_| Failure::new("the API key has characters that no key has").exit(Exit::Usage))?;
    header.set_sensitive(true);
    Ok(header)
}

/// The seconds of a `Retry-After` header.
pub(super) fn seconds(value: &HeaderValue) -> Option<Duration> {
    value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Parses an answer of the service.
pub(super) fn parse<Answer: DeserializeOwned>(what: &str, body: &[u8]) -> Result<Answer, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        Failure::new(format!("{what}: the answer is not what a Tollgate service answers: {error}"))
            .remedy("check --url, and that service and command line have the same version")
    })
}

/// Percent-encodes everything but unreserved characters.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_respect_what_the_service_asks() {
        let mut waits = Waits::default();
        let first = waits.next(None);
        assert!((25..=50).contains(&first.as_millis()), "{first:?}");
        assert!(waits.next(Some(Duration::from_secs(3))) >= Duration::from_secs(3));
        assert!(waits.next(Some(Duration::from_secs(600))) <= Duration::from_secs(10));
        (0..40).for_each(|_| assert!(waits.next(None) <= Duration::from_secs(2)));
    }

    #[test]
    fn query_values_are_encoded() {
        assert_eq!(encoded("a b&c=+00:00"), "a%20b%26c%3D%2B00%3A00");
    }
}
