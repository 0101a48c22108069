//! `/v1/reports`: figures over all tenants.

use actix_web::{HttpRequest, HttpResponse, get, web};

use super::answer::List;
use super::auth::Caller;
use super::list::{FORMAT_PARAMETER, ReportQuery};
use super::problem::Problem;
use super::query::Query;
use super::shapes::{
    BalanceRow, ReconciliationRow, ReservationAnswer, RevenueRow, RolloverRow, TopRow, UsageRow,
};
use super::state::State;
use super::tenants::GRANULARITIES;
use crate::domain::checkpoint::ReconciliationState;
use crate::domain::ids::MeterId;
use crate::domain::period::Zone;
use crate::domain::statement::RevenueGroup;
use crate::domain::usage::{Consumer, GroupBy};
use crate::operations::Reads;
use crate::operations::requests::{
    BalanceFilter, BalancesRequest, ClosedFilter, ExpiredFilter, LeakedRequest, Page, ReconciliationFilter,
    ReconciliationsRequest, RevenueFilter, RevenueRequest, RolloverRequest, TopRequest, UsageRequest,
};

/// How usage of all tenants may be split.
pub(super) const GROUPS: &[(&str, GroupBy)] = &[
    ("meter", GroupBy::Meter),
    ("subject", GroupBy::Subject),
    ("operation", GroupBy::Operation),
    ("tenant", GroupBy::Tenant),
    ("plan", GroupBy::Plan),
];

const CONSUMERS: &[(&str, Consumer)] = &[
    ("tenant", Consumer::Tenant),
    ("subject", Consumer::Subject),
    ("operation", Consumer::Operation),
    ("plan", Consumer::Plan),
];

/// How revenue may be split.
pub(super) const REVENUE_GROUPS: &[(&str, RevenueGroup)] = &[
    ("period", RevenueGroup::Period),
    ("tenant", RevenueGroup::Tenant),
    ("plan", RevenueGroup::Plan),
    ("meter", RevenueGroup::Meter),
];

const STATES: &[(&str, ReconciliationState)] = &[
    ("clean", ReconciliationState::Clean),
    ("drift", ReconciliationState::Drift),
    ("repaired", ReconciliationState::Repaired),
    ("refused", ReconciliationState::Refused),
];

/// What was used, over all tenants or by one; a key bound to a tenant sees its own.
#[utoipa::path(
    tag = "reports",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant."),
        ("from" = Option<String>, Query, description = "RFC 3339: hours that start at or after it; the start of the month if absent."),
        ("to" = Option<String>, Query, description = "RFC 3339: hours that start before it; now if absent."),
        ("granularity" = Option<String>, Query, description = "`hour`, `day` or `month` of `zone`; one row per group if absent."),
        ("group_by" = Option<String>, Query, description = "`meter`, `subject`, `operation`, `tenant`, `plan`, separated by commas. `subject` leaves out what names none, and counts what names several for each: its rows do not add up to all."),
        ("zone" = Option<String>, Query, description = "The zone of days and months over all tenants, such as `Europe/Berlin`; UTC if absent."),
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
#[get("/v1/reports/usage")]
pub(super) async fn report_usage(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let ReportQuery { mut query, listing, page, tenant } = ReportQuery::of(&request, &state, &caller)?;
    let (from_ms, to_ms) = query.span_ms()?;
    let asked = UsageRequest {
        span: None,
        from_ms,
        to_ms,
        granularity: query.word("granularity", GRANULARITIES)?,
        group_by: query.words("group_by", GROUPS)?,
        zone: zone(&mut query, tenant.is_some())?,
        meter: query.parsed("meter")?,
        tenant,
        page: page.clone(),
    };
    query.finish()?;
    let ask = async move |reads: &Reads, page: Page| {
        Ok(reads.list_usage(UsageRequest { page, ..asked.clone() }).await?.map(UsageRow::from))
    };
    listing.answer_or_file(&state, page, ask).await
}

/// Who used the most of a meter, the largest first; a key bound to a tenant sees its own.
#[utoipa::path(
    tag = "reports",
    params(
        ("meter" = String, Query, description = "The meter: amounts of different meters cannot be compared."),
        ("by" = Option<String>, Query, description = "Who is ranked: `tenant`, `subject`, `operation` or `plan` (that the tenants were on then); `tenant` if absent. By `subject`, what names none is left out, and what names several counts for each."),
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("from" = Option<String>, Query, description = "RFC 3339: hours that start at or after it; the start of the month if absent, of the period with `tenant`."),
        ("to" = Option<String>, Query, description = "RFC 3339: hours that start before it; now if absent."),
        ("format" = Option<String>, Query, description = FORMAT_PARAMETER),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((
        status = 200,
        description = "Consumers, the largest first.",
        content(
            (List<TopRow> = "application/json"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/reports/top")]
pub(super) async fn report_top(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let ReportQuery { mut query, listing, page, tenant } = ReportQuery::of(&request, &state, &caller)?;
    let (from_ms, to_ms) = query.span_ms()?;
    let by = query.word("by", CONSUMERS)?.unwrap_or(Consumer::Tenant);
    let meter: Option<MeterId> = query.parsed("meter")?;
    query.finish()?;
    let meter = meter.ok_or_else(|| Problem::parameter("meter", "is required: meters cannot be compared"))?;
    let ask = async move |reads: &Reads, page: Page| {
        let asked = TopRequest { tenant: tenant.clone(), meter: meter.clone(), by, from_ms, to_ms, page };
        Ok(reads.top_consumers(asked).await?.map(|row| TopRow::of(&meter, &row)))
    };
    listing.answer_or_file(&state, page, ask).await
}

/// Holds that nobody resolved: they expired, what was left of them came back, and no consume came after. The last to
/// expire first; a key bound to a tenant sees its own.
#[utoipa::path(
    tag = "reports",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("meter" = Option<String>, Query, description = "Only those with a line of this meter."),
        ("from" = Option<String>, Query, description = "Expired from here on; RFC 3339, inclusive."),
        ("to" = Option<String>, Query, description = "Expired before; RFC 3339, exclusive."),
        ("format" = Option<String>, Query, description = FORMAT_PARAMETER),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((
        status = 200,
        description = "Expired holds, the last to expire first.",
        content(
            (List<ReservationAnswer> = "application/json"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/reports/leaked")]
pub(super) async fn report_leaked(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let ReportQuery { mut query, listing, page, tenant } = ReportQuery::of(&request, &state, &caller)?;
    let (from_ms, to_ms) = query.span_ms()?;
    let filter = ExpiredFilter { tenant, meter: query.parsed("meter")?, from_ms, to_ms };
    query.finish()?;
    let ask = async move |reads: &Reads, page: Page| {
        let asked = LeakedRequest { filter: filter.clone(), page };
        Ok(reads.leaked_holds(asked).await?.map(ReservationAnswer::from))
    };
    listing.answer_or_file(&state, page, ask).await
}

/// What became of closed periods: what was used, what lapsed, what went on into the next one. The last to end first; a
/// key bound to a tenant sees its own.
#[utoipa::path(
    tag = "reports",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("meter" = Option<String>, Query, description = "Only this meter."),
        ("from" = Option<String>, Query, description = "Ended from here on; RFC 3339, inclusive."),
        ("to" = Option<String>, Query, description = "Ended before; RFC 3339, exclusive."),
        ("format" = Option<String>, Query, description = FORMAT_PARAMETER),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((
        status = 200,
        description = "Closed periods, the last to end first.",
        content(
            (List<RolloverRow> = "application/json"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/reports/rollover")]
pub(super) async fn report_rollover(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let ReportQuery { mut query, listing, page, tenant } = ReportQuery::of(&request, &state, &caller)?;
    let (from_ms, to_ms) = query.span_ms()?;
    let filter = ClosedFilter { tenant, meter: query.parsed("meter")?, from_ms, to_ms };
    query.finish()?;
    let ask = async move |reads: &Reads, page: Page| {
        let asked = RolloverRequest { filter: filter.clone(), page };
        Ok(reads.rollovers(asked).await?.map(RolloverRow::from))
    };
    listing.answer_or_file(&state, page, ask).await
}

/// What stood in the accounts at an instant, after all that was booked by then: of units by meter and period, of money
/// by currency. By tenant, meter and period, without rows in which nothing stood; a key bound to a tenant sees its own.
#[utoipa::path(
    tag = "reports",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("meter" = Option<String>, Query, description = "Only this meter; `money:EUR` for money in this currency."),
        ("at" = Option<String>, Query, description = "RFC 3339, not in the future, by the database's clock, also where there is a test clock; now if absent."),
        ("format" = Option<String>, Query, description = FORMAT_PARAMETER),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before: as of the same instant."),
    ),
    responses((
        status = 200,
        description = "Balances by tenant, meter and period.",
        content(
            (List<BalanceRow> = "application/json"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/reports/balances")]
pub(super) async fn report_balances(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let ReportQuery { mut query, listing, page, tenant } = ReportQuery::of(&request, &state, &caller)?;
    let at_ms = query.instant_ms("at")?.map(|at_ms| at_ms.max(0));
    let filter = BalanceFilter { tenant, meter: query.parsed("meter")? };
    query.finish()?;
    let ask = async move |reads: &Reads, page: Page| {
        let asked = BalancesRequest { filter: filter.clone(), at_ms, page };
        Ok(reads.balances(asked).await?.map(BalanceRow::from))
    };
    listing.answer_or_file(&state, page, ask).await
}

/// What issued statements and credit notes say is owed, added up by currency; a key bound to a tenant sees its own.
#[utoipa::path(
    tag = "reports",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("from" = Option<String>, Query, description = "Of billing periods that start from here on; RFC 3339, inclusive."),
        ("to" = Option<String>, Query, description = "Of billing periods that start before; RFC 3339, exclusive."),
        ("group_by" = Option<String>, Query, description = "`period`, `tenant`, `plan`, `meter`, separated by commas."),
        ("format" = Option<String>, Query, description = FORMAT_PARAMETER),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((
        status = 200,
        description = "Revenue, the latest period first, then by currency and group.",
        content(
            (List<RevenueRow> = "application/json"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/reports/revenue")]
pub(super) async fn report_revenue(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let ReportQuery { mut query, listing, page, tenant } = ReportQuery::of(&request, &state, &caller)?;
    let (from_ms, to_ms) = query.span_ms()?;
    let group_by = query.words("group_by", REVENUE_GROUPS)?;
    query.finish()?;
    let filter = RevenueFilter { tenant, from_ms, to_ms, group_by };
    let ask = async move |reads: &Reads, page: Page| {
        let asked = RevenueRequest { filter: filter.clone(), page };
        Ok(reads.revenue(asked).await?.map(RevenueRow::from))
    };
    listing.answer_or_file(&state, page, ask).await
}

/// Comparisons of the gate's counters with the books: every difference, and each tenant's latest clean comparison.
#[utoipa::path(
    tag = "reports",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant."),
        ("state" = Option<String>, Query, description = "`clean`, `drift`, `repaired` or `refused`."),
        ("from" = Option<String>, Query, description = "Judged from here on; RFC 3339, inclusive."),
        ("to" = Option<String>, Query, description = "Judged before; RFC 3339, exclusive."),
        ("format" = Option<String>, Query, description = FORMAT_PARAMETER),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((
        status = 200,
        description = "Reconciliations, newest first.",
        content(
            (List<ReconciliationRow> = "application/json"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/reports/reconciliation")]
pub(super) async fn report_reconciliation(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let ReportQuery { mut query, listing, page, tenant } = ReportQuery::of(&request, &state, &caller)?;
    let (from_ms, to_ms) = query.span_ms()?;
    let filter = ReconciliationFilter { tenant, state: query.word("state", STATES)?, from_ms, to_ms };
    query.finish()?;
    let ask = async move |reads: &Reads, page: Page| {
        let asked = ReconciliationsRequest { filter: filter.clone(), page };
        Ok(reads.list_reconciliations(asked).await?.map(ReconciliationRow::from))
    };
    listing.answer_or_file(&state, page, ask).await
}

/// A single tenant's own zone always counts, so there it is refused.
fn zone(query: &mut Query, of_one_tenant: bool) -> Result<Option<Zone>, Problem> {
    let Some(name) = query.text("zone") else { return Ok(None) };
    if of_one_tenant {
        return Err(Problem::parameter(
            "zone",
            "goes with figures over all tenants; a tenant has its own zone",
        ));
    }
    Zone::parse(&name).map(Some).map_err(|unknown| Problem::parameter("zone", unknown))
}
