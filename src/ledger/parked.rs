//! Parked calls: taken while the gate was away, in order, until the gate has them.

use chrono::{DateTime, Utc};
use diesel::sql_types::{self, Array, BigInt, Binary, Nullable, SmallInt, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::{
    BEGIN, Ledger, LedgerError, ReservationRow, instant, key_filters, notices, number, reservations,
};
use crate::domain::ids::{ReservationId, TenantId};

/// The kind of notice that tells of parked calls; its id is their tenant.
pub const NOTICE: &str = "parked";

/// Where a parked call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkedState {
    /// The gate does not have it yet.
    Waiting,
    /// The gate has it, and so have the books.
    Done,
    /// The gate will never take it.
    Conflict,
}

/// A call to be parked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewParked {
    /// Whose.
    pub tenant: TenantId,
    /// `reserve`, `usage`, `consume` or `release`.
    pub call: &'static str,
    /// When it was taken (gate time, unix ms).
    pub taken_at_ms: i64,
    /// The packed call.
    pub payload: Vec<u8>,
    /// What its request means; of an admission only.
    pub fingerprint: Option<[u8; 16]>,
}

/// A parked call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedRow {
    /// Its place in the order of its tenant's calls.
    pub number: i64,
    /// Whose.
    pub tenant: TenantId,
    /// Of which reservation.
    pub reservation: ReservationId,
    /// When it was taken (gate time, unix ms).
    pub taken_at_ms: i64,
    /// The packed call.
    pub payload: Vec<u8>,
    /// Where it stands.
    pub state: ParkedState,
}

/// What the ledger knows of a reservation: its booked row, and its parked calls in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownReservation {
    /// As it is booked.
    pub row: Option<ReservationRow>,
    /// Those that wait and those that are done; what conflicts has no effect.
    pub parked: Vec<ParkedRow>,
}

/// How many parked calls stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParkedCounts {
    /// The gate does not have them yet.
    pub waiting: u64,
    /// The gate will never take them.
    pub conflicts: u64,
}

#[derive(QueryableByName)]
pub(super) struct Row {
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = sql_types::Uuid)]
    reservation_id: uuid::Uuid,
    #[diesel(sql_type = Timestamptz)]
    taken_at: DateTime<Utc>,
    #[diesel(sql_type = Binary)]
    payload: Vec<u8>,
    #[diesel(sql_type = Text)]
    state: String,
}

/// What a [`Row`] reads of a parked call.
pub(super) const COLUMNS: &str =
    "SELECT number, tenant, reservation_id, taken_at, payload, state FROM parked";

impl Row {
    pub(super) fn read(self) -> Result<ParkedRow, LedgerError> {
        Ok(ParkedRow {
            number: self.number,
            tenant: number::tenant(&self.tenant)?,
            reservation: ReservationId::from_bytes(self.reservation_id.into_bytes()),
            taken_at_ms: self.taken_at.timestamp_millis(),
            payload: self.payload,
            state: match self.state.as_str() {
                "waiting" => ParkedState::Waiting,
                "done" => ParkedState::Done,
                _ => ParkedState::Conflict,
            },
        })
    }
}

#[derive(QueryableByName)]
struct TenantRow {
    #[diesel(sql_type = Text)]
    tenant: String,
}

#[derive(QueryableByName)]
struct CountsRow {
    #[diesel(sql_type = BigInt)]
    waiting: i64,
    #[diesel(sql_type = BigInt)]
    conflicts: i64,
}

/// Calls of one reservation are judged one after the other, whichever instance takes them.
pub(super) async fn lock(connection: &mut AsyncPgConnection, id: ReservationId) -> Result<(), LedgerError> {
    let (high, low) = id.uuid().as_u64_pair();
    let key = i64::from_le_bytes((high ^ low).to_le_bytes());
    sql_query("SELECT pg_advisory_xact_lock($1)").bind::<BigInt, _>(key).execute(connection).await?;
    Ok(())
}

pub(super) async fn known(
    connection: &mut AsyncPgConnection,
    id: ReservationId,
) -> Result<KnownReservation, LedgerError> {
    let row = reservations::read_one(connection, id).await?;
    let query = format!("{COLUMNS} WHERE reservation_id = $1 AND state <> 'conflict' ORDER BY number");
    let parked: Vec<Row> = sql_query(query).bind::<sql_types::Uuid, _>(id.uuid()).load(connection).await?;
    Ok(KnownReservation { row, parked: parked.into_iter().map(Row::read).collect::<Result<_, _>>()? })
}

pub(super) async fn insert(
    connection: &mut AsyncPgConnection,
    id: ReservationId,
    parked: &NewParked,
) -> Result<(), LedgerError> {
    sql_query(
        "INSERT INTO parked (tenant, partition, reservation_id, call, taken_at, payload, fingerprint) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind::<Text, _>(parked.tenant.as_str())
    .bind::<SmallInt, _>(number::of_partition(id.partition()))
    .bind::<sql_types::Uuid, _>(id.uuid())
    .bind::<Text, _>(parked.call)
    .bind::<Timestamptz, _>(instant::from_ms(parked.taken_at_ms)?)
    .bind::<Binary, _>(parked.payload.as_slice())
    .bind::<Nullable<Binary>, _>(parked.fingerprint.as_ref().map(<[u8; 16]>::as_slice))
    .execute(connection)
    .await?;
    if parked.fingerprint.is_some() {
        key_filters::add(connection, &[id]).await?;
    }
    notices::tell(connection, NOTICE, parked.tenant.as_str(), 0).await
}

impl Ledger {
    /// Parks a call of a reservation, or not, as `decide` says on seeing all that the ledger knows of it. Nobody else
    /// decides about the same reservation meanwhile.
    pub async fn park<T: Send + 'static>(
        &self,
        id: ReservationId,
        decide: impl FnOnce(&KnownReservation) -> (Option<NewParked>, T) + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.transact(BEGIN, move |connection| {
            async move {
                lock(connection, id).await?;
                let known = known(connection, id).await?;
                let (parked, decided) = decide(&known);
                if let Some(parked) = parked {
                    insert(connection, id, &parked).await?;
                }
                Ok(decided)
            }
            .boxed()
        })
        .await
    }

    /// What the ledger knows of a reservation, booked or parked.
    pub async fn known_reservation(&self, id: ReservationId) -> Result<KnownReservation, LedgerError> {
        self.read(|connection| known(connection, id).boxed()).await
    }

    /// The tenants with calls that wait, at most `limit`.
    pub async fn parked_tenants(&self, limit: usize) -> Result<Vec<TenantId>, LedgerError> {
        let query = "SELECT DISTINCT tenant FROM parked WHERE state = 'waiting' ORDER BY tenant LIMIT $1";
        let rows = self
            .read(|connection| {
                let query = sql_query(query).bind::<BigInt, _>(number::limit(limit));
                async move { Ok(query.load::<TenantRow>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(|row| number::tenant(&row.tenant)).collect()
    }

    /// The next calls that wait, without those told, at most `limit` and all others of their reservations, in order: a tenant's, or only
    /// those of one of its reservations, and none of those in `without`.
    pub async fn waiting_calls(
        &self,
        tenant: &TenantId,
        only: Option<ReservationId>,
        told: Vec<i64>,
        without: &[ReservationId],
        limit: usize,
    ) -> Result<Vec<ParkedRow>, LedgerError> {
        let waiting =
            "tenant = $1 AND state = 'waiting' AND ($2 IS NULL OR reservation_id = $2) AND number <> ALL($3)";
        let query = format!(
            "{COLUMNS} WHERE {waiting} AND reservation_id IN \
             (SELECT next.reservation_id FROM parked AS next \
                 WHERE {waiting} AND next.reservation_id NOT IN (SELECT unnest($5::uuid[])) ORDER BY next.number LIMIT $4) \
             ORDER BY number"
        );
        let rows = self
            .read(|connection| {
                let query = sql_query(query.as_str())
                    .bind::<Text, _>(tenant.to_string())
                    .bind::<Nullable<sql_types::Uuid>, _>(only.map(ReservationId::uuid))
                    .bind::<Array<BigInt>, _>(told.clone())
                    .bind::<BigInt, _>(number::limit(limit))
                    .bind::<Array<sql_types::Uuid>, _>(
                        without.iter().map(|id| id.uuid()).collect::<Vec<_>>(),
                    );
                async move { Ok(query.load::<Row>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(Row::read).collect()
    }

    /// Whose waiting calls a reservation has, if it has any.
    pub async fn waiting_tenant(&self, id: ReservationId) -> Result<Option<TenantId>, LedgerError> {
        let query = "SELECT tenant FROM parked WHERE reservation_id = $1 AND state = 'waiting' LIMIT 1";
        let rows = self
            .read(|connection| {
                let query = sql_query(query).bind::<sql_types::Uuid, _>(id.uuid());
                async move { Ok(query.load::<TenantRow>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().next().map(|row| number::tenant(&row.tenant)).transpose()
    }

    /// Notes that the gate has these calls of a tenant, and the books what it did with them.
    pub async fn settle_parked(&self, tenant: &TenantId, numbers: Vec<i64>) -> Result<(), LedgerError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let tenant = tenant.to_string();
        self.transact(BEGIN, move |connection| {
            async move {
                let query = "UPDATE parked SET state = 'done', settled_at = clock_timestamp() \
                             WHERE tenant = $1 AND number = ANY($2) AND state = 'waiting'";
                sql_query(query)
                    .bind::<Text, _>(tenant)
                    .bind::<Array<BigInt>, _>(numbers)
                    .execute(connection)
                    .await?;
                Ok(())
            }
            .boxed()
        })
        .await
    }

    /// Notes that the gate will never take a call, and why. Says whether it still waited.
    pub async fn refuse_parked(
        &self,
        tenant: &TenantId,
        number: i64,
        reason: &str,
    ) -> Result<bool, LedgerError> {
        let (tenant, reason) = (tenant.to_string(), reason.to_owned());
        self.transact(BEGIN, move |connection| {
            async move {
                let query = "UPDATE parked SET state = 'conflict', reason = $3, settled_at = clock_timestamp() \
                             WHERE tenant = $1 AND number = $2 AND state = 'waiting'";
                let changed = sql_query(query)
                    .bind::<Text, _>(tenant)
                    .bind::<BigInt, _>(number)
                    .bind::<Text, _>(reason)
                    .execute(connection)
                    .await?;
                Ok(changed > 0)
            }
            .boxed()
        })
        .await
    }

    /// How many calls wait and how many conflict.
    pub async fn count_parked(&self) -> Result<ParkedCounts, LedgerError> {
        let query = "SELECT (SELECT count(*) FROM parked WHERE state = 'waiting') AS waiting, \
                            (SELECT count(*) FROM parked WHERE state = 'conflict') AS conflicts";
        let row = self
            .read(|connection| {
                let query = sql_query(query);
                async move { Ok(query.get_result::<CountsRow>(connection).await?) }.boxed()
            })
            .await?;
        Ok(ParkedCounts {
            waiting: number::unsigned(row.waiting)?,
            conflicts: number::unsigned(row.conflicts)?,
        })
    }

    /// Drops calls that were done more than `days` ago: the reservations' rows have them.
    pub async fn drop_settled_parked(&self, days: u16) -> Result<u64, LedgerError> {
        self.transact(BEGIN, move |connection| {
            async move {
                let query = "DELETE FROM parked WHERE state = 'done' AND settled_at < clock_timestamp() - $1 * interval '1 day'";
                let dropped =
                    sql_query(query).bind::<BigInt, _>(i64::from(days)).execute(connection).await?;
                Ok(u64::try_from(dropped).unwrap_or(u64::MAX))
            }
            .boxed()
        })
        .await
    }
}
