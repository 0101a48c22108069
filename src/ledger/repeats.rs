//! Operations that came again as new events, after the gate had forgotten them: the books took them once.

use diesel::sql_types::{self, Array, BigInt, Binary, Bool, Nullable, SmallInt, Text};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::{BEGIN, Ledger, LedgerError, number};
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, TenantId};

/// An event that brought an operation again which the books already had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub(crate) partition: Partition,
    pub(crate) outbox_id: OutboxId,
    pub(crate) reservation: ReservationId,
    pub(crate) tenant: TenantId,
    pub(crate) event: Vec<u8>,
    /// Whether it began a life of the reservation that the gate has to give up; what follows goes with it.
    pub(crate) begins: bool,
}

/// A repeat whose units the gate still counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatToUndo {
    /// Its place.
    pub partition: Partition,
    /// Its place in the outbox.
    pub outbox_id: OutboxId,
    /// Which reservation.
    pub reservation: ReservationId,
    /// The event as it stood in the outbox.
    pub event: Vec<u8>,
}

/// Records repeats; one that is known stays as it is.
pub(crate) async fn add(mut connection: &AsyncPgConnection, repeats: &[Repeat]) -> Result<(), LedgerError> {
    if repeats.is_empty() {
        return Ok(());
    }
    sql_query(
        "INSERT INTO repeats (partition, epoch, sequence, reservation_id, tenant, event, undone_at, undone_sequence) \
         SELECT partition, epoch, sequence, id, tenant, CASE WHEN begins THEN event END, CASE WHEN NOT begins THEN now() END, \
             CASE WHEN NOT begins THEN sequence END \
         FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::uuid[], $5::text[], $6::bytea[], $7::boolean[]) \
             AS r(partition, epoch, sequence, id, tenant, event, begins) ON CONFLICT DO NOTHING",
    )
    .bind::<Array<SmallInt>, _>(repeats.iter().map(|r| number::of_partition(r.partition)).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(repeats.iter().map(|r| number::signed(r.outbox_id.epoch.0)).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(repeats.iter().map(|r| number::signed(r.outbox_id.sequence)).collect::<Vec<_>>())
    .bind::<Array<sql_types::Uuid>, _>(repeats.iter().map(|r| r.reservation.uuid()).collect::<Vec<_>>())
    .bind::<Array<Text>, _>(repeats.iter().map(|r| r.tenant.as_str()).collect::<Vec<_>>())
    .bind::<Array<Binary>, _>(repeats.iter().map(|r| r.event.as_slice()).collect::<Vec<_>>())
    .bind::<Array<Bool>, _>(repeats.iter().map(|r| r.begins).collect::<Vec<_>>())
    .execute(&mut connection)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = SmallInt)]
    partition: i16,
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = BigInt)]
    sequence: i64,
    #[diesel(sql_type = sql_types::Uuid)]
    reservation_id: uuid::Uuid,
    #[diesel(sql_type = Nullable<Binary>)]
    event: Option<Vec<u8>>,
}

impl Row {
    fn read(self) -> Result<RepeatToUndo, LedgerError> {
        Ok(RepeatToUndo {
            partition: number::partition(self.partition)?,
            outbox_id: OutboxId {
                epoch: Epoch(number::unsigned(self.epoch)?),
                sequence: number::unsigned(self.sequence)?,
            },
            reservation: ReservationId::from_bytes(self.reservation_id.into_bytes()),
            event: self.event.unwrap_or_default(),
        })
    }
}

impl Ledger {
    /// Repeats whose units the gate still counts, in order, at most `limit`, from behind `after`.
    pub async fn repeats_to_undo(
        &self,
        after: Option<(Partition, OutboxId)>,
        limit: usize,
    ) -> Result<Vec<RepeatToUndo>, LedgerError> {
        let query = "SELECT partition, epoch, sequence, reservation_id, event FROM repeats WHERE undone_at IS NULL \
                     AND (partition, epoch, sequence) > ($1, $2, $3) ORDER BY partition, epoch, sequence LIMIT $4";
        let (partition, epoch, sequence) = after.map_or((-1, -1, -1), |(partition, place)| {
            (number::of_partition(partition), number::signed(place.epoch.0), number::signed(place.sequence))
        });
        let rows = self
            .read(|connection| {
                let query = sql_query(query)
                    .bind::<SmallInt, _>(partition)
                    .bind::<BigInt, _>(epoch)
                    .bind::<BigInt, _>(sequence)
                    .bind::<BigInt, _>(number::limit(limit));
                async move { Ok(query.load::<Row>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(Row::read).collect()
    }

    /// Notes that a repeat is done with: checkpoints behind `outbox_at` are without it; with none, those of its epoch
    /// all have it, because the epoch ended first.
    pub async fn note_undone(
        &self,
        repeat: &RepeatToUndo,
        outbox_at: Option<OutboxId>,
    ) -> Result<(), LedgerError> {
        let (partition, place) = (repeat.partition, repeat.outbox_id);
        self.transact(BEGIN, move |connection| {
            async move {
                sql_query(
                    "UPDATE repeats SET undone_at = now(), undone_sequence = $4, event = NULL \
                     WHERE partition = $1 AND epoch = $2 AND sequence = $3 AND undone_at IS NULL",
                )
                .bind::<SmallInt, _>(number::of_partition(partition))
                .bind::<BigInt, _>(number::signed(place.epoch.0))
                .bind::<BigInt, _>(number::signed(place.sequence))
                .bind::<Nullable<BigInt>, _>(outbox_at.map(|at| number::signed(at.sequence)))
                .execute(connection)
                .await?;
                Ok(())
            }
            .boxed()
        })
        .await
    }
}
