//! `/v1/tenants/{tenant}/statements`: what a period costs.

use actix_web::{HttpRequest, HttpResponse, get, web};

use super::answer::json;
use super::auth::TenantInPath;
use super::csv::{self, Cell};
use super::problem::Problem;
use super::query::Query;
use super::shapes::{DraftStatementAnswer, StatementLineAnswer, TierAnswer};
use super::state::State;

/// How a statement may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
}

const FORMATS: &[(&str, Format)] = &[("json", Format::Json), ("csv", Format::Csv)];

/// What the open period costs so far.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("format" = Option<String>, Query, description = "`json`, or `csv` with a row for each line; `json` if absent."),
    ),
    responses((
        status = 200,
        description = "The lines of the open period, as far as its use is booked.",
        content((DraftStatementAnswer = "application/json"), (String = "text/csv"))
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
    let draft = DraftStatementAnswer::from(draft);
    match format {
        Format::Json => json(HttpResponse::Ok(), &draft),
        Format::Csv => table(&draft),
    }
}

const COLUMNS: [&str; 27] = [
    "tenant",
    "period_start",
    "period_end",
    "as_of",
    "currency",
    "kind",
    "meter",
    "price",
    "effective_from",
    "model",
    "charge_on",
    "quantity",
    "included",
    "charged",
    "unit",
    "package_size",
    "packages",
    "tiers",
    "minimum",
    "id",
    "percent",
    "base",
    "commitment",
    "amount",
    "plan",
    "policy_version",
    "as_of_event",
];

/// A row for each line. It has no total: the rows add up to it.
fn table(draft: &DraftStatementAnswer) -> Result<HttpResponse, Problem> {
    let rows: Vec<_> = draft.lines.iter().map(|line| row(draft, line)).collect();
    csv::answer(&format!("{}-draft", draft.tenant), &COLUMNS, &rows)
}

fn row(draft: &DraftStatementAnswer, line: &StatementLineAnswer) -> Vec<Cell> {
    let tiers: Vec<_> =
        line.tiers.iter().map(|TierAnswer { quantity, unit, .. }| format!("{quantity} x {unit}")).collect();
    vec![
        Cell::text(Some(&draft.tenant)),
        Cell::text(Some(&draft.period.start)),
        Cell::text(Some(&draft.period.end)),
        Cell::text(Some(&draft.as_of)),
        Cell::text(draft.currency),
        Cell::text(Some(line.kind)),
        Cell::text(line.meter.as_ref()),
        Cell::text(line.price.as_ref()),
        Cell::text(line.effective_from.as_ref()),
        Cell::text(line.model),
        Cell::text(line.charge_on),
        Cell::number(line.quantity.as_ref()),
        Cell::number(line.included.as_ref()),
        Cell::number(line.charged.as_ref()),
        Cell::number(line.unit.as_ref()),
        Cell::number(line.package_size.as_ref()),
        Cell::number(line.packages.as_ref()),
        Cell::text(Some(tiers.join("; ")).filter(|tiers| !tiers.is_empty())),
        Cell::number(line.minimum.as_ref()),
        Cell::text(line.id.as_ref()),
        Cell::number(line.percent.as_ref()),
        Cell::number(line.base.as_ref()),
        Cell::number(line.commitment.as_ref()),
        Cell::number(Some(&line.amount)),
        Cell::text(draft.plan.as_ref()),
        Cell::number(Some(&draft.policy_version)),
        Cell::text(Some(&draft.as_of_event)),
    ]
}
