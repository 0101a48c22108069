//! The periods that follow those about to end: opened ahead, many at once, each of them once.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, BigInt, Nullable, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::quotas::{self, Opening};
use super::{BEGIN, BEGIN_BOOKING, Ledger, LedgerError, QuotaCapacity, instant, number};
use crate::domain::amount::{Decimals, Units};
use crate::domain::ids::{MeterId, Partition, TenantId};

/// An open period that ends soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndingPeriod {
    /// Whose.
    pub tenant: TenantId,
    /// Of which meter.
    pub meter: MeterId,
    /// Its start and end (unix ms).
    pub period_ms: (i64, i64),
}

/// A period to be opened ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextPeriod {
    /// Whose.
    pub tenant: TenantId,
    /// Of which meter.
    pub meter: MeterId,
    /// The meter's decimals.
    pub decimals: Decimals,
    /// The start of the period before it (unix ms).
    pub current_start_ms: i64,
    /// Its start and end (unix ms).
    pub period_ms: (i64, i64),
    /// What it includes, unless it is open already.
    pub included: Units,
}

/// What opening ahead came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedAhead {
    /// How many were not open yet.
    pub new: u64,
    /// For each, in order, the capacity of both periods; none where the one before is not open.
    pub capacities: Vec<Option<QuotaCapacity>>,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Text)]
    meter: String,
    #[diesel(sql_type = Timestamptz)]
    period_start: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    period_end: DateTime<Utc>,
}

impl Row {
    fn read(self) -> Result<EndingPeriod, LedgerError> {
        Ok(EndingPeriod {
            tenant: number::tenant(&self.tenant)?,
            meter: MeterId::parse(&self.meter).map_err(|_| LedgerError::Damaged(self.meter.clone()))?,
            period_ms: (self.period_start.timestamp_millis(), self.period_end.timestamp_millis()),
        })
    }
}

const ENDING: &str = "SELECT q.tenant, q.meter, q.period_start, q.period_end FROM quota_periods q \
    LEFT JOIN quota_periods n ON n.tenant = q.tenant AND n.meter = q.meter AND n.period_start = q.period_end \
    WHERE q.period_start <= $1 AND q.period_end > $1 AND q.period_end <= $2 AND n.delivered_at IS NULL \
      AND ($3 IS NULL OR (q.tenant, q.meter) > ($3, $4)) ORDER BY q.tenant, q.meter LIMIT $5";

const DELIVERED: &str = "UPDATE quota_periods q SET delivered_at = now() \
    FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start) \
    WHERE q.tenant = w.tenant AND q.meter = w.meter AND q.period_start = w.period_start AND q.delivered_at IS NULL";

impl Ledger {
    /// Open periods that have begun, end behind `now_ms` and at `until_ms` at the latest (unix ms), and whose next one has not been
    /// delivered; at most `limit`, by tenant and meter, from behind `after`.
    pub async fn ending_periods(
        &self,
        now_ms: i64,
        until_ms: i64,
        after: Option<&(TenantId, MeterId)>,
        limit: usize,
    ) -> Result<Vec<EndingPeriod>, LedgerError> {
        let (now, until) = (instant::from_ms(now_ms)?, instant::from_ms(until_ms)?);
        let rows = self
            .read(|connection| {
                let query = sql_query(ENDING)
                    .bind::<Timestamptz, _>(now)
                    .bind::<Timestamptz, _>(until)
                    .bind::<Nullable<Text>, _>(after.map(|(tenant, _)| tenant.to_string()))
                    .bind::<Nullable<Text>, _>(after.map(|(_, meter)| meter.to_string()))
                    .bind::<BigInt, _>(number::limit(limit));
                async move { Ok(query.load::<Row>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(Row::read).collect()
    }

    /// Opens these periods of tenants of one partition, in one transaction, each with its included amount unless it is open
    /// already. Each tenant's meter is named once.
    pub async fn open_next_periods(
        &self,
        partition: Partition,
        periods: &[NextPeriod],
    ) -> Result<OpenedAhead, LedgerError> {
        self.ensure_months_of(periods.iter().map(|period| period.period_ms.0)).await?;
        let openings: Vec<Opening> = periods.iter().map(|period| opening(partition, period)).collect();
        let current: Vec<_> = periods
            .iter()
            .map(|period| (period.tenant.clone(), period.meter.clone(), period.current_start_ms))
            .collect();
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                let new = quotas::open_all(connection, partition, &openings).await?;
                let found = quotas::read_with_next(connection, &current).await?;
                let mut found: HashMap<_, _> = found.into_iter().collect();
                let capacities = current.iter().map(|key| found.remove(key)).collect();
                Ok(OpenedAhead { new: u64::try_from(new).unwrap_or(u64::MAX), capacities })
            }
            .boxed()
        })
        .await
    }

    /// Notes that the gate was told of these periods. Answers how many were not noted yet.
    pub async fn note_delivered(&self, periods: &[NextPeriod]) -> Result<u64, LedgerError> {
        let tenants: Vec<String> = periods.iter().map(|period| period.tenant.to_string()).collect();
        let meters: Vec<String> = periods.iter().map(|period| period.meter.to_string()).collect();
        let starts = instant::all_from_ms(periods.iter().map(|period| period.period_ms.0))?;
        self.transact(BEGIN, move |connection| {
            async move {
                let note = sql_query(DELIVERED)
                    .bind::<Array<Text>, _>(tenants)
                    .bind::<Array<Text>, _>(meters)
                    .bind::<Array<Timestamptz>, _>(starts);
                Ok(u64::try_from(note.execute(connection).await?).unwrap_or(u64::MAX))
            }
            .boxed()
        })
        .await
    }
}

fn opening(partition: Partition, period: &NextPeriod) -> Opening {
    Opening {
        partition,
        tenant: period.tenant.clone(),
        meter: period.meter.clone(),
        decimals: period.decimals,
        period_ms: period.period_ms,
        included: period.included,
    }
}
