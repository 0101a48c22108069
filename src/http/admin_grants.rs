//! `/v1/admin/grants`: amounts beside what a plan includes.

use actix_web::http::header::HeaderValue;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{List, json};
use super::auth::Caller;
use super::body::{EmptyBody, JsonBody, OptionalJsonBody};
use super::headers::IDEMPOTENCY_REPLAYED;
use super::idempotency;
use super::list::Listing;
use super::problem::{Code, Problem, ProblemDocument};
use super::query::{Query, Time};
use super::remark;
use super::state::State;
use crate::domain::amount::Amount;
use crate::domain::grant::{
    self, GrantId, GrantKind, GrantPrice, GrantRollover, GrantTerms, NO_END_MS, Priority,
};
use crate::domain::ids::{IdempotencyKey, MeterId, TenantId};
use crate::domain::instant::rfc3339;
use crate::domain::money::Currency;
use crate::operations::FieldError;
use crate::operations::answers::GrantDetails;
use crate::operations::requests::{GrantRequest, GrantsRequest};

/// How often a grant is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Recurrence {
    /// Never.
    #[default]
    None,
    /// In each period.
    Period,
}

impl From<Recurrence> for grant::Recurrence {
    fn from(recurrence: Recurrence) -> Self {
        match recurrence {
            Recurrence::None => Self::None,
            Recurrence::Period => Self::Period,
        }
    }
}

impl From<grant::Recurrence> for Recurrence {
    fn from(recurrence: grant::Recurrence) -> Self {
        match recurrence {
            grant::Recurrence::None => Self::None,
            grant::Recurrence::Period => Self::Period,
        }
    }
}

/// A grant to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GrantBody {
    /// Whose quota.
    tenant: TenantId,
    /// Of which meter; the tenant's plan has a quota of it.
    meter: MeterId,
    /// How much, above zero.
    amount: Amount,
    /// `promotional`: it is given. `paid`: the tenant pays for it.
    #[schema(value_type = String, example = "promotional")]
    kind: GrantKind,
    /// What it costs, above zero, where the tenant pays for it here; one that recurs costs it in each period.
    #[serde(default)]
    paid_amount: Option<Amount>,
    /// The currency of `paid_amount`.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "EUR")]
    currency: Option<Currency>,
    /// Which grants burn first: 0 (first) to 100.
    #[serde(default, deserialize_with = "super::json::or_default")]
    #[schema(value_type = u8, minimum = 0, maximum = 100, default = 50)]
    priority: Priority,
    /// From when on (RFC 3339); at once if absent.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime, example = "2027-01-10T00:00:00Z")]
    effective_at: Option<Time>,
    /// Until when (RFC 3339); null or absent for one that has no end. What is left of one that lasts longer than the
    /// period in which it begins goes on: it counts in the next period once that one is closed.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime, example = "2027-02-01T00:00:00Z")]
    expires_at: Option<Time>,
    /// `none`: once. `period`: again in each period that begins before its end; what is unburnt of it ends with each.
    #[serde(default, deserialize_with = "super::json::or_default")]
    recurrence: Recurrence,
    /// How much of what is unused of it goes on at most when a period is closed; the rest lapses. Absent or null: all
    /// of one that is given once, until it ends, and nothing of one that recurs. What goes on of one that recurs counts
    /// in as many periods as the quota's `rollover_periods` says. Not for a grant with a `paid_amount`.
    #[serde(default)]
    max_rollover: Option<Amount>,
    /// How much of it the next period gets at least, at most `amount` and `max_rollover`: what is missing is granted.
    #[serde(default)]
    min_rollover: Option<Amount>,
    /// Why, for people: at most 500 characters.
    #[serde(default, deserialize_with = "super::json::or_default")]
    #[schema(example = "welcome")]
    reason: String,
    /// The caller's name for it, unless it is in the header.
    #[serde(default)]
    idempotency_key: Option<IdempotencyKey>,
}

impl GrantBody {
    fn into_terms(self) -> Result<GrantTerms, Problem> {
        if let Some(fault) = remark::fault("/reason", &self.reason, 0) {
            return Err(Problem::fields(vec![fault]));
        }
        let price = self.price().map_err(|fault| Problem::fields(vec![fault]))?;
        Ok(GrantTerms {
            price,
            tenant: self.tenant,
            meter: self.meter,
            amount: self.amount,
            kind: self.kind,
            priority: self.priority,
            effective_at_ms: self.effective_at.map(|Time(at_ms)| at_ms),
            expires_at_ms: self.expires_at.map_or(NO_END_MS, |Time(at_ms)| at_ms),
            recurrence: self.recurrence.into(),
            rollover: GrantRollover { max: self.max_rollover, min: self.min_rollover.unwrap_or_default() },
            reason: self.reason,
        })
    }

    fn price(&self) -> Result<Option<GrantPrice>, FieldError> {
        let fault = |pointer: &str, message: &str| Err(FieldError::new(pointer, message));
        match (self.paid_amount, self.currency) {
            (None, None) => Ok(None),
            (Some(_), None) => fault("/currency", "must say in which currency `paid_amount` is"),
            (None, Some(_)) => fault("/currency", "is for a grant with a `paid_amount`"),
            _ if self.kind != GrantKind::Paid => fault("/paid_amount", "is for a grant that is `paid`"),
            (Some(amount), _) if amount.is_zero() => fault("/paid_amount", "must be more than zero"),
            (Some(amount), Some(currency)) => {
                let money = currency.money_of("paid_amount", amount);
                let amount = money.map_err(|message| FieldError::new("/paid_amount", message))?;
                Ok(Some(GrantPrice { currency, amount }))
            }
        }
    }
}

/// A grant.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct GrantAnswer {
    /// Its id.
    #[schema(format = Uuid)]
    id: String,
    /// Whose quota.
    tenant: String,
    /// Of which meter.
    meter: String,
    /// How much.
    amount: String,
    /// `promotional` or `paid`.
    kind: String,
    /// What it costs; null where nothing is paid for it here.
    paid_amount: Option<String>,
    /// The currency of `paid_amount`.
    currency: Option<&'static str>,
    /// Which grants burn first: 0 (first) to 100.
    priority: u8,
    /// From when on.
    effective_at: String,
    /// Until when; null where it has no end.
    expires_at: Option<String>,
    /// `none`: once. `period`: again in each period.
    recurrence: Recurrence,
    /// How much of what is unused of it goes on at most when a period is closed; null: all of one that is given once,
    /// nothing of one that recurs.
    max_rollover: Option<String>,
    /// How much of it the next period gets at least.
    min_rollover: String,
    /// Why.
    reason: String,
    /// `scheduled`: it begins later. `active`. `ending`: it is voided, and what is unburnt is not booked yet. `voided`.
    /// `expired`: it has ended by itself, also because nothing was left of it when a period was closed.
    status: String,
    /// When it was voided; null if it was not.
    voided_at: Option<String>,
    /// What was unburnt of it when it ended inside a period, once that is booked; of a recurring one all together.
    unburnt: Option<String>,
    /// When it was made.
    created_at: String,
    /// The key by which it was made.
    created_by: String,
    /// Whether this is the answer to a repeated call.
    replayed: bool,
}

impl From<GrantDetails> for GrantAnswer {
    fn from(details: GrantDetails) -> Self {
        let GrantDetails { stored, state, replayed } = details;
        Self {
            id: stored.id.to_string(),
            tenant: stored.tenant.to_string(),
            meter: stored.meter.to_string(),
            amount: stored.amount.to_string(),
            kind: stored.kind.as_str().into(),
            paid_amount: stored.price.map(|price| price.amount.to_string()),
            currency: stored.price.map(|price| price.currency.code()),
            priority: stored.priority.get(),
            effective_at: rfc3339(stored.effective_at_ms),
            expires_at: grant::end_of(stored.expires_at_ms).map(rfc3339),
            recurrence: stored.recurrence.into(),
            max_rollover: stored.rollover.max.map(|amount| amount.to_string()),
            min_rollover: stored.rollover.min.to_string(),
            reason: stored.reason,
            status: state.as_str().into(),
            voided_at: stored.voided_at_ms.map(rfc3339),
            unburnt: stored.settled_amount.map(|amount| amount.to_string()),
            created_at: rfc3339(stored.created_at_ms),
            created_by: stored.created_by,
            replayed,
        }
    }
}

/// List grants, newest first.
#[utoipa::path(
    tag = "admin",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Grants.", body = List<GrantAnswer>))
)]
#[get("/v1/admin/grants")]
pub(super) async fn list_grants(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let asked = GrantsRequest { tenant: query.parsed("tenant")?, page };
    query.finish()?;
    let rows = state.read(state.operations.grants.list(asked)).await?;
    listing.answer(&state.cursor_key, rows.map(GrantAnswer::from))
}

/// Read a grant.
#[utoipa::path(
    tag = "admin",
    params(("id" = String, Path, description = "The grant.")),
    responses((status = 200, description = "The grant.", body = GrantAnswer))
)]
#[get("/v1/admin/grants/{id}")]
pub(super) async fn get_grant(
    state: web::Data<State>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    Query::of(&request)?.finish()?;
    let found = state.read(state.operations.grants.get(grant_id(&id)?)).await?;
    json(HttpResponse::Ok(), &GrantAnswer::from(found))
}

/// Grant an amount beside what the tenant's plan includes. It is at the gate within a second.
///
/// What it costs is owed at once: it is a line of the statement of the open period. It is revenue only as the grant
/// burns. What is not burnt when the grant ends is kept; if it is voided, a credit note gives it back.
#[utoipa::path(
    tag = "admin",
    params(("Idempotency-Key" = Option<String>, Header, description = "Required, here or as `idempotency_key` in the body.")),
    request_body(content = GrantBody, example = json!({
        "tenant": "acme", "meter": "ocr.page", "amount": "500", "kind": "promotional",
        "expires_at": "2027-02-01T00:00:00Z", "reason": "welcome", "idempotency_key": "welcome-acme"
    })),
    responses(
        (status = 201, description = "Granted.", body = GrantAnswer),
        (status = 200, description = "A replay.", body = GrantAnswer),
    )
)]
#[post("/v1/admin/grants")]
pub(super) async fn create_grant(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    body: JsonBody<GrantBody>,
) -> Result<HttpResponse, Problem> {
    let JsonBody(body) = body;
    let key = idempotency::key_of(request.headers(), body.idempotency_key.clone())?;
    let Some(key) = key else { return Err(Problem::key_required()) };
    let asked = GrantRequest { key, terms: body.into_terms()? };
    let operations = state.operations.clone();
    let made = state
        .mutate(Box::pin(async move { operations.grants.create(asked, caller.actor()).await }))
        .await??;
    if !made.replayed {
        return json(HttpResponse::Created(), &GrantAnswer::from(made));
    }
    let mut answer = json(HttpResponse::Ok(), &GrantAnswer::from(made))?;
    answer.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    Ok(answer)
}

/// Void a grant: what is unburnt of it is taken back. One that has not begun never will. A repeat changes nothing.
#[utoipa::path(
    tag = "admin",
    params(("id" = String, Path, description = "The grant.")),
    request_body(content = EmptyBody),
    responses(
        (status = 200, description = "Voided, or ending where a server is away.", body = GrantAnswer),
        (status = 409, description = "`already_resolved`: it has expired. `in_use`: a plan includes more by it; another plan takes it back.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
#[post("/v1/admin/grants/{id}/void")]
pub(super) async fn void_grant(
    state: web::Data<State>,
    caller: Caller,
    id: web::Path<String>,
    body: OptionalJsonBody<EmptyBody>,
) -> Result<HttpResponse, Problem> {
    let (id, OptionalJsonBody(EmptyBody {})) = (grant_id(&id)?, body);
    let operations = state.operations.clone();
    let voided =
        state.mutate(Box::pin(async move { operations.grants.void(id, caller.actor()).await })).await??;
    json(HttpResponse::Ok(), &GrantAnswer::from(voided))
}

fn grant_id(text: &str) -> Result<GrantId, Problem> {
    text.parse().map_err(|_| Problem::new(Code::NotFound, "There is no such grant."))
}
