//! Rollover: what of closing periods goes on to the next ones, which are opened if need be.

use std::collections::HashMap;

use diesel::sql_types::{Array, Numeric, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::columns::Milliseconds;
use super::grants::QuotaPeriod;
use super::quotas::{self, Opening, PeriodKey};
use super::{LedgerError, burnables, capacities, instant};
use crate::domain::amount::Amount;
use crate::domain::ids::{MeterId, Partition, TenantId};
use crate::domain::period::Window;
use crate::domain::rollover::{ClosingQuota, Unused};

/// A period that is about to be closed, and of which something may go on.
pub(super) struct Candidate {
    pub(super) tenant: TenantId,
    pub(super) meter: MeterId,
    pub(super) period: Window,
    /// The period after it by policy, to be opened unless it is open; none where the tenant has no such quota any
    /// more.
    pub(super) next: Option<QuotaPeriod>,
    pub(super) included: Decimal,
    pub(super) max_rollover: Decimal,
    pub(super) rolled_in: Decimal,
    pub(super) consumed: Decimal,
    pub(super) available: Decimal,
    /// Whether holds are open in it: they go on in any case.
    pub(super) has_holds: bool,
    /// What was used beyond it and the next period pays for, as far as it can.
    pub(super) preserved: Decimal,
}

/// What a closing period leaves.
pub(super) struct Left {
    /// How much goes on; zero where nothing does.
    pub(super) rolled: Amount,
    /// The period that takes it; none where none is open in the books.
    pub(super) next: Option<Window>,
    /// What of the included amount is unused, and what of open holds is set against it.
    pub(super) unused: Unused,
    /// How much may go on at most; zero where no period takes it.
    pub(super) max_rollover: Decimal,
    /// How much of the overage the next period pays for: at most what it includes.
    pub(super) repaid: Decimal,
}

/// What each of these periods leaves, by tenant, meter and start; each tenant's meter is named once. Raises the
/// versions of the capacities into which something goes. Nothing goes on where there is no next period that is open:
/// the tenant has lost the quota, or that period is closed already.
///
/// Opens the next period of each quota that may roll over, also where nothing does now, and of each that has open
/// holds. A period in which nothing is used would otherwise be open, and roll over, only if a job ran in time.
pub(super) async fn prepare(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    mut candidates: Vec<Candidate>,
    now_ms: i64,
) -> Result<HashMap<PeriodKey, Left>, LedgerError> {
    candidates.retain(|candidate| candidate.max_rollover > Decimal::ZERO || candidate.goes_on_anyway());
    if candidates.is_empty() {
        return Ok(HashMap::new());
    }
    capacities::lock_tenants(connection, candidates.iter().map(|candidate| &candidate.tenant)).await?;
    let openings: Vec<_> = candidates.iter().filter_map(|candidate| candidate.opening(partition)).collect();
    quotas::open_all(connection, partition, &openings).await?;
    candidates.retain(|candidate| candidate.available > Decimal::ZERO || candidate.goes_on_anyway());
    let next = next_periods(connection, &candidates).await?;
    let quotas = unused(connection, &candidates).await?;
    let mut left = HashMap::new();
    let mut raised = Vec::new();
    for (candidate, quota) in candidates.iter().zip(quotas) {
        let key = (candidate.tenant.clone(), candidate.meter.clone());
        let next = next.get(&key).copied();
        let rolled = if next.is_some() { quota.rolled_over() } else { Amount::ZERO };
        let repaid = next.map_or(Decimal::ZERO, |(_, included)| candidate.preserved.min(included));
        if !rolled.is_zero() || candidate.goes_on_anyway() {
            raised.push((&candidate.tenant, &candidate.meter));
        }
        let max_rollover = next.map_or(Decimal::ZERO, |_| candidate.max_rollover);
        let key = (key.0, key.1, candidate.period.start_ms);
        let next = next.map(|(period, _)| period);
        left.insert(key, Left { rolled, next, unused: quota.unused(), max_rollover, repaid });
    }
    capacities::raise_all_versions(connection, &raised, now_ms).await?;
    Ok(left)
}

impl Candidate {
    fn goes_on_anyway(&self) -> bool {
        self.has_holds || self.preserved > Decimal::ZERO
    }

    fn opening(&self, partition: Partition) -> Option<Opening> {
        let next = self.next.as_ref().filter(|next| next.period_ms.0 == self.period.end_ms)?;
        Some(Opening {
            partition,
            tenant: self.tenant.clone(),
            meter: self.meter.clone(),
            decimals: next.decimals,
            period_ms: next.period_ms,
            terms: next.terms,
        })
    }
}

/// The quotas of these periods with their grants, in the same order.
async fn unused(
    connection: &mut AsyncPgConnection,
    candidates: &[Candidate],
) -> Result<Vec<ClosingQuota>, LedgerError> {
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let periods: Vec<_> =
        candidates.iter().map(|candidate| (&candidate.tenant, &candidate.meter, candidate.period)).collect();
    let mut grants = burnables::read(connection, &periods).await?;
    let quota = |candidate: &Candidate| {
        let key = (candidate.tenant.clone(), candidate.meter.clone(), candidate.period.start_ms);
        ClosingQuota {
            period: candidate.period,
            included: candidate.included,
            max_rollover: candidate.max_rollover,
            rolled_in: candidate.rolled_in,
            grants: grants.remove(&key).unwrap_or_default(),
            consumed: candidate.consumed,
            available: candidate.available,
        }
    };
    Ok(candidates.iter().map(quota).collect())
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    #[diesel(sql_type = Numeric)]
    included: Decimal,
}

/// The periods after these, where they are open in the books, and what they include.
async fn next_periods(
    connection: &mut AsyncPgConnection,
    candidates: &[Candidate],
) -> Result<HashMap<(TenantId, MeterId), (Window, Decimal)>, LedgerError> {
    let starts = candidates.iter().map(|candidate| candidate.period.end_ms);
    let find = sql_query(include_str!("sql/next_open_periods.sql"))
        .bind::<Array<Text>, _>(candidates.iter().map(|candidate| &candidate.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(candidates.iter().map(|candidate| &candidate.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(starts)?);
    let rows: Vec<Row> = find.load(connection).await?;
    let next = |row: Row| {
        let period = Window { start_ms: row.period_start.0, end_ms: row.period_end.0 };
        ((row.tenant, row.meter), (period, row.included))
    };
    Ok(rows.into_iter().map(next).collect())
}
