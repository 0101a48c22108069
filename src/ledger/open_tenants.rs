//! Which tenants have open reservations that the gate forgot by a new epoch.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{self, Array, BigInt, Nullable, SmallInt, Text, Timestamptz};

use super::columns::Milliseconds;
use super::prepared::sql_query;
use super::schema::reservations;
use super::{Ledger, LedgerError, instant, number};
use crate::domain::ids::{Partition, ReservationId, Subject, SubjectId, SubjectKind, TenantId};

/// A tenant with open reservations of older epochs, and the subjects that these name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTenant {
    /// The tenant.
    pub tenant: TenantId,
    /// The subjects that they name, each once.
    pub subjects: Vec<Subject>,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Nullable<Text>)]
    kind: Option<SubjectKind>,
    #[diesel(sql_type = Nullable<Text>)]
    id: Option<SubjectId>,
}

/// A hold that has ended but is still open in the books.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
#[diesel(table_name = reservations, check_for_backend(Pg))]
pub struct OverdueHold {
    /// Its reservation.
    pub id: ReservationId,
    /// Its tenant.
    pub tenant: TenantId,
    /// When it ended (unix ms).
    #[diesel(column_name = expires_at, deserialize_as = Milliseconds)]
    pub expires_at_ms: i64,
}

impl Ledger {
    /// Tenants of these partitions with open reservations of older epochs, by name, at most `limit`, after `after`.
    pub async fn holders_of_older_epochs(
        &self,
        partitions: &[Partition],
        after: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<OpenTenant>, LedgerError> {
        let after = after.map_or("", TenantId::as_str);
        let rows: Vec<Row> = self
            .load(|| {
                sql_query(include_str!("sql/holders_of_older_epochs.sql"))
                    .bind::<Text, _>(after)
                    .bind::<BigInt, _>(number::limit(limit))
                    .bind::<Array<SmallInt>, _>(partitions)
            })
            .await?;
        let mut holders: Vec<OpenTenant> = Vec::new();
        for Row { tenant, kind, id } in rows {
            let subject = kind.zip(id).map(|(kind, id)| Subject { kind, id });
            match holders.last_mut().filter(|holder| holder.tenant == tenant) {
                Some(holder) => holder.subjects.extend(subject),
                None => holders.push(OpenTenant { tenant, subjects: subject.into_iter().collect() }),
            }
        }
        Ok(holders)
    }

    /// Holds that ended before this instant (unix ms) and are open in the books, by tenant and end, at most `limit`,
    /// after `after`.
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
        self.load(|| {
            sql_query(include_str!("sql/overdue_holds.sql"))
                .bind::<Timestamptz, _>(before)
                .bind::<Text, _>(tenant)
                .bind::<Timestamptz, _>(ended_at)
                .bind::<sql_types::Uuid, _>(id)
                .bind::<BigInt, _>(number::limit(limit))
        })
        .await
    }
}
