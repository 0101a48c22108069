//! Quarantine: events that could not be booked, kept with every later one of their reservation until someone decides.

use chrono::{DateTime, Utc};
use diesel::sql_types::{self, Array, BigInt, Binary, Integer, Nullable, SmallInt, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::statement::Kept;
use super::{BEGIN, Conflict, Ledger, LedgerError, audit, number};
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, TenantId};

/// Where an event in quarantine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineStatus {
    /// It waits.
    Open,
    /// It was booked on a later try.
    Resolved,
    /// Someone decided that it is not to be booked.
    Discarded,
}

/// An event in quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Its partition.
    pub partition: Partition,
    /// Its place in the outbox.
    pub outbox_id: OutboxId,
    /// Its reservation, as far as it could be read.
    pub reservation: Option<ReservationId>,
    /// Whose, where known.
    pub tenant: Option<TenantId>,
    /// The event as it stood in the outbox.
    pub event: Vec<u8>,
    /// Why it was not booked.
    pub reason: String,
    /// Where it stands.
    pub status: QuarantineStatus,
    /// How often it was tried.
    pub tries: u32,
    /// When it came (the database's clock, unix ms).
    pub first_at_ms: i64,
}

/// An event on its way into quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) partition: Partition,
    pub(crate) outbox_id: OutboxId,
    pub(crate) reservation: Option<ReservationId>,
    pub(crate) tenant: Option<TenantId>,
    pub(crate) event: Vec<u8>,
    pub(crate) reason: String,
}

/// Puts events into quarantine; one that is there already stays as it is.
pub(crate) async fn add(mut connection: &AsyncPgConnection, refused: &[Refused]) -> Result<(), LedgerError> {
    if refused.is_empty() {
        return Ok(());
    }
    sql_query(
        "INSERT INTO quarantine (partition, epoch, sequence, reservation_id, tenant, event, reason) \
         SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::uuid[], $5::text[], $6::bytea[], $7::text[]) \
         ON CONFLICT DO NOTHING",
    )
    .bind::<Array<SmallInt>, _>(refused.iter().map(|r| number::of_partition(r.partition)).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(refused.iter().map(|r| number::signed(r.outbox_id.epoch.0)).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(refused.iter().map(|r| number::signed(r.outbox_id.sequence)).collect::<Vec<_>>())
    .bind::<Array<Nullable<sql_types::Uuid>>, _>(
        refused.iter().map(|r| r.reservation.map(ReservationId::uuid)).collect::<Vec<_>>(),
    )
    .bind::<Array<Nullable<Text>>, _>(
        refused.iter().map(|r| r.tenant.as_ref().map(TenantId::as_str)).collect::<Vec<_>>(),
    )
    .bind::<Array<Binary>, _>(refused.iter().map(|r| r.event.as_slice()).collect::<Vec<_>>())
    .bind::<Array<Text>, _>(refused.iter().map(|r| r.reason.as_str()).collect::<Vec<_>>())
    .execute(&mut connection)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct IdRow {
    #[diesel(sql_type = sql_types::Uuid)]
    reservation_id: uuid::Uuid,
}

/// Which of these reservations have an event that waits.
pub(crate) async fn waiting(
    mut connection: &AsyncPgConnection,
    ids: &[ReservationId],
) -> Result<Vec<ReservationId>, LedgerError> {
    let query =
        "SELECT DISTINCT reservation_id FROM quarantine WHERE status = 'open' AND reservation_id = ANY($1)";
    let find = sql_query(query)
        .bind::<Array<sql_types::Uuid>, _>(ids.iter().map(|id| id.uuid()).collect::<Vec<_>>());
    let rows: Vec<IdRow> = Kept(find).load(&mut connection).await?;
    Ok(rows.into_iter().map(|row| ReservationId::from_bytes(row.reservation_id.into_bytes())).collect())
}

/// Notes how a try went: resolved, or refused again for `reason`.
pub(crate) async fn note_try(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    id: OutboxId,
    reason: Option<&str>,
) -> Result<(), LedgerError> {
    sql_query(
        "UPDATE quarantine SET tries = tries + 1, last_at = now(), reason = coalesce($4, reason), \
             status = CASE WHEN $4 IS NULL THEN 'resolved' ELSE status END \
         WHERE partition = $1 AND epoch = $2 AND sequence = $3 AND status = 'open'",
    )
    .bind::<SmallInt, _>(number::of_partition(partition))
    .bind::<BigInt, _>(number::signed(id.epoch.0))
    .bind::<BigInt, _>(number::signed(id.sequence))
    .bind::<Nullable<Text>, _>(reason)
    .execute(connection)
    .await?;
    Ok(())
}

/// The open events of one reservation (or the one event whose reservation cannot be read), in order.
pub(crate) async fn open_with(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    id: OutboxId,
) -> Result<Vec<Quarantined>, LedgerError> {
    let query = format!(
        "{COLUMNS} q WHERE q.partition = $1 AND q.status = 'open' AND ((q.epoch, q.sequence) = ($2, $3) OR q.reservation_id = \
             (SELECT w.reservation_id FROM quarantine w WHERE (w.partition, w.epoch, w.sequence) = ($1, $2, $3))) \
         ORDER BY q.epoch, q.sequence"
    );
    let rows: Vec<Row> = sql_query(query)
        .bind::<SmallInt, _>(number::of_partition(partition))
        .bind::<BigInt, _>(number::signed(id.epoch.0))
        .bind::<BigInt, _>(number::signed(id.sequence))
        .load(connection)
        .await?;
    rows.into_iter().map(Row::read).collect()
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = SmallInt)]
    partition: i16,
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = BigInt)]
    sequence: i64,
    #[diesel(sql_type = Nullable<sql_types::Uuid>)]
    reservation_id: Option<uuid::Uuid>,
    #[diesel(sql_type = Nullable<Text>)]
    tenant: Option<String>,
    #[diesel(sql_type = Binary)]
    event: Vec<u8>,
    #[diesel(sql_type = Text)]
    reason: String,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Integer)]
    tries: i32,
    #[diesel(sql_type = Timestamptz)]
    first_at: DateTime<Utc>,
}

const COLUMNS: &str = "SELECT partition, epoch, sequence, reservation_id, tenant, event, reason, status, tries, first_at FROM quarantine";

impl Row {
    fn read(self) -> Result<Quarantined, LedgerError> {
        let status = match self.status.as_str() {
            "open" => QuarantineStatus::Open,
            "resolved" => QuarantineStatus::Resolved,
            _ => QuarantineStatus::Discarded,
        };
        Ok(Quarantined {
            partition: number::partition(self.partition)?,
            outbox_id: OutboxId {
                epoch: Epoch(number::unsigned(self.epoch)?),
                sequence: number::unsigned(self.sequence)?,
            },
            reservation: self.reservation_id.map(|id| ReservationId::from_bytes(id.into_bytes())),
            tenant: self.tenant.as_deref().map(number::tenant).transpose()?,
            event: self.event,
            reason: self.reason,
            status,
            tries: number::small(self.tries)?,
            first_at_ms: self.first_at.timestamp_millis(),
        })
    }
}

#[derive(QueryableByName)]
struct CountRow {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// No event waits at this place.
pub(crate) fn missing(partition: Partition, id: OutboxId) -> Conflict {
    Conflict::Missing { kind: "open event in quarantine", id: format!("{partition}:{id}") }
}

impl Ledger {
    /// Events in quarantine in order of partition and place, at most `limit`, from behind `after`; open ones only
    /// unless `all`.
    pub async fn quarantined(
        &self,
        all: bool,
        after: Option<(Partition, OutboxId)>,
        limit: usize,
    ) -> Result<Vec<Quarantined>, LedgerError> {
        // Said in the statement itself, so that the index of open ones is found.
        let only = if all { "" } else { "status = 'open' AND" };
        let query = format!(
            "{COLUMNS} WHERE {only} (partition, epoch, sequence) > ($1, $2, $3) ORDER BY partition, epoch, sequence LIMIT $4"
        );
        let (partition, id) =
            after.map_or((-1, OutboxId::default()), |(partition, id)| (number::of_partition(partition), id));
        let rows = self
            .read(|connection| {
                let query = sql_query(query.as_str())
                    .bind::<SmallInt, _>(partition)
                    .bind::<BigInt, _>(number::signed(id.epoch.0))
                    .bind::<BigInt, _>(number::signed(id.sequence))
                    .bind::<BigInt, _>(number::limit(limit));
                async move { Ok(query.load::<Row>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(Row::read).collect()
    }

    /// How many events wait.
    pub async fn count_quarantined(&self) -> Result<u64, LedgerError> {
        let query = "SELECT count(*) AS count FROM quarantine WHERE status = 'open'";
        let row: CountRow = self
            .read(|connection| async move { Ok(sql_query(query).get_result(connection).await?) }.boxed())
            .await?;
        number::unsigned(row.count)
    }

    /// The open event at this place.
    ///
    /// Errors: [`super::Conflict::Missing`] when no such event waits.
    pub async fn quarantined_at(
        &self,
        partition: Partition,
        id: OutboxId,
    ) -> Result<Quarantined, LedgerError> {
        let query =
            format!("{COLUMNS} WHERE partition = $1 AND epoch = $2 AND sequence = $3 AND status = 'open'");
        let rows = self
            .read(|connection| {
                let query = sql_query(query.as_str())
                    .bind::<SmallInt, _>(number::of_partition(partition))
                    .bind::<BigInt, _>(number::signed(id.epoch.0))
                    .bind::<BigInt, _>(number::signed(id.sequence));
                async move { Ok(query.load::<Row>(connection).await?) }.boxed()
            })
            .await?;
        let found = rows.into_iter().next().ok_or_else(|| LedgerError::Conflict(missing(partition, id)))?;
        found.read()
    }

    /// Decides that an open event is not to be booked; the audit log has why, and what stays unbilled, in words.
    ///
    /// Errors: [`super::Conflict::Missing`] when no such event waits.
    pub async fn discard_quarantined(
        &self,
        partition: Partition,
        id: OutboxId,
        actor: &str,
        reason: &str,
        unbilled: &str,
    ) -> Result<(), LedgerError> {
        let actor = actor.to_owned();
        let detail = serde_json::json!({ "reason": reason, "unbilled": unbilled });
        self.transact(BEGIN, move |connection| {
            async move {
                let discarded = sql_query(
                    "UPDATE quarantine SET status = 'discarded', last_at = now() \
                     WHERE partition = $1 AND epoch = $2 AND sequence = $3 AND status = 'open'",
                )
                .bind::<SmallInt, _>(number::of_partition(partition))
                .bind::<BigInt, _>(number::signed(id.epoch.0))
                .bind::<BigInt, _>(number::signed(id.sequence))
                .execute(connection)
                .await?;
                if discarded == 0 {
                    return Err(LedgerError::Conflict(missing(partition, id)));
                }
                audit::note(connection, &actor, "discard", &format!("quarantine {partition}/{id}"), detail)
                    .await
            }
            .boxed()
        })
        .await
    }
}
