//! `/v1/adjustments`: corrections that finance posts.

use actix_web::http::header::HeaderValue;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{List, json};
use super::auth::Caller;
use super::body::{EmptyBody, JsonBody, OptionalJsonBody};
use super::headers::IDEMPOTENCY_REPLAYED;
use super::idempotency;
use super::list::{FORMAT_PARAMETER, Listing, ReportQuery};
use super::problem::{Code, Problem, ProblemDocument};
use super::query::{Query, Time};
use super::remark;
use super::state::State;
use crate::domain::adjustment::{AdjustmentEffect, AdjustmentId, AdjustmentState, AdjustmentTerms};
use crate::domain::ids::{IdempotencyKey, MeterId, TenantId};
use crate::domain::instant::rfc3339;
use crate::domain::money::Currency;
use crate::domain::signed_amount::SignedAmount;
use crate::operations::Reads;
use crate::operations::answers::AdjustmentDetails;
use crate::operations::requests::{AdjustmentFilter, AdjustmentsRequest, Page};

const EFFECTS: &[(&str, AdjustmentEffect)] = &[
    ("usage", AdjustmentEffect::Usage),
    ("allowance", AdjustmentEffect::Allowance),
    ("money", AdjustmentEffect::Money),
];

const STATES: &[(&str, AdjustmentState)] = &[
    ("pending", AdjustmentState::Pending),
    ("approved", AdjustmentState::Approved),
    ("booked", AdjustmentState::Booked),
    ("declined", AdjustmentState::Declined),
];

/// An adjustment to be posted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AdjustmentBody {
    /// Whose books.
    tenant: TenantId,
    /// Of which meter; for `money` it may be left out.
    #[serde(default)]
    meter: Option<MeterId>,
    /// `usage`: what was used, in a closed period or in the open one. `allowance`: what may be used in the open one.
    /// `money`: what is owed.
    #[schema(value_type = String, example = "usage", pattern = "^(usage|allowance|money)$")]
    effect: AdjustmentEffect,
    /// By how much: above zero for more of it, below for less.
    amount: SignedAmount,
    /// The currency of `amount` for `money`, such as EUR.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    currency: Option<Currency>,
    /// When it happened (RFC 3339). For `usage` it lies in the period that is corrected; of a hold that was carried on
    /// it may be the time of the reserve, too.
    #[schema(value_type = String, format = DateTime, example = "2026-12-14T10:00:00Z")]
    happened_at: Time,
    /// The operation that it corrects: the id of a reservation, grant or adjustment of the tenant. What was consumed of
    /// a hold that was carried on from an earlier period is corrected in the name of its reservation alone.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = Uuid)]
    corrects: Option<uuid::Uuid>,
    /// Why, for people: 1 to 500 characters.
    #[schema(example = "pages that were billed twice")]
    reason: String,
    /// The name of a paper that says so, such as a ticket: at most 500 characters.
    #[serde(default, deserialize_with = "super::json::or_default")]
    #[schema(example = "ticket 4711")]
    reference: String,
    /// The caller's name for it, unless it is in the header.
    #[serde(default)]
    idempotency_key: Option<IdempotencyKey>,
}

impl AdjustmentBody {
    fn into_terms(self) -> Result<AdjustmentTerms, Problem> {
        let remarks = [("/reason", &self.reason, 1), ("/reference", &self.reference, 0)];
        let faults: Vec<_> = remarks
            .into_iter()
            .filter_map(|(pointer, text, least)| remark::fault(pointer, text, least))
            .collect();
        if !faults.is_empty() {
            return Err(Problem::fields(faults));
        }
        Ok(AdjustmentTerms {
            tenant: self.tenant,
            meter: self.meter,
            effect: self.effect,
            amount: self.amount,
            currency: self.currency,
            happened_at_ms: self.happened_at.0,
            corrects: self.corrects,
            reason: self.reason,
            reference: self.reference,
        })
    }
}

/// An adjustment.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(super) struct AdjustmentAnswer {
    /// Its id, also of the operation that its entries belong to.
    #[schema(format = Uuid)]
    pub(super) id: String,
    /// Whose books.
    pub(super) tenant: String,
    /// Of which meter; null for money that is about none.
    pub(super) meter: Option<String>,
    /// `usage`, `allowance` or `money`.
    pub(super) effect: &'static str,
    /// By how much.
    pub(super) amount: String,
    /// The currency of the amounts, where they are money.
    pub(super) currency: Option<&'static str>,
    /// When it happened.
    pub(super) happened_at: String,
    /// The operation that it corrects.
    #[schema(format = Uuid)]
    pub(super) corrects: Option<String>,
    /// Why.
    pub(super) reason: String,
    /// The name of a paper that says so.
    pub(super) reference: String,
    /// `pending`: another person has to approve it. `approved`: it is being carried out. `booked`. `declined`.
    pub(super) status: &'static str,
    /// When it was posted.
    pub(super) posted_at: String,
    /// The key by which it was posted.
    pub(super) posted_by: String,
    /// When it was approved or declined; null where that was not needed, or is not done yet.
    pub(super) decided_at: Option<String>,
    /// The key by which that was done.
    pub(super) decided_by: Option<String>,
    /// When it was booked; null before.
    pub(super) booked_at: Option<String>,
    /// What was booked: less than `amount` where less was left of the grants that it voids.
    pub(super) booked_amount: Option<String>,
    /// The start of the period that it corrects.
    pub(super) period_start: Option<String>,
    /// The start of the period in which it is booked.
    pub(super) booked_in: Option<String>,
    /// Money: the number of the statement that has it, once that is issued.
    pub(super) statement: Option<u64>,
    /// The grants that it has made.
    pub(super) granted: Vec<String>,
    /// The grants that it has voided, the one that burnt last first.
    pub(super) voided: Vec<String>,
    /// Whether this is the answer to a repeated call.
    pub(super) replayed: bool,
}

impl From<AdjustmentDetails> for AdjustmentAnswer {
    fn from(details: AdjustmentDetails) -> Self {
        let AdjustmentDetails { stored, replayed } = details;
        let grants = |is_voided: bool| {
            let of_kind = stored.grants.iter().filter(|grant| grant.is_voided == is_voided);
            of_kind.map(|grant| grant.id.to_string()).collect()
        };
        Self {
            id: stored.id.to_string(),
            tenant: stored.terms.tenant.to_string(),
            meter: stored.terms.meter.as_ref().map(ToString::to_string),
            effect: stored.terms.effect.as_str(),
            amount: stored.terms.amount.to_string(),
            currency: stored.terms.currency.map(Currency::code),
            happened_at: rfc3339(stored.terms.happened_at_ms),
            corrects: stored.terms.corrects.map(|id| id.to_string()),
            granted: grants(false),
            voided: grants(true),
            reason: stored.terms.reason,
            reference: stored.terms.reference,
            status: stored.state.as_str(),
            posted_at: rfc3339(stored.posted_at_ms),
            posted_by: stored.posted_by,
            decided_at: stored.decided_at_ms.map(rfc3339),
            decided_by: stored.decided_by,
            booked_at: stored.booked_at_ms.map(rfc3339),
            booked_amount: stored.booked_amount.map(|amount| amount.to_string()),
            period_start: stored.period_start_ms.map(rfc3339),
            booked_in: stored.booked_in_ms.map(rfc3339),
            statement: stored.statement,
            replayed,
        }
    }
}

/// Post a correction. It is booked at once, or once another person has approved it, where it is large.
///
/// Usage of a closed period is corrected in the period that is open now, apart from its allowance, and billed by a
/// credit note to the closed period's statement. Usage of the open period is corrected at the gate, whose counters and
/// quotas follow. More allowance is a grant until the end of the open period; less voids grants, the one that burns
/// last first. Money is owed, or owed back, at once: it is a line of the statement of the open period. Nothing that
/// stands in the books is changed.
#[utoipa::path(
    tag = "reports",
    params(("Idempotency-Key" = Option<String>, Header, description = "Required, here or as `idempotency_key` in the body.")),
    request_body(content = AdjustmentBody, example = json!({
        "tenant": "acme", "meter": "ocr.page", "effect": "usage", "amount": "-12",
        "happened_at": "2026-12-14T10:00:00Z", "reason": "pages that were billed twice",
        "reference": "ticket 4711", "idempotency_key": "ticket-4711"
    })),
    responses(
        (status = 201, description = "Posted: `pending` or `booked`; `approved` where a server is away: it is booked later.", body = AdjustmentAnswer),
        (status = 200, description = "A replay.", body = AdjustmentAnswer),
    )
)]
#[post("/v1/adjustments")]
pub(super) async fn post_adjustment(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    body: JsonBody<AdjustmentBody>,
) -> Result<HttpResponse, Problem> {
    let JsonBody(body) = body;
    let key = idempotency::key_of(request.headers(), body.idempotency_key.clone())?;
    let Some(key) = key else { return Err(Problem::key_required()) };
    let terms = body.into_terms()?;
    let operations = state.operations.clone();
    let posting = Box::pin(async move { operations.adjustments.post(&key, terms, caller.actor()).await });
    let posted = state.mutate(posting).await??;
    if !posted.replayed {
        return json(HttpResponse::Created(), &AdjustmentAnswer::from(posted));
    }
    let mut answer = json(HttpResponse::Ok(), &AdjustmentAnswer::from(posted))?;
    answer.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    Ok(answer)
}

/// List adjustments, newest first.
#[utoipa::path(
    tag = "reports",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("meter" = Option<String>, Query, description = "Only of this meter."),
        ("effect" = Option<String>, Query, description = "`usage`, `allowance` or `money`."),
        ("status" = Option<String>, Query, description = "`pending`, `approved`, `booked` or `declined`."),
        ("from" = Option<String>, Query, description = "Posted from here on; RFC 3339, inclusive."),
        ("to" = Option<String>, Query, description = "Posted before; RFC 3339, exclusive."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Adjustments.", body = List<AdjustmentAnswer>))
)]
#[get("/v1/adjustments")]
pub(super) async fn list_adjustments(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let tenant = query.parsed("tenant")?;
    let filter = filter(query, tenant)?;
    let rows =
        state.read(state.operations.reads.list_adjustments(AdjustmentsRequest { filter, page })).await?;
    listing.answer(&state.cursor_key, rows.map(AdjustmentAnswer::from))
}

/// Corrections that finance has posted, newest first; a key bound to a tenant sees its own.
#[utoipa::path(
    tag = "reports",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("meter" = Option<String>, Query, description = "Only of this meter."),
        ("effect" = Option<String>, Query, description = "`usage`, `allowance` or `money`."),
        ("status" = Option<String>, Query, description = "`pending`, `approved`, `booked` or `declined`."),
        ("from" = Option<String>, Query, description = "Posted from here on; RFC 3339, inclusive."),
        ("to" = Option<String>, Query, description = "Posted before; RFC 3339, exclusive."),
        ("format" = Option<String>, Query, description = FORMAT_PARAMETER),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((
        status = 200,
        description = "Adjustments, newest first.",
        content(
            (List<AdjustmentAnswer> = "application/json"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/reports/adjustments")]
pub(super) async fn report_adjustments(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let ReportQuery { query, listing, page, tenant } = ReportQuery::of(&request, &state, &caller)?;
    let filter = filter(query, tenant)?;
    let ask = async move |reads: &Reads, page: Page| {
        let asked = AdjustmentsRequest { filter: filter.clone(), page };
        Ok(reads.list_adjustments(asked).await?.map(AdjustmentAnswer::from))
    };
    listing.answer_or_file(&state, page, ask).await
}

fn filter(mut query: Query, tenant: Option<TenantId>) -> Result<AdjustmentFilter, Problem> {
    let (from_ms, to_ms) = query.span_ms()?;
    let filter = AdjustmentFilter {
        tenant,
        meter: query.parsed("meter")?,
        effect: query.word("effect", EFFECTS)?,
        state: query.word("status", STATES)?,
        from_ms,
        to_ms,
    };
    query.finish()?;
    Ok(filter)
}

/// Read an adjustment.
#[utoipa::path(
    tag = "reports",
    params(("id" = String, Path, description = "The adjustment.")),
    responses((status = 200, description = "The adjustment.", body = AdjustmentAnswer))
)]
#[get("/v1/adjustments/{id}")]
pub(super) async fn get_adjustment(
    state: web::Data<State>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    Query::of(&request)?.finish()?;
    let found = state.read(state.operations.adjustments.get(adjustment_id(&id)?)).await?;
    json(HttpResponse::Ok(), &AdjustmentAnswer::from(found))
}

/// Approve an adjustment: it is booked. Another key than the one that posted it does. A repeat changes nothing.
#[utoipa::path(
    tag = "reports",
    params(("id" = String, Path, description = "The adjustment.")),
    request_body(content = EmptyBody),
    responses(
        (status = 200, description = "Booked, or `approved` where a server is away: it is booked later.", body = AdjustmentAnswer),
        (status = 409, description = "`already_resolved`: it was declined.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
#[post("/v1/adjustments/{id}/approve")]
pub(super) async fn approve_adjustment(
    state: web::Data<State>,
    caller: Caller,
    id: web::Path<String>,
    body: OptionalJsonBody<EmptyBody>,
) -> Result<HttpResponse, Problem> {
    let (id, OptionalJsonBody(EmptyBody {})) = (adjustment_id(&id)?, body);
    let operations = state.operations.clone();
    let approving = Box::pin(async move { operations.adjustments.approve(id, caller.actor()).await });
    json(HttpResponse::Ok(), &AdjustmentAnswer::from(state.mutate(approving).await??))
}

/// Decline an adjustment: it is never booked. A repeat changes nothing.
#[utoipa::path(
    tag = "reports",
    params(("id" = String, Path, description = "The adjustment.")),
    request_body(content = EmptyBody),
    responses(
        (status = 200, description = "Declined.", body = AdjustmentAnswer),
        (status = 409, description = "`already_resolved`: it is approved.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
#[post("/v1/adjustments/{id}/decline")]
pub(super) async fn decline_adjustment(
    state: web::Data<State>,
    caller: Caller,
    id: web::Path<String>,
    body: OptionalJsonBody<EmptyBody>,
) -> Result<HttpResponse, Problem> {
    let (id, OptionalJsonBody(EmptyBody {})) = (adjustment_id(&id)?, body);
    let operations = state.operations.clone();
    let declining = Box::pin(async move { operations.adjustments.decline(id, caller.actor()).await });
    json(HttpResponse::Ok(), &AdjustmentAnswer::from(state.mutate(declining).await??))
}

fn adjustment_id(text: &str) -> Result<AdjustmentId, Problem> {
    text.parse().map_err(|_| Problem::new(Code::NotFound, "There is no such adjustment."))
}
