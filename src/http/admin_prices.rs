//! `/v1/admin/prices`: all versions of prices, those of plans and those that tenants have of their own.

use actix_web::{HttpRequest, HttpResponse, get, web};

use super::answer::List;
use super::list::Listing;
use super::openapi::domain::OwnedPrice;
use super::problem::Problem;
use super::query::Query;
use super::state::State;
use crate::operations::requests::{PriceOwner, PricesRequest};

/// List prices in all their versions: those of plans, then those that tenants have of their own.
///
/// Of one owner they are sorted by meter, id and currency, the newest version first. They are changed with their plan
/// or tenant.
#[utoipa::path(
    tag = "admin",
    params(
        ("plan" = Option<String>, Query, description = "Only this plan's."),
        ("tenant" = Option<String>, Query, description = "Only this tenant's own; not together with `plan`."),
        ("meter" = Option<String>, Query, description = "Only of this meter."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Prices, each with its `plan` or its `tenant`.", body = List<OwnedPrice>))
)]
#[get("/v1/admin/prices")]
pub(super) async fn list_prices(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let owner = match (query.parsed("plan")?, query.parsed("tenant")?) {
        (Some(_), Some(_)) => {
            return Err(Problem::parameter(
                "tenant",
                "is not for the prices of a `plan`: ask for one of both",
            ));
        }
        (Some(plan), None) => Some(PriceOwner::Plan(plan)),
        (None, tenant) => tenant.map(PriceOwner::Tenant),
    };
    let asked = PricesRequest { owner, meter: query.parsed("meter")?, page };
    query.finish()?;
    let rows = state.read(state.operations.policy.list_prices(asked)).await?;
    listing.answer(&state.cursor_key, rows)
}
