//! `/v1/admin/clock`: moves the test clock.

use actix_web::{HttpResponse, put, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::json;
use super::body::JsonBody;
use super::problem::Problem;
use super::query;
use super::state::State;
use crate::operations::FieldError;

/// An instant.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Clock {
    /// RFC 3339.
    #[schema(example = "2026-02-01T00:00:00Z")]
    now: String,
}

/// Move the test clock forwards; 404 where the service runs on real time.
#[utoipa::path(
    tag = "admin",
    request_body(content = Clock),
    responses((status = 200, description = "The time it is now.", body = Clock))
)]
#[put("/v1/admin/clock")]
pub(super) async fn set_clock(
    state: web::Data<State>,
    body: JsonBody<Clock>,
) -> Result<HttpResponse, Problem> {
    let Some(now_ms) = query::parse_instant_ms(&body.0.now) else {
        let message = "must be an RFC 3339 time such as 2026-02-01T00:00:00Z";
        return Err(Problem::fields(vec![FieldError::new("/now", message)]));
    };
    let operations = state.operations.clone();
    let now_ms = state.mutate(Box::pin(async move { operations.set_clock(now_ms).await })).await??;
    json(HttpResponse::Ok(), &Clock { now: query::format_instant(now_ms) })
}
