//! Periods that were opened ahead follow policy until they begin: they end up as if they had been opened then.
//!
//! What counts is the policy that holds as a period begins. A change from before that is carried out also where nobody
//! came to it in time; a later one is not, however late this runs.

use std::collections::BTreeSet;

use diesel::prelude::*;
use diesel::sql_types::{
    Array, BigInt, Bool, Integer, Jsonb, Nullable, Numeric, SmallInt, Text, Timestamptz, Uuid,
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;
use serde_json::Value;

use super::columns::Milliseconds;
use super::prepared::sql_query;
use super::quotas::{Opening, PeriodKey, operation_id, posting};
use super::schema::policy_version;
use super::{BEGIN_BOOKING, Ledger, LedgerError, capacities, instant, journal, number, period_terms};
use crate::domain::amount::{Amount, Decimals};
use crate::domain::entry::Posting;
use crate::domain::ids::{MeterId, Partition, TenantId};
use crate::domain::movements::grants::{grant, take_back};
use crate::domain::period::Window;
use crate::domain::plan::{PeriodTerms, PlanDefinition};

/// How long after its begin a period still follows what was changed before that: longer than a change takes from its
/// instant until it is stored.
const FOLLOWS_FOR_MS: i64 = 3_600_000;

/// What became of periods that follow policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FollowedPeriods {
    /// The quotas whose periods have changed.
    pub changed: BTreeSet<(TenantId, MeterId)>,
    /// The tenants whose policy cannot be read: their periods stay as they are.
    pub unread: BTreeSet<TenantId>,
}

#[derive(QueryableByName)]
struct Key {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(embed)]
    key: Key,
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    #[diesel(sql_type = SmallInt)]
    decimals: i16,
    #[diesel(sql_type = Numeric)]
    included: Decimal,
    #[diesel(sql_type = Bool)]
    is_known: bool,
    #[diesel(sql_type = Nullable<Jsonb>)]
    plan: Option<Value>,
    #[diesel(sql_type = Integer)]
    step: i32,
    #[diesel(sql_type = Bool)]
    keeps: bool,
}

impl Row {
    fn key(&self) -> PeriodKey {
        (self.key.tenant.clone(), self.key.meter.clone(), self.key.period_start.0)
    }

    fn window(&self) -> Window {
        Window { start_ms: self.key.period_start.0, end_ms: self.period_end.0 }
    }

    /// What it opens with by the policy that holds as it begins, if there is such a quota then. None where that policy
    /// cannot be read.
    fn wanted(&self) -> Option<(Decimals, Option<PeriodTerms>)> {
        let decimals = u8::try_from(self.decimals).ok().and_then(Decimals::new).filter(|_| self.is_known)?;
        let Some(plan) = &self.plan else { return Some((decimals, None)) };
        let plan: PlanDefinition = serde_json::from_value(plan.clone()).ok()?;
        let quota = plan.quotas.iter().find(|quota| quota.meter == self.key.meter);
        Some((decimals, quota.map(|quota| quota.terms(decimals))))
    }

    fn opening(&self, partition: Partition, decimals: Decimals, terms: PeriodTerms) -> Opening {
        Opening {
            partition,
            tenant: self.key.tenant.clone(),
            meter: self.key.meter.clone(),
            decimals,
            period_ms: (self.key.period_start.0, self.period_end.0),
            terms,
            tenant_version: 0,
            is_ahead: true,
        }
    }

    /// What it includes more than it was opened with, or less.
    fn posting(&self, opening: &Opening) -> Option<Posting> {
        let now = opening.terms.included.to_amount(opening.decimals);
        let was = Amount::from_decimal(self.included).ok()?;
        let (more, less) = (now.saturating_sub(was), was.saturating_sub(now));
        let movements = [grant(self.window(), more), take_back(self.window(), less)].concat();
        (!movements.is_empty()).then(|| posting(opening, self.step.unsigned_abs(), movements))
    }
}

impl Ledger {
    /// Periods of one tenant or of all that have to be looked at again: policy has changed in a way that holds when
    /// they begin, or they began long ago and follow it no more. At most `limit`, after `after`.
    pub async fn periods_to_follow(
        &self,
        tenant: Option<&TenantId>,
        now_ms: i64,
        after: Option<&(TenantId, MeterId, i64)>,
        limit: usize,
    ) -> Result<Vec<(TenantId, MeterId, i64)>, LedgerError> {
        let after_start = after.map(|(.., start_ms)| instant::from_ms(*start_ms)).transpose()?;
        let begun = instant::from_ms(begun_by_ms(now_ms))?;
        let query = || {
            sql_query(include_str!("sql/periods_to_follow.sql"))
                .bind::<Nullable<Text>, _>(tenant)
                .bind::<Nullable<Text>, _>(after.map(|(tenant, ..)| tenant))
                .bind::<Nullable<Text>, _>(after.map(|(_, meter, _)| meter))
                .bind::<Nullable<Timestamptz>, _>(after_start)
                .bind::<Timestamptz, _>(begun)
                .bind::<BigInt, _>(number::limit(limit))
        };
        let rows: Vec<Key> = self.load(query).await?;
        Ok(rows.into_iter().map(|row| (row.tenant, row.meter, row.period_start.0)).collect())
    }

    /// Gives these periods of one partition's tenants what policy says as they begin, in one transaction: the terms,
    /// and in the books what they include more or less. One whose quota is gone by then is not open any more, unless
    /// grants or what came over stand in it: then it includes nothing.
    pub async fn follow_policy(
        &self,
        partition: Partition,
        periods: Vec<(TenantId, MeterId, i64)>,
        now_ms: i64,
    ) -> Result<FollowedPeriods, LedgerError> {
        self.ensure_months_of(periods.iter().map(|(.., start_ms)| *start_ms)).await?;
        self.transact(BEGIN_BOOKING, move |connection| {
            async move { follow(connection, partition, &periods, now_ms).await }.boxed()
        })
        .await
    }
}

fn begun_by_ms(now_ms: i64) -> i64 {
    now_ms.saturating_sub(FOLLOWS_FOR_MS).max(0)
}

async fn follow(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    periods: &[PeriodKey],
    now_ms: i64,
) -> Result<FollowedPeriods, LedgerError> {
    capacities::lock_tenants(connection, periods.iter().map(|(tenant, ..)| tenant)).await?;
    // First, so that what is read has at least the changes up to it.
    let version: i64 = policy_version::table.select(policy_version::version).first(connection).await?;
    let rows = read(connection, periods).await?;
    let mut done = FollowedPeriods::default();
    let (mut fitted, mut withdrawn, mut postings) = (Vec::new(), Vec::new(), Vec::new());
    for row in &rows {
        let Some((decimals, terms)) = row.wanted() else {
            done.unread.insert(row.key.tenant.clone());
            continue;
        };
        let opening = row.opening(partition, decimals, terms.unwrap_or_default());
        postings.extend(row.posting(&opening));
        if terms.is_none() && !row.keeps {
            withdrawn.push(row.key());
        } else {
            fitted.push(opening);
        }
    }
    journal::post_beside_outbox(connection, partition, postings).await?;
    withdraw(connection, &withdrawn).await?;
    let changed = period_terms::fit(connection, &fitted).await?;
    let followed: Vec<_> = periods.iter().filter(|(tenant, ..)| !done.unread.contains(tenant)).collect();
    note_followed(connection, &followed, version, now_ms).await?;
    done.changed = changed.into_iter().chain(withdrawn).map(|(tenant, meter, _)| (tenant, meter)).collect();
    let quotas: Vec<_> = done.changed.iter().map(|(tenant, meter)| (tenant, meter)).collect();
    capacities::raise_all_versions(connection, &quotas, now_ms).await?;
    Ok(done)
}

async fn read(connection: &mut AsyncPgConnection, periods: &[PeriodKey]) -> Result<Vec<Row>, LedgerError> {
    let ids = periods.iter().map(|(tenant, meter, start_ms)| operation_id(tenant, meter, *start_ms));
    let query = sql_query(include_str!("sql/policy_of_periods.sql"))
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, ..)| tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(periods.iter().map(|(_, meter, _)| meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(periods.iter().map(|(.., start_ms)| *start_ms))?)
        .bind::<Array<Uuid>, _>(ids.collect::<Vec<_>>());
    Ok(query.load(connection).await?)
}

async fn withdraw(connection: &mut AsyncPgConnection, periods: &[PeriodKey]) -> Result<(), LedgerError> {
    if periods.is_empty() {
        return Ok(());
    }
    sql_query(include_str!("sql/withdraw_quota_periods.sql"))
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, ..)| tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(periods.iter().map(|(_, meter, _)| meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(periods.iter().map(|(.., start_ms)| *start_ms))?)
        .execute(connection)
        .await?;
    Ok(())
}

/// Notes that these periods have the changes up to this version of the policy.
async fn note_followed(
    connection: &mut AsyncPgConnection,
    periods: &[&PeriodKey],
    version: i64,
    now_ms: i64,
) -> Result<(), LedgerError> {
    let starts = instant::all_from_ms(periods.iter().map(|(.., start_ms)| *start_ms))?;
    sql_query(include_str!("sql/note_followed.sql"))
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, ..)| tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(periods.iter().map(|(_, meter, _)| meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts)
        .bind::<BigInt, _>(version)
        .bind::<Timestamptz, _>(instant::from_ms(begun_by_ms(now_ms))?)
        .execute(connection)
        .await?;
    Ok(())
}

/// Has the periods of a tenant that begin at this instant (unix ms) or later, and follow policy, looked at again.
pub(crate) async fn follow_again(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    from_ms: i64,
) -> Result<(), LedgerError> {
    sql_query(include_str!("sql/follow_again.sql"))
        .bind::<Text, _>(tenant)
        .bind::<Timestamptz, _>(instant::from_ms(from_ms)?)
        .execute(connection)
        .await?;
    ring(connection).await
}

/// Has the job that opens periods run soon, where a period follows policy.
pub(crate) async fn ring(connection: &mut AsyncPgConnection) -> Result<(), LedgerError> {
    use super::schema::quota_periods;
    let follows = quota_periods::table.filter(quota_periods::followed_version.is_not_null());
    if diesel::select(diesel::dsl::exists(follows)).get_result(connection).await? {
        super::jobs::ring(connection, super::jobs::PERIODS).await?;
        super::notices::tell(connection, "job", super::jobs::PERIODS, 0).await?;
    }
    Ok(())
}
