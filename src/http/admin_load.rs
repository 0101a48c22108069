//! `/v1/admin/load`: how busy parts of the installation are, as programs around it push it.

use actix_web::{HttpRequest, HttpResponse, get, put, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{List, json};
use super::auth::Caller;
use super::body::JsonBody;
use super::list::Listing;
use super::problem::Problem;
use super::query::Query;
use super::state::State;
use crate::domain::ids::LoadName;
use crate::domain::instant::rfc3339;
use crate::domain::load::{LoadFactor, LoadSeconds};
use crate::operations::FieldError;
use crate::operations::answers::PushedLoad;

/// How busy it is, and for how long that holds.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LoadBody {
    /// `0` to `1`, with at most three decimals: limits with `load_scaled` have three quarters of their capacity from
    /// `0.6` on, and a half from `0.8` on.
    factor: LoadFactor,
    /// For how long it holds unless it is pushed again, 1 to 86400 seconds.
    #[schema(value_type = u32, minimum = 1, maximum = 86_400, example = 60)]
    ttl_seconds: LoadSeconds,
}

/// A pushed load that holds.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct LoadAnswer {
    /// Whose load.
    #[schema(example = "ocr-workers")]
    name: String,
    /// How busy it is, `0` to `1`.
    #[schema(example = "0.85")]
    factor: String,
    /// When it ends, by the database's clock.
    ends_at: String,
}

impl From<PushedLoad> for LoadAnswer {
    fn from(load: PushedLoad) -> Self {
        Self {
            name: load.name.to_string(),
            factor: load.factor.to_string(),
            ends_at: rfc3339(load.ends_at_ms),
        }
    }
}

/// List the pushed loads that hold, by name.
#[utoipa::path(
    tag = "admin",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "At most 100 in all; the largest counts.", body = List<LoadAnswer>))
)]
#[get("/v1/admin/load")]
pub(super) async fn list_loads(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    query.finish()?;
    let loads = state.read(state.operations.load.page(page)).await?;
    listing.answer(&state.cursor_key, loads.map(LoadAnswer::from))
}

/// Push how busy a part of the installation is; every instance has it within a second.
///
/// It replaces what was pushed under the same name, and ends after `ttl_seconds`. The largest load counts, whether it
/// was pushed or measured.
#[utoipa::path(
    tag = "admin",
    params(("name" = String, Path, description = "Whose load.", example = "ocr-workers")),
    request_body(content = LoadBody),
    responses((status = 200, description = "It holds.", body = LoadAnswer))
)]
#[put("/v1/admin/load/{name}")]
pub(super) async fn push_load(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    name: web::Path<String>,
    body: JsonBody<LoadBody>,
) -> Result<HttpResponse, Problem> {
    Query::of(&request)?.finish()?;
    let name = LoadName::parse(&name)
        .map_err(|error| Problem::fields(vec![FieldError::new("/name", error.to_string())]))?;
    let LoadBody { factor, ttl_seconds } = body.0;
    let operations = state.operations.clone();
    let pushed = state
        .mutate(Box::pin(
            async move { operations.load.push(name, factor, ttl_seconds, caller.actor()).await },
        ))
        .await??;
    json(HttpResponse::Ok(), &LoadAnswer::from(pushed))
}
