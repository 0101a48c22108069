//! A receiver of webhooks on the loopback, which remembers what it got and answers as it is asked to.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use standardwebhooks::Webhook;
use tokio::net::TcpListener;

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// With this status.
    Status(u16),
    /// By sending the caller elsewhere on itself.
    Redirect,
    /// Not at all.
    Silence,
}

/// What it got.
#[derive(Debug, Clone)]
pub struct Received {
    /// Where.
    pub path: String,
    headers: HeaderMap,
    text: Bytes,
}

impl Received {
    /// The header `webhook-id`.
    pub fn id(&self) -> String {
        self.headers["webhook-id"].to_str().unwrap().to_owned()
    }

    /// The body.
    pub fn body(&self) -> Value {
        serde_json::from_slice(&self.text).unwrap()
    }

    /// Whether another library finds it signed with this secret, at a time that is not long ago.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        Webhook::new(secret).unwrap().verify(&self.text, &self.headers).is_ok()
    }

    /// The same with another body.
    pub fn forged(&self) -> Self {
        Self { text: Bytes::from_static(b"{}"), ..self.clone() }
    }
}

/// A receiver.
#[derive(Clone)]
pub struct Receiver {
    port: u16,
    manner: Arc<Mutex<Manner>>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    /// Starts one that accepts everything.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let receiver =
            Self { port, manner: Arc::new(Mutex::new(Manner::Status(204))), received: Arc::default() };
        let router = Router::new().fallback(take).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    /// Its address, under this name or address of the loopback.
    pub fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/hooks", self.port)
    }

    /// From now on it answers so.
    pub fn answers(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// All it got.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

async fn take(State(receiver): State<Receiver>, uri: Uri, headers: HeaderMap, text: Bytes) -> Response {
    receiver.received.lock().unwrap().push(Received { path: uri.path().to_owned(), headers, text });
    let manner = *receiver.manner.lock().unwrap();
    match manner {
        Manner::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Manner::Redirect => (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/other")]).into_response(),
        Manner::Silence => std::future::pending().await,
    }
}
