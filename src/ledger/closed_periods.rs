//! What became of closed periods, the last to end first.

use chrono::{DateTime, Utc};
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Nullable, Numeric, Text, Timestamptz};
use rust_decimal::Decimal;

use super::balances::{BesideGate, MeterBalance};
use super::prepared::sql_query;
use super::{Ledger, LedgerError, instant, number};
use crate::domain::ids::{MeterId, TenantId};

/// Which closed periods to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClosedFilter {
    /// Only this tenant's; none for all.
    pub tenant: Option<TenantId>,
    /// Only of this meter.
    pub meter: Option<MeterId>,
    /// Only those that ended at or after this instant (unix ms).
    pub from_ms: Option<i64>,
    /// Only those that ended before it (unix ms).
    pub to_ms: Option<i64>,
}

/// A place in a list of closed periods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedCursor {
    /// When the period ended (unix ms).
    pub ended_at_ms: i64,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its meter.
    pub meter: MeterId,
}

/// A closed period of a tenant's meter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedPeriod {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its accounts; nothing of it is available or reserved any more.
    pub balance: MeterBalance,
    /// From when on it counts as closed (unix ms).
    pub closed_at_ms: i64,
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
    #[diesel(sql_type = Timestamptz)]
    closed_at: DateTime<Utc>,
    #[diesel(sql_type = Array<Numeric>)]
    accounts: Vec<Decimal>,
}

impl Row {
    fn read(self) -> Result<ClosedPeriod, LedgerError> {
        let damaged = || LedgerError::Damaged(format!("a closed period of {} {}", self.tenant, self.meter));
        Ok(ClosedPeriod {
            tenant: number::tenant(&self.tenant)?,
            balance: MeterBalance {
                meter: MeterId::parse(&self.meter).map_err(|_| damaged())?,
                period_ms: (self.period_start.timestamp_millis(), self.period_end.timestamp_millis()),
                accounts: self.accounts.as_slice().try_into().map_err(|_| damaged())?,
                included: None,
                overdraft: None,
                beside_gate: BesideGate::default(),
            },
            closed_at_ms: self.closed_at.timestamp_millis(),
        })
    }
}

impl Ledger {
    /// Closed periods, the last to end first, at most `limit`, after `after`.
    pub async fn closed_periods(
        &self,
        filter: &ClosedFilter,
        after: Option<&ClosedCursor>,
        limit: usize,
    ) -> Result<Vec<ClosedPeriod>, LedgerError> {
        let (from, to) = (
            filter.from_ms.map(instant::from_ms).transpose()?,
            filter.to_ms.map(instant::from_ms).transpose()?,
        );
        let place_at = after.map(|place| instant::from_ms(place.ended_at_ms)).transpose()?;
        let query = || {
            sql_query(include_str!("sql/closed_periods.sql"))
                .bind::<Nullable<Text>, _>(filter.tenant.as_ref().map(TenantId::as_str))
                .bind::<Nullable<Text>, _>(filter.meter.as_ref().map(MeterId::as_str))
                .bind::<Nullable<Timestamptz>, _>(from)
                .bind::<Nullable<Timestamptz>, _>(to)
                .bind::<Nullable<Timestamptz>, _>(place_at)
                .bind::<Nullable<Text>, _>(after.map(|place| place.tenant.as_str()))
                .bind::<Nullable<Text>, _>(after.map(|place| place.meter.as_str()))
                .bind::<BigInt, _>(number::limit(limit))
        };
        let rows: Vec<Row> = self.load(query).await?;
        rows.into_iter().map(Row::read).collect()
    }
}
