//! Losses: events that were acknowledged and never reached the books, told by the instances that acknowledged them.

use diesel::sql_types::{self, Array, BigInt, Numeric, SmallInt, Text};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::entries::literal;
use super::{BEGIN, Ledger, LedgerError, number};
use crate::domain::amount::Amount;
use crate::domain::ids::{Epoch, MeterId, OutboxId, Partition, ReservationId, TenantId};

/// An acknowledged event that is not in the books and never will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Its partition.
    pub partition: Partition,
    /// Its place in the outbox.
    pub event: OutboxId,
    /// Whose it was.
    pub tenant: TenantId,
    /// Of which reservation.
    pub reservation: ReservationId,
    /// `reserve`, `usage`, `consume`, `release` or `extend`.
    pub kind: &'static str,
    /// Per line: the meter, what it held anew, what it consumed anew.
    pub lines: Vec<(MeterId, Amount, Amount)>,
}

/// What was lost of a meter.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct LostUnits {
    /// Which meter.
    #[diesel(sql_type = Text)]
    pub meter: String,
    /// How many events.
    #[diesel(sql_type = BigInt)]
    pub events: i64,
    /// What they held anew.
    #[diesel(sql_type = Numeric)]
    pub held: Decimal,
    /// What they consumed anew.
    #[diesel(sql_type = Numeric)]
    pub consumed: Decimal,
}

/// A partition's place.
pub type Place = (Partition, OutboxId);

#[derive(QueryableByName)]
struct PlaceRow {
    #[diesel(sql_type = SmallInt)]
    partition: i16,
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = BigInt)]
    last_sequence: i64,
}

/// Records where epochs ended in the books; one that is known stays as it is.
pub(crate) async fn add_ends(connection: &mut AsyncPgConnection, ends: &[Place]) -> Result<(), LedgerError> {
    if ends.is_empty() {
        return Ok(());
    }
    let column =
        |pick: fn(&Place) -> u64| ends.iter().map(|end| number::signed(pick(end))).collect::<Vec<_>>();
    sql_query(
        "INSERT INTO epoch_ends (partition, epoch, last_sequence) \
         SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) ON CONFLICT DO NOTHING",
    )
    .bind::<Array<SmallInt>, _>(ends.iter().map(|end| number::of_partition(end.0)).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(column(|end| end.1.epoch.0))
    .bind::<Array<BigInt>, _>(column(|end| end.1.sequence))
    .execute(connection)
    .await?;
    Ok(())
}

const RECORD: &str = "INSERT INTO losses (partition, epoch, sequence, tenant, reservation_id, kind, meters, held, consumed) \
    SELECT l.partition, l.epoch, l.sequence, l.tenant, l.reservation_id, l.kind, l.meters::text[], l.held::numeric(28, 9)[], l.consumed::numeric(28, 9)[] \
    FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::text[], $9::text[]) \
         AS l(partition, epoch, sequence, tenant, reservation_id, kind, meters, held, consumed) ON CONFLICT DO NOTHING";

/// A loss is made good once a later event of its reservation was booked that says the same: any for what held or extended, a
/// consume for one that consumed, any end for a release.
const SUMS: &str = "SELECT u.meter, count(*) AS events, sum(u.held)::numeric(28, 9) AS held, sum(u.consumed)::numeric(28, 9) AS consumed \
    FROM losses l, unnest(l.meters, l.held, l.consumed) AS u(meter, held, consumed) \
    WHERE NOT EXISTS (SELECT FROM \
        (SELECT r.state, r.epoch, r.sequence FROM reservations r \
             WHERE (r.partition, r.id, r.tenant) = (l.partition, l.reservation_id, l.tenant) \
         UNION ALL SELECT a.state, a.epoch, a.sequence FROM reservations_archive a \
             WHERE (a.partition, a.id, a.tenant) = (l.partition, l.reservation_id, l.tenant)) AS b \
        WHERE (b.epoch, b.sequence) > (l.epoch, l.sequence) \
          AND (l.kind <> 'consume' OR b.state = 'consumed') AND (l.kind <> 'release' OR b.state <> 'reserved')) \
    GROUP BY 1 ORDER BY 1";

impl Ledger {
    /// Where each of a partition's epochs ended in the books, the last 100.
    pub async fn epoch_ends(&self, partition: Partition) -> Result<Vec<OutboxId>, LedgerError> {
        let query = "SELECT partition, epoch, last_sequence FROM epoch_ends WHERE partition = $1 ORDER BY epoch DESC LIMIT 100";
        let rows = self
            .read(|connection| {
                let query = sql_query(query).bind::<SmallInt, _>(number::of_partition(partition));
                async move { Ok(query.load::<PlaceRow>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter()
            .filter(|row| row.partition == number::of_partition(partition))
            .map(|row| {
                let sequence = number::unsigned(row.last_sequence)?;
                Ok(OutboxId { epoch: Epoch(number::unsigned(row.epoch)?), sequence })
            })
            .collect()
    }

    /// Records losses; one that is known stays as it is. Answers how many were not.
    pub async fn record_losses(&self, losses: Vec<Loss>) -> Result<usize, LedgerError> {
        self.transact(BEGIN, move |connection| {
            async move {
                let list = |pick: fn(&(MeterId, Amount, Amount)) -> String| {
                    let of = move |loss: &Loss| literal(&loss.lines.iter().map(pick).collect::<Vec<_>>());
                    losses.iter().map(of).collect::<Vec<_>>()
                };
                let record = sql_query(RECORD)
                    .bind::<Array<SmallInt>, _>(
                        losses.iter().map(|l| number::of_partition(l.partition)).collect::<Vec<_>>(),
                    )
                    .bind::<Array<BigInt>, _>(
                        losses.iter().map(|l| number::signed(l.event.epoch.0)).collect::<Vec<_>>(),
                    )
                    .bind::<Array<BigInt>, _>(
                        losses.iter().map(|l| number::signed(l.event.sequence)).collect::<Vec<_>>(),
                    )
                    .bind::<Array<Text>, _>(losses.iter().map(|l| l.tenant.as_str()).collect::<Vec<_>>())
                    .bind::<Array<sql_types::Uuid>, _>(
                        losses.iter().map(|l| l.reservation.uuid()).collect::<Vec<_>>(),
                    )
                    .bind::<Array<Text>, _>(losses.iter().map(|l| l.kind).collect::<Vec<_>>())
                    .bind::<Array<Text>, _>(list(|(meter, ..)| meter.to_string()))
                    .bind::<Array<Text>, _>(list(|(_, held, _)| held.to_string()))
                    .bind::<Array<Text>, _>(list(|(.., consumed)| consumed.to_string()));
                Ok(record.execute(connection).await?)
            }
            .boxed()
        })
        .await
    }

    /// What was lost so far and no repeat has made good, by meter, as far as an instance saw it.
    pub async fn lost_units(&self) -> Result<Vec<LostUnits>, LedgerError> {
        self.read(|connection| async move { Ok(sql_query(SUMS).load(connection).await?) }.boxed()).await
    }
}
