//! What is left of the grants that count now, by the burn order.

use std::collections::{BTreeMap, HashMap};

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Numeric, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::burnables::{self, BookedGrant};
use super::columns::Milliseconds;
use super::prepared::sql_query;
use super::{BEGIN_LOOK_UP, Ledger, LedgerError, advances, instant, rolled_amounts};
use crate::domain::burn::{BurnPlace, Burnable, burn};
use crate::domain::grant::{GrantId, Priority};
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::period::Window;
use crate::domain::rollover::RolledAmount;

/// How many grants of a period are folded for one answer.
const FOLDED_MAX: i64 = 5_000;

/// What is left of a grant that counts now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantLeft {
    /// Its id.
    pub id: GrantId,
    /// What is unburnt of it, as far as use is booked.
    pub remaining: Decimal,
    /// Until when it counts (unix ms).
    pub expires_at_ms: i64,
    /// Which grants burn first.
    pub priority: Priority,
    /// Whether a plan that was raised inside the period gives it.
    pub is_of_plan: bool,
    /// Whether it is given in each period.
    pub recurs: bool,
}

#[derive(QueryableByName)]
struct Quota {
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
    #[diesel(sql_type = Numeric)]
    rolled_in: Decimal,
    #[diesel(sql_type = Numeric)]
    included: Decimal,
    #[diesel(sql_type = BigInt)]
    grants: i64,
}

impl Quota {
    fn period(&self) -> Window {
        Window { start_ms: self.period_start.0, end_ms: self.period_end.0 }
    }

    /// The grants of which something is left, the one that burns next first.
    fn left(&self, grants: Vec<BookedGrant>, rolled: &[RolledAmount], at_ms: i64) -> Vec<GrantLeft> {
        let (period, mut all) = (self.period(), RolledAmount::burnables(self.period(), rolled));
        all.extend(grants.iter().map(|grant| grant.burnable.clone()));
        let included = (BurnPlace::of_included((period.start_ms, period.end_ms)), self.included);
        let burnt = burn(included, &all, self.consumed);
        let mut left: Vec<_> = grants.into_iter().filter(|grant| grant.counts_at(at_ms)).collect();
        left.sort_by_key(|grant| grant.burnable.place);
        let left = left.into_iter().filter_map(
            |BookedGrant {
                 burnable: Burnable { place, amount, is_of_plan, .. }, made_as, recurs, ..
             }| {
                let remaining = amount - burnt.get(&place).copied().unwrap_or_default();
                let left = GrantLeft {
                    id: made_as,
                    remaining,
                    expires_at_ms: place.expires_at_ms,
                    priority: place.priority,
                    is_of_plan,
                    recurs,
                };
                (!remaining.is_zero()).then_some(left)
            },
        );
        left.collect()
    }
}

impl Ledger {
    /// What is left at `at_ms` (unix ms) of a tenant's grants, by meter and in burn order, at most `limit` of each
    /// meter: those of which nothing is left are not among them. A meter with so many grants that they cannot be folded
    /// is left out.
    pub async fn grants_left(
        &self,
        tenant: &TenantId,
        at_ms: i64,
        limit: usize,
    ) -> Result<BTreeMap<MeterId, Vec<GrantLeft>>, LedgerError> {
        let tenant = tenant.clone();
        let found = self.transact(BEGIN_LOOK_UP, move |connection| {
            async move { read(connection, &tenant, None, at_ms, FOLDED_MAX).await }.boxed()
        });
        let first = |(meter, left): (MeterId, Option<Vec<GrantLeft>>)| {
            let mut left = left?;
            left.truncate(limit);
            Some((meter, left))
        };
        Ok(found.await?.into_iter().filter_map(first).collect())
    }

    /// The grants of a meter that count at `at_ms` (unix ms) and that an adjustment may void, in burn order: something
    /// is left of them, no plan gives them, and they are given once. However many they are, all are folded.
    pub async fn voidable_grants(
        &self,
        tenant: &TenantId,
        meter: &MeterId,
        at_ms: i64,
    ) -> Result<Vec<GrantLeft>, LedgerError> {
        let (tenant, meter) = (tenant.clone(), meter.clone());
        self.transact(BEGIN_LOOK_UP, move |connection| {
            async move {
                let found = read(connection, &tenant, Some(&meter), at_ms, i64::MAX).await?.remove(&meter);
                let mut left = found.flatten().unwrap_or_default();
                // To void what recurs would end it for later periods too.
                left.retain(|grant| !grant.is_of_plan && !grant.recurs);
                Ok(left)
            }
            .boxed()
        })
        .await
    }
}

/// What is left by meter, or of one meter; none where its grants are too many.
type Left = BTreeMap<MeterId, Option<Vec<GrantLeft>>>;

async fn read(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    meter: Option<&MeterId>,
    at_ms: i64,
    folded_max: i64,
) -> Result<Left, LedgerError> {
    let quotas = sql_query(include_str!("sql/burning_quotas.sql"))
        .bind::<Text, _>(tenant)
        .bind::<Timestamptz, _>(instant::from_ms(at_ms)?)
        .bind::<BigInt, _>(folded_max.saturating_add(1));
    let mut quotas: Vec<Quota> = quotas.load(connection).await?;
    quotas.retain(|quota| meter.is_none_or(|meter| quota.meter == *meter));
    let (quotas, too_many): (Vec<_>, Vec<_>) =
        quotas.into_iter().partition(|quota| quota.grants <= folded_max);
    let with_grants = quotas.iter().filter(|quota| quota.grants > 0);
    let periods: Vec<_> = with_grants.map(|quota| (tenant, &quota.meter, quota.period())).collect();
    let (mut grants, mut rolled) = (HashMap::new(), HashMap::new());
    if !periods.is_empty() {
        grants = burnables::read_booked(connection, &periods).await?;
        for (key, advanced) in advances::read(connection, &periods).await? {
            grants.entry(key).or_default().extend(advanced);
        }
        let into = quotas.iter().map(|quota| (tenant, &quota.meter, quota.period(), quota.rolled_in));
        rolled = rolled_amounts::read(connection, &into.collect::<Vec<_>>()).await?;
    }
    let mut found: Left = too_many.into_iter().map(|quota| (quota.meter, None)).collect();
    for quota in quotas {
        let key = (tenant.clone(), quota.meter.clone(), quota.period_start.0);
        let rolled = rolled.remove(&key).unwrap_or_default();
        let left = quota.left(grants.remove(&key).unwrap_or_default(), &rolled, at_ms);
        found.insert(quota.meter, Some(left));
    }
    Ok(found)
}
