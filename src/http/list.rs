//! Lists: the page asked for, and the page answered with its signed cursor.

use actix_web::HttpRequest;
use actix_web::HttpResponse;
use serde::Serialize;

use super::answer::{List, json};
use super::cursor::CursorKey;
use super::problem::Problem;
use super::query::Query;
use crate::operations::answers::PageAnswer;
use crate::operations::requests::Page;

/// The list that a page belongs to: its path, its filters and whose view of it this is.
pub(super) struct Listing {
    scope: String,
}

impl Listing {
    /// Takes `limit` and `cursor` from the query, before any filter is taken.
    /// `view` tells apart what different keys see at the same address; empty where all see the same.
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

    /// Answers a page, with a cursor where rows follow.
    pub(super) fn answer<T: Serialize>(
        &self,
        key: &CursorKey,
        page: PageAnswer<T>,
    ) -> Result<HttpResponse, Problem> {
        let next_cursor = page.next.as_deref().map(|position| key.sign(&self.scope, position));
        let list = List { has_more: next_cursor.is_some(), next_cursor, data: page.data, as_of: page.as_of };
        json(HttpResponse::Ok(), &list)
    }
}
