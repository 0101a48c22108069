//! Which of a tenant's subjects there is anything to compare of.

use diesel::sql_types::{Array, BigInt, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::{BEGIN_LOOK_UP, Ledger, LedgerError, instant, number};
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

/// A tenant's meters are those of its balances, so that its usage is looked up by meter and hour; names are looked up one by one.
const QUERY: &str = "SELECT s.number, s.kind, s.id FROM ( \
        SELECT a.number FROM ( \
            SELECT u.subject AS number FROM (SELECT DISTINCT meter FROM balances WHERE tenant = $1) m \
                JOIN usage_hourly u ON u.tenant = $1 AND u.meter = m.meter AND u.hour_at >= $3 WHERE u.subject <> 0 \
            UNION SELECT unnest(r.subjects) FROM reservations r WHERE r.tenant = $1 AND r.state = 'reserved') a \
        WHERE a.number > $5 ORDER BY a.number) n \
    CROSS JOIN LATERAL (SELECT number, kind, id FROM subjects \
                        WHERE tenant = $1 AND number = n.number AND kind = ANY($2) OFFSET 0) s \
    ORDER BY n.number LIMIT $4";

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
        let (name, kinds) = (tenant.to_string(), kinds.iter().map(ToString::to_string).collect::<Vec<_>>());
        let rows = self
            .transact(BEGIN_LOOK_UP, move |connection| {
                let query = sql_query(QUERY)
                    .bind::<Text, _>(name)
                    .bind::<Array<Text>, _>(kinds)
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
