//! Rollover: what of closing periods goes on to the next ones, which are opened if need be.

use std::collections::HashMap;

use diesel::sql_types::{Array, Text, Timestamptz};
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
use crate::domain::rollover::ClosingQuota;

/// A quota's period that is about to be closed, and of which something may go on.
pub(super) struct Candidate {
    pub(super) tenant: TenantId,
    pub(super) meter: MeterId,
    pub(super) period: Window,
    /// The period after it by policy, to be opened unless it is open; none where the tenant has no such quota any more.
    pub(super) next: Option<QuotaPeriod>,
    pub(super) included: Decimal,
    pub(super) max_rollover: Decimal,
    pub(super) rolled_in: Decimal,
    pub(super) consumed: Decimal,
    pub(super) available: Decimal,
}

/// How much goes on, and into which period.
pub(super) type Rollover = (Amount, Window);

/// What goes on of each of these periods, by tenant, meter and start; each tenant's meter is named once. Raises the
/// versions of the capacities into which something goes. Nothing goes on where there is no next period that is open:
/// the tenant has lost the quota, or that period is closed already.
///
/// Opens the next period of each quota that may roll over, also where nothing does now. A period in which nothing is
/// used would otherwise be open, and roll over, only if a job ran in time.
pub(super) async fn prepare(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    mut candidates: Vec<Candidate>,
    now_ms: i64,
) -> Result<HashMap<PeriodKey, Rollover>, LedgerError> {
    candidates.retain(|candidate| candidate.max_rollover > Decimal::ZERO);
    if candidates.is_empty() {
        return Ok(HashMap::new());
    }
    capacities::lock_tenants(connection, candidates.iter().map(|candidate| &candidate.tenant)).await?;
    let openings: Vec<_> = candidates.iter().filter_map(|candidate| candidate.opening(partition)).collect();
    quotas::open_all(connection, partition, &openings).await?;
    let rolling = rolling(connection, candidates).await?;
    let next = next_periods(connection, &rolling).await?;
    let mut prepared = HashMap::new();
    for (candidate, amount) in rolling {
        let Some(period) = next.get(&(candidate.tenant.clone(), candidate.meter.clone())) else { continue };
        prepared.insert((candidate.tenant, candidate.meter, candidate.period.start_ms), (amount, *period));
    }
    let quotas: Vec<_> = prepared.keys().map(|(tenant, meter, _)| (tenant, meter)).collect();
    capacities::raise_all_versions(connection, &quotas, now_ms).await?;
    Ok(prepared)
}

impl Candidate {
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

/// Those of which something goes on, with how much.
async fn rolling(
    connection: &mut AsyncPgConnection,
    mut candidates: Vec<Candidate>,
) -> Result<Vec<(Candidate, Amount)>, LedgerError> {
    candidates.retain(|candidate| candidate.available > Decimal::ZERO);
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let periods: Vec<_> =
        candidates.iter().map(|candidate| (&candidate.tenant, &candidate.meter, candidate.period)).collect();
    let mut grants = burnables::read(connection, &periods).await?;
    let rolling = candidates.into_iter().filter_map(|candidate| {
        let key = (candidate.tenant.clone(), candidate.meter.clone(), candidate.period.start_ms);
        let quota = ClosingQuota {
            period: candidate.period,
            included: candidate.included,
            max_rollover: candidate.max_rollover,
            rolled_in: candidate.rolled_in,
            grants: grants.remove(&key).unwrap_or_default(),
            consumed: candidate.consumed,
            available: candidate.available,
        };
        Some((candidate, quota.rolled_over())).filter(|(_, amount)| !amount.is_zero())
    });
    Ok(rolling.collect())
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
}

/// The periods after these, where they are open in the books.
async fn next_periods(
    connection: &mut AsyncPgConnection,
    rolling: &[(Candidate, Amount)],
) -> Result<HashMap<(TenantId, MeterId), Window>, LedgerError> {
    let starts = rolling.iter().map(|(candidate, _)| candidate.period.end_ms);
    let find = sql_query(include_str!("sql/next_open_periods.sql"))
        .bind::<Array<Text>, _>(rolling.iter().map(|(candidate, _)| &candidate.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(rolling.iter().map(|(candidate, _)| &candidate.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(starts)?);
    let rows: Vec<Row> = find.load(connection).await?;
    let next = |row: Row| {
        let period = Window { start_ms: row.period_start.0, end_ms: row.period_end.0 };
        ((row.tenant, row.meter), period)
    };
    Ok(rows.into_iter().map(next).collect())
}
