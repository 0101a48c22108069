//! `/v1/reservations`: hold, consume, release, extend, read.

use std::sync::Arc;

use actix_web::http::header::HeaderMap;
use actix_web::{HttpRequest, HttpResponse, get, post, web};

use super::answer::GateAnswer;
use super::auth::Caller;
use super::bodies::{ConsumeBody, ExtendBody, ReleaseBody, ReserveBody};
use super::body::{JsonBody, OptionalJsonBody};
use super::idempotency;
use super::problem::Problem;
use super::shapes::{ReservationAnswer, ReserveAnswer};
use super::state::State;
use crate::domain::ids::IdempotencyKey;
use crate::operations::requests::{ConsumeRequest, ExtendRequest, ReleaseRequest};
use crate::operations::{OperationError, Operations};

/// Advice for a reservation that does not exist.
const RECORD_AS_USAGE: &str = "If work was done, record it with POST /v1/usage under a key of its own.";

/// Calls the verbs, for single calls and for items of a batch alike.
pub(super) struct Call {
    pub(super) operations: Arc<Operations>,
    pub(super) caller: Caller,
}

impl Call {
    pub(super) fn new(state: &State, caller: Caller) -> Self {
        Self { operations: state.operations.clone(), caller }
    }

    /// Holds units.
    pub(super) async fn reserve(
        &self,
        body: ReserveBody,
        key: Option<IdempotencyKey>,
    ) -> Result<GateAnswer, Problem> {
        let tenant = self.caller.tenant(body.tenant.clone())?;
        let sent = body.sent();
        let mut request = body.into_request(tenant, key)?;
        request.sees_all_tenants = self.caller.bound().is_none();
        let answer = self.operations.calls.reserve(request).await;
        GateAnswer::of_reserve(answer.map_err(|error| sent.name(error.into()))?)
    }

    /// Consumes totals so far.
    pub(super) async fn consume(&self, id: &str, body: ConsumeBody) -> Result<GateAnswer, Problem> {
        let id = self.operations.calls.parse_reservation_id(id).map_err(missing)?;
        let (is_final, ack, sent) = (body.is_final.unwrap_or(true), body.ack, body.sent());
        let request = ConsumeRequest { id, bound: self.caller.bound(), used: body.used()?, is_final, ack };
        let answer = self.operations.calls.consume(request).await;
        GateAnswer::of_reservation(answer.map_err(|error| sent.name(missing(error)))?)
    }

    /// Gives a hold back.
    pub(super) async fn release(&self, id: &str, body: ReleaseBody) -> Result<GateAnswer, Problem> {
        let id = self.operations.calls.parse_reservation_id(id).map_err(missing)?;
        let sent = body.sent();
        let (incurred, reason) = body.into_parts()?;
        let request = ReleaseRequest { id, bound: self.caller.bound(), incurred, reason };
        let answer = self.operations.calls.release(request).await;
        GateAnswer::of_reservation(answer.map_err(|error| sent.name(missing(error)))?)
    }

    /// Moves a hold's expiry.
    pub(super) async fn extend(&self, id: &str, body: ExtendBody) -> Result<GateAnswer, Problem> {
        let id = self.operations.calls.parse_reservation_id(id).map_err(missing)?;
        let request = ExtendRequest { id, bound: self.caller.bound(), ttl: body.ttl()? };
        GateAnswer::of_reservation(self.operations.calls.extend(request).await.map_err(missing)?)
    }
}

fn missing(error: OperationError) -> Problem {
    let problem = Problem::from(error);
    if problem.code() == "not_found" { problem.advise(RECORD_AS_USAGE) } else { problem }
}

/// The header has no effect here, but must still be valid.
fn check_key(headers: &HeaderMap) -> Result<(), Problem> {
    idempotency::key_of(headers, None).map(|_| ())
}

/// Hold units before work.
///
/// All limits and quotas that apply are checked and moved together, or nothing is. Repeating the call with the same
/// `Idempotency-Key` answers 200 with the original id and the status as it is now: start work only on `reserved`.
#[utoipa::path(
    tag = "gate",
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes the call repeatable: 1 to 255 printable characters, bare or quoted.")),
    request_body(content = ReserveBody, example = json!({
        "tenant": "acme", "subject": "user-42", "operation": "ocr.submit",
        "attributes": { "pages": 3, "handwriting": true }, "ttl_seconds": 60
    })),
    responses(
        (status = 201, description = "Held.", body = ReserveAnswer),
        (status = 200, description = "A replay, or a dry run.", body = ReserveAnswer),
    )
)]
#[post("/v1/reservations")]
pub(super) async fn reserve(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    body: JsonBody<ReserveBody>,
) -> Result<HttpResponse, Problem> {
    let JsonBody(body) = body;
    let key = idempotency::key_of(request.headers(), body.idempotency_key.clone())?;
    let call = Call::new(&state, caller);
    let answer = state.mutate(Box::pin(async move { call.reserve(body, key).await })).await??;
    Ok(answer.into_response(state.options.headers))
}

/// Consume what was really used.
///
/// Amounts are totals for the reservation so far, never increments, so that a retry is harmless. Without a body, what
/// is held is consumed.
#[utoipa::path(
    tag = "gate",
    params(("id" = String, Path, description = "The reservation.")),
    request_body(content = ConsumeBody, example = json!({ "amount": "2", "final": true, "ack": "gate" })),
    responses((status = 200, description = "Consumed, or a replay.", body = ReservationAnswer))
)]
#[post("/v1/reservations/{id}/consume")]
pub(super) async fn consume(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
    body: OptionalJsonBody<ConsumeBody>,
) -> Result<HttpResponse, Problem> {
    check_key(request.headers())?;
    let call = Call::new(&state, caller);
    let answer = state.mutate(Box::pin(async move { call.consume(&id, body.0).await })).await??;
    Ok(answer.into_response(state.options.headers))
}

/// Give a hold back.
///
/// It needs no body, unless something was used before the work was given up. A repeat that names no amount gets the
/// answer of the released reservation, whatever was incurred. A reservation that expired and was then charged by a
/// release is consumed: only a release with the same amounts is its repeat, any other is 409.
#[utoipa::path(
    tag = "gate",
    params(("id" = String, Path, description = "The reservation.")),
    request_body(content = ReleaseBody, example = json!({ "incurred": "1", "reason": "cancelled by the user" })),
    responses((status = 200, description = "Released, or as it expired before.", body = ReservationAnswer))
)]
#[post("/v1/reservations/{id}/release")]
pub(super) async fn release(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
    body: OptionalJsonBody<ReleaseBody>,
) -> Result<HttpResponse, Problem> {
    check_key(request.headers())?;
    let call = Call::new(&state, caller);
    let answer = state.mutate(Box::pin(async move { call.release(&id, body.0).await })).await??;
    Ok(answer.into_response(state.options.headers))
}

/// Move a hold's expiry to now + ttl, if that is later.
///
/// It needs no body where the usual ttl will do.
#[utoipa::path(
    tag = "gate",
    params(("id" = String, Path, description = "The reservation.")),
    request_body(content = ExtendBody, example = json!({ "ttl_seconds": 60 })),
    responses((status = 200, description = "The reservation with its expiry.", body = ReservationAnswer))
)]
#[post("/v1/reservations/{id}/extend")]
pub(super) async fn extend(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
    body: OptionalJsonBody<ExtendBody>,
) -> Result<HttpResponse, Problem> {
    check_key(request.headers())?;
    let call = Call::new(&state, caller);
    let answer = state.mutate(Box::pin(async move { call.extend(&id, body.0).await })).await??;
    Ok(answer.into_response(state.options.headers))
}

/// Read a reservation in any state.
#[utoipa::path(
    tag = "gate",
    params(("id" = String, Path, description = "The reservation.")),
    responses((status = 200, description = "The reservation.", body = ReservationAnswer))
)]
#[get("/v1/reservations/{id}")]
pub(super) async fn read_reservation(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    super::query::Query::of(&request)?.finish()?;
    let id = state.operations.calls.parse_reservation_id(&id)?;
    let answer = state.read(state.operations.calls.read_reservation(id, caller.bound())).await?;
    Ok(GateAnswer::of_reservation(answer)?.into_response(state.options.headers))
}
