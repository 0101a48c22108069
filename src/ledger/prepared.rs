//! Statements that are sent again and again, and rows that are sent as a whole.

use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{SqlType, Untyped};

/// A statement whose text never changes: each connection parses it once. Its plan is kept too in transactions begun by
/// [`super::BEGIN_BOOKING`] or [`super::BEGIN_LOOK_UP`] and over connections of [`super::Ledger::under_kept_plans`].
pub(crate) struct Prepared<Q>(pub(crate) Q);

impl<Q: QueryFragment<Pg>> QueryFragment<Pg> for Prepared<Q> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        self.0.walk_ast(out)
    }

    // By default Diesel does not prepare plain text, because it might never be sent again.
    fn is_safe_to_cache_prepared(&self, _backend: &Pg) -> QueryResult<bool> {
        Ok(true)
    }
}

impl<Q> QueryId for Prepared<Q> {
    type QueryId = ();

    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q> Query for Prepared<Q> {
    type SqlType = Untyped;
}

/// A row of a composite type. The statement names the type, and Postgres takes it from there.
#[derive(Debug, Clone, Copy, SqlType, diesel::query_builder::QueryId)]
#[diesel(postgres_type(oid = 0, array_oid = 0))]
pub(crate) struct Row;
