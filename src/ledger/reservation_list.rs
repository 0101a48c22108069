//! A tenant's reservations, newest first: booked, archived, and those that only a parked call knows yet.

use std::cmp::Reverse;
use std::collections::HashMap;

use diesel::sql_types::{self, Array, BigInt, Nullable, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use uuid::Uuid;

use super::{
    BEGIN_SNAPSHOT, KnownReservation, Ledger, LedgerError, ParkedRow, instant, number, parked, reservations,
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
pub struct ReservationPlace {
    /// When the reservation was made (unix ms).
    pub born_at_ms: i64,
    /// Which one.
    pub id: ReservationId,
}

impl ReservationFilter {
    /// Whether a reservation that stands like this record is to be listed.
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
    /// Where it stands in the list.
    pub place: ReservationPlace,
    /// Its row, and its parked calls in order.
    pub known: KnownReservation,
}

/// Booked and archived rows alike; each branch follows an index in the list's order.
const BOOKED: &str = "FROM (SELECT id, tenant, record, resolved_at, state, meters, subjects, born_at FROM reservations \
        UNION ALL SELECT id, tenant, record, resolved_at, state, meters, subjects, born_at FROM reservations_archive) r \
    WHERE r.tenant = $1 AND ($2 IS NULL OR r.state = $2 OR r.id = ANY($9)) AND ($3 IS NULL OR $3 = ANY(r.meters)) \
    AND ($4 IS NULL OR r.subjects && (SELECT array_agg(s.number) FROM subjects s \
                                       WHERE s.tenant = $1 AND s.kind = $4 AND s.id = $5)) \
    AND ($6 IS NULL OR (r.born_at, r.id) < ($6, $7)) ORDER BY r.born_at DESC, r.id DESC LIMIT $8";

/// Parked admissions that are not booked: their gate time is the birth of their reservation.
const ADMISSIONS: &str = "WHERE tenant = $1 AND state = 'waiting' AND call IN ('reserve', 'usage') \
    AND ($2 IS NULL OR (taken_at, reservation_id) < ($2, $3)) \
    AND NOT EXISTS (SELECT FROM reservations r WHERE r.partition = parked.partition AND r.id = parked.reservation_id) \
    ORDER BY taken_at DESC, reservation_id DESC LIMIT $4";

#[derive(QueryableByName)]
struct IdRow {
    #[diesel(sql_type = sql_types::Uuid)]
    reservation_id: Uuid,
}

/// One page of a list.
struct Page {
    tenant: String,
    filter: ReservationFilter,
    after: Option<ReservationPlace>,
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

    /// The reservations with calls that wait; there are at most as many as may be parked.
    async fn waiting(&self, connection: &mut AsyncPgConnection) -> Result<Vec<Uuid>, LedgerError> {
        let query = "SELECT DISTINCT reservation_id FROM parked WHERE tenant = $1 AND state = 'waiting'";
        let rows: Vec<IdRow> = sql_query(query).bind::<Text, _>(&self.tenant).load(connection).await?;
        Ok(rows.into_iter().map(|row| row.reservation_id).collect())
    }

    async fn booked(
        &self,
        connection: &mut AsyncPgConnection,
        waiting: &[Uuid],
    ) -> Result<Vec<ListedReservation>, LedgerError> {
        let subject = self.filter.subject.as_ref();
        let rows: Vec<reservations::Row> = sql_query(format!("{} {BOOKED}", reservations::COLUMNS))
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
            let place = ReservationPlace { born_at_ms: row.record.head.born_at_ms, id: row.id };
            Ok(ListedReservation { place, known: KnownReservation { row: Some(row), parked: Vec::new() } })
        });
        listed.collect()
    }

    async fn admissions(
        &self,
        connection: &mut AsyncPgConnection,
    ) -> Result<Vec<ListedReservation>, LedgerError> {
        let rows: Vec<parked::Row> = sql_query(format!("{} {ADMISSIONS}", parked::COLUMNS))
            .bind::<Text, _>(&self.tenant)
            .bind::<Nullable<Timestamptz>, _>(
                self.after.map(|place| instant::from_ms(place.born_at_ms)).transpose()?,
            )
            .bind::<Nullable<sql_types::Uuid>, _>(self.after.map(|place| place.id.uuid()))
            .bind::<BigInt, _>(number::limit(self.limit))
            .load(connection)
            .await?;
        let listed = rows.into_iter().map(|row| {
            let row = row.read()?;
            let place = ReservationPlace { born_at_ms: row.taken_at_ms, id: row.reservation };
            Ok(ListedReservation { place, known: KnownReservation { row: None, parked: Vec::new() } })
        });
        listed.collect()
    }

    async fn add_parked(
        &self,
        connection: &mut AsyncPgConnection,
        listed: &mut [ListedReservation],
    ) -> Result<(), LedgerError> {
        let ids: Vec<_> = listed.iter().map(|listed| listed.place.id.uuid()).collect();
        let calls = "WHERE tenant = $1 AND reservation_id = ANY($2) AND state <> 'conflict' ORDER BY number";
        let rows: Vec<parked::Row> = sql_query(format!("{} {calls}", parked::COLUMNS))
            .bind::<Text, _>(&self.tenant)
            .bind::<Array<sql_types::Uuid>, _>(ids)
            .load(connection)
            .await?;
        let mut by_reservation: HashMap<ReservationId, Vec<ParkedRow>> = HashMap::new();
        for row in rows {
            let row = row.read()?;
            by_reservation.entry(row.reservation).or_default().push(row);
        }
        for listed in listed {
            listed.known.parked = by_reservation.get(&listed.place.id).cloned().unwrap_or_default();
        }
        Ok(())
    }
}

impl Ledger {
    /// A tenant's reservations, newest first, at most `limit`, after `after`, as of one snapshot. Those with parked calls are
    /// among them whatever the filter says: their calls decide whether they fit.
    pub async fn reservations_of(
        &self,
        tenant: &TenantId,
        filter: &ReservationFilter,
        after: Option<ReservationPlace>,
        limit: usize,
    ) -> Result<Vec<ListedReservation>, LedgerError> {
        let page = Page { tenant: tenant.to_string(), filter: filter.clone(), after, limit };
        self.transact(BEGIN_SNAPSHOT, move |connection| async move { page.read(connection).await }.boxed())
            .await
    }
}
