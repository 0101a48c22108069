//! Upgrade requests: a tenant asks for another plan, and an administrator decides.

use actix_web::http::header::HeaderValue;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{List, json};
use super::auth::{Caller, TenantInPath};
use super::body::{EmptyBody, JsonBody, OptionalJsonBody};
use super::headers::IDEMPOTENCY_REPLAYED;
use super::idempotency;
use super::list::Listing;
use super::problem::{Code, Problem, ProblemDocument};
use super::query::Query;
use super::remark;
use super::state::State;
use crate::domain::ids::{IdempotencyKey, PlanId};
use crate::domain::instant::rfc3339;
use crate::domain::upgrade::{Effective, UpgradeId, UpgradeState, UpgradeTerms};
use crate::operations::answers::UpgradeDetails;
use crate::operations::requests::{UpgradeFilter, UpgradesRequest};

/// The states of a request.
pub(super) const STATES: &[(&str, UpgradeState)] = &[
    ("pending", UpgradeState::Pending),
    ("approved", UpgradeState::Approved),
    ("declined", UpgradeState::Declined),
];

/// A request to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct UpgradeBody {
    /// The plan that is asked for: not the tenant's own.
    plan: PlanId,
    /// Why, for people: at most 500 characters.
    #[serde(default, deserialize_with = "super::json::or_default")]
    #[schema(example = "more pages")]
    reason: String,
    /// The caller's name for it, unless it is in the header.
    #[serde(default)]
    idempotency_key: Option<IdempotencyKey>,
}

/// How a request is approved.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApproveBody {
    /// `now`: at once. `next_period`: from the end of the tenant's open period on. Absent: at once, but for what the
    /// plan includes less, which holds from the next period on.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "next_period", pattern = "^(now|next_period)$")]
    effective: Option<Effective>,
}

/// An upgrade request.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct UpgradeAnswer {
    /// Its id.
    #[schema(format = Uuid)]
    id: String,
    /// Who asks.
    tenant: String,
    /// For which plan.
    plan: String,
    /// Why.
    reason: String,
    /// `pending`, `approved` or `declined`.
    status: &'static str,
    /// When it was made.
    requested_at: String,
    /// The key by which it was made.
    requested_by: String,
    /// When it was decided; null while it is pending.
    decided_at: Option<String>,
    /// The key by which it was decided.
    decided_by: Option<String>,
    /// From when on the plan holds; null unless it is approved.
    effective_at: Option<String>,
    /// When the tenant got the plan: at most a minute after `effective_at`. Null before.
    applied_at: Option<String>,
    /// Whether this is the answer to a repeated call.
    replayed: bool,
}

impl From<UpgradeDetails> for UpgradeAnswer {
    fn from(details: UpgradeDetails) -> Self {
        let UpgradeDetails { stored, replayed } = details;
        Self {
            id: stored.id.to_string(),
            tenant: stored.terms.tenant.to_string(),
            plan: stored.terms.plan.to_string(),
            reason: stored.terms.reason,
            status: stored.state.as_str(),
            requested_at: rfc3339(stored.requested_at_ms),
            requested_by: stored.requested_by,
            decided_at: stored.decided_at_ms.map(rfc3339),
            decided_by: stored.decided_by,
            effective_at: stored.effective_at_ms.map(rfc3339),
            applied_at: stored.applied_at_ms.map(rfc3339),
            replayed,
        }
    }
}

/// Ask for another plan. One request of a tenant can be pending at a time.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeat harmless; or `idempotency_key` in the body."),
    ),
    request_body(content = UpgradeBody, example = json!({ "plan": "pro", "reason": "more pages" })),
    responses(
        (status = 201, description = "Asked for.", body = UpgradeAnswer),
        (status = 200, description = "A replay.", body = UpgradeAnswer),
        (status = 409, description = "`in_use`: another request of the tenant is pending.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
#[post("/v1/tenants/{tenant}/upgrade-requests")]
pub(super) async fn request_upgrade(
    state: web::Data<State>,
    tenant: TenantInPath,
    caller: Caller,
    request: HttpRequest,
    body: JsonBody<UpgradeBody>,
) -> Result<HttpResponse, Problem> {
    let JsonBody(UpgradeBody { plan, reason, idempotency_key }) = body;
    let key = idempotency::key_of(request.headers(), idempotency_key)?;
    if let Some(fault) = remark::fault("/reason", &reason, 0) {
        return Err(Problem::fields(vec![fault]));
    }
    let terms = UpgradeTerms { tenant: tenant.0, plan, reason };
    let operations = state.operations.clone();
    let asking = Box::pin(async move { operations.upgrades.request(key, terms, caller.actor()).await });
    let made = state.mutate(asking).await??;
    if !made.replayed {
        return json(HttpResponse::Created(), &UpgradeAnswer::from(made));
    }
    let mut answer = json(HttpResponse::Ok(), &UpgradeAnswer::from(made))?;
    answer.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    Ok(answer)
}

/// The tenant's upgrade requests, newest first.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("status" = Option<String>, Query, description = "`pending`, `approved` or `declined`."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Upgrade requests.", body = List<UpgradeAnswer>))
)]
#[get("/v1/tenants/{tenant}/upgrade-requests")]
pub(super) async fn list_own_upgrades(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let filter = UpgradeFilter { tenant: Some(tenant.0), state: query.word("status", STATES)? };
    query.finish()?;
    let rows = state.read(state.operations.upgrades.list(UpgradesRequest { filter, page })).await?;
    listing.answer(&state.cursor_key, rows.map(UpgradeAnswer::from))
}

/// List upgrade requests, newest first.
#[utoipa::path(
    tag = "admin",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("status" = Option<String>, Query, description = "`pending`, `approved` or `declined`."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Upgrade requests.", body = List<UpgradeAnswer>))
)]
#[get("/v1/admin/upgrade-requests")]
pub(super) async fn list_upgrades(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let filter = UpgradeFilter { tenant: query.parsed("tenant")?, state: query.word("status", STATES)? };
    query.finish()?;
    let rows = state.read(state.operations.upgrades.list(UpgradesRequest { filter, page })).await?;
    listing.answer(&state.cursor_key, rows.map(UpgradeAnswer::from))
}

/// Approve an upgrade request: the tenant gets the plan. A repeat changes nothing.
///
/// Where the plan includes more of a quota than its open period does, the difference is granted in full. Where it
/// includes less, what is available of the difference is taken only if `effective` says `now`.
#[utoipa::path(
    tag = "admin",
    params(("id" = String, Path, description = "The request.")),
    request_body(content = ApproveBody),
    responses(
        (status = 200, description = "Approved.", body = UpgradeAnswer),
        (status = 409, description = "`already_resolved`: it was declined.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
#[post("/v1/admin/upgrade-requests/{id}/approve")]
pub(super) async fn approve_upgrade(
    state: web::Data<State>,
    caller: Caller,
    id: web::Path<String>,
    body: OptionalJsonBody<ApproveBody>,
) -> Result<HttpResponse, Problem> {
    let (id, OptionalJsonBody(ApproveBody { effective })) = (upgrade_id(&id)?, body);
    let operations = state.operations.clone();
    let approving = Box::pin(async move { operations.upgrades.approve(id, effective, caller.actor()).await });
    json(HttpResponse::Ok(), &UpgradeAnswer::from(state.mutate(approving).await??))
}

/// Decline an upgrade request. A repeat changes nothing.
#[utoipa::path(
    tag = "admin",
    params(("id" = String, Path, description = "The request.")),
    request_body(content = EmptyBody),
    responses(
        (status = 200, description = "Declined.", body = UpgradeAnswer),
        (status = 409, description = "`already_resolved`: it was approved.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
#[post("/v1/admin/upgrade-requests/{id}/decline")]
pub(super) async fn decline_upgrade(
    state: web::Data<State>,
    caller: Caller,
    id: web::Path<String>,
    body: OptionalJsonBody<EmptyBody>,
) -> Result<HttpResponse, Problem> {
    let (id, OptionalJsonBody(EmptyBody {})) = (upgrade_id(&id)?, body);
    let operations = state.operations.clone();
    let declining = Box::pin(async move { operations.upgrades.decline(id, caller.actor()).await });
    json(HttpResponse::Ok(), &UpgradeAnswer::from(state.mutate(declining).await??))
}

fn upgrade_id(text: &str) -> Result<UpgradeId, Problem> {
    text.parse().map_err(|_| Problem::new(Code::NotFound, "There is no such upgrade request."))
}
