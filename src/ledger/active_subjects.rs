//! Which of a tenant's subjects have something to compare.

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Text, Timestamptz};
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::prepared::sql_query;
use super::{BEGIN_LOOK_UP, Ledger, LedgerError, instant, number};
use crate::domain::ids::{Subject, SubjectId, SubjectKind, TenantId};

#[derive(QueryableByName)]
struct SubjectRow {
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Text)]
    kind: SubjectKind,
    #[diesel(sql_type = Text)]
    id: SubjectId,
}

impl Ledger {
    /// Subjects of these kinds with usage since an instant (unix ms) or with open holds, but those whose names were
    /// erased, in the order of their numbers, after the number `after`, at most `limit`.
    pub async fn active_subjects(
        &self,
        tenant: &TenantId,
        kinds: &[SubjectKind],
        since_ms: i64,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, Subject)>, LedgerError> {
        let since = instant::from_ms(since_ms)?;
        let (tenant, kinds) = (tenant.clone(), kinds.to_vec());
        let rows = self
            .transact(BEGIN_LOOK_UP, move |connection| {
                let query = sql_query(include_str!("sql/active_subjects.sql"))
                    .bind::<Text, _>(tenant)
                    .bind::<Array<Text>, _>(kinds)
                    .bind::<Timestamptz, _>(since)
                    .bind::<BigInt, _>(number::limit(limit))
                    .bind::<BigInt, _>(after);
                async move { Ok(query.load::<SubjectRow>(connection).await?) }.boxed()
            })
            .await?;
        let read = |row: SubjectRow| (row.number, Subject { kind: row.kind, id: row.id });
        Ok(rows.into_iter().map(read).collect())
    }
}
