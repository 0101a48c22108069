//! Who has open reservations that a new epoch made the gate forget.

use chrono::{DateTime, Utc};
use diesel::sql_types::{self, Array, BigInt, Nullable, SmallInt, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::{Ledger, LedgerError, instant, number};
use crate::domain::ids::{Partition, ReservationId, Subject, SubjectId, SubjectKind, TenantId};

/// A tenant with open reservations of older epochs, and the subjects that these name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenHolder {
    /// Whose they are.
    pub tenant: TenantId,
    /// Whom they name, each once.
    pub subjects: Vec<Subject>,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Nullable<Text>)]
    kind: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    id: Option<String>,
}

impl Row {
    fn subject(&self) -> Result<Option<Subject>, LedgerError> {
        let (Some(kind), Some(id)) = (&self.kind, &self.id) else { return Ok(None) };
        let damaged = |_| LedgerError::Damaged(format!("a subject of {}", self.tenant));
        let (kind, id) = (SubjectKind::parse(kind).map_err(damaged)?, SubjectId::parse(id).map_err(damaged)?);
        Ok(Some(Subject { kind, id }))
    }
}

/// A hold that is open in the books although it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverdueHold {
    /// Which reservation.
    pub id: ReservationId,
    /// Whose.
    pub tenant: TenantId,
    /// When it ended (unix ms).
    pub expires_at_ms: i64,
}

#[derive(QueryableByName)]
struct OverdueRow {
    #[diesel(sql_type = sql_types::Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Timestamptz)]
    expires_at: DateTime<Utc>,
}

/// Those whose events wait in quarantine are decided there.
const OVERDUE: &str = "SELECT r.id, r.tenant, r.expires_at FROM reservations r \
    WHERE r.state = 'reserved' AND r.expires_at < $1 AND (r.tenant, r.expires_at, r.id) > ($2, $3, $4) \
        AND NOT EXISTS (SELECT FROM quarantine q WHERE q.status = 'open' AND q.reservation_id = r.id) \
    ORDER BY r.tenant, r.expires_at, r.id LIMIT $5";

/// Reads only the index of open reservations, from tenant to tenant.
const HOLDERS: &str = "WITH issued AS (SELECT partition, max(epoch) AS epoch FROM epochs GROUP BY partition), \
    page AS (SELECT DISTINCT r.tenant FROM reservations r JOIN issued e ON e.partition = r.partition AND r.epoch < e.epoch \
             WHERE r.state = 'reserved' AND r.tenant > $1 AND r.partition = ANY($3) ORDER BY r.tenant LIMIT $2) \
    SELECT DISTINCT p.tenant, s.kind, s.id FROM page p \
    LEFT JOIN LATERAL (SELECT DISTINCT unnest(r.subjects) AS number FROM reservations r \
                       WHERE r.tenant = p.tenant AND r.state = 'reserved') n ON true \
    LEFT JOIN subjects s ON s.tenant = p.tenant AND s.number = n.number ORDER BY p.tenant, s.kind, s.id";

impl Ledger {
    /// Tenants of these partitions with open reservations of older epochs, by name, at most `limit`, from behind `after`.
    pub async fn holders_of_older_epochs(
        &self,
        partitions: &[Partition],
        after: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<OpenHolder>, LedgerError> {
        let after = after.map_or("", TenantId::as_str);
        let partitions: Vec<i16> =
            partitions.iter().map(|partition| number::of_partition(*partition)).collect();
        let rows = self
            .read(|connection| {
                let query = sql_query(HOLDERS)
                    .bind::<Text, _>(after.to_owned())
                    .bind::<BigInt, _>(number::limit(limit))
                    .bind::<Array<SmallInt>, _>(partitions.clone());
                async move { Ok(query.load::<Row>(connection).await?) }.boxed()
            })
            .await?;
        let mut holders: Vec<OpenHolder> = Vec::new();
        for row in rows {
            let (tenant, subject) = (number::tenant(&row.tenant)?, row.subject()?);
            match holders.last_mut().filter(|holder| holder.tenant == tenant) {
                Some(holder) => holder.subjects.extend(subject),
                None => holders.push(OpenHolder { tenant, subjects: subject.into_iter().collect() }),
            }
        }
        Ok(holders)
    }

    /// Holds that ended before this instant (unix ms) and are open in the books, by tenant and end, at most `limit`, from behind
    /// `after`.
    pub async fn overdue_holds(
        &self,
        before_ms: i64,
        after: Option<&OverdueHold>,
        limit: usize,
    ) -> Result<Vec<OverdueHold>, LedgerError> {
        let before = instant::from_ms(before_ms)?;
        let tenant = after.map_or("", |hold| hold.tenant.as_str());
        let ended_at = instant::from_ms(after.map_or(0, |hold| hold.expires_at_ms))?;
        let id = after.map_or(uuid::Uuid::nil(), |hold| hold.id.uuid());
        let rows: Vec<OverdueRow> = self
            .read(|connection| {
                let query = sql_query(OVERDUE)
                    .bind::<Timestamptz, _>(before)
                    .bind::<Text, _>(tenant.to_owned())
                    .bind::<Timestamptz, _>(ended_at)
                    .bind::<sql_types::Uuid, _>(id)
                    .bind::<BigInt, _>(number::limit(limit));
                async move { Ok(query.load(connection).await?) }.boxed()
            })
            .await?;
        let read = |row: OverdueRow| {
            Ok(OverdueHold {
                id: ReservationId::from_bytes(row.id.into_bytes()),
                tenant: number::tenant(&row.tenant)?,
                expires_at_ms: row.expires_at.timestamp_millis(),
            })
        };
        rows.into_iter().map(read).collect()
    }
}
