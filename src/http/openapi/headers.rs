//! The headers of answers, by the call and the status that they come with.

use actix_web::http::Method;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{ObjectBuilder, RefOr, Type};

use super::super::routes::{Access, Route};

type Described = (&'static str, Type, &'static str);

const REQUEST_ID: Described =
    ("X-Request-Id", Type::String, "Names the request in logs: the caller's own id, or a new one.");
const RATE_LIMIT: Described = (
    "RateLimit",
    Type::String,
    "What is left, the tightest limit first (a structured field); absent where no limit applies.",
);
const RATE_LIMIT_POLICY: Described =
    ("RateLimit-Policy", Type::String, "The limits themselves, in the same order.");
const REPLAYED: Described = (
    "Idempotency-Replayed",
    Type::Boolean,
    "`true` where the answer repeats an earlier one; absent otherwise.",
);
const RETRY_AFTER: Described = ("Retry-After", Type::Integer, "Seconds to wait, rounded up.");
const AUTHENTICATE: Described = ("WWW-Authenticate", Type::String, "`Bearer`.");
const ETAG: Described = ("ETag", Type::String, "The object's version, for `If-Match`.");
const HELD_FROM: Described = (
    "Entries-Held-From",
    Type::String,
    "From when on the books hold every entry, where the list reaches back before that: earlier ones of use are in archives.",
);

/// Calls whose answer is about many, so that none of it is in a header.
const MANY_IN_ONE: [&str; 2] = ["/v1/batch", "/v1/events"];

/// Calls with an idempotency key that the gate does not decide.
const KEYED_BESIDE_GATE: [&str; 4] =
    ["/v1/adjustments", "/v1/admin/grants", "/v1/reconciliations", "/v1/tenants/{tenant}/upgrade-requests"];

/// Adds them to every answer of the call.
pub(super) fn add(operation: &mut Operation, route: &Route) {
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        for (name, kind, description) in headers(route, status) {
            response.headers.insert(name.to_owned(), RefOr::T(header(kind, description)));
        }
    }
}

fn headers(route: &Route, status: &str) -> Vec<Described> {
    let mut headers = vec![REQUEST_ID];
    let is_done = status.starts_with('2');
    let is_gate_call =
        matches!(route.access, Access::Gate | Access::GateRead) && !MANY_IN_ONE.contains(&route.pattern);
    if is_gate_call && (is_done || matches!(status, "402" | "429")) {
        headers.extend([RATE_LIMIT, RATE_LIMIT_POLICY]);
    }
    let is_keyed = is_gate_call || KEYED_BESIDE_GATE.contains(&route.pattern);
    if is_keyed && route.method == Method::POST && status == "200" {
        headers.push(REPLAYED);
    }
    if is_done && route.pattern.ends_with("/entries") {
        headers.push(HELD_FROM);
    }
    if matches!(status, "429" | "503") && route.access != Access::Open {
        headers.push(RETRY_AFTER);
    }
    if status == "401" {
        headers.push(AUTHENTICATE);
    }
    let is_unversioned =
        ["/v1/admin/grants", "/v1/admin/webhooks"].iter().any(|of| route.pattern.starts_with(of));
    let is_object =
        route.pattern.starts_with("/v1/admin/") && route.pattern.ends_with("/{id}") && !is_unversioned;
    if is_object && is_done && route.method != Method::DELETE {
        headers.push(ETAG);
    }
    headers
}

fn header(kind: Type, description: &str) -> Header {
    let schema = ObjectBuilder::new().schema_type(kind).build();
    HeaderBuilder::new().schema(Some(schema)).description(Some(description)).build()
}
