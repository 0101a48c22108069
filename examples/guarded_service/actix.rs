//! The guard as middleware of actix-web.

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpResponse, web};

use super::guard::{Guard, Verdict};

/// Serves what Tollgate allows: `.wrap(from_fn(actix::guarded))`, with a `web::Data<Guard>` in the app.
pub(crate) async fn guarded(
    guard: web::Data<Guard>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let address = request.peer_addr().map(|peer| peer.ip());
    let verdict = guard.verdict(request.method().as_str(), request.path(), address).await;
    let (mut response, headers) = match verdict {
        Verdict::Serve(headers) => (next.call(request).await?.map_into_boxed_body(), headers),
        Verdict::Refuse(headers, text) => {
            (request.into_response(HttpResponse::TooManyRequests().body(text)), headers)
        }
        Verdict::Unavailable => {
            (request.into_response(HttpResponse::ServiceUnavailable().finish()), Vec::new())
        }
    };
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    Ok(response)
}
