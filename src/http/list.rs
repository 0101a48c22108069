//! Lists: the page asked for, and the page answered with its signed cursor; or the whole list as a file.

use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use futures::stream::{self, StreamExt};
use serde::Serialize;

use super::answer::{List, json};
use super::auth::Caller;
use super::cell::Cell;
use super::csv;
use super::cursor::CursorKey;
use super::problem::Problem;
use super::query::Query;
use super::state::State;
use super::tables::TableRow;
use super::xlsx::LongSheet;
use crate::domain::ids::TenantId;
use crate::domain::instant::rfc3339;
use crate::operations::answers::Rows;
use crate::operations::requests::Page;
use crate::operations::{Answer, Reads, Snapshot};

/// How a list may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
    Xlsx,
}

const FORMATS: &[(&str, Format)] = &[("json", Format::Json), ("csv", Format::Csv), ("xlsx", Format::Xlsx)];

/// What `format` means for a list.
pub(super) const FORMAT_PARAMETER: &str = "`json`, in pages; without `limit` and `cursor`, `csv`, a file of all rows as of one instant, \
     or `xlsx`, a workbook of them, at most 1048575. `json` if absent.";

/// What every report over tenants is asked with.
pub(super) struct ReportQuery {
    /// The parameters that are left: the report's own.
    pub(super) query: Query,
    pub(super) listing: Listing,
    pub(super) page: Page,
    /// Only this tenant: that of the key, if it is bound to one.
    pub(super) tenant: Option<TenantId>,
}

impl ReportQuery {
    /// Takes what all reports have in common. A cursor is good for keys of the same tenant only.
    pub(super) fn of(request: &HttpRequest, state: &State, caller: &Caller) -> Result<Self, Problem> {
        let mut query = Query::of(request)?;
        let bound = caller.bound();
        let view = bound.as_ref().map(|tenant| tenant.as_str()).unwrap_or_default();
        let (listing, page) = Listing::begin_or_file(request, &mut query, &state.cursor_key, view)?;
        let tenant = caller.tenant(query.parsed("tenant")?)?;
        Ok(Self { query, listing, page, tenant })
    }
}

/// Identifies the list of a page: its path, its filters and its view.
pub(super) struct Listing {
    scope: String,
    format: Format,
}

impl Listing {
    /// Takes `limit` and `cursor` from the query, before any filter is taken. `view` separates lists that different
    /// keys see at the same address; empty if all keys see the same.
    pub(super) fn begin(
        request: &HttpRequest,
        query: &mut Query,
        key: &CursorKey,
        view: &str,
    ) -> Result<(Self, Page), Problem> {
        let limit = query.limit()?;
        let cursor = query.text("cursor");
        let scope = format!("{}?{}#{view}", request.path(), query.canonical());
        let after = cursor.map(|cursor| key.verify(&scope, &cursor)).transpose()?;
        Ok((Self { scope, format: Format::Json }, Page { limit, after }))
    }

    /// Like [`Listing::begin`], for a list that is also a file, by `format`.
    pub(super) fn begin_or_file(
        request: &HttpRequest,
        query: &mut Query,
        key: &CursorKey,
        view: &str,
    ) -> Result<(Self, Page), Problem> {
        let format = query.word("format", FORMATS)?.unwrap_or(Format::Json);
        if format == Format::Json {
            return Self::begin(request, query, key, view);
        }
        for name in ["limit", "cursor"] {
            if query.text(name).is_some() {
                return Err(Problem::parameter(name, "goes with `format=json`: a file has all rows"));
            }
        }
        Ok((Self { scope: String::new(), format }, Page { limit: Page::ROWS_MAX, after: None }))
    }

    /// Whether a file of comma-separated values was asked for.
    pub(super) fn is_csv(&self) -> bool {
        self.format == Format::Csv
    }

    /// Answers a page, with a cursor if more rows follow.
    pub(super) fn answer<T: Serialize>(
        &self,
        key: &CursorKey,
        rows: Rows<T>,
    ) -> Result<HttpResponse, Problem> {
        let next_cursor = rows.next.as_deref().map(|position| key.sign(&self.scope, position));
        let as_of = rows.as_of_ms.map(rfc3339);
        json(
            HttpResponse::Ok(),
            &List { has_more: next_cursor.is_some(), next_cursor, data: rows.data, as_of },
        )
    }

    /// Answers a page, or the file that was asked for: all rows of one instant, however many pages are asked for.
    pub(super) async fn answer_or_file<T, Ask>(
        &self,
        state: &State,
        page: Page,
        ask: Ask,
    ) -> Result<HttpResponse, Problem>
    where
        T: Serialize + TableRow + 'static,
        Ask: AsyncFn(&Reads, Page) -> Answer<Rows<T>> + 'static,
    {
        if self.format == Format::Json {
            let rows = state.read(ask(&state.operations.reads, page)).await?;
            return self.answer(&state.cursor_key, rows);
        }
        let snapshot = state.read(state.operations.reads.snapshot()).await?;
        let first = state.read(async { ask(&snapshot.reads()?, page).await }).await?;
        if self.format == Format::Csv {
            Ok(csv_of(snapshot, ask, first))
        } else {
            workbook_of(state, snapshot, ask, first).await
        }
    }
}

/// A file that is sent while it is read. What fails after its first rows breaks the answer off, so that a client does
/// not take the part for the whole.
fn csv_of<T, Ask>(snapshot: Snapshot, ask: Ask, first: Rows<T>) -> HttpResponse
where
    T: TableRow + 'static,
    Ask: AsyncFn(&Reads, Page) -> Answer<Rows<T>> + 'static,
{
    let as_of = first.as_of_ms.map(rfc3339);
    let header = header_of::<T>(as_of.as_ref());
    let lines = move |header: Option<&[&str]>, rows: &Rows<T>| {
        let lines = csv::lines(header, &table_of(rows, as_of.as_ref()));
        lines.map(Bytes::from).map_err(|fault| csv::broken_off(&*fault))
    };
    let begin = lines(Some(&header), &first);
    let rest =
        stream::try_unfold((snapshot, ask, lines, first.next), |(snapshot, ask, lines, next)| async move {
            let Some(after) = next else { return Ok(None) };
            let rows = next_rows(&snapshot, &ask, after).await.map_err(|fault| csv::broken_off(&fault))?;
            Ok(Some((lines(None, &rows)?, (snapshot, ask, lines, rows.next))))
        });
    csv::attached(T::FILE).streaming(stream::iter([begin]).chain(rest))
}

/// A workbook, which is sent once it is whole; refused where its rows are more than a sheet takes.
async fn workbook_of<T, Ask>(
    state: &State,
    snapshot: Snapshot,
    ask: Ask,
    first: Rows<T>,
) -> Result<HttpResponse, Problem>
where
    T: TableRow,
    Ask: AsyncFn(&Reads, Page) -> Answer<Rows<T>>,
{
    let as_of = first.as_of_ms.map(rfc3339);
    let mut sheet = LongSheet::begin("Rows", &header_of::<T>(as_of.as_ref()), first.as_of_ms)?;
    let mut rows = first;
    loop {
        sheet = sheet.add(table_of(&rows, as_of.as_ref())).await?;
        let Some(after) = rows.next else { break };
        rows = state.read(next_rows(&snapshot, &ask, after)).await?;
    }
    sheet.answer(T::FILE).await
}

async fn next_rows<T>(
    snapshot: &Snapshot,
    ask: &impl AsyncFn(&Reads, Page) -> Answer<Rows<T>>,
    after: String,
) -> Answer<Rows<T>> {
    ask(&snapshot.reads()?, Page { limit: Page::ROWS_MAX, after: Some(after) }).await
}

/// The titles of a file's columns, with the instant of its figures as the last one.
fn header_of<T: TableRow>(as_of: Option<&String>) -> Vec<&'static str> {
    T::COLUMNS.iter().copied().chain(as_of.map(|_| "as_of")).collect()
}

fn table_of<T: TableRow>(rows: &Rows<T>, as_of: Option<&String>) -> Vec<Vec<Cell>> {
    let rows = rows.data.iter().flat_map(TableRow::table_rows);
    rows.map(|row| row.into_iter().chain(as_of.map(|as_of| Cell::text(Some(as_of)))).collect()).collect()
}
