//! `/v1/admin/bans`: bans of tenants and of their subjects, as resources of their own.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};

use super::admin_policy::wrong_id;
use super::answer::List;
use super::auth::Caller;
use super::body::{BODY_BYTES_MAX, JsonText};
use super::list::Listing;
use super::openapi::domain::{StoredBan, TenantBan};
use super::problem::{Code, Problem};
use super::query::Query;
use super::state::State;
use super::version;
use crate::domain::ids::{BanId, TenantId};
use crate::operations::requests::BansRequest;

/// List bans, by tenant and in the order in which they were placed.
#[utoipa::path(
    tag = "admin",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Bans, each with its `tenant`.", body = List<TenantBan>))
)]
#[get("/v1/admin/bans")]
pub(super) async fn list_bans(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let asked = BansRequest { tenant: query.parsed("tenant")?, page };
    query.finish()?;
    let rows = state.read(state.operations.policy.list_bans(asked)).await?;
    listing.answer(&state.cursor_key, rows)
}

/// Read a ban of a tenant; `version` and `ETag` are the tenant's.
#[utoipa::path(
    tag = "admin",
    params(
        ("id" = String, Path, description = "The ban."),
        ("tenant" = String, Query, description = "Whose ban."),
    ),
    responses((status = 200, description = "The ban with its `tenant`.", body = StoredBan))
)]
#[get("/v1/admin/bans/{id}")]
pub(super) async fn get_ban(
    state: web::Data<State>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    let id = ban_id(&id)?;
    let tenant = tenant_of(&request)?;
    version::versioned(state.read(state.operations.policy.get_ban(&tenant, id.as_str())).await?)
}

/// Place or replace a ban of the tenant that the body names.
#[utoipa::path(
    tag = "admin",
    params(("id" = String, Path, description = "The ban.")),
    request_body(content = TenantBan, example = json!({
        "id": "spam", "tenant": "acme", "subject": { "kind": "user", "id": "user-42" },
        "until": "2027-01-01T00:00:00Z", "reason": "spam"
    })),
    responses(
        (status = 201, description = "Placed.", body = StoredBan),
        (status = 200, description = "Replaced.", body = StoredBan),
    )
)]
#[put("/v1/admin/bans/{id}")]
pub(super) async fn put_ban(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
    body: JsonText<BODY_BYTES_MAX>,
) -> Result<HttpResponse, Problem> {
    version::no_precondition(request.headers())?;
    let id = BanId::parse(&id).map_err(wrong_id)?;
    let operations = state.operations.clone();
    let answer = state
        .mutate(Box::pin(async move {
            operations.policy.put_ban(id.as_str(), body.0.as_bytes(), caller.actor()).await
        }))
        .await??;
    version::versioned(answer)
}

/// Lift a ban of a tenant.
#[utoipa::path(
    tag = "admin",
    params(
        ("id" = String, Path, description = "The ban."),
        ("tenant" = String, Query, description = "Whose ban."),
    ),
    responses((status = 204, description = "Lifted."))
)]
#[delete("/v1/admin/bans/{id}")]
pub(super) async fn delete_ban(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    version::no_precondition(request.headers())?;
    let id = ban_id(&id)?;
    let tenant = tenant_of(&request)?;
    let operations = state.operations.clone();
    state
        .mutate(Box::pin(
            async move { operations.policy.delete_ban(&tenant, id.as_str(), caller.actor()).await },
        ))
        .await??;
    Ok(HttpResponse::NoContent().finish())
}

fn tenant_of(request: &HttpRequest) -> Result<TenantId, Problem> {
    let mut query = Query::of(request)?;
    let tenant = query
        .parsed::<TenantId>("tenant")?
        .ok_or_else(|| Problem::parameter("tenant", "is required: whose ban it is"))?;
    query.finish()?;
    Ok(tenant)
}

fn ban_id(text: &str) -> Result<BanId, Problem> {
    BanId::parse(text).map_err(|_| Problem::new(Code::NotFound, "There is no such ban."))
}
