//! `/v1/admin/violations`: refused calls that limits with a punishment have counted.

use actix_web::{HttpRequest, HttpResponse, get, web};

use super::answer::List;
use super::list::Listing;
use super::problem::Problem;
use super::query::Query;
use super::shapes::ViolationRow;
use super::state::State;
use crate::operations::requests::ViolationsRequest;

/// List refused calls that limits with a punishment have counted, summed up by minute.
///
/// They are written every ten seconds. Subjects are shown by the hash by which the gate names them, never by their
/// name; `subject` and `kind` find those of one.
#[utoipa::path(
    tag = "admin",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's."),
        ("limit_id" = Option<String>, Query, description = "Only those of this limit."),
        ("subject" = Option<String>, Query, description = "Only this subject's; goes with `kind` and `tenant`."),
        ("kind" = Option<String>, Query, description = "The kind of the subject; `user` if absent."),
        ("from" = Option<String>, Query, description = "RFC 3339, inclusive: minutes that begin then or later."),
        ("to" = Option<String>, Query, description = "RFC 3339, exclusive: minutes that begin before."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Minutes, newest first.", body = List<ViolationRow>))
)]
#[get("/v1/admin/violations")]
pub(super) async fn list_violations(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let span_ms = query.span_ms()?;
    let (tenant, limit) = (query.parsed("tenant")?, query.parsed("limit_id")?);
    let asked = ViolationsRequest { tenant, limit, subject: query.subject()?, span_ms, page };
    query.finish()?;
    if asked.subject.is_some() && asked.tenant.is_none() {
        return Err(Problem::parameter("subject", "goes with `tenant`"));
    }
    let rows = state.read(state.operations.violations.list(asked)).await?;
    listing.answer(&state.cursor_key, rows.map(ViolationRow::from))
}
