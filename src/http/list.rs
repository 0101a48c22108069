//! Lists: the page asked for, and the page answered with its signed cursor.

use actix_web::HttpRequest;
use actix_web::HttpResponse;
use serde::Serialize;

use super::answer::{List, json};
use super::cursor::CursorKey;
use super::problem::Problem;
use super::query::Query;
use crate::domain::instant::rfc3339;
use crate::operations::answers::Rows;
use crate::operations::requests::Page;

/// Identifies the list of a page: its path, its filters and its view.
pub(super) struct Listing {
    scope: String,
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
        Ok((Self { scope }, Page { limit, after }))
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
}
