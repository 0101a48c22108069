//! `/v1/admin/gate`: an operator's decisions about the gate.

use actix_web::{HttpResponse, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::json;
use super::auth::Caller;
use super::body::{EmptyBody, OptionalJsonBody};
use super::problem::Problem;
use super::state::State;
use crate::domain::instant::rfc3339;

/// What became of it.
#[derive(Debug, Serialize, ToSchema)]
struct AcceptedTime {
    /// Whether the instance that answers was in doubt until now; the others are notified.
    was_in_doubt: bool,
    /// Redis's time now.
    #[schema(example = "2026-02-01T00:00:00.000Z")]
    redis_time: String,
    /// How far it is ahead of the answering host's clock; negative when it is slow.
    difference_ms: i64,
}

/// Accept Redis's clock as it is, after it has stepped: admission and expiry go on by it on every instance.
#[utoipa::path(
    tag = "admin",
    request_body(content = EmptyBody),
    responses((status = 200, description = "It is trusted; who said so is in the audit log.", body = AcceptedTime))
)]
#[post("/v1/admin/gate/accept-time")]
pub(super) async fn accept_time(
    state: web::Data<State>,
    caller: Caller,
    body: OptionalJsonBody<EmptyBody>,
) -> Result<HttpResponse, Problem> {
    let OptionalJsonBody(EmptyBody {}) = body;
    let operations = state.operations.clone();
    let accepted = state
        .mutate(Box::pin(async move { operations.calls.admission.accept_time(caller.actor()).await }))
        .await??;
    let answer = AcceptedTime {
        was_in_doubt: accepted.was_in_doubt,
        redis_time: rfc3339(accepted.redis_time_ms),
        difference_ms: accepted.difference_ms,
    };
    json(HttpResponse::Ok(), &answer)
}
