//! Repeats: operations that came again as new events after the gate had forgotten them. The books take them once.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{self, Array, BigInt, Binary, Bool, Record, SmallInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::columns::BytesIfAny;
use super::functions::transaction_timestamp;
use super::prepared::sql_query;
use super::schema::repeats;
use super::{Ledger, LedgerError, number};
use crate::domain::ids::{OutboxId, Partition, ReservationId, TenantId};

/// An event that repeats an operation which the books already have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub(crate) partition: Partition,
    pub(crate) outbox_id: OutboxId,
    pub(crate) reservation: ReservationId,
    pub(crate) tenant: TenantId,
    pub(crate) event: Vec<u8>,
    /// Whether it began a life of the reservation that the gate must undo, together with everything after it.
    pub(crate) begins: bool,
}

/// A repeat whose units the gate still counts.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = repeats, check_for_backend(Pg))]
pub struct RepeatToUndo {
    /// Its partition.
    pub partition: Partition,
    /// Its place in the outbox.
    #[diesel(select_expression = (repeats::epoch, repeats::sequence))]
    pub outbox_id: OutboxId,
    /// Its reservation.
    #[diesel(column_name = reservation_id)]
    pub reservation: ReservationId,
    /// The event's bytes, as in the outbox.
    #[diesel(deserialize_as = BytesIfAny)]
    pub event: Vec<u8>,
}

/// Records repeats; one that is recorded already stays as it is.
pub(crate) async fn add(mut connection: &AsyncPgConnection, repeats: &[Repeat]) -> Result<(), LedgerError> {
    if repeats.is_empty() {
        return Ok(());
    }
    sql_query(include_str!("sql/add_repeats.sql"))
        .bind::<Array<SmallInt>, _>(
            repeats.iter().map(|r| number::of_partition(r.partition)).collect::<Vec<_>>(),
        )
        .bind::<Array<BigInt>, _>(
            repeats.iter().map(|r| number::signed(r.outbox_id.epoch.0)).collect::<Vec<_>>(),
        )
        .bind::<Array<BigInt>, _>(
            repeats.iter().map(|r| number::signed(r.outbox_id.sequence)).collect::<Vec<_>>(),
        )
        .bind::<Array<sql_types::Uuid>, _>(repeats.iter().map(|r| r.reservation.uuid()).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(repeats.iter().map(|r| r.tenant.as_str()).collect::<Vec<_>>())
        .bind::<Array<Binary>, _>(repeats.iter().map(|r| r.event.as_slice()).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(repeats.iter().map(|r| r.begins).collect::<Vec<_>>())
        .execute(&mut connection)
        .await?;
    Ok(())
}

impl Ledger {
    /// Repeats whose units the gate still counts, in order, at most `limit`, after `after`.
    pub async fn repeats_to_undo(
        &self,
        after: Option<(Partition, OutboxId)>,
        limit: usize,
    ) -> Result<Vec<RepeatToUndo>, LedgerError> {
        let place = (repeats::partition, repeats::epoch, repeats::sequence);
        let after = after.map_or((-1, -1, -1), |(partition, place)| {
            (number::of_partition(partition), number::signed(place.epoch.0), number::signed(place.sequence))
        });
        let query = || {
            repeats::table
                .select(RepeatToUndo::as_select())
                .filter(repeats::undone_at.is_null())
                .filter(place.into_sql::<Record<_>>().gt(after))
                .order(place)
                .limit(number::limit(limit))
        };
        self.load(query).await
    }

    /// Records that a repeat is undone: checkpoints after `outbox_at` are without it. With none, all checkpoints of its
    /// epoch have it, because the epoch ended first.
    pub async fn note_undone(
        &self,
        repeat: &RepeatToUndo,
        outbox_at: Option<OutboxId>,
    ) -> Result<(), LedgerError> {
        let place = repeat.outbox_id;
        let noted = repeats::table.find((repeat.partition, place.epoch, number::signed(place.sequence)));
        let note = diesel::update(noted.filter(repeats::undone_at.is_null())).set((
            repeats::undone_at.eq(transaction_timestamp().nullable()),
            repeats::undone_sequence.eq(outbox_at.map(|at| number::signed(at.sequence))),
            repeats::event.eq(None::<Vec<u8>>),
        ));
        self.execute(note).await.map(drop)
    }
}
