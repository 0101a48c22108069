//! Lists: the page asked for, and the page answered with its signed cursor; or the whole list as a file.

use actix_web::{HttpRequest, HttpResponse};
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
use super::xlsx::{self, Sheet};
use crate::domain::ids::TenantId;
use crate::domain::instant::rfc3339;
use crate::operations::answers::Rows;
use crate::operations::requests::Page;

/// How a list may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
    Xlsx,
}

const FORMATS: &[(&str, Format)] = &[("json", Format::Json), ("csv", Format::Csv), ("xlsx", Format::Xlsx)];

/// What `format` means for a list.
pub(super) const FORMAT_PARAMETER: &str = "`json`, in pages; `csv` or `xlsx` (a workbook), a file of all rows, at most \
     10000, without `limit` and `cursor`. `json` if absent.";

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

    /// Answers a page, or the file that was asked for.
    pub(super) async fn answer_or_file<T: Serialize + TableRow>(
        &self,
        key: &CursorKey,
        rows: Rows<T>,
    ) -> Result<HttpResponse, Problem> {
        if self.format == Format::Json {
            return self.answer(key, rows);
        }
        let as_of_ms = rows.as_of_ms;
        let (header, rows) = whole(rows)?;
        if self.format == Format::Csv {
            return csv::answer(T::FILE, &header, &rows);
        }
        xlsx::answer_long(T::FILE, as_of_ms, Sheet { name: "Rows", header, rows }).await
    }
}

/// A table's columns and rows.
type Table = (Vec<&'static str>, Vec<Vec<Cell>>);

/// The table of all rows, with the instant of the figures in its last column; refused where rows are left over.
fn whole<T: TableRow>(list: Rows<T>) -> Result<Table, Problem> {
    let mut header = T::COLUMNS.to_vec();
    let most = usize::try_from(Page::ROWS_MAX).unwrap_or(usize::MAX);
    let mut rows: Vec<_> = list.data.iter().flat_map(TableRow::table_rows).take(most + 1).collect();
    if list.next.is_some() || rows.len() > most {
        let message = format!("has at most {most} rows in a file; narrow the filters, or read pages of JSON");
        return Err(Problem::parameter("format", message));
    }
    if let Some(as_of) = list.as_of_ms.map(rfc3339) {
        header.push("as_of");
        rows.iter_mut().for_each(|row| row.push(Cell::text(Some(&as_of))));
    }
    Ok((header, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row;

    impl TableRow for Row {
        const FILE: &'static str = "rows";
        const COLUMNS: &'static [&'static str] = &["number"];

        fn table_rows(&self) -> Vec<Vec<Cell>> {
            vec![vec![Cell::number(Some(1))]; 2]
        }
    }

    fn rows(count: usize, next: Option<&str>) -> Rows<Row> {
        let data = std::iter::repeat_with(|| Row).take(count).collect();
        Rows { data, next: next.map(str::to_owned), as_of_ms: None }
    }

    #[test]
    fn a_file_is_whole_or_refused() {
        assert_eq!(whole(rows(5_000, None)).unwrap().1.len(), 10_000);
        for list in [rows(5_001, None), rows(1, Some("2"))] {
            assert!(whole(list).unwrap_err().to_string().contains("10000"));
        }
    }
}
