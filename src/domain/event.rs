//! What the gate says happened: one event of the outbox, appended in the script that did it.
//!
//! Layout (little-endian, no padding): `B layout(1)  B kind  i8 gate_time_ms  c16 reservation_id  B flags`, then
//! for `reserve` and `usage` the whole record as written (head lines body), for the others head and lines as they are after the change.
//! `flags & 1` says a consume was final, `flags & 2` that an `i8 uncharged` per line stands behind them, as events once told it. The
//! head's `last_sequence` is not yet known to the script when it appends; [`Event::decode`] sets it from the event's own place.

use super::codec::{Reader, Undecodable};
use super::ids::{OutboxId, ReservationId};
use super::reservation::{Head, LineUnits, Record, decode_uncharged};

const LAYOUT: u8 = 1;
/// The name of the one field of an outbox entry.
pub const EVENT_FIELD: &str = "e";

/// When the gate appended this event (gate time, unix ms), without decoding the rest.
pub fn gate_time_ms(event: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(event.get(2..10)?.try_into().ok()?))
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Amounts are held.
    Reserve(Record),
    /// Amounts are consumed without a hold.
    Usage(Record),
    /// Totals moved up; `is_final` resolves the reservation. Late when the head says so.
    Consume {
        /// Whether the reservation is resolved by it.
        is_final: bool,
        /// The record's head after the change.
        head: Head,
        /// Per line, after the change.
        units: Vec<LineUnits>,
    },
    /// The rest is returned; `units` carry what was incurred.
    Release {
        /// The record's head after the change.
        head: Head,
        /// Per line, after the change.
        units: Vec<LineUnits>,
    },
    /// The expiry moved.
    Extend {
        /// The record's head after the change.
        head: Head,
        /// Per line, unchanged.
        units: Vec<LineUnits>,
    },
    /// Time ran out.
    Expire {
        /// The record's head after the change.
        head: Head,
        /// Per line, unchanged.
        units: Vec<LineUnits>,
    },
}

/// An event as it stands in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its place.
    pub outbox_id: OutboxId,
    /// When the gate did it (gate time, unix ms).
    pub gate_time_ms: i64,
    /// Which reservation.
    pub reservation: ReservationId,
    /// What happened.
    pub change: Change,
}

impl Event {
    /// The record's head after the event.
    pub fn head(&self) -> &Head {
        match &self.change {
            Change::Reserve(record) | Change::Usage(record) => &record.head,
            Change::Consume { head, .. }
            | Change::Release { head, .. }
            | Change::Extend { head, .. }
            | Change::Expire { head, .. } => head,
        }
    }

    /// Held and consumed units per line after the event.
    pub fn units(&self) -> &[LineUnits] {
        match &self.change {
            Change::Reserve(record) | Change::Usage(record) => &record.units,
            Change::Consume { units, .. }
            | Change::Release { units, .. }
            | Change::Extend { units, .. }
            | Change::Expire { units, .. } => units,
        }
    }

    /// Reads an event from its outbox entry. What does not decode goes to quarantine, never to the books.
    pub fn decode(outbox_id: OutboxId, bytes: &[u8]) -> Result<Self, Undecodable> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != LAYOUT {
            return Err(Undecodable("event layout"));
        }
        let kind = reader.u8()?;
        let gate_time_ms = reader.i64()?;
        let reservation = ReservationId::from_bytes(reader.array()?);
        let flags = reader.u8()?;
        let mut change = decode_change(kind, flags, &mut reader)?;
        let head = change.head_mut();
        if head.epoch != outbox_id.epoch {
            return Err(Undecodable("the event's epoch is not its outbox id's"));
        }
        head.last_sequence = outbox_id.sequence;
        Ok(Self { outbox_id, gate_time_ms, reservation, change })
    }
}

impl Change {
    fn head_mut(&mut self) -> &mut Head {
        match self {
            Change::Reserve(record) | Change::Usage(record) => &mut record.head,
            Change::Consume { head, .. }
            | Change::Release { head, .. }
            | Change::Extend { head, .. }
            | Change::Expire { head, .. } => head,
        }
    }
}

fn decode_change(kind: u8, flags: u8, reader: &mut Reader<'_>) -> Result<Change, Undecodable> {
    match kind {
        1 => return Ok(Change::Reserve(Record::decode(reader.rest())?)),
        2 => return Ok(Change::Usage(Record::decode(reader.rest())?)),
        _ => {}
    }
    let (head, mut units) = Head::decode(reader)?;
    match kind {
        3 => {
            if flags & 2 != 0 {
                decode_uncharged(reader, &mut units)?;
            }
            Ok(Change::Consume { is_final: flags & 1 == 1, head, units })
        }
        4 => Ok(Change::Release { head, units }),
        5 => Ok(Change::Extend { head, units }),
        6 => Ok(Change::Expire { head, units }),
        _ => Err(Undecodable("unknown kind of event")),
    }
}
