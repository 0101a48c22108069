//! Whether events are in the books: a call with `ack: ledger` waits for that.

use diesel::QueryableByName;
use diesel::sql_types::{self, Array, BigInt, Bool, Integer, SmallInt};

use super::prepared::sql_query;
use super::{Ledger, LedgerError, number};
use crate::domain::ids::{OutboxId, ReservationId};

/// An event that somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedEvent {
    /// Its reservation.
    pub reservation: ReservationId,
    /// Which of the reservation's changes it is, from 1.
    pub step: u32,
    /// Its place in the outbox.
    pub event: OutboxId,
}

/// Whether an event is in the books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Booked {
    /// It is.
    Yes,
    /// Not yet.
    NotYet,
    /// It, or an earlier one of its reservation, waits in quarantine.
    Quarantined,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    place: i64,
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = BigInt)]
    sequence: i64,
    #[diesel(sql_type = Bool)]
    row_has_it: bool,
    #[diesel(sql_type = Bool)]
    quarantined: bool,
}

impl Row {
    fn read(&self, event: OutboxId) -> Result<Booked, LedgerError> {
        if self.quarantined {
            return Ok(Booked::Quarantined);
        }
        let same_epoch = number::unsigned(self.epoch)? == event.epoch.0;
        let passed = same_epoch && number::unsigned(self.sequence)? >= event.sequence;
        Ok(if passed || self.row_has_it { Booked::Yes } else { Booked::NotYet })
    }
}

impl Ledger {
    /// Whether each of these events is in the books, in their order. Within the event's epoch the cursor decides; after
    /// that epoch, or for a restored record, the reservation's row decides. A row that another change took to the same
    /// step in a later epoch does not contain the event: it was lost.
    pub async fn are_booked(&self, events: &[AwaitedEvent]) -> Result<Vec<Booked>, LedgerError> {
        let column = |pick: fn(&AwaitedEvent) -> i64| events.iter().map(pick).collect::<Vec<_>>();
        let steps = || events.iter().map(|of| i32::try_from(of.step).unwrap_or(i32::MAX));
        let query = || {
            sql_query(include_str!("sql/booked_events.sql"))
                .bind::<Array<SmallInt>, _>(
                    events.iter().map(|of| of.reservation.partition()).collect::<Vec<_>>(),
                )
                .bind::<Array<sql_types::Uuid>, _>(events.iter().map(|of| of.reservation).collect::<Vec<_>>())
                .bind::<Array<Integer>, _>(steps().collect::<Vec<_>>())
                .bind::<Array<BigInt>, _>(column(|of| number::signed(of.event.epoch.0)))
                .bind::<Array<BigInt>, _>(column(|of| number::signed(of.event.sequence)))
        };
        let rows: Vec<Row> = self.under_kept_plans().load(query).await?;
        let mut booked = vec![Booked::NotYet; events.len()];
        for row in rows {
            let index = usize::try_from(row.place - 1).unwrap_or(usize::MAX);
            if let (Some(event), Some(slot)) = (events.get(index), booked.get_mut(index)) {
                *slot = row.read(event.event)?;
            }
        }
        Ok(booked)
    }
}
