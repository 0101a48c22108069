//! Statements that are sent again and again, and rows that are sent as a whole.

use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, BoxedSqlQuery, Query, QueryFragment, QueryId, SqlQuery};
use diesel::serialize::ToSql;
use diesel::sql_query as text_query;
use diesel::sql_types::{HasSqlType, SqlType, Untyped};

/// A statement whose text never changes, of which each connection keeps what it has parsed. Its plan is kept too in
/// transactions begun by [`super::BEGIN_BOOKING`] or [`super::BEGIN_LOOK_UP`] and over connections of
/// [`super::Ledger::under_kept_plans`].
pub(crate) struct Statement<'a>(BoxedSqlQuery<'a, Pg, SqlQuery>);

/// As Diesel's function of this name, which keeps nothing, because its text might never be sent again.
pub(crate) fn sql_query<'a>(text: &'static str) -> Statement<'a> {
    Statement(text_query(text).into_boxed())
}

impl<'a> Statement<'a> {
    /// Binds the next value.
    pub(crate) fn bind<S, V>(self, value: V) -> Self
    where
        Pg: HasSqlType<S>,
        S: Send + 'a,
        V: ToSql<S, Pg> + Send + 'a,
    {
        Self(self.0.bind(value))
    }
}

impl QueryFragment<Pg> for Statement<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        self.0.walk_ast(out)
    }

    fn is_safe_to_cache_prepared(&self, _backend: &Pg) -> QueryResult<bool> {
        Ok(true)
    }
}

impl QueryId for Statement<'_> {
    type QueryId = ();

    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Statement<'_> {
    type SqlType = Untyped;
}

/// A row of a composite type. The statement names the type, and Postgres takes it from there.
#[derive(Debug, Clone, Copy, SqlType, diesel::query_builder::QueryId)]
#[diesel(postgres_type(oid = 0, array_oid = 0))]
pub(crate) struct Row;
