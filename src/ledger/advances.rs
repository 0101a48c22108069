//! What the gate has of grants that go on, from the end of a period until its close brings them to the next one: the
//! books do not know it.

use std::collections::HashMap;
use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Nullable, Numeric, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::burnables::{self, BookedGrant};
use super::closures::{self, ClosingPeriod, Ended, EndedPeriod};
use super::prepared::sql_query;
use super::quotas::PeriodKey;
use super::rollovers::{self, Candidate};
use super::schema::grant_advances;
use super::{BEGIN_BOOKING, Ledger, LedgerError, capacities, cursors, instant, number};
use crate::domain::grant::GrantId;
use crate::domain::ids::{MeterId, OutboxId, Partition, TenantId};
use crate::domain::period::Window;
use crate::domain::rollover::{ClosingQuota, Fate};

/// What of a grant the gate has in the period after `ended`.
struct Advance<'a> {
    ended: &'a Candidate,
    grant: GrantId,
    amount: Decimal,
}

impl Ledger {
    /// Periods of one tenant, or of all, that ended by `now_ms` (unix ms), are not closed, and from which grants go on
    /// of which the gate has no advance: at most `limit`, the ones that ended first.
    pub async fn periods_to_advance(
        &self,
        tenant: Option<&TenantId>,
        now_ms: i64,
        limit: usize,
    ) -> Result<Vec<EndedPeriod>, LedgerError> {
        let now = instant::from_ms(now_ms)?;
        let query = || {
            sql_query(include_str!("sql/periods_to_advance.sql"))
                .bind::<Nullable<Text>, _>(tenant)
                .bind::<Timestamptz, _>(now)
                .bind::<BigInt, _>(number::limit(limit))
        };
        let rows: Vec<Ended> = self.load(query).await?;
        Ok(rows.into_iter().map(Ended::read).collect())
    }

    /// Advances what is unburnt of the grants that go on from these ended periods of one partition's tenants, once what
    /// was done in the periods is booked up to `after`. Open holds count as consumed of it. Returns of how many
    /// quotas; the others wait, as their close would.
    pub async fn advance_grants(
        &self,
        partition: Partition,
        ended: &[EndedPeriod],
        after: OutboxId,
        now_ms: i64,
    ) -> Result<u64, LedgerError> {
        let period =
            |ended: &EndedPeriod| ClosingPeriod { ended: ended.clone(), next: None, rollover_ends_ms: None };
        let periods: Vec<_> = ended.iter().map(period).collect();
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                let (locked, _) = cursors::lock(connection, &[partition]).await?;
                if !locked.iter().all(|cursor| cursor.settles(after)) {
                    return Ok(0);
                }
                capacities::lock_tenants(connection, periods.iter().map(|one| &one.ended.tenant)).await?;
                let standing = closures::read(connection, &periods, Duration::ZERO).await?;
                let ready = standing.iter().filter(|row| !row.waits());
                let candidates: Vec<_> = ready.map(|row| row.candidate(&periods, Vec::new())).collect();
                let quotas = rollovers::closing(connection, &candidates).await?;
                let advances: Vec<_> =
                    candidates.iter().zip(&quotas).flat_map(|(ended, quota)| of(ended, quota)).collect();
                insert(connection, &advances).await?;
                let advanced: Vec<_> = candidates.iter().map(|one| (&one.tenant, &one.meter)).collect();
                capacities::raise_all_versions(connection, &advanced, now_ms).await?;
                Ok(u64::try_from(candidates.len()).unwrap_or(u64::MAX))
            }
            .boxed()
        })
        .await
    }
}

/// The advances of one quota. Also of a grant of which nothing is left: that it is known.
fn of<'a>(ended: &'a Candidate, quota: &ClosingQuota) -> Vec<Advance<'a>> {
    let parts = quota.parts();
    let goes_on: HashMap<GrantId, Decimal> =
        parts.iter().filter_map(|part| Some((part.grant?, part.goes_on()))).collect();
    let advance = |grant: GrantId| Advance {
        ended,
        grant,
        amount: goes_on.get(&grant).copied().unwrap_or_default().max(Decimal::ZERO),
    };
    let going_on = quota.grants.iter().filter_map(|grant| match grant.fate {
        Fate::GrantGoesOn(id) => Some(id),
        _ => None,
    });
    going_on.map(advance).collect()
}

async fn insert(connection: &mut AsyncPgConnection, advances: &[Advance<'_>]) -> Result<(), LedgerError> {
    let starts = instant::all_from_ms(advances.iter().map(|one| one.ended.period.end_ms))?;
    sql_query(include_str!("sql/advance_grants.sql"))
        .bind::<Array<Text>, _>(advances.iter().map(|one| &one.ended.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(advances.iter().map(|one| &one.ended.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts)
        .bind::<Array<Uuid>, _>(advances.iter().map(|one| one.grant.uuid()).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(advances.iter().map(|one| one.amount).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// The grants that are advanced in these periods, as if they had come there.
pub(super) async fn read(
    connection: &mut AsyncPgConnection,
    periods: &[(&TenantId, &MeterId, Window)],
) -> Result<HashMap<PeriodKey, Vec<BookedGrant>>, LedgerError> {
    burnables::load(connection, sql_query(include_str!("sql/advanced_grants.sql")), periods).await
}

#[derive(QueryableByName)]
struct Over {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
}

/// Ends the advances of these periods, which are closed: the grants are booked in the next ones now.
pub(super) async fn end(
    connection: &mut AsyncPgConnection,
    closed: &[EndedPeriod],
    now_ms: i64,
) -> Result<(), LedgerError> {
    let ends = instant::all_from_ms(closed.iter().map(|one| one.period.end_ms))?;
    let over: Vec<Over> = sql_query(include_str!("sql/end_advances.sql"))
        .bind::<Array<Text>, _>(closed.iter().map(|one| &one.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(closed.iter().map(|one| &one.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(ends)
        .load(connection)
        .await?;
    let mut quotas: Vec<_> = over.iter().map(|one| (&one.tenant, &one.meter)).collect();
    quotas.sort_unstable();
    quotas.dedup();
    capacities::raise_all_versions(connection, &quotas, now_ms).await
}

/// Ends the advance of a grant that has ended before its period did.
pub(super) async fn end_of(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    meter: &MeterId,
    id: GrantId,
) -> Result<(), LedgerError> {
    let advance = grant_advances::table
        .filter(grant_advances::tenant.eq(tenant))
        .filter(grant_advances::meter.eq(meter))
        .filter(grant_advances::grant_id.eq(id.uuid()));
    diesel::delete(advance).execute(connection).await?;
    Ok(())
}
