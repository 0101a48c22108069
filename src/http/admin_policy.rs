//! `/v1/admin/{tenants,plans,meters,operations,limits}`: policy objects, all alike.

use actix_web::{HttpRequest, HttpResponse};

use super::answer::List;
use super::auth::Caller;
use super::body::{BODY_BYTES_MAX, JsonText};
use super::list::Listing;
use super::openapi::domain::{
    StoredCostDefaults, StoredLimit, StoredMeter, StoredOperation, StoredPlan, StoredTenant,
};
use super::problem::{Code, Problem};
use super::query::Query;
use super::state::State;
use super::version;
use crate::domain::cost_defaults::CostDefaults;
use crate::domain::ids::{InvalidId, PlanId, TenantId};
use crate::domain::limit::Limit;
use crate::domain::meter::Meter;
use crate::domain::operation::Operation;
use crate::domain::plan::PlanDocument;
use crate::domain::policy::diff::DefinitionKind;
use crate::domain::tenant::TenantDocument;
use crate::operations::FieldError;

/// Ids of policy objects have at most this many characters; a longer one names nothing.
const ID_CHARACTERS_MAX: usize = 64;

/// An id in the path that can name something; the verb decides what exactly an id may be.
fn checked(id: &str) -> Result<&str, Problem> {
    let sound =
        id.len() <= ID_CHARACTERS_MAX && id.bytes().all(|b| b.is_ascii_graphic() && b != b'{' && b != b'}');
    if sound { Ok(id) } else { Err(Problem::new(Code::NotFound, "There is no such object.")) }
}

/// The problem for an invalid id, the same for all kinds of objects.
pub(super) fn wrong_id(why: InvalidId) -> Problem {
    Problem::fields(vec![FieldError::new("/id", why.to_string())])
}

async fn list(state: &State, request: &HttpRequest, kind: DefinitionKind) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(request)?;
    let (listing, page) = Listing::begin(request, &mut query, &state.cursor_key, "")?;
    query.finish()?;
    let rows = state.read(state.operations.policy.list_policy(kind, page)).await?;
    listing.answer(&state.cursor_key, rows)
}

async fn get(
    state: &State,
    request: &HttpRequest,
    kind: DefinitionKind,
    id: &str,
) -> Result<HttpResponse, Problem> {
    Query::of(request)?.finish()?;
    version::versioned(state.read(state.operations.policy.get_policy(kind, checked(id)?)).await?)
}

async fn put(
    state: &State,
    request: &HttpRequest,
    kind: DefinitionKind,
    id: String,
    caller: Caller,
    body: String,
) -> Result<HttpResponse, Problem> {
    PlanId::parse(&id).map_err(wrong_id)?;
    let precondition = version::precondition(request.headers())?;
    let operations = state.operations.clone();
    let answer = state
        .mutate(Box::pin(async move {
            let put =
                operations.policy.put_policy(kind, &id, body.as_bytes(), precondition, caller.actor()).await;
            if let (DefinitionKind::Tenant, Ok(_), Ok(tenant)) = (kind, &put, TenantId::parse(&id)) {
                operations.plan_changes.follow_now(Some(&tenant)).await;
            }
            put
        }))
        .await??;
    version::versioned(answer)
}

async fn delete(
    state: &State,
    request: &HttpRequest,
    kind: DefinitionKind,
    id: String,
    caller: Caller,
) -> Result<HttpResponse, Problem> {
    Query::of(request)?.finish()?;
    checked(&id)?;
    let precondition = version::deletion(request.headers())?;
    let operations = state.operations.clone();
    state
        .mutate(Box::pin(async move {
            operations.policy.delete_policy(kind, &id, precondition, caller.actor()).await
        }))
        .await??;
    Ok(HttpResponse::NoContent().finish())
}

/// The four calls of one kind of object, documented each under its own name.
macro_rules! policy_calls {
    ($module:ident, $kind:expr, $all:tt, $one:tt, $list_id:tt, $get_id:tt, $put_id:tt, $delete_id:tt, $document:ty, $stored:ty, $example:tt) => {
        pub(super) mod $module {
            use actix_web::{delete, get, put, web};

            use super::*;
            use crate::http::handlers::Handlers;

            const KIND: DefinitionKind = $kind;

            /// The four calls.
            pub(in crate::http) fn configure<C: Handlers>(config: &mut C) {
                config.service(list_all).service(get_one).service(put_one).service(delete_one);
            }

            /// List them, newest first.
            #[utoipa::path(
                tag = "admin", operation_id = $list_id,
                params(
                    ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
                    ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
                ),
                responses((status = 200, description = "Definitions, each with its `version`.", body = List<$stored>))
            )]
            #[get($all)]
            pub(super) async fn list_all(
                state: web::Data<State>,
                request: HttpRequest,
            ) -> Result<HttpResponse, Problem> {
                super::list(&state, &request, KIND).await
            }

            /// Read one, with its `version` and `ETag`.
            #[utoipa::path(
                tag = "admin", operation_id = $get_id,
                params(("id" = String, Path, description = "Which one.")),
                responses((status = 200, description = "The definition with its `version`.", body = $stored))
            )]
            #[get($one)]
            pub(super) async fn get_one(
                state: web::Data<State>,
                request: HttpRequest,
                id: web::Path<String>,
            ) -> Result<HttpResponse, Problem> {
                super::get(&state, &request, KIND, &id).await
            }

            /// Create or replace one; the fields are those of a policy file.
            #[utoipa::path(
                tag = "admin", operation_id = $put_id,
                params(
                    ("id" = String, Path, description = "Which one."),
                    ("If-Match" = Option<String>, Header, description = "Only replace the version with this `ETag`; `*`: only what is there."),
                    ("If-None-Match" = Option<String>, Header, description = "`*`: only create, where there is none."),
                ),
                request_body(content = $document, example = json!($example)),
                responses(
                    (status = 201, description = "Created.", body = $stored),
                    (status = 200, description = "Replaced.", body = $stored),
                )
            )]
            #[put($one)]
            pub(super) async fn put_one(
                state: web::Data<State>,
                caller: Caller,
                request: HttpRequest,
                id: web::Path<String>,
                body: JsonText<BODY_BYTES_MAX>,
            ) -> Result<HttpResponse, Problem> {
                super::put(&state, &request, KIND, id.into_inner(), caller, body.0).await
            }

            /// Delete one that nothing refers to.
            #[utoipa::path(
                tag = "admin", operation_id = $delete_id,
                params(
                    ("id" = String, Path, description = "Which one."),
                    ("If-Match" = Option<String>, Header, description = "Only delete the version with this `ETag`; `*`: any."),
                ),
                responses((status = 204, description = "Deleted."))
            )]
            #[delete($one)]
            pub(super) async fn delete_one(
                state: web::Data<State>,
                caller: Caller,
                request: HttpRequest,
                id: web::Path<String>,
            ) -> Result<HttpResponse, Problem> {
                super::delete(&state, &request, KIND, id.into_inner(), caller).await
            }
        }
    };
}

policy_calls!(
    tenants, DefinitionKind::Tenant, "/v1/admin/tenants", "/v1/admin/tenants/{id}",
    "list_tenants", "get_tenant", "put_tenant", "delete_tenant", TenantDocument, StoredTenant,
    { "id": "acme", "plan": "free", "time_zone": "Europe/Berlin", "anchor_day": 1 }
);
policy_calls!(
    plans, DefinitionKind::Plan, "/v1/admin/plans", "/v1/admin/plans/{id}",
    "list_plans", "get_plan", "put_plan", "delete_plan", PlanDocument, StoredPlan,
    { "id": "free", "limits": [{ "id": "ocr-day", "meter": "ocr.page", "algorithm": "calendar", "window": "day", "capacity": "1000" }],
      "quotas": [{ "meter": "ocr.page", "included": "10000", "mode": "hard" }] }
);
policy_calls!(
    meters, DefinitionKind::Meter, "/v1/admin/meters", "/v1/admin/meters/{id}",
    "list_meters", "get_meter", "put_meter", "delete_meter", Meter, StoredMeter,
    { "id": "ocr.page", "unit": "page", "decimals": 0 }
);
policy_calls!(
    operations, DefinitionKind::Operation, "/v1/admin/operations", "/v1/admin/operations/{id}",
    "list_operations", "get_operation", "put_operation", "delete_operation", Operation, StoredOperation,
    { "id": "ocr.submit", "costs": [{ "meter": "ocr.page", "base": "0", "weights": { "pages": "1" }, "factors": { "handwriting": "2" } }] }
);
policy_calls!(
    cost_defaults, DefinitionKind::CostDefaults, "/v1/admin/cost_defaults", "/v1/admin/cost_defaults/{id}",
    "list_cost_defaults", "get_cost_defaults", "put_cost_defaults", "delete_cost_defaults", CostDefaults, StoredCostDefaults,
    { "meter": "api.unit", "methods": { "GET": "1", "POST": "5" }, "other": "1" }
);
policy_calls!(
    limits, DefinitionKind::Limit, "/v1/admin/limits", "/v1/admin/limits/{id}",
    "list_limits", "get_limit", "put_limit", "delete_limit", Limit, StoredLimit,
    { "id": "ocr-user", "meter": "ocr.page", "scope": "subject", "subject_kind": "user", "algorithm": "calendar", "window": "hour", "capacity": "20", "on_gate_failure": "deny" }
);
