//! The entries of the books: of a tenant, and over all.

use actix_web::http::header::HeaderValue;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, get, web};
use futures::stream::{self, StreamExt};

use super::answer::List;
use super::auth::{Caller, TenantInPath};
use super::cell::Cell;
use super::csv;
use super::headers::ENTRIES_HELD_FROM;
use super::list::{Listing, ReportQuery};
use super::problem::Problem;
use super::query::Query;
use super::shapes::EntryRow;
use super::state::State;
use super::tables::TableRow;
use crate::domain::instant::rfc3339;
use crate::domain::movements::EntryClass;
use crate::operations::Reads;
use crate::operations::answers::StoredEntry;
use crate::operations::requests::{EntriesRequest, EntryFilter, Page};

/// What `format` means for entries.
const FORMAT: &str = "`json`, in pages; without `limit` and `cursor`, `csv`, a file of all rows as of the instant in its \
     column `as_of`, or `xlsx`, a workbook of at most 1048575 rows. `json` if absent.";

const CLASSES: &[(&str, EntryClass)] = &[
    ("usage", EntryClass::Usage),
    ("grant", EntryClass::Grant),
    ("period", EntryClass::Period),
    ("correction", EntryClass::Correction),
];

/// The entries of the books.
#[utoipa::path(
    tag = "tenant",
    params(
        ("tenant" = String, Path, description = "The tenant."),
        ("from" = Option<String>, Query, description = "RFC 3339, inclusive."),
        ("to" = Option<String>, Query, description = "RFC 3339, exclusive."),
        ("meter" = Option<String>, Query, description = "Only this meter."),
        ("reservation" = Option<String>, Query, description = "Only those of this reservation."),
        ("class" = Option<String>, Query, description = "Only of this class: `usage`, `grant`, `period` or `correction`."),
        ("format" = Option<String>, Query, description = FORMAT),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((
        status = 200,
        description = "Entries, newest first.",
        content(
            (List<EntryRow> = "application/json"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/tenants/{tenant}/entries")]
pub(super) async fn list_entries(
    state: web::Data<State>,
    tenant: TenantInPath,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin_or_file(&request, &mut query, &state.cursor_key, "")?;
    let filter = filter(&state, &mut query)?;
    query.finish()?;
    let asked = EntriesRequest { tenant: Some(tenant.0), filter, page };
    answer(&state, &listing, asked).await
}

/// The entries of the books over all tenants, or of one; a key bound to a tenant sees its own.
#[utoipa::path(
    tag = "reports",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant."),
        ("from" = Option<String>, Query, description = "RFC 3339, inclusive."),
        ("to" = Option<String>, Query, description = "RFC 3339, exclusive."),
        ("meter" = Option<String>, Query, description = "Only this meter."),
        ("reservation" = Option<String>, Query, description = "Only those of this reservation; needs `tenant`."),
        ("class" = Option<String>, Query, description = "Only of this class: `usage`, `grant`, `period` or `correction`."),
        ("format" = Option<String>, Query, description = FORMAT),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((
        status = 200,
        description = "Entries by tenant from the last name to the first, of each the newest first.",
        content(
            (List<EntryRow> = "application/json"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
        )
    ))
)]
#[get("/v1/reports/entries")]
pub(super) async fn report_entries(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let ReportQuery { mut query, listing, page, tenant } = ReportQuery::of(&request, &state, &caller)?;
    let filter = filter(&state, &mut query)?;
    query.finish()?;
    if filter.reservation.is_some() && tenant.is_none() {
        return Err(Problem::parameter("reservation", "needs `tenant`: it is looked for among its tenant's"));
    }
    let asked = EntriesRequest { tenant, filter, page };
    answer(&state, &listing, asked).await
}

fn filter(state: &State, query: &mut Query) -> Result<EntryFilter, Problem> {
    let (from_ms, to_ms) = query.span_ms()?;
    let reservation = query.text("reservation").map(|text| {
        let parsed = state.operations.calls.parse_reservation_id(&text);
        parsed.map_err(|_| Problem::parameter("reservation", "is not a reservation id of this installation"))
    });
    Ok(EntryFilter {
        meter: query.parsed("meter")?,
        from_ms,
        to_ms,
        reservation: reservation.transpose()?,
        class: query.word("class", CLASSES)?,
        booked_by: None,
    })
}

async fn answer(state: &State, listing: &Listing, asked: EntriesRequest) -> Result<HttpResponse, Problem> {
    let held_from_ms = state.read(state.operations.reads.entries_held_from_ms(asked.filter.from_ms)).await?;
    let mut answer = if listing.is_csv() {
        export(state, asked).await?
    } else {
        let page = asked.page.clone();
        let ask = async move |reads: &Reads, page: Page| {
            Ok(reads.list_entries(EntriesRequest { page, ..asked.clone() }).await?.map(EntryRow::from))
        };
        listing.answer_or_file(state, page, ask).await?
    };
    let text = held_from_ms.and_then(|from_ms| HeaderValue::try_from(rfc3339(from_ms)).ok());
    if let Some(text) = text {
        answer.headers_mut().insert(ENTRIES_HELD_FROM, text);
    }
    Ok(answer)
}

/// A file that is sent while it is read. What fails before its first rows is answered as a problem; what fails later
/// breaks the answer off, so that a client does not take the part for the whole.
async fn export(state: &State, asked: EntriesRequest) -> Result<HttpResponse, Problem> {
    let mut export = state.read(state.operations.reads.export_entries(asked)).await?;
    let first = state.read(export.next()).await?;
    let as_of = rfc3339(export.as_of_ms());
    let columns = [EntryRow::COLUMNS, &["as_of"]].concat();
    let first = csv::lines(Some(&columns), &table(first, &as_of));
    let rest = stream::try_unfold(export, move |mut export| {
        let as_of = as_of.clone();
        async move {
            let page = export.next().await.map_err(|fault| csv::broken_off(&fault))?;
            if page.is_empty() {
                return Ok(None);
            }
            let lines = csv::lines(None, &table(page, &as_of)).map_err(|fault| csv::broken_off(&*fault))?;
            Ok(Some((Bytes::from(lines), export)))
        }
    });
    let first = first.map(Bytes::from).map_err(|fault| csv::broken_off(&*fault));
    Ok(csv::attached(EntryRow::FILE).streaming(stream::iter([first]).chain(rest)))
}

fn table(entries: Vec<StoredEntry>, as_of: &str) -> Vec<Vec<Cell>> {
    let rows = entries.into_iter().map(EntryRow::from).flat_map(|row| row.table_rows());
    rows.map(|mut row| {
        row.push(Cell::text(Some(as_of)));
        row
    })
    .collect()
}
