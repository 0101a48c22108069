//! Which of a tenant's subjects there is anything to compare of.

use diesel::sql_types::{Array, BigInt, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::{Ledger, LedgerError, instant, number};
use crate::domain::ids::{Subject, SubjectId, SubjectKind, TenantId};

#[derive(QueryableByName)]
struct SubjectRow {
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Text)]
    id: String,
}

impl Ledger {
    /// Subjects of these kinds with usage since an instant (unix ms) or with open holds, by their numbers from behind `after`,
    /// at most `limit`.
    pub async fn active_subjects(
        &self,
        tenant: &TenantId,
        kinds: &[SubjectKind],
        since_ms: i64,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, Subject)>, LedgerError> {
        let since = instant::from_ms(since_ms)?;
        let query = "SELECT s.number, s.kind, s.id FROM subjects s WHERE s.tenant = $1 AND s.kind = ANY($2) AND s.number > $5 AND s.number IN ( \
                         SELECT u.subject FROM usage_hourly u WHERE u.tenant = $1 AND u.hour_at >= $3 AND u.subject <> 0 \
                         UNION SELECT unnest(r.subjects) FROM reservations r WHERE r.tenant = $1 AND r.state = 'reserved') \
                     ORDER BY s.number LIMIT $4";
        let rows = self
            .read(|connection| {
                let query = sql_query(query)
                    .bind::<Text, _>(tenant.to_string())
                    .bind::<Array<Text>, _>(kinds.iter().map(ToString::to_string).collect::<Vec<_>>())
                    .bind::<Timestamptz, _>(since)
                    .bind::<BigInt, _>(number::limit(limit))
                    .bind::<BigInt, _>(after);
                async move { Ok(query.load::<SubjectRow>(connection).await?) }.boxed()
            })
            .await?;
        let read = |row: SubjectRow| {
            let damaged = |_| LedgerError::Damaged(format!("a subject of {tenant}"));
            let kind = SubjectKind::parse(&row.kind).map_err(damaged)?;
            Ok((row.number, Subject { kind, id: SubjectId::parse(&row.id).map_err(damaged)? }))
        };
        rows.into_iter().map(read).collect()
    }
}
