//! `/v1/tenants/{tenant}`: what is left, what was used, the books and the holds of one tenant.

use actix_web::{HttpRequest, HttpResponse, get, web};

use super::answer::{List, json};
use super::auth::TenantInPath;
use super::list::{FORMAT_PARAMETER, Listing};
use super::problem::Problem;
use super::query::Query;
use super::shapes::{EstimateRow, NoticeRow, QuotaAnswer, ReservationAnswer, UsageRow};
use super::state::State;
use crate::domain::period::WindowKind;
use crate::domain::reservation::ReservationState;
use crate::domain::usage::{Granularity, GroupBy};
use crate::operations::Reads;
use crate::operations::requests::{
    EstimatesRequest, NoticeFilter, NoticesRequest, Page, QuotaRequest, ReservationsRequest, UsageRequest,
};

const SPANS: &[(&str, WindowKind)] = &[("today", WindowKind::Day), ("month", WindowKind::Month)];

/// How usage may be cut in time.
pub(super) const GRANULARITIES: &[(&str, Granularity)] =
    &[("hour", Granularity::Hour), ("day", Granularity::Day), ("month", Granularity::Month)];

/// How usage of one tenant may be split.
pub(super) const GROUPS: &[(&str, GroupBy)] =
    &[("meter", GroupBy::Meter), ("subject", GroupBy::Subject), ("operation", GroupBy::Operation)];

const STATES: &[(&str, ReservationState)] = &[
    ("reserved", ReservationState::Reserved),
    ("consumed", ReservationState::Consumed),
    ("released", ReservationState::Released),
    ("expired", ReservationState::Expired),
];

const NOTICE_STATES: &[(&str, bool)] = &[("raised", false), ("resolved", true)];

/// What is left now of quotas and limits.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("subject" = Option<String>, Query, description = "Also the limits of this subject; needs `kind`."),
        ("kind" = Option<String>, Query, description = "The kind of the subject; `user` if absent."),
    ),
    responses((status = 200, description = "Quotas and limits.", body = QuotaAnswer))
)]
#[get("/v1/tenants/{tenant}/quota")]
pub(super) async fn read_quota(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let subject = query.subject()?;
    query.finish()?;
    let asked = QuotaRequest { tenant: tenant.0, subject };
    let answer = state.read(state.operations.reads.read_quota(asked)).await?;
    json(HttpResponse::Ok(), &QuotaAnswer::from(answer))
}

/// What was used, from the rollups of the ledger.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("from" = Option<String>, Query, description = "RFC 3339: hours that start at or after it; the start of the period if absent."),
        ("to" = Option<String>, Query, description = "RFC 3339: hours that start before it; now if absent."),
        ("span" = Option<String>, Query, description = "Instead of `from` and `to`: `today` or this `month`, from its start in the tenant's zone until now."),
        ("granularity" = Option<String>, Query, description = "`hour`, `day` or `month`, each of the zone that the tenant had then; one row per group if absent."),
        ("group_by" = Option<String>, Query, description = "`meter`, `subject`, `operation`, separated by commas. `subject` leaves out what names none, and counts what names several for each: its rows do not add up to all."),
        ("meter" = Option<String>, Query, description = "Only this meter."),
        ("format" = Option<String>, Query, description = FORMAT_PARAMETER),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((
        status = 200,
        description = "Usage, newest first.",
        content(
            (List<UsageRow> = "application/json"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/tenants/{tenant}/usage")]
pub(super) async fn list_usage(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin_or_file(&request, &mut query, &state.cursor_key, "")?;
    let (from_ms, to_ms) = query.span_ms()?;
    let span = query.word("span", SPANS)?;
    if span.is_some() && (from_ms, to_ms) != (None, None) {
        return Err(Problem::parameter("span", "stands instead of `from` and `to`"));
    }
    let asked = UsageRequest {
        span,
        tenant: Some(tenant.0),
        from_ms,
        to_ms,
        granularity: query.word("granularity", GRANULARITIES)?,
        group_by: query.words("group_by", GROUPS)?,
        zone: None,
        meter: query.parsed("meter")?,
        page: page.clone(),
    };
    query.finish()?;
    let ask = async move |reads: &Reads, page: Page| {
        Ok(reads.list_usage(UsageRequest { page, ..asked.clone() }).await?.map(UsageRow::from))
    };
    listing.answer_or_file(&state, page, ask).await
}

/// The reservations, running and resolved.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("status" = Option<String>, Query, description = "`reserved`, `consumed`, `released` or `expired`."),
        ("subject" = Option<String>, Query, description = "Only those that name this subject; needs `kind`."),
        ("kind" = Option<String>, Query, description = "The kind of the subject, not `anonymous`; `user` if absent."),
        ("meter" = Option<String>, Query, description = "Only those with a line of this meter."),
        ("limit_id" = Option<String>, Query, description = "Only those that count under this limit, such as the holders of a concurrency limit's slots; needs `status=reserved`. A page may have fewer than `limit` then, or none, and still be followed by others."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Reservations, newest first.", body = List<ReservationAnswer>))
)]
#[get("/v1/tenants/{tenant}/reservations")]
pub(super) async fn list_reservations(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let in_state = query.word("status", STATES)?;
    let subject = query.subject()?;
    let meter = query.parsed("meter")?;
    let counted_by = query.parsed("limit_id")?;
    query.finish()?;
    if subject.as_ref().is_some_and(|subject| subject.kind.shares_slots()) {
        return Err(Problem::parameter("kind", "must be another: the books name no subjects of this kind"));
    }
    if counted_by.is_some() && in_state != Some(ReservationState::Reserved) {
        return Err(Problem::parameter(
            "limit_id",
            "needs status=reserved: only what is held counts under it",
        ));
    }
    let asked = ReservationsRequest { tenant: tenant.0, state: in_state, subject, meter, counted_by, page };
    let rows = state.read(state.operations.reads.list_reservations(asked)).await?;
    listing.answer(&state.cursor_key, rows.map(ReservationAnswer::from))
}

/// Thresholds of quotas that booked usage has reached, and forecasts that it runs out before its period ends.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("status" = Option<String>, Query, description = "`raised` for those that hold, `resolved` for those that do no longer."),
        ("meter" = Option<String>, Query, description = "Only of this meter."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Notices, newest first.", body = List<NoticeRow>))
)]
#[get("/v1/tenants/{tenant}/notices")]
pub(super) async fn list_notices(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let is_resolved = query.word("status", NOTICE_STATES)?;
    let filter = NoticeFilter { tenant: tenant.0, meter: query.parsed("meter")?, is_resolved };
    query.finish()?;
    let rows = state.read(state.operations.reads.list_notices(NoticesRequest { filter, page })).await?;
    listing.answer(&state.cursor_key, rows.map(NoticeRow::from))
}

/// What a reserve holds of each operation whose cost is learned, where nothing says how much its work is, and how far
/// off that was lately.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Estimates, by operation and meter.", body = List<EstimateRow>))
)]
#[get("/v1/tenants/{tenant}/estimates")]
pub(super) async fn list_estimates(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    query.finish()?;
    let asked = EstimatesRequest { tenant: tenant.0, page };
    let rows = state.read(state.operations.reads.list_estimates(asked)).await?;
    listing.answer(&state.cursor_key, rows.map(EstimateRow::from))
}
