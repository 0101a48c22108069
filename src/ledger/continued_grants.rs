//! Grants that go on after the period in which they begin: what of each stands in a later one, into which the close of
//! the period before has brought it.

use std::collections::{BTreeMap, HashMap};

use diesel::QueryableByName;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Numeric, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::columns::Milliseconds;
use super::grants::StoredGrant;
use super::prepared::sql_query;
use super::quotas::PeriodKey;
use super::schema::{continued_grants, quota_periods};
use super::{Ledger, LedgerError, instant, number};
use crate::domain::amount::Amount;
use crate::domain::grant::GrantId;
use crate::domain::ids::{MeterId, OutboxId, TenantId};
use crate::domain::period::Window;

/// What of a grant goes on into the period that starts at `start_ms` (unix ms).
#[derive(Debug, Clone)]
pub(super) struct Continuing {
    pub(super) tenant: TenantId,
    pub(super) meter: MeterId,
    pub(super) start_ms: i64,
    pub(super) grant: GrantId,
    pub(super) amount: Decimal,
    /// What of it was unused in the period before.
    pub(super) rolled: Decimal,
    /// Where it returned of carried holds; none where it was unused in the period before.
    pub(super) returned_at: Option<OutboxId>,
}

/// Notes what goes on, beside what is noted already.
pub(super) async fn add(
    connection: &mut AsyncPgConnection,
    continuing: &[Continuing],
) -> Result<(), LedgerError> {
    if continuing.is_empty() {
        return Ok(());
    }
    sql_query(include_str!("sql/add_continued_grants.sql"))
        .bind::<Array<Text>, _>(continuing.iter().map(|one| &one.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(continuing.iter().map(|one| &one.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(continuing.iter().map(|one| one.start_ms))?)
        .bind::<Array<Uuid>, _>(continuing.iter().map(|one| one.grant.uuid()).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(continuing.iter().map(|one| one.amount).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(continuing.iter().map(|one| one.rolled).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    add_returned(connection, continuing).await
}

/// Notes where those of these have returned that have.
async fn add_returned(
    connection: &mut AsyncPgConnection,
    continuing: &[Continuing],
) -> Result<(), LedgerError> {
    let returned: Vec<_> = continuing.iter().filter_map(|one| Some((one, one.returned_at?))).collect();
    if returned.is_empty() {
        return Ok(());
    }
    let starts = instant::all_from_ms(returned.iter().map(|(one, _)| one.start_ms))?;
    let epochs = returned.iter().map(|(_, place)| number::signed(place.epoch.0));
    let sequences = returned.iter().map(|(_, place)| number::signed(place.sequence));
    sql_query(include_str!("sql/add_continued_returns.sql"))
        .bind::<Array<Text>, _>(returned.iter().map(|(one, _)| &one.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(returned.iter().map(|(one, _)| &one.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts)
        .bind::<Array<Uuid>, _>(returned.iter().map(|(one, _)| one.grant.uuid()).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(epochs.collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(sequences.collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(returned.iter().map(|(one, _)| one.amount).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct RolledWith {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Numeric)]
    rolled: Decimal,
}

/// What came over into these periods with grants that go on.
pub(super) async fn rolled_into(
    connection: &mut AsyncPgConnection,
    periods: &[PeriodKey],
) -> Result<HashMap<PeriodKey, Decimal>, LedgerError> {
    if periods.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<RolledWith> = sql_query(include_str!("sql/rolled_with_grants.sql"))
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, ..)| tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(periods.iter().map(|(_, meter, _)| meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(periods.iter().map(|(.., start_ms)| *start_ms))?)
        .load(connection)
        .await?;
    Ok(rows.into_iter().map(|row| ((row.tenant, row.meter, row.period_start.0), row.rolled)).collect())
}

#[derive(QueryableByName)]
struct OfMeter {
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Numeric)]
    rolled: Decimal,
}

impl Ledger {
    /// What came over with grants that go on into a tenant's periods at `at_ms` (unix ms), by meter.
    pub async fn rolled_with_grants(
        &self,
        tenant: &TenantId,
        at_ms: i64,
    ) -> Result<BTreeMap<MeterId, Decimal>, LedgerError> {
        let at = instant::from_ms(at_ms)?;
        let query = || {
            sql_query(include_str!("sql/rolled_with_grants_of_tenant.sql"))
                .bind::<Text, _>(tenant)
                .bind::<Timestamptz, _>(at)
        };
        let rows: Vec<OfMeter> = self.load(query).await?;
        Ok(rows.into_iter().map(|row| (row.meter, row.rolled)).collect())
    }
}

/// Ends those grants that were to go on from these closed periods, or have come over into them, and do not go on: each
/// as of the instant (unix ms) at which its period was closed.
pub(super) async fn end_with(
    connection: &mut AsyncPgConnection,
    closed: &[(PeriodKey, i64)],
) -> Result<(), LedgerError> {
    if closed.is_empty() {
        return Ok(());
    }
    let starts = instant::all_from_ms(closed.iter().map(|((.., start_ms), _)| *start_ms))?;
    sql_query(include_str!("sql/end_with_closes.sql"))
        .bind::<Array<Text>, _>(closed.iter().map(|((tenant, ..), _)| tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(closed.iter().map(|((_, meter, _), _)| meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(closed.iter().map(|(_, closed_ms)| *closed_ms))?)
        .execute(connection)
        .await?;
    Ok(())
}

/// The last period in whose books a grant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) period: Window,
    /// What the plan included there.
    pub(super) included: Decimal,
    /// What of the grant came there, or began there.
    pub(super) amount: Amount,
}

/// Where a grant stands that has begun in the period that starts at `begun_ms` (unix ms).
pub(super) async fn standing(
    connection: &mut AsyncPgConnection,
    stored: &StoredGrant,
    begun_ms: i64,
) -> Result<Standing, LedgerError> {
    let continued: Option<(Milliseconds, Decimal)> = if stored.goes_on {
        continued_grants::table
            .filter(continued_grants::tenant.eq(&stored.tenant))
            .filter(continued_grants::grant_id.eq(stored.id.uuid()))
            .order(continued_grants::period_start.desc())
            .select((continued_grants::period_start, continued_grants::amount))
            .first(connection)
            .await
            .optional()?
    } else {
        None
    };
    let damaged = |_| LedgerError::Damaged(format!("what is left of the grant {}", stored.id));
    let (start_ms, amount) = match continued {
        Some((start, amount)) => (start.0, Amount::from_decimal(amount).map_err(damaged)?),
        None => (begun_ms, stored.amount),
    };
    let key = (&stored.tenant, &stored.meter, instant::from_ms(start_ms)?);
    let (end, included): (Milliseconds, Decimal) = quota_periods::table
        .find(key)
        .select((quota_periods::period_end, quota_periods::included))
        .first(connection)
        .await?;
    Ok(Standing { period: Window { start_ms, end_ms: end.0 }, included, amount })
}
