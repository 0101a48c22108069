//! `/v1/admin/bans`: bans of tenants and of their subjects, as resources of their own.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::admin_policy::wrong_id;
use super::answer::{List, json};
use super::auth::Caller;
use super::body::{BODY_BYTES_MAX, JsonText};
use super::list::Listing;
use super::openapi::domain::{StoredBan, TenantBan};
use super::problem::{Code, Problem};
use super::query::Query;
use super::shapes::HashedSubject;
use super::state::State;
use super::version;
use crate::domain::ids::{BanId, SubjectKind, TenantId};
use crate::domain::instant::rfc3339;
use crate::domain::reservation::SubjectHash;
use crate::operations::Items;
use crate::operations::ListedBan;
use crate::operations::answers::{LimitBan, PlacedBan};
use crate::operations::requests::{BansRequest, PlacedBy};

/// A ban that a limit has placed.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct LimitBanRow {
    /// Its name, unique in the tenant.
    #[schema(example = "ocr-user~user~s8Yw0Zk1dQ2bM4nXcVr5t")]
    id: String,
    /// Whose.
    tenant: String,
    /// `limit`.
    placed_by: &'static str,
    /// The limit that has placed it; it refuses what falls under this limit.
    limit: String,
    /// Whom it bans; absent: the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<HashedSubject>,
    /// When it ends, exclusive.
    until: String,
}

/// A ban, placed by an admin or by a limit.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code, clippy::large_enum_variant, reason = "one of them describes what is written by hand")]
enum AnyBan {
    #[schema(value_type = TenantBan)]
    OfAdmin(Value),
    OfLimit(LimitBanRow),
}

/// A ban as it is read by its name.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes what is written by hand")]
enum StoredOrLimitBan {
    OfAdmin(StoredBan),
    OfLimit(LimitBanRow),
}

impl LimitBanRow {
    fn of(tenant: &TenantId, placed: PlacedBan) -> Self {
        let PlacedBan { ban, until_ms } = placed;
        let subject = |(kind, hash): &(SubjectKind, SubjectHash)| HashedSubject {
            kind: kind.to_string(),
            hash: hash.digits().to_owned(),
        };
        Self {
            id: ban.to_string(),
            tenant: tenant.to_string(),
            placed_by: "limit",
            limit: ban.limit.to_string(),
            subject: ban.subject.as_ref().map(subject),
            until: rfc3339(until_ms),
        }
    }
}

/// List bans: those of admins, by tenant and id; of one tenant then those that limits have placed and that have not
/// ended, those that end last first.
#[utoipa::path(
    tag = "admin",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's, and also those that limits have placed."),
        ("placed_by" = Option<String>, Query, description = "`admin` or `limit`: only those; `limit` goes with `tenant`."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Bans, each with its `tenant`.", body = List<AnyBan>))
)]
#[get("/v1/admin/bans")]
pub(super) async fn list_bans(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let placed_by = query.word("placed_by", &[("admin", PlacedBy::Admin), ("limit", PlacedBy::Limit)])?;
    let tenant = query.parsed::<TenantId>("tenant")?;
    query.finish()?;
    if placed_by == Some(PlacedBy::Limit) && tenant.is_none() {
        return Err(Problem::parameter("placed_by", "is `limit`, which goes with `tenant`"));
    }
    let asked = BansRequest { tenant, placed_by, page };
    let rows = state.read(state.operations.limit_bans.list(asked)).await?;
    let rows = rows.map(|listed| match listed {
        ListedBan::OfAdmin(ban) => AnyBan::OfAdmin(ban),
        ListedBan::OfLimit(tenant, placed) => AnyBan::OfLimit(LimitBanRow::of(&tenant, placed)),
    });
    listing.answer(&state.cursor_key, rows)
}

/// Read a ban of a tenant. Of one that an admin has placed, `version` and `ETag` are the tenant's.
#[utoipa::path(
    tag = "admin",
    params(
        ("id" = String, Path, description = "The ban."),
        ("tenant" = String, Query, description = "Whose ban."),
    ),
    responses((status = 200, description = "The ban with its `tenant`.", body = StoredOrLimitBan))
)]
#[get("/v1/admin/bans/{id}")]
pub(super) async fn get_ban(
    state: web::Data<State>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    let tenant = tenant_of(&request)?;
    if let Some(ban) = LimitBan::parse(&id) {
        let placed = state.read(state.operations.limit_bans.get(&tenant, &ban)).await?;
        return json(HttpResponse::Ok(), &LimitBanRow::of(&tenant, placed));
    }
    let id = ban_id(&id)?;
    version::versioned(state.read(state.operations.policy.get_item(Items::BANS, &tenant, id.as_str())).await?)
}

/// Place or replace a ban of the tenant that the body names.
#[utoipa::path(
    tag = "admin",
    params(
        ("id" = String, Path, description = "The ban."),
        ("If-Match" = Option<String>, Header, description = "Only replace it at this `ETag`, the tenant's version; `*`: only what is there."),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only create, where there is none."),
    ),
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
    let precondition = version::precondition(request.headers())?;
    let id = BanId::parse(&id).map_err(wrong_id)?;
    let operations = state.operations.clone();
    let answer = state
        .mutate(Box::pin(async move {
            operations
                .policy
                .put_item(Items::BANS, id.as_str(), body.0.as_bytes(), precondition, caller.actor())
                .await
        }))
        .await??;
    version::versioned(answer)
}

/// Lift a ban of a tenant. A limit that has placed one forgets what has led to it.
#[utoipa::path(
    tag = "admin",
    params(
        ("id" = String, Path, description = "The ban."),
        ("tenant" = String, Query, description = "Whose ban."),
        ("If-Match" = Option<String>, Header, description = "Only delete it at this `ETag`, the tenant's version; `*`: any. Not of a ban that a limit has placed."),
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
    let tenant = tenant_of(&request)?;
    let operations = state.operations.clone();
    if let Some(ban) = LimitBan::parse(&id) {
        version::no_precondition(request.headers())?;
        let lifting =
            Box::pin(async move { operations.limit_bans.lift(&tenant, &ban, caller.actor()).await });
        state.mutate(lifting).await??;
    } else {
        let precondition = version::deletion(request.headers())?;
        let id = ban_id(&id)?;
        let deleting = Box::pin(async move {
            operations
                .policy
                .delete_item(Items::BANS, &tenant, id.as_str(), precondition, caller.actor())
                .await
        });
        state.mutate(deleting).await??;
    }
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
