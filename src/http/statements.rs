//! `/v1/tenants/{tenant}/statements`: what a period costs.

mod focus;
mod lines;
mod page;
#[cfg(test)]
mod tests;
mod wording;
mod workbook;

use actix_web::{HttpRequest, HttpResponse, get, web};

use super::answer::{List, json};
use super::auth::TenantInPath;
use super::csv;
use super::list::Listing;
use super::problem::{Code, Problem};
use super::query::Query;
use super::shapes::{StatementAnswer, StatementRow};
use super::state::State;
use super::xlsx;
use crate::domain::ids::TenantId;
use crate::domain::money::Currency;
use crate::operations::answers::StatementDetails;
use crate::operations::requests::{DraftPeriod, DraftRequest, StatementsRequest};

/// How a statement may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
    Xlsx,
    Focus,
    Html,
}

const FORMATS: &[(&str, Format)] = &[
    ("json", Format::Json),
    ("csv", Format::Csv),
    ("xlsx", Format::Xlsx),
    ("focus", Format::Focus),
    ("html", Format::Html),
];

const PERIODS: &[(&str, DraftPeriod)] = &[("open", DraftPeriod::Open), ("closing", DraftPeriod::Closing)];

const PERIOD_PARAMETER: &str = "`open`; or `closing`, the first period that has ended and is not billed, by the prices \
     that held at its end: 404 if all are billed. `open` if absent.";

const FORMAT_PARAMETER: &str = "`json`; `csv` with a row for each line; `xlsx`, a workbook; `focus`, a CSV with the \
     columns of FinOps FOCUS that Tollgate can fill; or `html`, a page to print. `json` if absent.";

/// What a period costs that is not billed, in one currency.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("period" = Option<String>, Query, description = PERIOD_PARAMETER),
        ("currency" = Option<String>, Query, description = "In which currency, such as USD; the tenant's own if absent."),
        ("format" = Option<String>, Query, description = FORMAT_PARAMETER),
    ),
    responses(
        (
            status = 200,
            description = "The lines of the period, as far as its use is booked.",
            content(
                (StatementAnswer = "application/json"),
                (String = "text/csv"),
                (String = "text/html"),
                (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
            )
        ),
        (
            status = 422,
            description = "`validation_failed`: no bill of the period can be made, as an amount is too large.",
            body = super::problem::ProblemDocument,
            content_type = "application/problem+json"
        )
    )
)]
#[get("/v1/tenants/{tenant}/statements/draft")]
pub(super) async fn draft_statement(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let format = query.word("format", FORMATS)?.unwrap_or(Format::Json);
    let period = query.word("period", PERIODS)?.unwrap_or(DraftPeriod::Open);
    let currency = query
        .text("currency")
        .map(|code| Currency::parse(&code).map_err(|error| Problem::parameter("currency", error)));
    let asked = DraftRequest { tenant: tenant.0, currency: currency.transpose()?, period };
    query.finish()?;
    let draft = state.read(state.operations.reads.draft_statement(asked)).await?;
    written(&draft, format, "draft")
}

/// A tenant's issued statements and credit notes.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Statements and credit notes, newest first.", body = List<StatementRow>))
)]
#[get("/v1/tenants/{tenant}/statements")]
pub(super) async fn list_statements(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    list(&state, tenant.0, None, &request).await
}

/// The credit notes that correct a statement.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("number" = u64, Path, description = "The statement's number."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Credit notes, newest first.", body = List<StatementRow>))
)]
#[get("/v1/tenants/{tenant}/statements/{number}/credit-notes")]
pub(super) async fn list_credit_notes(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let number = number(&request)?;
    list(&state, tenant.0, Some(number), &request).await
}

async fn list(
    state: &State,
    tenant: TenantId,
    corrects: Option<u64>,
    request: &HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(request)?;
    let (listing, page) = Listing::begin(request, &mut query, &state.cursor_key, "")?;
    query.finish()?;
    let asked = StatementsRequest { tenant, corrects, page };
    let rows = state.read(state.operations.reads.list_statements(asked)).await?;
    listing.answer(&state.cursor_key, rows.map(StatementRow::from))
}

/// An issued statement or credit note.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("number" = u64, Path, description = "Its number."),
        ("format" = Option<String>, Query, description = FORMAT_PARAMETER),
    ),
    responses((
        status = 200,
        description = "What it says. It never changes.",
        content(
            (StatementAnswer = "application/json"),
            (String = "text/csv"),
            (String = "text/html"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/tenants/{tenant}/statements/{number}")]
pub(super) async fn read_statement(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let number = number(&request)?;
    let mut query = Query::of(&request)?;
    let format = query.word("format", FORMATS)?.unwrap_or(Format::Json);
    query.finish()?;
    let details = state.read(state.operations.reads.read_statement(tenant.0, number)).await?;
    written(&details, format, &number.to_string())
}

/// The number in the path.
fn number(request: &HttpRequest) -> Result<u64, Problem> {
    let text = request.match_info().get("number").unwrap_or_default();
    // A number has one spelling, so that a statement has one address.
    let number = text.parse::<u64>().ok().filter(|number| number.to_string() == text);
    let unknown =
        || Problem::new(Code::NotFound, "There is no such statement: its number is a whole number.");
    number.filter(|number| i64::try_from(*number).is_ok()).ok_or_else(unknown)
}

/// Answers it in this format; `name` tells its file from the tenant's others.
fn written(details: &StatementDetails, format: Format, name: &str) -> Result<HttpResponse, Problem> {
    let answer = StatementAnswer::from(details);
    let file = format!("{}-{name}", answer.tenant);
    match format {
        Format::Json => json(HttpResponse::Ok(), &answer),
        Format::Csv => csv::answer(&file, &lines::COLUMNS, &lines::rows(&answer)),
        Format::Xlsx => xlsx::answer(&file, details.as_of_ms, &workbook::sheets(&answer)),
        Format::Html => page::answer(details, &answer),
        Format::Focus => csv::answer(&format!("{file}-focus"), &focus::COLUMNS, &focus::rows(details)),
    }
}
