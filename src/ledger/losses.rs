//! Losses: acknowledged events that never reached the books, reported by the instances that acknowledged them.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Numeric, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::prepared::sql_query;
use super::schema::{epoch_ends, losses};
use super::{BEGIN, Ledger, LedgerError, number};
use crate::domain::amount::Amount;
use crate::domain::ids::{MeterId, OutboxId, Partition, ReservationId, TenantId};

/// One statement writes at most this many losses.
const AT_ONCE: usize = 1_000;

/// An acknowledged event that is not in the books and never will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Its partition.
    pub partition: Partition,
    /// Its place in the outbox.
    pub event: OutboxId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its reservation.
    pub reservation: ReservationId,
    /// `reserve`, `usage`, `consume`, `release` or `extend`.
    pub kind: &'static str,
    /// Per line: the meter, the units newly held, the units newly consumed.
    pub lines: Vec<(MeterId, Amount, Amount)>,
}

/// What was lost on one meter.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct LostUnits {
    /// Its meter.
    #[diesel(sql_type = Text)]
    pub meter: String,
    /// How many events.
    #[diesel(sql_type = BigInt)]
    pub events: i64,
    /// The units that they newly held.
    #[diesel(sql_type = Numeric)]
    pub held: Decimal,
    /// The units that they newly consumed.
    #[diesel(sql_type = Numeric)]
    pub consumed: Decimal,
}

/// An outbox id of a partition.
pub type Place = (Partition, OutboxId);

/// Records where epochs ended in the books; one that is recorded already stays as it is.
pub(crate) async fn add_ends(connection: &mut AsyncPgConnection, ends: &[Place]) -> Result<(), LedgerError> {
    if ends.is_empty() {
        return Ok(());
    }
    let row = |(partition, end): &Place| {
        (
            epoch_ends::partition.eq(*partition),
            epoch_ends::epoch.eq(end.epoch),
            epoch_ends::last_sequence.eq(number::signed(end.sequence)),
        )
    };
    let rows: Vec<_> = ends.iter().map(row).collect();
    diesel::insert_into(epoch_ends::table).values(rows).on_conflict_do_nothing().execute(connection).await?;
    Ok(())
}

async fn record(connection: &mut AsyncPgConnection, losses: &[Loss]) -> Result<usize, LedgerError> {
    let row = |loss: &Loss| {
        let lines = loss.lines.iter();
        (
            losses::partition.eq(loss.partition),
            losses::epoch.eq(loss.event.epoch),
            losses::sequence.eq(number::signed(loss.event.sequence)),
            losses::tenant.eq(loss.tenant.clone()),
            losses::reservation_id.eq(loss.reservation),
            losses::kind.eq(loss.kind),
            losses::meters.eq(lines.clone().map(|(meter, ..)| Some(meter.clone())).collect::<Vec<_>>()),
            losses::held.eq(lines.clone().map(|(_, held, _)| Some(held.decimal())).collect::<Vec<_>>()),
            losses::consumed.eq(lines.map(|(.., consumed)| Some(consumed.decimal())).collect::<Vec<_>>()),
        )
    };
    let rows: Vec<_> = losses.iter().map(row).collect();
    let insert = diesel::insert_into(losses::table).values(rows).on_conflict_do_nothing();
    Ok(insert.execute(connection).await?)
}

impl Ledger {
    /// Where a partition's last 100 epochs ended in the books.
    pub async fn epoch_ends(&self, partition: Partition) -> Result<Vec<OutboxId>, LedgerError> {
        let query = || {
            epoch_ends::table
                .select((epoch_ends::epoch, epoch_ends::last_sequence))
                .filter(epoch_ends::partition.eq(partition))
                .order(epoch_ends::epoch.desc())
                .limit(100)
        };
        self.load(query).await
    }

    /// Records losses; one that is recorded already stays as it is. Returns how many are new.
    pub async fn record_losses(&self, losses: Vec<Loss>) -> Result<usize, LedgerError> {
        self.transact(BEGIN, move |connection| {
            async move {
                let mut new = 0;
                for losses in losses.chunks(AT_ONCE) {
                    new += record(connection, losses).await?;
                }
                Ok(new)
            }
            .boxed()
        })
        .await
    }

    /// The lost units by meter that no repeat has made good, as far as instances reported them. A loss is made good
    /// once a later event of its reservation that says the same is booked: any event for one that held or extended, a
    /// consume for one that consumed, any end for a release.
    pub async fn lost_units(&self) -> Result<Vec<LostUnits>, LedgerError> {
        self.load(|| sql_query(include_str!("sql/lost_units.sql"))).await
    }
}
