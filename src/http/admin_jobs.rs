//! `/v1/admin/jobs`: what time does by itself, and how it went.

use actix_web::{HttpRequest, HttpResponse, get, web};

use super::answer::{List, json};
use super::problem::Problem;
use super::query::Query;
use super::state::State;
use crate::operations::answers::JobAnswer;

/// List the jobs with their last runs, by name.
#[utoipa::path(
    tag = "admin",
    responses((status = 200, description = "Every job that an instance has planned.", body = List<JobAnswer>))
)]
#[get("/v1/admin/jobs")]
pub(super) async fn list_jobs(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    Query::of(&request)?.finish()?;
    let data = state.read(state.operations.list_jobs()).await?;
    json(HttpResponse::Ok(), &List { data, next_cursor: None, has_more: false, as_of: None })
}
