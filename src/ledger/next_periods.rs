//! Opens the periods after those that are about to end, many at once, each of them once.

use std::collections::HashMap;

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Text, Timestamptz};
use futures::FutureExt;

use super::columns::Milliseconds;
use super::prepared::sql_query;
use super::quotas::{self, Opening, QuotaPeriod};
use super::{BEGIN_BOOKING, Ledger, LedgerError, QuotaCapacity, instant, number};
use crate::domain::ids::{MeterId, Partition, TenantId};

/// An open period that ends soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndingPeriod {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its meter.
    pub meter: MeterId,
    /// Its start and end (unix ms).
    pub period_ms: (i64, i64),
    /// Whether the next one is open already, and only the gate lacks it.
    pub next_is_open: bool,
}

/// A period to be opened ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextPeriod {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its meter.
    pub meter: MeterId,
    /// The start of the period before it (unix ms).
    pub current_start_ms: i64,
    /// Itself.
    pub period: QuotaPeriod,
}

/// The result of opening periods ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedAhead {
    /// How many were not open yet.
    pub new: u64,
    /// For each, in order, the capacity of both periods; none where the current one is not open.
    pub capacities: Vec<Option<QuotaCapacity>>,
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
    #[diesel(sql_type = Bool)]
    next_is_open: bool,
}

#[derive(QueryableByName)]
struct Quota {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
}

impl Ledger {
    /// Quotas with a recurring grant in force at `now_ms` (unix ms) of which no period is open then; not those of
    /// archived tenants. At most `limit`, by tenant and meter, after `after`.
    pub async fn quotas_to_open(
        &self,
        now_ms: i64,
        after: Option<&(TenantId, MeterId)>,
        limit: usize,
    ) -> Result<Vec<(TenantId, MeterId)>, LedgerError> {
        let now = instant::from_ms(now_ms)?;
        let rows: Vec<Quota> = self
            .load(|| {
                sql_query(include_str!("sql/quotas_to_open.sql"))
                    .bind::<Timestamptz, _>(now)
                    .bind::<Nullable<Text>, _>(after.map(|(tenant, _)| tenant))
                    .bind::<Nullable<Text>, _>(after.map(|(_, meter)| meter))
                    .bind::<BigInt, _>(number::limit(limit))
            })
            .await?;
        Ok(rows.into_iter().map(|row| (row.tenant, row.meter)).collect())
    }

    /// Open periods that have begun, end after `now_ms` and no later than `until_ms` (unix ms), and whose next period
    /// has not been delivered to the gate; at most `limit`, by tenant and meter, after `after`.
    pub async fn ending_periods(
        &self,
        now_ms: i64,
        until_ms: i64,
        after: Option<&(TenantId, MeterId)>,
        limit: usize,
    ) -> Result<Vec<EndingPeriod>, LedgerError> {
        let (now, until) = (instant::from_ms(now_ms)?, instant::from_ms(until_ms)?);
        let rows: Vec<Row> = self
            .load(|| {
                sql_query(include_str!("sql/ending_periods.sql"))
                    .bind::<Timestamptz, _>(now)
                    .bind::<Timestamptz, _>(until)
                    .bind::<Nullable<Text>, _>(after.map(|(tenant, _)| tenant))
                    .bind::<Nullable<Text>, _>(after.map(|(_, meter)| meter))
                    .bind::<BigInt, _>(number::limit(limit))
            })
            .await?;
        let period = |row: Row| EndingPeriod {
            tenant: row.tenant,
            meter: row.meter,
            period_ms: (row.period_start.0, row.period_end.0),
            next_is_open: row.next_is_open,
        };
        Ok(rows.into_iter().map(period).collect())
    }

    /// Opens these periods of one partition's tenants, in one transaction, each with its included amount unless it is
    /// open already. Each tenant's meter is named once. A period whose tenant has changed since it was prepared is not
    /// opened.
    pub async fn open_next_periods(
        &self,
        partition: Partition,
        periods: &[NextPeriod],
    ) -> Result<OpenedAhead, LedgerError> {
        self.ensure_months_of(periods.iter().map(|next| next.period.period_ms.0)).await?;
        let opening = |next: &NextPeriod| {
            let opening = Opening::of(partition, &next.tenant, &next.meter, &next.period);
            Opening { is_ahead: true, ..opening }
        };
        let openings: Vec<Opening> = periods.iter().map(opening).collect();
        let current: Vec<_> = periods
            .iter()
            .map(|period| (period.tenant.clone(), period.meter.clone(), period.current_start_ms))
            .collect();
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                let new = quotas::open_all(connection, partition, &openings).await?.new;
                let found = quotas::read_with_next(connection, &current).await?;
                let mut found: HashMap<_, _> = found.into_iter().collect();
                let capacities = current.iter().map(|key| found.remove(key)).collect();
                Ok(OpenedAhead { new: u64::try_from(new).unwrap_or(u64::MAX), capacities })
            }
            .boxed()
        })
        .await
    }

    /// Records that these periods were delivered to the gate. Returns how many were not recorded before.
    pub async fn note_delivered(&self, periods: &[NextPeriod]) -> Result<u64, LedgerError> {
        let tenants: Vec<_> = periods.iter().map(|period| period.tenant.clone()).collect();
        let meters: Vec<_> = periods.iter().map(|period| period.meter.clone()).collect();
        let starts = instant::all_from_ms(periods.iter().map(|next| next.period.period_ms.0))?;
        let note = sql_query(include_str!("sql/note_delivered_periods.sql"))
            .bind::<Array<Text>, _>(tenants)
            .bind::<Array<Text>, _>(meters)
            .bind::<Array<Timestamptz>, _>(starts);
        Ok(u64::try_from(self.execute(note).await?).unwrap_or(u64::MAX))
    }
}
