//! Holds that nobody resolved: they expired, and no consume came after.

use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz, Uuid};

use super::prepared::sql_query;
use super::{Ledger, LedgerError, ReservationRow, instant, number, reservations};
use crate::domain::ids::{MeterId, ReservationId, TenantId};

/// Which expired holds to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExpiredFilter {
    /// Only this tenant's; none for all.
    pub tenant: Option<TenantId>,
    /// Only those with a line of this meter.
    pub meter: Option<MeterId>,
    /// Only those that expired at or after this instant (unix ms).
    pub from_ms: Option<i64>,
    /// Only those that expired before it (unix ms).
    pub to_ms: Option<i64>,
}

/// A place in a list of expired holds, the last to expire first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiredCursor {
    /// When the hold was expired (unix ms).
    pub expired_at_ms: i64,
    /// Its reservation.
    pub id: ReservationId,
}

impl Ledger {
    /// Expired holds, the last to expire first, at most `limit`, after `after`.
    pub async fn expired_holds(
        &self,
        filter: &ExpiredFilter,
        after: Option<ExpiredCursor>,
        limit: usize,
    ) -> Result<Vec<ReservationRow>, LedgerError> {
        let (from, to) = (
            filter.from_ms.map(instant::from_ms).transpose()?,
            filter.to_ms.map(instant::from_ms).transpose()?,
        );
        let place_at = after.map(|place| instant::from_ms(place.expired_at_ms)).transpose()?;
        let query = || {
            sql_query(include_str!("sql/expired_holds.sql"))
                .bind::<Nullable<Text>, _>(filter.tenant.as_ref().map(TenantId::as_str))
                .bind::<Nullable<Text>, _>(filter.meter.as_ref().map(MeterId::as_str))
                .bind::<Nullable<Timestamptz>, _>(from)
                .bind::<Nullable<Timestamptz>, _>(to)
                .bind::<Nullable<Timestamptz>, _>(place_at)
                .bind::<Nullable<Uuid>, _>(after.map(|place| place.id))
                .bind::<BigInt, _>(number::limit(limit))
        };
        let rows: Vec<reservations::Row> = self.load(query).await?;
        rows.into_iter().map(reservations::Row::read).collect()
    }
}
