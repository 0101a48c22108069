//! The middleware around every request: its route and id, a span, the key check, security headers, problem documents.

use std::time::Instant;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::ConnectionType;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpResponse, web};
use tracing::Instrument;

use super::auth;
use super::problem::{Code, Problem};
use super::routes::{self, Found, Route, Surface};
use super::state::{Observation, State};
use crate::operations::Recognised;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The route of a path that is not served.
const UNMATCHED: &str = "unmatched";

/// The current request's id, as logs and problems name it.
#[derive(Debug, Clone)]
pub(super) struct RequestId(pub String);

/// Wraps the public listener's handlers.
pub(super) async fn public(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse, Error> {
    around(request, next, Surface::Public).await
}

/// Wraps the operator's listener's handlers.
pub(super) async fn ops(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse, Error> {
    around(request, next, Surface::Ops).await
}

async fn around(
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
    surface: Surface,
) -> Result<ServiceResponse, Error> {
    let Some(state) = request.app_data::<web::Data<State>>().cloned() else {
        return Err(Problem::new(Code::Internal, "The service is not set up.").into());
    };
    let started = Instant::now();
    let id = request_id(request.headers());
    request.extensions_mut().insert(RequestId(id.clone()));
    let method = request.method().clone();
    let found = routes::find(&method, request.path(), surface);
    if let Found::Route(route) = &found {
        // HEAD is handled as GET; actix leaves the body out.
        request.head_mut().method = route.method.clone();
    }
    let (pattern, recognised) = match &found {
        Found::Route(route) => (route.pattern, auth::recognise(&request, &state, route)),
        _ => (UNMATCHED, Recognised::Bad),
    };
    // Sets the known fields at once: each field recorded later formats the whole span again.
    let span = tracing::info_span!(
        "request",
        method = method.as_str(),
        route = pattern,
        request_id = id,
        key_id = match &recognised {
            Recognised::Good(principal) => Some(principal.key_id.as_str()),
            Recognised::Bad | Recognised::Unknown => None,
        }
    );
    let mut response = answer(request, next, &state, found, recognised).instrument(span.clone()).await?;
    response = span.in_scope(|| finished(response, &state, &id));
    let status = response.status().as_u16();
    (state.options.observe)(Observation { route: pattern, status, elapsed: started.elapsed() });
    Ok(response)
}

/// Refuses, or calls the handler. The request must not be cloned on its way in: routing needs the only reference.
async fn answer(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
    state: &State,
    found: Found,
    recognised: Recognised,
) -> Result<ServiceResponse, Error> {
    match admitted(&request, state, found, recognised).await {
        Ok(()) => next.call(request).await.map(ServiceResponse::map_into_boxed_body),
        Err(problem) => Ok(request.error_response(problem)),
    }
}

async fn admitted(
    request: &ServiceRequest,
    state: &State,
    found: Found,
    recognised: Recognised,
) -> Result<(), Problem> {
    let route: &Route = match found {
        Found::Route(route) => route,
        Found::OtherMethods(allowed) => {
            let detail = format!("{} is not served here, only {allowed}.", request.method());
            return Err(Problem::new(Code::MethodNotAllowed, detail).allow(allowed));
        }
        Found::Nothing => return Err(Problem::new(Code::NotFound, "There is no such path.")),
    };
    auth::authorise(request, state, route, recognised).await
}

/// Turns errors into problem documents and adds what every answer carries.
fn finished(response: ServiceResponse, state: &State, id: &str) -> ServiceResponse {
    let problem = response.response().error().map(Problem::from).or_else(|| unexplained(&response));
    let mut response = match problem {
        None => response,
        Some(problem) => {
            let mut document = HttpResponse::build(problem.status()).body(problem.to_json(id));
            problem.write_headers(document.headers_mut(), state.options.headers);
            tracing::debug!(%problem, "answered with a problem");
            response.into_response(document)
        }
    };
    write_standard_headers(response.headers_mut(), id);
    if state.closes_connections() {
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    response
}

/// An error status without an error value: it comes from actix itself.
fn unexplained(response: &ServiceResponse) -> Option<Problem> {
    if response.headers().contains_key(header::CONTENT_TYPE) {
        return None;
    }
    let status = response.status();
    if status.is_server_error() {
        return Some(Problem::new(Code::Internal, "The service failed to answer."));
    }
    status.is_client_error().then(|| match status.as_u16() {
        404 => Problem::new(Code::NotFound, "There is no such path."),
        _ => Problem::invalid("The request could not be read."),
    })
}

fn write_standard_headers(headers: &mut HeaderMap, id: &str) {
    if let Ok(value) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, value);
    }
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}

/// The caller's id if it is a plain token, otherwise a new one.
fn request_id(headers: &HeaderMap) -> String {
    headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|text| is_token(text))
        .map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned)
}

fn is_token(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sane_request_id_is_kept_and_any_other_replaced() {
        let with = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_str(text).unwrap());
            request_id(&headers)
        };
        assert_eq!(with("req-1.a_B"), "req-1.a_B");
        for bad in ["", "a b", "{x}", &"x".repeat(65), "a;b"] {
            assert_ne!(with(bad), bad);
        }
        assert!(is_token(&request_id(&HeaderMap::new())));
    }
}
