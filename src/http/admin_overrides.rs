//! `/v1/admin/overrides`: changes of limits for one tenant or subject, as resources of their own.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};

use super::admin_policy::wrong_id;
use super::answer::List;
use super::auth::Caller;
use super::body::{BODY_BYTES_MAX, JsonText};
use super::list::Listing;
use super::openapi::domain::{StoredOverride, TenantOverride};
use super::problem::{Code, Problem};
use super::query::Query;
use super::state::State;
use super::version;
use crate::domain::ids::{OverrideId, TenantId};
use crate::operations::Items;
use crate::operations::requests::OverridesRequest;

/// List overrides, by tenant and id.
#[utoipa::path(
    tag = "admin",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("limit_id" = Option<String>, Query, description = "Only those of this limit."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Overrides, each with its `tenant`.", body = List<TenantOverride>))
)]
#[get("/v1/admin/overrides")]
pub(super) async fn list_overrides(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let asked = OverridesRequest { tenant: query.parsed("tenant")?, limit: query.parsed("limit_id")?, page };
    query.finish()?;
    let rows = state.read(state.operations.policy.list_overrides(asked)).await?;
    listing.answer(&state.cursor_key, rows)
}

/// Read an override of a tenant; `version` and `ETag` are the tenant's.
#[utoipa::path(
    tag = "admin",
    params(
        ("id" = String, Path, description = "The override."),
        ("tenant" = String, Query, description = "Whose override."),
    ),
    responses((status = 200, description = "The override with its `tenant`.", body = StoredOverride))
)]
#[get("/v1/admin/overrides/{id}")]
pub(super) async fn get_override(
    state: web::Data<State>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    let id = override_id(&id)?;
    let tenant = tenant_of(&request)?;
    version::versioned(
        state.read(state.operations.policy.get_item(Items::OVERRIDES, &tenant, id.as_str())).await?,
    )
}

/// Create or replace an override of the tenant that the body names.
#[utoipa::path(
    tag = "admin",
    params(
        ("id" = String, Path, description = "The override."),
        ("If-Match" = Option<String>, Header, description = "Only replace it at this `ETag`, the tenant's version; `*`: only what is there."),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only create, where there is none."),
    ),
    request_body(content = TenantOverride, example = json!({
        "id": "migration", "tenant": "acme", "level": "tenant", "limit": "ocr-day", "capacity": "5000",
        "until": "2027-01-01T00:00:00Z", "reason": "migration week"
    })),
    responses(
        (status = 201, description = "Created.", body = StoredOverride),
        (status = 200, description = "Replaced.", body = StoredOverride),
    )
)]
#[put("/v1/admin/overrides/{id}")]
pub(super) async fn put_override(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
    body: JsonText<BODY_BYTES_MAX>,
) -> Result<HttpResponse, Problem> {
    let precondition = version::precondition(request.headers())?;
    let id = OverrideId::parse(&id).map_err(wrong_id)?;
    let operations = state.operations.clone();
    let answer = state
        .mutate(Box::pin(async move {
            let body = body.0.as_bytes();
            operations
                .policy
                .put_item(Items::OVERRIDES, id.as_str(), body, precondition, caller.actor())
                .await
        }))
        .await??;
    version::versioned(answer)
}

/// Delete an override of a tenant.
#[utoipa::path(
    tag = "admin",
    params(
        ("id" = String, Path, description = "The override."),
        ("tenant" = String, Query, description = "Whose override."),
        ("If-Match" = Option<String>, Header, description = "Only delete it at this `ETag`, the tenant's version; `*`: any."),
    ),
    responses((status = 204, description = "Deleted."))
)]
#[delete("/v1/admin/overrides/{id}")]
pub(super) async fn delete_override(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    let precondition = version::deletion(request.headers())?;
    let id = override_id(&id)?;
    let tenant = tenant_of(&request)?;
    let operations = state.operations.clone();
    state
        .mutate(Box::pin(async move {
            operations
                .policy
                .delete_item(Items::OVERRIDES, &tenant, id.as_str(), precondition, caller.actor())
                .await
        }))
        .await??;
    Ok(HttpResponse::NoContent().finish())
}

fn tenant_of(request: &HttpRequest) -> Result<TenantId, Problem> {
    let mut query = Query::of(request)?;
    let tenant = query
        .parsed::<TenantId>("tenant")?
        .ok_or_else(|| Problem::parameter("tenant", "is required: whose override it is"))?;
    query.finish()?;
    Ok(tenant)
}

fn override_id(text: &str) -> Result<OverrideId, Problem> {
    OverrideId::parse(text).map_err(|_| Problem::new(Code::NotFound, "There is no such override."))
}
