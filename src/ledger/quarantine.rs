//! Quarantine: events that could not be booked, and every later event of their reservations, until someone decides.

use diesel::deserialize::FromSqlRow;
use diesel::dsl::sql;
use diesel::expression::SqlLiteral;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{self, Array, Record, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::columns::{Milliseconds, Small, reads};
use super::functions::{coalesce, transaction_timestamp};
use super::prepared::sql_query;
use super::schema::quarantine;
use super::{BEGIN, Conflict, Ledger, LedgerError, adjustments, audit, cursors, number};
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, TenantId};

/// The status of an event in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromSqlRow)]
pub enum QuarantineStatus {
    /// It waits.
    Open,
    /// A later try booked it.
    Resolved,
    /// An operator decided that it is not to be booked.
    Discarded,
}

reads!(Text => QuarantineStatus, |word: String| match word.as_str() {
    "open" => Self::Open,
    "resolved" => Self::Resolved,
    _ => Self::Discarded,
});

/// The open status as literal text in the statement: with a bound value, a kept plan would not use the index of open
/// events.
pub(super) fn open() -> SqlLiteral<Text> {
    sql("'open'")
}

/// One statement puts at most this many events into quarantine.
const AT_ONCE: usize = 1_000;

/// An event in quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = quarantine, check_for_backend(Pg))]
pub struct Quarantined {
    /// Its partition.
    pub partition: Partition,
    /// Its place in the outbox.
    #[diesel(select_expression = (quarantine::epoch, quarantine::sequence))]
    pub outbox_id: OutboxId,
    /// Its reservation, if that could be decoded.
    #[diesel(column_name = reservation_id)]
    pub reservation: Option<ReservationId>,
    /// Its tenant, where known.
    pub tenant: Option<TenantId>,
    /// The event's bytes, as in the outbox.
    pub event: Vec<u8>,
    /// Why it was not booked.
    pub reason: String,
    /// Its status.
    pub status: QuarantineStatus,
    /// How often booking was tried.
    #[diesel(deserialize_as = Small)]
    pub tries: u32,
    /// When it came (the database's clock, unix ms).
    #[diesel(column_name = first_at, deserialize_as = Milliseconds)]
    pub first_at_ms: i64,
}

/// An event that is about to be put into quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuarantineEntry {
    pub(crate) partition: Partition,
    pub(crate) outbox_id: OutboxId,
    pub(crate) reservation: Option<ReservationId>,
    pub(crate) tenant: Option<TenantId>,
    pub(crate) event: Vec<u8>,
    pub(crate) reason: String,
}

/// Puts events into quarantine; one that is there already stays as it is.
pub(crate) async fn add(
    mut connection: &AsyncPgConnection,
    refused: &[QuarantineEntry],
) -> Result<(), LedgerError> {
    let row = |refused: &QuarantineEntry| {
        (
            quarantine::partition.eq(refused.partition),
            quarantine::epoch.eq(refused.outbox_id.epoch),
            quarantine::sequence.eq(number::signed(refused.outbox_id.sequence)),
            quarantine::reservation_id.eq(refused.reservation),
            quarantine::tenant.eq(refused.tenant.clone()),
            quarantine::event.eq(refused.event.clone()),
            quarantine::reason.eq(refused.reason.clone()),
        )
    };
    for refused in refused.chunks(AT_ONCE) {
        let rows: Vec<_> = refused.iter().map(row).collect();
        let insert = diesel::insert_into(quarantine::table).values(rows).on_conflict_do_nothing();
        insert.execute(&mut connection).await?;
    }
    Ok(())
}

#[derive(QueryableByName)]
struct Waiting {
    #[diesel(sql_type = sql_types::Uuid)]
    reservation_id: ReservationId,
}

/// Which of these reservations have an open event.
pub(crate) async fn waiting(
    mut connection: &AsyncPgConnection,
    ids: &[ReservationId],
) -> Result<Vec<ReservationId>, LedgerError> {
    let find =
        sql_query(include_str!("sql/quarantined_reservations.sql")).bind::<Array<sql_types::Uuid>, _>(ids);
    let rows: Vec<Waiting> = find.load(&mut connection).await?;
    Ok(rows.into_iter().map(|row| row.reservation_id).collect())
}

#[diesel::dsl::auto_type(no_type_alias)]
fn open_at(partition: Partition, id: OutboxId) -> _ {
    let (epoch, sequence): (Epoch, i64) = (id.epoch, number::signed(id.sequence));
    let status: SqlLiteral<Text> = open();
    quarantine::table
        .filter(quarantine::partition.eq(partition))
        .filter(quarantine::epoch.eq(epoch))
        .filter(quarantine::sequence.eq(sequence))
        .filter(quarantine::status.eq(status))
}

/// Records how a try went: booked, or refused again for `reason`.
pub(crate) async fn note_try(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    id: OutboxId,
    reason: Option<&str>,
) -> Result<(), LedgerError> {
    let tried = (
        quarantine::tries.eq(quarantine::tries + 1),
        quarantine::last_at.eq(transaction_timestamp()),
        quarantine::reason.eq(coalesce(reason, quarantine::reason)),
        quarantine::status.eq(if reason.is_some() { "open" } else { "resolved" }),
    );
    diesel::update(open_at(partition, id)).set(tried).execute(connection).await?;
    Ok(())
}

/// The open events of one reservation, or the one event whose reservation cannot be decoded, in order.
pub(crate) async fn open_with(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    id: OutboxId,
) -> Result<Vec<Quarantined>, LedgerError> {
    let with = diesel::alias!(quarantine as with);
    let sequence = number::signed(id.sequence);
    let named = with
        .select(with.field(quarantine::reservation_id))
        .filter(with.field(quarantine::partition).eq(partition))
        .filter(with.field(quarantine::epoch).eq(id.epoch))
        .filter(with.field(quarantine::sequence).eq(sequence));
    let itself = quarantine::epoch.eq(id.epoch).and(quarantine::sequence.eq(sequence));
    let open = quarantine::table
        .select(Quarantined::as_select())
        .filter(quarantine::partition.eq(partition))
        .filter(quarantine::status.eq(open()))
        .filter(itself.or(quarantine::reservation_id.eq(named.single_value())))
        .order((quarantine::epoch, quarantine::sequence));
    Ok(open.load(connection).await?)
}

/// No open event is at this place.
pub(crate) fn missing(partition: Partition, id: OutboxId) -> Conflict {
    Conflict::Missing { kind: "open event in quarantine", id: format!("{partition}:{id}") }
}

impl Ledger {
    /// Events in quarantine by partition and place, at most `limit`, after `after`; only open ones unless `all`.
    pub async fn quarantined(
        &self,
        all: bool,
        after: Option<(Partition, OutboxId)>,
        limit: usize,
    ) -> Result<Vec<Quarantined>, LedgerError> {
        let place = (quarantine::partition, quarantine::epoch, quarantine::sequence);
        let after = after.map_or((-1, 0, 0), |(partition, id)| {
            (number::of_partition(partition), number::signed(id.epoch.0), number::signed(id.sequence))
        });
        let query = || {
            let behind = place.into_sql::<Record<_>>().gt(after);
            let events = quarantine::table.select(Quarantined::as_select()).filter(behind).into_boxed();
            let events = if all { events } else { events.filter(quarantine::status.eq(open())) };
            events.order(place).limit(number::limit(limit))
        };
        self.load(query).await
    }

    /// How many events are open.
    pub async fn count_quarantined(&self) -> Result<u64, LedgerError> {
        let count = self.first(|| quarantine::table.filter(quarantine::status.eq(open())).count()).await?;
        number::unsigned(count.unwrap_or_default())
    }

    /// The open event at this place.
    ///
    /// Errors: [`super::Conflict::Missing`] when there is none.
    pub async fn quarantined_at(
        &self,
        partition: Partition,
        id: OutboxId,
    ) -> Result<Quarantined, LedgerError> {
        let found = self.first(|| open_at(partition, id).select(Quarantined::as_select())).await?;
        found.ok_or_else(|| LedgerError::Conflict(missing(partition, id)))
    }

    /// Decides that an open event is not to be booked. The audit log keeps the reason, and in words what stays
    /// unbilled. An adjustment that it was to correct use by is declined.
    ///
    /// Errors: [`super::Conflict::Missing`] when there is no such event.
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
                // Nobody may be booking the event, or what it was to correct, at the same time.
                cursors::lock(connection, &[partition]).await?;
                let discard = diesel::update(open_at(partition, id));
                let status =
                    (quarantine::status.eq("discarded"), quarantine::last_at.eq(transaction_timestamp()));
                let discard = discard.set(status).returning(quarantine::reservation_id);
                let found = discard.get_result::<Option<ReservationId>>(connection).await.optional()?;
                let reservation = found.ok_or_else(|| LedgerError::Conflict(missing(partition, id)))?;
                if let Some(operation) = reservation {
                    adjustments::decline_discarded(connection, operation, &actor).await?;
                }
                audit::note(connection, &actor, "discard", &format!("quarantine {partition}/{id}"), detail)
                    .await
            }
            .boxed()
        })
        .await
    }
}
