//! `/v1/tenants/{tenant}/statements`: what a period costs.

mod focus;
mod lines;
mod page;
#[cfg(test)]
mod tests;
mod wording;
mod workbook;

use actix_web::{HttpRequest, HttpResponse, get, web};

use super::answer::json;
use super::auth::TenantInPath;
use super::csv;
use super::problem::Problem;
use super::query::Query;
use super::shapes::DraftStatementAnswer;
use super::state::State;
use super::xlsx;

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

const FORMAT_PARAMETER: &str = "`json`; `csv` with a row for each line; `xlsx`, a workbook; `focus`, a CSV with the \
     columns of FinOps FOCUS that Tollgate can fill; or `html`, a page to print. `json` if absent.";

/// What the open period costs so far.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("format" = Option<String>, Query, description = FORMAT_PARAMETER),
    ),
    responses((
        status = 200,
        description = "The lines of the open period, as far as its use is booked.",
        content(
            (DraftStatementAnswer = "application/json"),
            (String = "text/csv"),
            (String = "text/html"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/tenants/{tenant}/statements/draft")]
pub(super) async fn draft_statement(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let format = query.word("format", FORMATS)?.unwrap_or(Format::Json);
    query.finish()?;
    let draft = state.read(state.operations.reads.draft_statement(tenant.0)).await?;
    let answer = DraftStatementAnswer::from(&draft);
    let file = format!("{}-draft", answer.tenant);
    match format {
        Format::Json => json(HttpResponse::Ok(), &answer),
        Format::Csv => csv::answer(&file, &lines::COLUMNS, &lines::rows(&answer)),
        Format::Xlsx => xlsx::answer(&file, draft.as_of_ms, &workbook::sheets(&answer)),
        Format::Html => page::answer(&draft, &answer),
        Format::Focus => csv::answer(&format!("{file}-focus"), &focus::COLUMNS, &focus::rows(&draft)),
    }
}
