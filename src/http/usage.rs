//! `/v1/usage`: reserve and consume in one call.

use actix_web::{HttpRequest, HttpResponse, post, web};

use super::answer::GateAnswer;
use super::auth::Caller;
use super::bodies::UsageBody;
use super::body::JsonBody;
use super::idempotency;
use super::problem::Problem;
use super::reservations::Call;
use super::shapes::ReservationAnswer;
use super::state::State;
use crate::domain::ids::IdempotencyKey;
use crate::operations::FieldError;
use crate::operations::requests::Mode;

impl Call {
    /// Records usage; the key is required. A dry run decides as usage, and answers as that of a reserve.
    pub(super) async fn record_usage(
        &self,
        body: UsageBody,
        key: Option<IdempotencyKey>,
    ) -> Result<GateAnswer, Problem> {
        let (body, ack) = body.into_parts();
        let Some(key) = key else { return Err(Problem::key_required()) };
        let tenant = self.caller.tenant(body.tenant.clone())?;
        let sent = body.sent();
        let mut request = body.into_request(tenant, Some(key))?;
        request.sees_all_tenants = self.caller.bound().is_none();
        if request.mode == Mode::BestEffort {
            let message = "usage is recorded in full or refused: leave it out or name all_or_nothing";
            return Err(Problem::fields(vec![FieldError::new("/mode", message)]));
        }
        if request.dry_run {
            let answer = self.operations.calls.dry_usage(request).await;
            return GateAnswer::of_reserve(answer.map_err(|error| sent.name(error.into()))?);
        }
        let answer = self.operations.calls.record_usage(request, ack).await;
        GateAnswer::of_usage(answer.map_err(|error| sent.name(error.into()))?)
    }
}

/// Record usage: a reserve and its consume in one, refused like a reserve.
#[utoipa::path(
    tag = "gate",
    params(("Idempotency-Key" = Option<String>, Header, description = "Required, here or as `idempotency_key` in the body.")),
    request_body(content = UsageBody, example = json!({
        "tenant": "acme", "meter": "ocr.page", "amount": "2", "idempotency_key": "page-7"
    })),
    responses(
        (status = 201, description = "Recorded.", body = ReservationAnswer),
        (status = 200, description = "A replay.", body = ReservationAnswer),
    )
)]
#[post("/v1/usage")]
pub(super) async fn record_usage(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    body: JsonBody<UsageBody>,
) -> Result<HttpResponse, Problem> {
    let JsonBody(body) = body;
    let key = idempotency::key_of(request.headers(), body.idempotency_key())?;
    let call = Call::new(&state, caller);
    let answer = state.mutate(Box::pin(async move { call.record_usage(body, key).await })).await??;
    Ok(answer.into_response(state.options.headers))
}
