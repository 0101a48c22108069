//! Parked calls: taken while the gate was away, in order, until the gate has them.

use chrono::TimeDelta;
use diesel::deserialize::FromSqlRow;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{self, Array, BigInt, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::columns::{Milliseconds, reads};
use super::functions::{clock_timestamp, earlier};
use super::prepared::sql_query;
use super::schema::parked;
use super::{Ledger, LedgerError, ReservationRow, number, reservations};
use crate::domain::ids::{Epoch, ReservationId, TenantId};

/// The kind of notice that announces parked calls; its id is their tenant.
pub const NOTICE: &str = "parked";

/// The state of a parked call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromSqlRow)]
pub enum ParkedState {
    /// The gate does not have it yet.
    Waiting,
    /// The gate has it, and it is booked.
    Done,
    /// The gate will never take it.
    Conflict,
}

pub(super) const WAITING: &str = "waiting";
pub(super) const DONE: &str = "done";
pub(super) const CONFLICT: &str = "conflict";

reads!(Text => ParkedState, |word: String| match word.as_str() {
    WAITING => Self::Waiting,
    DONE => Self::Done,
    _ => Self::Conflict,
});

/// A call to be parked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewParked {
    /// Its tenant.
    pub tenant: TenantId,
    /// `reserve`, `usage`, `consume` or `release`.
    pub call: &'static str,
    /// When it was taken (gate time, unix ms).
    pub taken_at_ms: i64,
    /// The packed call.
    pub payload: Vec<u8>,
    /// The fingerprint of its request; only of an admission.
    pub fingerprint: Option<[u8; 16]>,
}

/// A parked call.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, QueryableByName, Selectable)]
#[diesel(table_name = parked, check_for_backend(Pg))]
pub struct ParkedRow {
    /// Its place in the order of its tenant's calls.
    pub number: i64,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its reservation.
    #[diesel(column_name = reservation_id)]
    pub reservation: ReservationId,
    /// When it was taken (gate time, unix ms).
    #[diesel(column_name = taken_at, deserialize_as = Milliseconds)]
    pub taken_at_ms: i64,
    /// The packed call.
    pub payload: Vec<u8>,
    /// Its state.
    pub state: ParkedState,
}

/// What the ledger has of a reservation: its booked row, and its parked calls in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownReservation {
    /// Its booked row.
    pub row: Option<ReservationRow>,
    /// Its calls that wait and those that are done; a call in conflict has no effect.
    pub parked: Vec<ParkedRow>,
}

/// How many parked calls are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParkedCounts {
    /// The gate does not have them yet.
    pub waiting: u64,
    /// The gate will never take them.
    pub conflicts: u64,
}

/// An epoch as it stands in the rows; below all of them while it is not known.
fn of_epoch(epoch: Option<Epoch>) -> i64 {
    epoch.map_or(-1, |epoch| number::signed(epoch.0))
}

fn lock_key(id: ReservationId) -> i64 {
    let (high, low) = id.uuid().as_u64_pair();
    i64::from_le_bytes((high ^ low).to_le_bytes())
}

/// Locks a reservation's calls: they are decided one after the other, whichever instance takes them.
pub(super) async fn lock(connection: &mut AsyncPgConnection, id: ReservationId) -> Result<(), LedgerError> {
    let lock = sql_query(include_str!("sql/lock_reservation.sql"));
    lock.bind::<BigInt, _>(lock_key(id)).execute(connection).await?;
    Ok(())
}

#[derive(QueryableByName)]
struct Locked {
    #[diesel(sql_type = sql_types::Uuid)]
    id: ReservationId,
}

/// Locks the calls of these reservations without waiting. Returns those whose calls another transaction has locked.
pub(super) async fn lock_free(
    connection: &mut AsyncPgConnection,
    ids: &[ReservationId],
) -> Result<Vec<ReservationId>, LedgerError> {
    let lock = sql_query(include_str!("sql/lock_free_reservations.sql"))
        .bind::<Array<sql_types::Uuid>, _>(ids)
        .bind::<Array<BigInt>, _>(ids.iter().map(|id| lock_key(*id)).collect::<Vec<_>>());
    let locked: Vec<Locked> = lock.load(connection).await?;
    Ok(locked.into_iter().map(|row| row.id).collect())
}

pub(super) async fn known(
    connection: &mut AsyncPgConnection,
    id: ReservationId,
) -> Result<KnownReservation, LedgerError> {
    let row = reservations::read_one(connection, id).await?;
    let calls = parked::table
        .select(ParkedRow::as_select())
        .filter(parked::reservation_id.eq(id))
        .filter(parked::state.ne(CONFLICT))
        .order(parked::number);
    Ok(KnownReservation { row, parked: calls.load(connection).await? })
}

impl Ledger {
    /// What the ledger has of a reservation, booked or parked.
    pub async fn known_reservation(&self, id: ReservationId) -> Result<KnownReservation, LedgerError> {
        self.read(|connection| known(connection, id).boxed()).await
    }

    /// The tenants with waiting calls, by name, at most `limit`, after `after`.
    pub async fn parked_tenants(
        &self,
        after: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<TenantId>, LedgerError> {
        let after = after.map_or("", TenantId::as_str);
        let query = || {
            let waiting = parked::table.filter(parked::state.eq(WAITING)).filter(parked::tenant.gt(after));
            waiting.select(parked::tenant).distinct().order(parked::tenant).limit(number::limit(limit))
        };
        self.load(query).await
    }

    /// The next waiting calls of a tenant, or of one of its reservations, in order. Leaves out the calls that were
    /// delivered in this epoch, and the reservations in `without`. At most `limit` calls, and with them the other
    /// waiting calls of their reservations.
    pub async fn waiting_calls(
        &self,
        tenant: &TenantId,
        only: Option<ReservationId>,
        epoch: Option<Epoch>,
        without: &[ReservationId],
        limit: usize,
    ) -> Result<Vec<ParkedRow>, LedgerError> {
        let without: Vec<_> = without.iter().map(|id| id.uuid()).collect();
        let query = || {
            sql_query(include_str!("sql/waiting_calls.sql"))
                .bind::<Text, _>(tenant)
                .bind::<Nullable<sql_types::Uuid>, _>(only)
                .bind::<BigInt, _>(of_epoch(epoch))
                .bind::<BigInt, _>(number::limit(limit))
                .bind::<Array<sql_types::Uuid>, _>(&without)
        };
        self.load(query).await
    }

    /// The tenant of a reservation's waiting calls, if it has any.
    pub async fn waiting_tenant(&self, id: ReservationId) -> Result<Option<TenantId>, LedgerError> {
        let query = || {
            let waiting =
                parked::table.filter(parked::reservation_id.eq(id)).filter(parked::state.eq(WAITING));
            waiting.select(parked::tenant).limit(1)
        };
        self.first(query).await
    }

    /// Records that the gate has got these calls of a tenant in this epoch.
    pub async fn note_delivered_calls(
        &self,
        tenant: &TenantId,
        epoch: Epoch,
        numbers: Vec<i64>,
    ) -> Result<(), LedgerError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let calls = parked::table
            .filter(parked::tenant.eq(tenant.clone()))
            .filter(parked::number.eq_any(numbers))
            .filter(parked::state.eq(WAITING));
        let delivered = parked::delivered_in.eq(Some(of_epoch(Some(epoch))));
        self.execute(diesel::update(calls).set(delivered)).await.map(drop)
    }

    /// The calls of a tenant that the gate has got in this epoch and that are not settled, in order, at most `limit`.
    pub async fn delivered_calls(
        &self,
        tenant: &TenantId,
        epoch: Epoch,
        limit: usize,
    ) -> Result<Vec<i64>, LedgerError> {
        let query = || {
            parked::table
                .filter(parked::tenant.eq(tenant))
                .filter(parked::state.eq(WAITING))
                .filter(parked::delivered_in.eq(Some(of_epoch(Some(epoch)))))
                .select(parked::number)
                .order(parked::number)
                .limit(number::limit(limit))
        };
        self.load(query).await
    }

    /// Records that the gate has these calls of a tenant, and that their events are booked.
    pub async fn settle_parked(&self, tenant: &TenantId, numbers: Vec<i64>) -> Result<(), LedgerError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let calls = parked::table
            .filter(parked::tenant.eq(tenant.clone()))
            .filter(parked::number.eq_any(numbers))
            .filter(parked::state.eq(WAITING));
        let settled = (parked::state.eq(DONE), parked::settled_at.eq(clock_timestamp().nullable()));
        self.execute(diesel::update(calls).set(settled)).await.map(drop)
    }

    /// Records that the gate will never take a call, and why. Returns whether it still waited.
    pub async fn refuse_parked(
        &self,
        tenant: &TenantId,
        number: i64,
        reason: &str,
    ) -> Result<bool, LedgerError> {
        let call = parked::table.find((tenant.clone(), number)).filter(parked::state.eq(WAITING));
        let refuse = diesel::update(call).set((
            parked::state.eq(CONFLICT),
            parked::reason.eq(reason.to_owned()),
            parked::settled_at.eq(clock_timestamp().nullable()),
        ));
        Ok(self.execute(refuse).await? > 0)
    }

    /// How many calls wait and how many conflict.
    pub async fn count_parked(&self) -> Result<ParkedCounts, LedgerError> {
        let count = |state| parked::table.filter(parked::state.eq(state)).count().single_value();
        let counts: Option<(Option<i64>, Option<i64>)> =
            self.first(|| diesel::select((count(WAITING), count(CONFLICT)))).await?;
        let (waiting, conflicts) = counts.unwrap_or_default();
        Ok(ParkedCounts {
            waiting: number::unsigned(waiting.unwrap_or_default())?,
            conflicts: number::unsigned(conflicts.unwrap_or_default())?,
        })
    }

    /// Drops calls that were done more than `days` ago: the reservations' rows contain them.
    pub async fn drop_settled_parked(&self, days: u16) -> Result<u64, LedgerError> {
        let since = earlier(clock_timestamp(), TimeDelta::days(days.into()));
        let done =
            parked::table.filter(parked::state.eq(DONE)).filter(parked::settled_at.lt(since.nullable()));
        Ok(u64::try_from(self.execute(diesel::delete(done)).await?).unwrap_or(u64::MAX))
    }
}
