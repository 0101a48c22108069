//! A tenant's reservations, newest first: booked, archived, and those that exist only as parked calls yet.

use std::cmp::Reverse;
use std::collections::HashMap;

use diesel::prelude::*;
use diesel::sql_types::{self, Array, BigInt, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use uuid::Uuid;

use super::parked::{CONFLICT, WAITING};
use super::prepared::sql_query;
use super::schema::parked;
use super::{
    BEGIN_SNAPSHOT, KnownReservation, Ledger, LedgerError, ParkedRow, instant, number, reservations,
};
use crate::domain::ids::{MeterId, ReservationId, Subject, TenantId};
use crate::domain::reservation::{Record, ReservationState};

/// Which reservations of a tenant to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReservationFilter {
    /// Only in this state.
    pub state: Option<ReservationState>,
    /// Only those naming this subject.
    pub subject: Option<Subject>,
    /// Only those with a line of this meter.
    pub meter: Option<MeterId>,
}

/// A place in a list of reservations, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservationCursor {
    /// When the reservation was made, or taken as long as only a parked call knows it (unix ms).
    pub born_at_ms: i64,
    /// Its id.
    pub id: ReservationId,
}

impl ReservationFilter {
    /// Whether a reservation with this record is to be listed.
    pub fn fits(&self, record: &Record) -> bool {
        let named = |wanted: &Subject| {
            let rest = record.body.rest.as_ref();
            rest.is_some_and(|rest| rest.subjects.iter().any(|(subject, _)| subject == wanted))
        };
        self.state.is_none_or(|state| state == record.head.state)
            && self.subject.as_ref().is_none_or(named)
            && self
                .meter
                .as_ref()
                .is_none_or(|meter| record.body.lines.iter().any(|line| line.meter == *meter))
    }
}

/// A reservation of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedReservation {
    /// Its place in the list.
    pub place: ReservationCursor,
    /// Its row, and its parked calls in order.
    pub known: KnownReservation,
}

/// One page of a list.
struct Page {
    tenant: TenantId,
    filter: ReservationFilter,
    after: Option<ReservationCursor>,
    limit: usize,
}

impl Page {
    async fn read(&self, connection: &mut AsyncPgConnection) -> Result<Vec<ListedReservation>, LedgerError> {
        let waiting = self.waiting(connection).await?;
        let mut listed = self.booked(connection, &waiting).await?;
        if !waiting.is_empty() {
            listed.extend(self.admissions(connection).await?);
            listed.sort_by_key(|listed| Reverse(listed.place));
            listed.truncate(self.limit);
            self.add_parked(connection, &mut listed).await?;
        }
        Ok(listed)
    }

    /// The reservations with waiting calls; there are at most as many as may be parked.
    async fn waiting(&self, connection: &mut AsyncPgConnection) -> Result<Vec<Uuid>, LedgerError> {
        let waiting = parked::table.filter(parked::tenant.eq(&self.tenant)).filter(parked::state.eq(WAITING));
        Ok(waiting.select(parked::reservation_id).distinct().load(connection).await?)
    }

    async fn booked(
        &self,
        connection: &mut AsyncPgConnection,
        waiting: &[Uuid],
    ) -> Result<Vec<ListedReservation>, LedgerError> {
        let subject = self.filter.subject.as_ref();
        let rows: Vec<reservations::Row> = sql_query(include_str!("sql/listed_reservations.sql"))
            .bind::<Text, _>(&self.tenant)
            .bind::<Nullable<Text>, _>(self.filter.state.map(ReservationState::as_str))
            .bind::<Nullable<Text>, _>(self.filter.meter.as_ref().map(ToString::to_string))
            .bind::<Nullable<Text>, _>(subject.map(|subject| subject.kind.to_string()))
            .bind::<Nullable<Text>, _>(subject.map(|subject| subject.id.to_string()))
            .bind::<Nullable<Timestamptz>, _>(
                self.after.map(|place| instant::from_ms(place.born_at_ms)).transpose()?,
            )
            .bind::<Nullable<sql_types::Uuid>, _>(self.after.map(|place| place.id.uuid()))
            .bind::<BigInt, _>(number::limit(self.limit))
            .bind::<Array<sql_types::Uuid>, _>(waiting)
            .load(connection)
            .await?;
        let listed = rows.into_iter().map(|row| {
            let row = row.read()?;
            let place = ReservationCursor { born_at_ms: row.record.head.born_at_ms, id: row.id };
            Ok(ListedReservation { place, known: KnownReservation { row: Some(row), parked: Vec::new() } })
        });
        listed.collect()
    }

    async fn admissions(
        &self,
        connection: &mut AsyncPgConnection,
    ) -> Result<Vec<ListedReservation>, LedgerError> {
        let rows: Vec<ParkedRow> = sql_query(include_str!("sql/parked_admissions.sql"))
            .bind::<Text, _>(&self.tenant)
            .bind::<Nullable<Timestamptz>, _>(
                self.after.map(|place| instant::from_ms(place.born_at_ms)).transpose()?,
            )
            .bind::<Nullable<sql_types::Uuid>, _>(self.after.map(|place| place.id))
            .bind::<BigInt, _>(number::limit(self.limit))
            .load(connection)
            .await?;
        let listed = rows.into_iter().map(|row| {
            let place = ReservationCursor { born_at_ms: row.taken_at_ms, id: row.reservation };
            ListedReservation { place, known: KnownReservation { row: None, parked: Vec::new() } }
        });
        Ok(listed.collect())
    }

    async fn add_parked(
        &self,
        connection: &mut AsyncPgConnection,
        listed: &mut [ListedReservation],
    ) -> Result<(), LedgerError> {
        let ids: Vec<_> = listed.iter().map(|listed| listed.place.id).collect();
        let calls = parked::table
            .select(ParkedRow::as_select())
            .filter(parked::tenant.eq(&self.tenant))
            .filter(parked::reservation_id.eq_any(ids))
            .filter(parked::state.ne(CONFLICT))
            .order(parked::number);
        let mut by_reservation: HashMap<ReservationId, Vec<ParkedRow>> = HashMap::new();
        for row in calls.load::<ParkedRow>(connection).await? {
            by_reservation.entry(row.reservation).or_default().push(row);
        }
        for listed in listed {
            listed.known.parked = by_reservation.get(&listed.place.id).cloned().unwrap_or_default();
        }
        Ok(())
    }
}

impl Ledger {
    /// A tenant's reservations, newest first, at most `limit`, after `after`, as of one snapshot. Reservations with
    /// parked calls are always included, because their calls decide whether they fit the filter.
    pub async fn reservations_of(
        &self,
        tenant: &TenantId,
        filter: &ReservationFilter,
        after: Option<ReservationCursor>,
        limit: usize,
    ) -> Result<Vec<ListedReservation>, LedgerError> {
        let page = Page { tenant: tenant.clone(), filter: filter.clone(), after, limit };
        self.transact(BEGIN_SNAPSHOT, move |connection| async move { page.read(connection).await }.boxed())
            .await
    }
}
