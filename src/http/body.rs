//! Request bodies: content type, size and time are checked before parsing.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header::{self, HeaderMap};
use actix_web::web::{self, BytesMut};
use actix_web::{FromRequest, HttpRequest};
use futures::StreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use super::json;
use super::problem::{Code, Problem};
use super::query::Query;
use super::state::State;

/// The largest body of most calls.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// The largest body of a batch.
pub(super) const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// The largest policy file: some ten thousand tenants.
pub(super) const POLICY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How much of a body that is too large is still read, so that the caller gets the answer and not a reset.
const DISCARDED_BYTES_MAX: usize = 16 * 1024 * 1024;

type Extraction<T> = Pin<Box<dyn Future<Output = Result<T, Problem>>>>;

/// A well-formed JSON body of at most `MAX` bytes, as text.
pub(super) struct JsonText<const MAX: usize>(pub String);

impl<const MAX: usize> FromRequest for JsonText<MAX> {
    type Error = Problem;
    type Future = Extraction<Self>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let head = check_head(request.headers()).and_then(|()| Query::of(request)?.finish());
        let text = read_text::<MAX>(request, payload);
        Box::pin(async move {
            head?;
            text.await.map(Self)
        })
    }
}

/// A JSON object of at most 64 KB, read as `T`.
pub(super) struct JsonBody<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for JsonBody<T> {
    type Error = Problem;
    type Future = Extraction<Self>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let text = JsonText::<BODY_BYTES_MAX>::from_request(request, payload);
        Box::pin(async move { json::typed(&text.await?.0).map(Self) })
    }
}

/// As [`JsonBody`]; no body at all is the default.
pub(super) struct OptionalJsonBody<T>(pub T);

impl<T: DeserializeOwned + Default + 'static> FromRequest for OptionalJsonBody<T> {
    type Error = Problem;
    type Future = Extraction<Self>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let query = Query::of(request).and_then(Query::finish);
        let head = check_head(request.headers());
        let timeout = request.app_data::<web::Data<State>>().map(|state| state.options.body_timeout);
        let payload = payload.take();
        Box::pin(async move {
            query?;
            let bytes = read(payload, BODY_BYTES_MAX, timeout.unwrap_or(Duration::from_secs(10))).await?;
            if bytes.is_empty() {
                return Ok(Self(T::default()));
            }
            head?;
            json::typed(json::well_formed(&bytes)?).map(Self)
        })
    }
}

/// An object without fields: the path says all that there is to say.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EmptyBody {}

/// A well-formed JSON body of at most `MAX` bytes, as text, once it is asked for.
pub(super) fn read_text<const MAX: usize>(
    request: &HttpRequest,
    payload: &mut Payload,
) -> impl Future<Output = Result<String, Problem>> + use<MAX> {
    let timeout = request.app_data::<web::Data<State>>().map(|state| state.options.body_timeout);
    let payload = payload.take();
    async move {
        let bytes = read(payload, MAX, timeout.unwrap_or(Duration::from_secs(10))).await?;
        Ok(json::well_formed(&bytes)?.to_owned())
    }
}

fn check_head(headers: &HeaderMap) -> Result<(), Problem> {
    if !is_json(headers) {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "The body must be JSON: send `Content-Type: application/json`.",
        ));
    }
    check_coding(headers)
}

/// Bodies are read as they come, and not decompressed.
pub(super) fn check_coding(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "The body must not be compressed: leave out Content-Encoding.",
        ));
    }
    Ok(())
}

/// `application/json`, alone or with `charset=utf-8`.
fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::CONTENT_TYPE);
    let (Some(value), None) = (values.next(), values.next()) else { return false };
    let Ok(text) = value.to_str() else { return false };
    let mut parts = text.split(';').map(str::trim);
    parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
        && parts.all(|parameter| {
            parameter.eq_ignore_ascii_case("charset=utf-8")
                || parameter.eq_ignore_ascii_case("charset=\"utf-8\"")
        })
}

async fn read(payload: Payload, bytes_max: usize, timeout: Duration) -> Result<BytesMut, Problem> {
    tokio::time::timeout(timeout, collect(payload, bytes_max)).await.unwrap_or_else(|_| {
        Err(Problem::new(Code::RequestTimeout, "The body did not arrive in time; send the call again."))
    })
}

async fn collect(mut payload: Payload, bytes_max: usize) -> Result<BytesMut, Problem> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| Problem::invalid("The body broke off."))?;
        if bytes.len() + chunk.len() > bytes_max {
            discard(payload).await;
            return Err(too_large(bytes_max));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The problem of a body that is larger than this.
pub(super) fn too_large(bytes_max: usize) -> Problem {
    Problem::new(Code::PayloadTooLarge, format!("The body is larger than {bytes_max} bytes."))
}

/// Reads on for a while, so that a caller whose body is refused gets the answer and not a reset.
pub(super) async fn discard(mut payload: Payload) {
    let mut discarded = 0;
    while let Some(Ok(chunk)) = payload.next().await {
        discarded += chunk.len();
        if discarded > DISCARDED_BYTES_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use rstest::rstest;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[allow(dead_code, reason = "only its reading is tested")]
        count: u32,
    }

    async fn status(request: TestRequest) -> u16 {
        let (request, mut payload) = request.to_http_parts();
        match JsonBody::<Sample>::from_request(&request, &mut payload).await {
            Ok(_) => 200,
            Err(problem) => problem.status().as_u16(),
        }
    }

    fn json(body: impl Into<web::Bytes>) -> TestRequest {
        TestRequest::post().insert_header(("content-type", "application/json")).set_payload(body)
    }

    #[rstest]
    #[case("application/json", 200)]
    #[case("Application/JSON; charset=UTF-8", 200)]
    #[case("application/json; charset=latin1", 415)]
    #[case("text/plain", 415)]
    #[case("application/jsonx", 415)]
    #[case("", 415)]
    #[actix_web::test]
    async fn only_json_is_read(#[case] content_type: &'static str, #[case] expected: u16) {
        let request =
            TestRequest::post().insert_header(("content-type", content_type)).set_payload("{\"count\":1}");
        assert_eq!(status(request).await, expected);
    }

    #[actix_web::test]
    async fn compressed_bodies_are_refused() {
        assert_eq!(status(json("{\"count\":1}").insert_header(("content-encoding", "gzip"))).await, 415);
        assert_eq!(status(json("{\"count\":1}").insert_header(("content-encoding", "identity"))).await, 200);
    }

    #[actix_web::test]
    async fn a_body_may_have_64_kilobytes_and_no_byte_more() {
        let body = |length: usize| format!("{{\"count\":1}}{}", " ".repeat(length - 11));
        assert_eq!(status(json(body(BODY_BYTES_MAX))).await, 200);
        assert_eq!(status(json(body(BODY_BYTES_MAX + 1))).await, 413);
        assert_eq!(status(json(vec![b' '; 10 * 1024 * 1024])).await, 413);
    }

    #[actix_web::test]
    async fn a_slow_body_is_cut_off() {
        let never = futures::stream::pending::<Result<web::Bytes, actix_web::error::PayloadError>>();
        let payload = Payload::Stream { payload: never.boxed_local() };
        let problem = read(payload, 10, Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(problem.code(), "request_timeout");
    }

    proptest::proptest! {
        #[test]
        fn any_body_is_read_or_refused_with_4xx(body in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let status = actix_web::rt::System::new().block_on(status(json(body)));
            proptest::prop_assert!(status == 200 || (400..500).contains(&status));
        }
    }
}
