//! The guard as a layer of tower, for axum and all that is built on it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use tower::{Layer, Service};

use super::guard::{Guard, Verdict};

/// Serves what Tollgate allows: `.layer(GuardLayer(guard))`.
#[derive(Clone)]
pub(crate) struct GuardLayer(pub(crate) Arc<Guard>);

impl<S> Layer<S> for GuardLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { guard: self.0.clone(), inner }
    }
}

/// A service behind a guard.
#[derive(Clone)]
pub(crate) struct Guarded<S> {
    guard: Arc<Guard>,
    inner: S,
}

impl<S> Service<Request> for Guarded<S>
where
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The service that was polled ready is the one that must be called.
        let waiting = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, waiting);
        let guard = self.guard.clone();
        Box::pin(async move {
            let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
            let verdict = guard.verdict(request.method().as_str(), request.uri().path(), peer).await;
            let (mut response, headers) = match verdict {
                Verdict::Serve(headers) => (ready.call(request).await?, headers),
                Verdict::Refuse(headers, text) => (answer(StatusCode::TOO_MANY_REQUESTS, text), headers),
                Verdict::Unavailable => (answer(StatusCode::SERVICE_UNAVAILABLE, String::new()), Vec::new()),
            };
            for (name, value) in headers {
                if let Ok(value) = HeaderValue::from_str(&value) {
                    response.headers_mut().insert(HeaderName::from_static(name), value);
                }
            }
            Ok(response)
        })
    }
}

fn answer(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}
