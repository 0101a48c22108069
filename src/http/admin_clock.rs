//! `/v1/admin/clock`: moves the test clock.

use actix_web::{HttpResponse, put, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::json;
use super::body::JsonBody;
use super::problem::Problem;
use super::query::Time;
use super::state::State;
use crate::domain::instant::rfc3339;

/// The time to set.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ClockBody {
    /// RFC 3339.
    #[schema(value_type = String, format = DateTime, example = "2026-02-01T00:00:00Z")]
    now: Time,
}

/// The clock's time.
#[derive(Debug, Serialize, ToSchema)]
struct Clock {
    /// RFC 3339.
    #[schema(format = DateTime, example = "2026-02-01T00:00:00Z")]
    now: String,
}

/// Move the test clock forwards; 404 if the service runs on real time.
#[utoipa::path(
    tag = "admin",
    request_body(content = ClockBody),
    responses((status = 200, description = "The time it is now.", body = Clock))
)]
#[put("/v1/admin/clock")]
pub(super) async fn set_clock(
    state: web::Data<State>,
    body: JsonBody<ClockBody>,
) -> Result<HttpResponse, Problem> {
    let Time(now_ms) = body.0.now;
    let operations = state.operations.clone();
    let now_ms = state.mutate(Box::pin(async move { operations.set_clock(now_ms).await })).await??;
    json(HttpResponse::Ok(), &Clock { now: rfc3339(now_ms) })
}
