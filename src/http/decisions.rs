//! `/v1/decisions`: why something was allowed or refused.

use actix_web::{HttpRequest, HttpResponse, get, web};
use uuid::Uuid;

use super::answer::json;
use super::auth::Caller;
use super::problem::{Code, Problem};
use super::query::Query;
use super::shapes::decision::DecisionAnswer;
use super::state::State;

/// Read why something was allowed or refused.
///
/// The id is the `decision_id` of an answer or a problem. Every decision about a tenant that is sampled can be read for
/// a week, on another instance a second after it was made. A refusal of any other tenant can be read for an hour, on
/// the instance that refused, as long as its memory holds it. All others are 404.
#[utoipa::path(
    tag = "gate",
    params(("id" = String, Path, description = "The decision.")),
    responses((status = 200, description = "The decision with every limit that was consulted.", body = DecisionAnswer))
)]
#[get("/v1/decisions/{id}")]
pub(super) async fn explain(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    Query::of(&request)?.finish()?;
    let id = Uuid::try_parse(&id).map_err(|_| Problem::new(Code::NotFound, "There is no such decision."))?;
    let bound = caller.bound();
    let decision = state.read(state.operations.decisions.explain(id, bound.as_ref())).await?;
    json(HttpResponse::Ok(), &DecisionAnswer::from(&*decision))
}
