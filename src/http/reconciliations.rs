//! `/v1/reconciliations`: the books compared with what a supplier charged.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use futures::stream::{self, StreamExt};

use super::answer::{List, json};
use super::auth::Caller;
use super::body::{check_coding, discard};
use super::csv;
use super::headers::IDEMPOTENCY_REPLAYED;
use super::idempotency;
use super::list::Listing;
use super::problem::{Code, Problem, ProblemDocument};
use super::query::Query;
use super::shapes::{FindingRow, ReconciledBill};
use super::state::State;
use super::tables::TableRow;
use crate::domain::amount::Amount;
use crate::domain::supplier_bill::{
    BillId, BillState, BillTerms, Columns, Finding, Outcome, TOLERANCE_SECONDS_MAX, Tolerance, UseReference,
};
use crate::operations::answers::BillDetails;
use crate::operations::requests::{BillRequest, FindingsRequest, Page};
use crate::operations::{BillUpload, Reads};

/// The most characters of a supplier's name, a column's title or a key of metadata.
const NAME_CHARACTERS_MAX: usize = 128;

const OUTCOMES: &[(&str, Outcome)] = &[
    ("matched", Outcome::Matched),
    ("different", Outcome::Different),
    ("missing_here", Outcome::MissingHere),
    ("missing_there", Outcome::MissingThere),
];

const DELIMITERS: &[(&str, u8)] = &[("comma", b','), ("semicolon", b';'), ("tab", b'\t')];

/// Compare the books with a supplier's bill, a CSV file. It is read while it arrives and may have five million rows.
/// The answer comes once all of it is read: 201 if it is compared by then, 202 if that goes on.
#[utoipa::path(
    tag = "reports",
    params(
        ("supplier" = String, Query, description = "Who charges, for people."),
        ("meter" = String, Query, description = "What is charged for."),
        ("from" = String, Query, description = "What was consumed from here on; RFC 3339, inclusive."),
        ("to" = String, Query, description = "And before; RFC 3339, exclusive."),
        ("tenant" = Option<String>, Query, description = "Only what this tenant used."),
        ("amount_column" = String, Query, description = "The title of the column with the amount, in the meter's units."),
        ("reference_column" = Option<String>, Query, description = "The title of the column that says what a row is for. Without it, rows are matched by amount and time."),
        ("time_column" = Option<String>, Query, description = "The title of the column that says when (RFC 3339). Required without `reference_column`."),
        ("tenant_column" = Option<String>, Query, description = "The title of the column that says whose work it was, where the bill is for several tenants."),
        ("reference_metadata" = Option<String>, Query, description = "A reference is what the reservation's metadata has under this key; the id of the reservation if absent. Needs `tenant` or `tenant_column`."),
        ("delimiter" = Option<String>, Query, description = "What separates cells: `comma` (if absent), `semicolon` or `tab`."),
        ("tolerance_amount" = Option<String>, Query, description = "Amounts that differ by no more are the same; 0 if absent."),
        ("tolerance_percent" = Option<String>, Query, description = "Amounts that differ by no more percent of what is booked are the same; 0 if absent."),
        ("tolerance_seconds" = Option<u32>, Query, description = "How far apart in time a use and its row may be; uses so near the span may be on the bill too. Required without `reference_column`."),
        ("dry_run" = Option<String>, Query, description = "`true`: only the figures are kept, no findings."),
        ("Idempotency-Key" = String, Header, description = "Required."),
    ),
    request_body(content = String, content_type = "text/csv", description = "The bill, in UTF-8; its first row has the titles of its columns."),
    responses(
        (status = 201, description = "Compared.", body = ReconciledBill),
        (status = 202, description = "Read; it is being compared.", body = ReconciledBill),
        (status = 200, description = "A replay.", body = ReconciledBill),
        (status = 409, description = "`in_use`: the bill is still being sent under this key.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
#[post("/v1/reconciliations")]
pub(super) async fn reconcile_bill(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    mut payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let answer = match begin(&state, &caller, &request).await {
        Ok(upload) => send(&state, &mut payload, upload).await,
        Err(problem) => Err(problem),
    };
    // A sender that has stalled sends nothing that could be discarded, and one that trickles is not waited for.
    if answer.as_ref().is_err_and(|problem| problem.status() != StatusCode::REQUEST_TIMEOUT) {
        let discarding = discard(payload.into_inner());
        let _ = tokio::time::timeout(state.options.body_timeout, discarding).await;
    }
    created(answer?)
}

/// Begins the comparison, before anything of the bill is taken.
async fn begin(state: &State, caller: &Caller, request: &HttpRequest) -> Result<BillUpload, Problem> {
    check_head(request.headers())?;
    let terms = read_terms(Query::of(request)?)?;
    let key = idempotency::key_of(request.headers(), None)?.ok_or_else(Problem::key_required)?;
    let begun = state.operations.supplier_bills.receive(BillRequest { key, terms }, caller.actor());
    state.read(begun).await
}

/// Takes the bill, and waits until it is read. What fails breaks it off.
async fn send(
    state: &State,
    payload: &mut web::Payload,
    mut upload: BillUpload,
) -> Result<BillDetails, Problem> {
    take(state, payload, &mut upload).await?;
    Ok(upload.finish().await?)
}

/// Hands the body over until it ends, or until no more of it is wanted.
async fn take(state: &State, payload: &mut web::Payload, upload: &mut BillUpload) -> Result<(), Problem> {
    loop {
        let next = tokio::time::timeout(state.options.body_timeout, payload.next()).await;
        let next = next.map_err(|_| {
            Problem::new(Code::RequestTimeout, "The body did not arrive in time; send the call again.")
        })?;
        let Some(chunk) = next else { return Ok(()) };
        let chunk = chunk.map_err(|_| Problem::invalid("The body broke off."))?;
        if !upload.push(chunk).await? {
            return Ok(());
        }
    }
}

fn created(made: BillDetails) -> Result<HttpResponse, Problem> {
    let (replayed, state) = (made.replayed, made.stored.state);
    let builder = match state {
        _ if replayed => HttpResponse::Ok(),
        BillState::Done => HttpResponse::Created(),
        _ => HttpResponse::Accepted(),
    };
    let mut answer = json(builder, &ReconciledBill::from(made))?;
    if replayed {
        answer.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(answer)
}

/// List comparisons with suppliers' bills, newest first.
#[utoipa::path(
    tag = "reports",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Comparisons.", body = List<ReconciledBill>))
)]
#[get("/v1/reconciliations")]
pub(super) async fn list_bills(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    query.finish()?;
    let rows = state.read(state.operations.supplier_bills.list(page)).await?;
    listing.answer(&state.cursor_key, rows.map(ReconciledBill::from))
}

/// Read a comparison with a supplier's bill: how far it is, and what it found in all.
#[utoipa::path(
    tag = "reports",
    params(("id" = String, Path, description = "The comparison.")),
    responses((status = 200, description = "The comparison.", body = ReconciledBill))
)]
#[get("/v1/reconciliations/{id}")]
pub(super) async fn get_bill(
    state: web::Data<State>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    Query::of(&request)?.finish()?;
    let found = state.read(state.operations.supplier_bills.get(bill_id(&id)?)).await?;
    json(HttpResponse::Ok(), &ReconciledBill::from(found))
}

/// What a comparison found, by outcome: uses and rows that belong together. A dry run keeps none; there are none yet
/// while it goes on (409), and none at all where it failed (404).
#[utoipa::path(
    tag = "reports",
    params(
        ("id" = String, Path, description = "The comparison."),
        ("outcome" = Option<String>, Query, description = "Only `matched`, `different`, `missing_here` or `missing_there`."),
        ("format" = Option<String>, Query, description = "`json`, in pages; `csv`, without `limit` and `cursor`, a file of all rows; `xlsx`, a workbook of at most 1048575. `json` if absent."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses(
        (
            status = 200,
            description = "Findings, by outcome.",
            content(
                (List<FindingRow> = "application/json"),
                (String = "text/csv"),
                (Vec<u8> = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
            )
        ),
        (status = 409, description = "`in_use`: the bill is not compared yet.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
#[get("/v1/reconciliations/{id}/results")]
pub(super) async fn list_findings(
    state: web::Data<State>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin_or_file(&request, &mut query, &state.cursor_key, "")?;
    let outcome = query.word("outcome", OUTCOMES)?;
    query.finish()?;
    let asked = FindingsRequest { id: bill_id(&id)?, outcome, page };
    if listing.is_csv() {
        return export(&state, asked).await;
    }
    let (page, operations) = (asked.page.clone(), state.operations.clone());
    let ask = async move |_: &Reads, page: Page| {
        let asked = FindingsRequest { page, ..asked.clone() };
        Ok(operations.supplier_bills.list_findings(asked).await?.map(FindingRow::from))
    };
    listing.answer_or_file(&state, page, ask).await
}

/// A file that is sent while it is read. What fails after its first rows breaks the answer off.
async fn export(state: &State, asked: FindingsRequest) -> Result<HttpResponse, Problem> {
    let mut export = state.read(state.operations.supplier_bills.export_findings(asked)).await?;
    let first = state.read(export.next()).await?;
    let first = lines(Some(FindingRow::COLUMNS), first);
    let rest = stream::try_unfold(export, |mut export| async move {
        let page = export.next().await.map_err(|fault| csv::broken_off(&fault))?;
        if page.is_empty() {
            return Ok(None);
        }
        Ok(Some((lines(None, page)?, export)))
    });
    Ok(csv::attached(FindingRow::FILE).streaming(stream::iter([first]).chain(rest)))
}

fn lines(header: Option<&[&str]>, page: Vec<Finding>) -> Result<Bytes, std::io::Error> {
    let rows: Vec<_> = page.into_iter().map(FindingRow::from).flat_map(|row| row.table_rows()).collect();
    csv::lines(header, &rows).map(Bytes::from).map_err(|fault| csv::broken_off(&*fault))
}

fn bill_id(text: &str) -> Result<BillId, Problem> {
    text.parse().map_err(|_| Problem::new(Code::NotFound, "There is no such reconciliation."))
}

/// `text/csv`, whatever its parameters say: what is not UTF-8 is found in its cells.
fn check_head(headers: &HeaderMap) -> Result<(), Problem> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = sent.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("text/csv") {
        let detail = "The body must be the bill: send `Content-Type: text/csv`.";
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    check_coding(headers)
}

fn read_terms(mut query: Query) -> Result<BillTerms, Problem> {
    let (from_ms, to_ms) = query.span_ms()?;
    let columns = Columns {
        amount: required("amount_column", name(&mut query, "amount_column")?)?,
        reference: name(&mut query, "reference_column")?,
        time: name(&mut query, "time_column")?,
        tenant: name(&mut query, "tenant_column")?,
    };
    let metadata = name(&mut query, "reference_metadata")?;
    let terms = BillTerms {
        supplier: required("supplier", name(&mut query, "supplier")?)?,
        tenant: query.parsed("tenant")?,
        meter: required("meter", query.parsed("meter")?)?,
        from_ms: required("from", from_ms)?,
        to_ms: required("to", to_ms)?,
        tolerance: tolerance(&mut query, columns.reference.is_none())?,
        columns,
        reference: metadata.map_or(UseReference::Reservation, UseReference::Metadata),
        delimiter: query.word("delimiter", DELIMITERS)?.unwrap_or(b','),
        dry_run: query.word("dry_run", &[("true", true), ("false", false)])?.unwrap_or_default(),
    };
    query.finish()?;
    check(&terms)?;
    Ok(terms)
}

fn check(terms: &BillTerms) -> Result<(), Problem> {
    let Columns { reference, time, tenant, .. } = &terms.columns;
    let has_metadata = matches!(terms.reference, UseReference::Metadata(_));
    if reference.is_none() && time.is_none() {
        let message =
            "is required without `time_column`: rows are matched by reference, or by amount and time";
        return Err(Problem::parameter("reference_column", message));
    }
    if reference.is_none() && has_metadata {
        return Err(Problem::parameter("reference_metadata", "goes with `reference_column`"));
    }
    if terms.tenant.is_some() && tenant.is_some() {
        return Err(Problem::parameter("tenant_column", "does not go with `tenant`"));
    }
    if terms.tenant.is_none() && tenant.is_none() && (reference.is_none() || has_metadata) {
        let message = "is required, or `tenant_column`: only the id of a reservation says whose it is";
        return Err(Problem::parameter("tenant", message));
    }
    Ok(())
}

fn tolerance(query: &mut Query, needs_seconds: bool) -> Result<Tolerance, Problem> {
    let percent = amount(query, "tolerance_percent")?;
    if percent > Amount::from_integer(100) {
        return Err(Problem::parameter("tolerance_percent", "must be at most 100"));
    }
    let seconds = query.text("tolerance_seconds").map(|text| {
        let seconds = text.parse().ok().filter(|seconds| *seconds <= TOLERANCE_SECONDS_MAX);
        seconds.filter(|_| text.bytes().all(|byte| byte.is_ascii_digit())).ok_or_else(|| {
            let message = format!("must be a whole number from 0 to {TOLERANCE_SECONDS_MAX}");
            Problem::parameter("tolerance_seconds", message)
        })
    });
    let seconds = seconds.transpose()?;
    if seconds.is_none() && needs_seconds {
        return Err(Problem::parameter("tolerance_seconds", "is required without `reference_column`"));
    }
    let amount = amount(query, "tolerance_amount")?;
    Ok(Tolerance { amount, percent, seconds: seconds.unwrap_or_default() })
}

/// A number that is not below zero; 0 if absent.
fn amount(query: &mut Query, parameter: &str) -> Result<Amount, Problem> {
    let Some(text) = query.text(parameter) else { return Ok(Amount::ZERO) };
    Amount::parse(&text).map_err(|error| Problem::parameter(parameter, error))
}

fn name(query: &mut Query, parameter: &str) -> Result<Option<String>, Problem> {
    let Some(text) = query.text(parameter) else { return Ok(None) };
    let length = text.chars().count();
    if !(1..=NAME_CHARACTERS_MAX).contains(&length)
        || text.chars().any(char::is_control)
        || text.trim() != text
    {
        let message = format!("must be 1 to {NAME_CHARACTERS_MAX} characters, without spaces around them");
        return Err(Problem::parameter(parameter, message));
    }
    Ok(Some(text))
}

fn required<T>(parameter: &str, value: Option<T>) -> Result<T, Problem> {
    value.ok_or_else(|| Problem::parameter(parameter, "is required"))
}
