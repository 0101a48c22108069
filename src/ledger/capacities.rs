//! Changes of quotas' capacities: each raises the version, and the gate gets it as soon as it can.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::prepared::sql_query;
use super::schema::{tenants, untold_capacities};
use super::{Conflict, Ledger, LedgerError, instant, number};
use crate::domain::ids::{MeterId, TenantId};

impl Ledger {
    /// Quotas whose capacity the gate does not have yet, with the version that it lacks, after `after`.
    pub async fn untold_capacities(
        &self,
        after: Option<&(TenantId, MeterId)>,
        limit: usize,
    ) -> Result<Vec<(TenantId, MeterId, u64)>, LedgerError> {
        let query = || {
            let mut found = untold_capacities::table.into_boxed();
            if let Some((tenant, meter)) = after {
                let later = untold_capacities::tenant.gt(tenant);
                let same = untold_capacities::tenant.eq(tenant).and(untold_capacities::meter.gt(meter));
                // The first condition is one of the index, so that a page begins where the one before has ended.
                found = found.filter(untold_capacities::tenant.ge(tenant)).filter(later.or(same));
            }
            found.order((untold_capacities::tenant, untold_capacities::meter)).limit(number::limit(limit))
        };
        let rows: Vec<(TenantId, MeterId, i64)> = self.load(query).await?;
        rows.into_iter()
            .map(|(tenant, meter, version)| Ok((tenant, meter, number::unsigned(version)?)))
            .collect()
    }

    /// Notes that the gate has the capacity of at least this version, or needs none.
    pub async fn note_told(
        &self,
        tenant: &TenantId,
        meter: &MeterId,
        version: u64,
    ) -> Result<(), LedgerError> {
        let told = untold_capacities::table
            .filter(untold_capacities::tenant.eq(tenant.clone()))
            .filter(untold_capacities::meter.eq(meter.clone()))
            .filter(untold_capacities::version.le(number::signed(version)));
        self.execute(diesel::delete(told)).await.map(drop)
    }

    /// [`Self::note_told`] for several quotas, each with its version.
    pub async fn note_all_told(&self, told: &[(TenantId, MeterId, u64)]) -> Result<(), LedgerError> {
        let note = sql_query(include_str!("sql/note_told.sql"))
            .bind::<Array<Text>, _>(told.iter().map(|(tenant, ..)| tenant.clone()).collect::<Vec<_>>())
            .bind::<Array<Text>, _>(told.iter().map(|(_, meter, _)| meter.clone()).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>(told.iter().map(|one| number::signed(one.2)).collect::<Vec<_>>());
        self.execute(note).await.map(drop)
    }
}

/// A transaction that changes a quota's capacity, or opens a period of it, has the tenant to itself. Otherwise a period
/// could be opened and sent to the gate with the version that a grant has just raised, but without the grant.
/// Returns whether there is such a tenant.
pub(crate) async fn lock_tenant(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
) -> Result<bool, LedgerError> {
    Ok(lock_tenants(connection, std::iter::once(tenant)).await? > 0)
}

/// The tenant was deleted before its lock was taken.
pub(crate) fn no_tenant(tenant: &TenantId) -> LedgerError {
    LedgerError::Conflict(Conflict::Missing { kind: "tenant", id: tenant.to_string() })
}

/// [`lock_tenant`] for several tenants, in the order of their names. Returns how many of them there are.
pub(crate) async fn lock_tenants(
    connection: &mut AsyncPgConnection,
    named: impl Iterator<Item = &TenantId>,
) -> Result<usize, LedgerError> {
    let named = tenants::id.eq_any(named.collect::<Vec<_>>());
    let lock = tenants::table.select(tenants::id).filter(named).order(tenants::id).for_update();
    Ok(lock.execute(connection).await?)
}

/// Keeps tenants from being deleted until the transaction ends: who deletes one then sees what is booked for it. Those
/// that are gone are left out.
pub(crate) async fn keep_tenants(
    connection: &mut AsyncPgConnection,
    named: impl Iterator<Item = &TenantId>,
) -> Result<(), LedgerError> {
    let named = tenants::id.eq_any(named.collect::<Vec<_>>());
    let keep = tenants::table.select(tenants::id).filter(named).order(tenants::id).for_key_share();
    keep.execute(connection).await?;
    Ok(())
}

/// Raises the version of the quota's periods that have not ended, and notes that the gate lacks it.
pub(crate) async fn raise_versions(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    meter: &MeterId,
    now_ms: i64,
) -> Result<(), LedgerError> {
    raise_all_versions(connection, &[(tenant, meter)], now_ms).await
}

/// [`raise_versions`] for several quotas, each named once.
pub(crate) async fn raise_all_versions(
    connection: &mut AsyncPgConnection,
    quotas: &[(&TenantId, &MeterId)],
    now_ms: i64,
) -> Result<(), LedgerError> {
    if quotas.is_empty() {
        return Ok(());
    }
    sql_query(include_str!("sql/raise_capacity_versions.sql"))
        .bind::<Array<Text>, _>(quotas.iter().map(|(tenant, _)| *tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(quotas.iter().map(|(_, meter)| *meter).collect::<Vec<_>>())
        .bind::<Timestamptz, _>(instant::from_ms(now_ms)?)
        .execute(connection)
        .await?;
    Ok(())
}
