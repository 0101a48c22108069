//! Cuts that are to be made, and grants that are to be settled since theirs were.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::columns::Milliseconds;
use super::prepared::sql_query;
use super::schema::{cuts, due_cuts};
use super::{Ledger, LedgerError, instant, number};
use crate::domain::grant::GrantId;
use crate::domain::ids::{OutboxId, Partition, TenantId};

#[derive(QueryableByName)]
struct ToCut {
    #[diesel(sql_type = SmallInt)]
    partition: Partition,
    #[diesel(sql_type = Timestamptz)]
    ends_at: Milliseconds,
}

/// A cut that is due in a partition which is being booked.
#[derive(Debug, QueryableByName)]
pub(crate) struct CutAhead {
    /// Of which partition.
    #[diesel(sql_type = SmallInt)]
    pub(crate) partition: Partition,
    /// For which instant (unix ms).
    #[diesel(sql_type = Timestamptz, deserialize_as = Milliseconds, column_name = due_at)]
    pub(crate) due_at_ms: i64,
    /// After which place.
    #[diesel(embed)]
    pub(crate) after: OutboxId,
}

impl CutAhead {
    /// Whether it is made before this event, or one before it.
    pub(crate) fn is_before(&self, place: OutboxId, gate_time_ms: i64) -> bool {
        self.due_at_ms <= gate_time_ms && self.after < place
    }
}

/// Whether any cut is due by `latest_ms` (unix ms), of any partition. Nearly never; it costs one look at an index.
pub(crate) async fn are_due(mut connection: &AsyncPgConnection, latest_ms: i64) -> Result<bool, LedgerError> {
    let due = due_cuts::table.filter(due_cuts::due_at.le(instant::from_ms(latest_ms)?));
    Ok(diesel::select(diesel::dsl::exists(due)).get_result(&mut connection).await?)
}

/// The cuts that are due by `latest_ms` (unix ms) in partitions that are booked from these events on.
pub(crate) async fn ahead(
    mut connection: &AsyncPgConnection,
    from: &[(Partition, OutboxId)],
    latest_ms: i64,
) -> Result<Vec<CutAhead>, LedgerError> {
    let find = sql_query(include_str!("sql/due_cuts.sql"))
        .bind::<Array<SmallInt>, _>(from.iter().map(|(partition, _)| *partition).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(
            from.iter().map(|(_, place)| number::signed(place.epoch.0)).collect::<Vec<_>>(),
        )
        .bind::<Array<BigInt>, _>(
            from.iter().map(|(_, place)| number::signed(place.sequence)).collect::<Vec<_>>(),
        )
        .bind::<Timestamptz, _>(instant::from_ms(latest_ms)?);
    Ok(find.load(&mut connection).await?)
}

impl Ledger {
    /// Partitions with cuts that are due by `now_ms`, each with the latest instant of those that end by their date
    /// (unix ms; 0 where none does); of one tenant or of all.
    pub async fn partitions_to_cut(
        &self,
        tenant: Option<&TenantId>,
        now_ms: i64,
    ) -> Result<Vec<(Partition, i64)>, LedgerError> {
        let now = instant::from_ms(now_ms)?;
        let query = || {
            sql_query(include_str!("sql/partitions_to_cut.sql"))
                .bind::<Nullable<Text>, _>(tenant)
                .bind::<Timestamptz, _>(now)
        };
        let rows: Vec<ToCut> = self.load(query).await?;
        Ok(rows.into_iter().map(|row| (row.partition, row.ends_at.0)).collect())
    }

    /// Grants with an end cut whose unburnt part is not booked yet, of one tenant or of all, after `after`.
    pub async fn grants_to_settle(
        &self,
        tenant: Option<&TenantId>,
        after: Option<&(TenantId, GrantId)>,
        limit: usize,
    ) -> Result<Vec<(TenantId, GrantId)>, LedgerError> {
        let query = || {
            let mut due = cuts::table.filter(cuts::is_end).filter(cuts::is_settled.eq(false)).into_boxed();
            if let Some(tenant) = tenant {
                due = due.filter(cuts::tenant.eq(tenant));
            }
            if let Some((tenant, id)) = after {
                let same = cuts::tenant.eq(tenant).and(cuts::grant_id.gt(id.uuid()));
                due = due.filter(cuts::tenant.gt(tenant).or(same));
            }
            due.select((cuts::tenant, cuts::grant_id))
                .order((cuts::tenant, cuts::grant_id))
                .limit(number::limit(limit))
        };
        let rows: Vec<(TenantId, uuid::Uuid)> = self.load(query).await?;
        Ok(rows.into_iter().map(|(tenant, id)| (tenant, GrantId::from_uuid(id))).collect())
    }
}
