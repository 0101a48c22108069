//! Reservations: the durable state machine, with one row for each booked operation.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use diesel::dsl::exists;
use diesel::expression::SqlLiteral;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::serialize::{self, Output, ToSql, WriteTuple};
use diesel::sql_types::{self, Array, BigInt, Binary, Bool, Integer, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::{FutureExt, try_join};

use super::columns::MillisecondsIfAny;
use super::prepared::{self, Statement, sql_query};
use super::schema::{quarantine as events, reservations, reservations_archive as archive};
use super::{Ledger, LedgerError, instant, number, quarantine};
use crate::domain::booking;
use crate::domain::codec::Undecodable;
use crate::domain::ids::{OperationId, OutboxId, Partition, ReservationId, TenantId};
use crate::domain::reservation::{BodyDetails, Record, ReservationState};

/// A reservation as it is booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationRow {
    /// Its id.
    pub id: ReservationId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its whole record; the metadata is in its body.
    pub record: Record,
    /// Its state.
    pub state: ReservationState,
    /// The ordinal of its last booked change.
    pub step: u32,
    /// Its last booked event.
    pub last_event: OutboxId,
    /// Whether an event of it waits in quarantine, so that the row lags.
    pub quarantined: bool,
    /// When it was resolved (gate time, unix ms).
    pub resolved_at_ms: Option<i64>,
}

impl ReservationRow {
    fn of(id: ReservationId, record: Record, resolved_at_ms: Option<i64>, quarantined: bool) -> Self {
        Self {
            id,
            tenant: record.body.tenant.clone(),
            state: record.head.state,
            step: record.head.step,
            last_event: record.head.last_event(),
            record,
            quarantined,
            resolved_at_ms,
        }
    }
}

/// A reservation as a transaction leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReservationChange {
    pub(crate) id: ReservationId,
    /// The state of its row before; none where this is the first event of its life.
    pub(crate) booked: Option<ReservationState>,
    pub(crate) record: Record,
    pub(crate) subjects: Vec<i64>,
    pub(crate) resolved_at_ms: Option<i64>,
}

#[derive(Queryable, QueryableByName)]
pub(super) struct Row {
    #[diesel(sql_type = sql_types::Uuid)]
    id: ReservationId,
    #[diesel(sql_type = Binary)]
    record: Vec<u8>,
    #[diesel(sql_type = Nullable<Timestamptz>, deserialize_as = MillisecondsIfAny)]
    resolved_at: Option<i64>,
    #[diesel(sql_type = Bool)]
    quarantined: bool,
}

impl Row {
    pub(super) fn read(self) -> Result<ReservationRow, LedgerError> {
        let id = self.id;
        Ok(ReservationRow::of(id, decode(id, &self.record)?, self.resolved_at, self.quarantined))
    }
}

#[derive(QueryableByName)]
struct RecordRow {
    #[diesel(sql_type = sql_types::Uuid)]
    id: ReservationId,
    #[diesel(sql_type = Binary)]
    record: Vec<u8>,
    #[diesel(sql_type = Nullable<Timestamptz>, deserialize_as = MillisecondsIfAny)]
    resolved_at: Option<i64>,
}

/// What the writer reads of a booked reservation.
pub(crate) struct BookedRecord {
    pub(crate) id: ReservationId,
    /// The record alone may be damaged.
    pub(crate) record: Result<Record, Undecodable>,
    pub(crate) resolved_at_ms: Option<i64>,
}

/// Reads the records of these reservations that are booked.
pub(crate) async fn read_records(
    mut connection: &AsyncPgConnection,
    ids: &[ReservationId],
) -> Result<Vec<BookedRecord>, LedgerError> {
    let find = sql_query(include_str!("sql/booked_records.sql"))
        .bind::<Array<SmallInt>, _>(ids.iter().map(|id| id.partition()).collect::<Vec<_>>())
        .bind::<Array<sql_types::Uuid>, _>(ids);
    let rows: Vec<RecordRow> = find.load(&mut connection).await?;
    let read = |row: RecordRow| BookedRecord {
        id: row.id,
        record: Record::decode(&row.record),
        resolved_at_ms: row.resolved_at,
    };
    Ok(rows.into_iter().map(read).collect())
}

/// Reads these reservations as they are booked; those that are not are left out.
pub(super) async fn read_rows(
    connection: &mut AsyncPgConnection,
    ids: &[ReservationId],
) -> Result<Vec<ReservationRow>, LedgerError> {
    let records = read_records(connection, ids).await?;
    let quarantined = quarantine::waiting(connection, ids).await?;
    let row = |BookedRecord { id, record, resolved_at_ms }| {
        let record = record.map_err(|error| damaged(id, error))?;
        Ok(ReservationRow::of(id, record, resolved_at_ms, quarantined.contains(&id)))
    };
    records.into_iter().map(row).collect()
}

/// Reads one reservation as it is booked.
pub(crate) async fn read_one(
    connection: &mut AsyncPgConnection,
    id: ReservationId,
) -> Result<Option<ReservationRow>, LedgerError> {
    let row: Option<Row> = reservations::table
        .select((reservations::id, reservations::record, reservations::resolved_at, exists(waiting_of(id))))
        .filter(reservations::partition.eq(id.partition()))
        .filter(reservations::id.eq(id))
        .first(connection)
        .await
        .optional()?;
    row.map(Row::read).transpose()
}

/// The events of a reservation that wait in quarantine.
#[diesel::dsl::auto_type(no_type_alias)]
fn waiting_of(id: ReservationId) -> _ {
    let open: SqlLiteral<Text> = quarantine::open();
    events::table.filter(events::status.eq(open)).filter(events::reservation_id.eq(id))
}

/// Locks a reservation's row until the transaction ends.
pub(super) async fn hold_row(
    connection: &mut AsyncPgConnection,
    id: ReservationId,
) -> Result<(), LedgerError> {
    reservations::table
        .select(reservations::id)
        .filter(reservations::partition.eq(id.partition()))
        .filter(reservations::id.eq(id))
        .for_update()
        .execute(connection)
        .await?;
    Ok(())
}

fn decode(id: ReservationId, record: &[u8]) -> Result<Record, LedgerError> {
    Record::decode(record).map_err(|error| damaged(id, error))
}

fn damaged(id: ReservationId, error: Undecodable) -> LedgerError {
    LedgerError::Damaged(format!("reservation {id}: {error}"))
}

/// A row of the type `booked_reservation`.
#[derive(Debug)]
struct BookedReservation<'a> {
    change: &'a ReservationChange,
    rest: &'a BodyDetails,
    record: Vec<u8>,
    meters: Vec<&'a str>,
    period_start: DateTime<Utc>,
    born_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    resolved_at: Option<DateTime<Utc>>,
}

impl<'a> BookedReservation<'a> {
    fn of(change: &'a ReservationChange) -> Result<Self, LedgerError> {
        let record = &change.record;
        let rest = booking::rest(record).map_err(|error| LedgerError::Damaged(error.to_string()))?;
        Ok(Self {
            change,
            record: record.encode(),
            meters: record.body.lines.iter().map(|line| line.meter.as_str()).collect(),
            period_start: instant::from_ms(rest.period_ms.0)?,
            born_at: instant::from_ms(record.head.born_at_ms)?,
            expires_at: instant::from_ms(record.head.expires_at_ms)?,
            resolved_at: change.resolved_at_ms.map(instant::from_ms).transpose()?,
            rest,
        })
    }

    fn uncharged(&self) -> Option<Vec<i64>> {
        let units: Vec<i64> = self.change.record.units.iter().map(|line| line.uncharged.get()).collect();
        units.iter().any(|units| *units > 0).then_some(units)
    }
}

/// The attributes of `booked_reservation`, in order.
type Attributes = (
    SmallInt,
    sql_types::Uuid,
    Text,
    Text,
    Integer,
    BigInt,
    BigInt,
    Binary,
    Nullable<Array<BigInt>>,
    Binary,
    Bool,
    Text,
    BigInt,
    Timestamptz,
    Array<Text>,
    Array<BigInt>,
    Timestamptz,
    Timestamptz,
    Nullable<Timestamptz>,
);

impl ToSql<prepared::Row, Pg> for BookedReservation<'_> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        let (change, rest) = (self.change, self.rest);
        let (head, body) = (&change.record.head, &change.record.body);
        let row = (
            number::of_partition(change.id.partition()),
            change.id.uuid(),
            body.tenant.as_str(),
            head.state.as_str(),
            i32::try_from(head.step).unwrap_or(i32::MAX),
            number::signed(head.epoch.0),
            number::signed(head.last_sequence),
            self.record.as_slice(),
            self.uncharged(),
            body.fingerprint.0.as_slice(),
            rest.keyed,
            rest.operation.as_ref().map_or("", OperationId::as_str),
            number::signed(rest.policy_version),
            self.period_start,
            self.meters.as_slice(),
            change.subjects.as_slice(),
            self.born_at,
            self.expires_at,
            self.resolved_at,
        );
        WriteTuple::<Attributes>::write_tuple(&row, &mut out.reborrow())
    }
}

/// Writes reservations as they are after this transaction. Open ones and resolved ones have separate tables.
pub(crate) async fn write_many(
    connection: &AsyncPgConnection,
    changes: &[ReservationChange],
) -> Result<(), LedgerError> {
    let of = |kind: Write| changes.iter().filter(move |change| Write::of(change) == kind).collect::<Vec<_>>();
    let open = sql_query(include_str!("sql/open_reservations.sql"));
    let append = sql_query(include_str!("sql/append_reservations.sql"));
    let change = sql_query(include_str!("sql/change_reservations.sql"));
    let resolve = sql_query(include_str!("sql/resolve_reservations.sql"));
    let amend = sql_query(include_str!("sql/amend_reservations.sql"));
    try_join!(
        write(connection, open, of(Write::Open)),
        write(connection, append, of(Write::Append)),
        write(connection, change, of(Write::Change)),
        write(connection, resolve, of(Write::Resolve)),
        write(connection, amend, of(Write::Amend)),
    )?;
    Ok(())
}

/// What happens to a reservation's row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    /// It is new, and open.
    Open,
    /// It is new, and resolved already.
    Append,
    /// It stays open.
    Change,
    /// It was open, and moves to the resolved ones.
    Resolve,
    /// It was resolved before.
    Amend,
}

impl Write {
    fn of(change: &ReservationChange) -> Self {
        use ReservationState::Reserved;
        match (change.booked, change.record.head.state) {
            (None, Reserved) => Self::Open,
            (None, _) => Self::Append,
            (Some(Reserved), Reserved) => Self::Change,
            (Some(Reserved), _) => Self::Resolve,
            (Some(_), _) => Self::Amend,
        }
    }
}

async fn write(
    mut connection: &AsyncPgConnection,
    query: Statement<'_>,
    changes: Vec<&ReservationChange>,
) -> Result<(), LedgerError> {
    if changes.is_empty() {
        return Ok(());
    }
    let rows = changes.into_iter().map(BookedReservation::of).collect::<Result<Vec<_>, _>>()?;
    query.bind::<Array<prepared::Row>, _>(rows).execute(&mut connection).await?;
    Ok(())
}

/// Moves a reservation to the archive, so that its id may begin another life.
pub(crate) async fn archive(
    mut connection: &AsyncPgConnection,
    id: ReservationId,
) -> Result<(), LedgerError> {
    sql_query(include_str!("sql/archive_reservation.sql"))
        .bind::<SmallInt, _>(number::of_partition(id.partition()))
        .bind::<sql_types::Uuid, _>(id.uuid())
        .execute(&mut connection)
        .await?;
    Ok(())
}

impl Ledger {
    /// A reservation by its id, of whichever tenant: the caller must compare the tenant before it shows anything.
    pub async fn reservation(&self, id: ReservationId) -> Result<Option<ReservationRow>, LedgerError> {
        self.under_kept_plans().read(|connection| read_one(connection, id).boxed()).await
    }

    /// Which of these reservations of one partition are booked.
    pub async fn booked_reservations(
        &self,
        partition: Partition,
        ids: &[ReservationId],
    ) -> Result<HashSet<ReservationId>, LedgerError> {
        let query = || {
            reservations::table
                .select(reservations::id)
                .filter(reservations::partition.eq(partition))
                .filter(reservations::id.eq_any(ids))
        };
        Ok(self.load(query).await?.into_iter().collect())
    }

    /// The newest life of a reservation in the archive: its repeats are no longer recognised.
    pub async fn archived_reservation(
        &self,
        id: ReservationId,
    ) -> Result<Option<ReservationRow>, LedgerError> {
        let query = || {
            archive::table
                .select((archive::id, archive::record, archive::resolved_at, exists(waiting_of(id))))
                .filter(archive::partition.eq(id.partition()))
                .filter(archive::id.eq(id))
                .order(archive::born_at.desc())
                .limit(1)
        };
        self.first(query).await?.map(Row::read).transpose()
    }
}
