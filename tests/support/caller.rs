//! Calls the service over HTTP: with one key, at one instance or at the first that answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::process::PATIENCE;
use super::rate_limit_headers;

/// An answer: its status and body.
#[derive(Debug)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The body; a text where it is not JSON.
    pub body: Value,
    /// The headers.
    pub headers: reqwest::header::HeaderMap,
}

impl Answered {
    /// A header's text, empty where it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Whether `Retry-After` is this wait in seconds, or what a long one is spread over.
    pub fn waits_at_least(&self, seconds: i64) {
        let wait: i64 = self.header("retry-after").parse().unwrap();
        assert!((seconds..=seconds + 300).contains(&wait), "{wait} instead of {seconds}: {self:?}");
    }

    /// The pointers of a 422's errors.
    pub fn pointers(&self) -> Vec<&str> {
        self.body["errors"].as_array().unwrap().iter().map(|e| e["pointer"].as_str().unwrap()).collect()
    }

    /// A text of the body, by pointer; empty where it is absent.
    pub fn text(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Checks the status, and hands the answer on.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// Checks that this is a problem document with this status and code.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.body["code"].as_str().unwrap_or("")), (status, code), "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        assert_eq!(self.body["status"], status);
        assert_eq!(self.body["type"], format!("/problems/{code}"));
        assert_eq!(self.body["request_id"], self.header("x-request-id"));
    }
}

/// Reads an answer to its end.
pub async fn answered(response: Response) -> Answered {
    try_answered(response).await.expect("a body")
}

async fn try_answered(response: Response) -> Result<Answered, reqwest::Error> {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    rate_limit_headers::check(&headers);
    let text = response.text().await?;
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Ok(Answered { status, body, headers })
}

/// A client that ignores the shell's proxy settings.
pub fn http_client(timeout: Duration) -> Client {
    Client::builder().no_proxy().timeout(timeout).build().unwrap()
}

/// A client of the service with one key.
#[derive(Clone)]
pub struct Caller {
    client: Client,
    url: String,
    key: Option<String>,
}

impl Caller {
    /// A client with this key for the service at this URL.
    pub fn of(key: &str, url: impl Into<String>, timeout: Duration) -> Self {
        Self { client: http_client(timeout), url: url.into(), key: Some(key.to_owned()) }
    }

    /// The HTTP client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The service's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The key itself.
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }

    /// The same client with another key, or none.
    pub fn with_key(&self, key: Option<&str>) -> Self {
        Self { key: key.map(str::to_owned), ..self.clone() }
    }

    /// The same client for another instance.
    pub fn at(&self, url: impl Into<String>) -> Self {
        Self { url: url.into(), ..self.clone() }
    }

    /// The same client from another address of this machine.
    pub fn at_address(&self, address: [u8; 4]) -> Self {
        let client = Client::builder().no_proxy().local_address(IpAddr::from(address)).build().unwrap();
        Self { client, ..self.clone() }
    }

    /// Sends bytes as they are on a connection of their own, and reads the answer's status line.
    pub async fn send_raw(&self, bytes: &[u8]) -> String {
        let address = self.url.trim_start_matches("http://");
        let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
        stream.write_all(bytes).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    /// A request that can still be changed.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// Sends a request and reads its answer.
    pub async fn send(&self, request: RequestBuilder) -> Answered {
        answered(request.send().await.expect("the app answers")).await
    }

    /// Calls, with a JSON body unless it is null.
    pub async fn call(&self, method: Method, path: &str, body: Value) -> Answered {
        let request = self.request(method, path);
        self.send(if body.is_null() { request } else { request.json(&body) }).await
    }

    /// A get.
    pub async fn get(&self, path: &str) -> Answered {
        self.send(self.request(Method::GET, path)).await
    }

    /// A post.
    pub async fn post(&self, path: &str, body: Value) -> Answered {
        self.send(self.request(Method::POST, path).json(&body)).await
    }

    /// A post with an idempotency key.
    pub async fn post_keyed(&self, path: &str, key: &str, body: Value) -> Answered {
        self.send(self.request(Method::POST, path).header("idempotency-key", key).json(&body)).await
    }

    /// A put.
    pub async fn put(&self, path: &str, body: Value) -> Answered {
        self.send(self.request(Method::PUT, path).json(&body)).await
    }

    /// A delete.
    pub async fn delete(&self, path: &str) -> Answered {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// One with a new key of all tenants, and that key's id.
    pub async fn make_named_key(&self, role: &str) -> (Self, String) {
        let made = self.post("/v1/admin/keys", json!({ "name": role, "role": role })).await.expect(201);
        (self.with_key(Some(made.text("/key"))), made.text("/id").to_owned())
    }

    /// A keyed post, [repeated](until_answered).
    pub async fn post_until_answered(&self, path: &str, key: &str, body: Value) -> Answered {
        until_answered(|| self.post_keyed(path, key, body.clone())).await
    }

    /// Makes a key and returns a client with it.
    pub async fn make_key(&self, role: &str, tenant: Option<&str>) -> Self {
        let key = json!({ "name": role, "role": role, "tenant": tenant });
        self.with_key(Some(self.post("/v1/admin/keys", key).await.expect(201).text("/key")))
    }
}

/// Repeats a call as a client does while the answer is 503.
pub async fn until_answered<F: Future<Output = Answered>>(mut call: impl FnMut() -> F) -> Answered {
    loop {
        let answer = call().await;
        if answer.status != 503 {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Calls services as their users do: it takes the next one if one does not answer.
#[derive(Clone)]
pub struct Callers {
    callers: Arc<[Caller]>,
    turn: Arc<AtomicUsize>,
}

impl Callers {
    /// A caller with this key that tries the addresses in order.
    pub fn of(key: &str, addresses: impl IntoIterator<Item = String>) -> Self {
        let caller = Caller::of(key, String::new(), Duration::from_secs(15));
        let callers = addresses.into_iter().map(|address| caller.at(format!("http://{address}")));
        Self { callers: callers.collect(), turn: Arc::default() }
    }

    /// The same with another key.
    pub fn with_key(&self, key: &str) -> Self {
        let callers = self.callers.iter().map(|caller| caller.with_key(Some(key))).collect();
        Self { callers, turn: self.turn.clone() }
    }

    /// One call: the answer's status and body, or none if no service answered.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Value,
    ) -> Option<(u16, Value)> {
        let turn = self.turn.load(Ordering::SeqCst);
        let mut request = self.callers[turn % self.callers.len()].request(method, path);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        let Ok(response) = request.send().await else {
            self.turn.fetch_max(turn + 1, Ordering::SeqCst);
            return None;
        };
        let answer = try_answered(response).await.ok()?;
        Some((answer.status, answer.body))
    }

    /// A `GET`.
    pub async fn get(&self, path: &str) -> Option<(u16, Value)> {
        self.call(Method::GET, path, None, Value::Null).await
    }

    /// A `POST`.
    pub async fn post(&self, path: &str, body: Value) -> Option<(u16, Value)> {
        self.call(Method::POST, path, None, body).await
    }

    /// Repeats a call until it is answered as done.
    pub async fn insist(&self, method: Method, path: &str, key: Option<&str>, body: Value) -> Value {
        let mut last = None;
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            match self.call(method.clone(), path, key, body.clone()).await {
                Some((..300, answer)) => return answer,
                other => last = other.or(last),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{method} {path} was not done in {PATIENCE:?}; last {last:?}");
    }
}

/// Asks again until the answer is as expected, at most a minute.
pub async fn until<F: Future<Output = Answered>>(
    ask: impl Fn() -> F,
    is_expected: impl Fn(&Answered) -> bool,
) -> Answered {
    let asked = async {
        loop {
            let answer = ask().await;
            if is_expected(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked).await.expect("the expected answer within a minute")
}
