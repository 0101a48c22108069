//! An event of the outbox: what happened at the gate, appended by the script that did it.
//!
//! Layout (little-endian, no padding): `B layout(1)  B kind  i8 gate_time_ms  c16 reservation_id  B flags`, then for
//! `reserve` and `usage` the whole record as written (head lines body), for the others head and lines after the change.
//! `flags & 1`: a consume was final. `flags & 2`: an `i8 uncharged` for each line follows, as in events of older
//! versions. The script does not know the head's `last_sequence` yet when it appends; [`Event::decode`] sets it from
//! the event's own place.

use super::codec::{Reader, Undecodable};
use super::ids::{OutboxId, ReservationId};
use super::reservation::{Head, LineUnits, Record, decode_uncharged, takes_back_by};

const LAYOUT: u8 = 1;
const USAGE: u8 = 2;
/// The offset of a whole record's `born_at`: after the beginning of every event and the record's first fields.
const BORN_AT: usize = 27 + 24;
/// The offset of a whole record's flags.
const FLAGS: usize = 27 + 3;
/// The name of the one field of an outbox entry.
pub const EVENT_FIELD: &str = "e";

/// When the gate appended this event (gate time, unix ms), without decoding more of it.
pub fn gate_time_ms(event: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(event.get(2..10)?.try_into().ok()?))
}

/// When the work of this event was done (unix ms), without decoding more of it. Usage may be recorded after the fact:
/// its record is born when the work was done.
pub fn happened_at_ms(event: &[u8]) -> Option<i64> {
    match event.get(1)? {
        &USAGE => Some(i64::from_le_bytes(event.get(BORN_AT..BORN_AT + 8)?.try_into().ok()?)),
        _ => gate_time_ms(event),
    }
}

/// Whether this event takes back what was used, without decoding more of it.
pub fn takes_back(event: &[u8]) -> bool {
    event.get(1) == Some(&USAGE) && event.get(FLAGS).is_some_and(|flags| takes_back_by(*flags))
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Amounts are held.
    Reserve(Record),
    /// Amounts are consumed without a hold.
    Usage(Record),
    /// Totals rose; `is_final` resolves the reservation. Late if the head says so.
    Consume {
        /// Whether the reservation is resolved by it.
        is_final: bool,
        /// The record's head after the change.
        head: Head,
        /// Each line after the change.
        units: Vec<LineUnits>,
    },
    /// The unused part is returned; `units` include what was used.
    Release {
        /// The record's head after the change.
        head: Head,
        /// Each line after the change.
        units: Vec<LineUnits>,
    },
    /// The expiry moved.
    Extend {
        /// The record's head after the change.
        head: Head,
        /// Each line, unchanged.
        units: Vec<LineUnits>,
    },
    /// The reservation expired.
    Expire {
        /// The record's head after the change.
        head: Head,
        /// Each line, unchanged.
        units: Vec<LineUnits>,
    },
}

/// An event of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its place in the outbox.
    pub outbox_id: OutboxId,
    /// When the gate did it (gate time, unix ms).
    pub gate_time_ms: i64,
    /// Its reservation.
    pub reservation: ReservationId,
    /// What happened.
    pub change: Change,
}

impl Event {
    /// When the work was done (unix ms): usage at its record's birth, all else when the gate appended the event.
    pub fn happened_at_ms(&self) -> i64 {
        match &self.change {
            Change::Usage(record) => record.head.born_at_ms,
            _ => self.gate_time_ms,
        }
    }

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

    /// The held and consumed units of each line after the event.
    pub fn units(&self) -> &[LineUnits] {
        match &self.change {
            Change::Reserve(record) | Change::Usage(record) => &record.units,
            Change::Consume { units, .. }
            | Change::Release { units, .. }
            | Change::Extend { units, .. }
            | Change::Expire { units, .. } => units,
        }
    }

    /// Decodes an event of the outbox. One that cannot be decoded goes to quarantine, never to the books.
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
        USAGE => return Ok(Change::Usage(Record::decode(reader.rest())?)),
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
