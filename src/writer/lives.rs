//! An operation that the books know, and that arrives as a new event: the gate had forgotten it and admitted it once more. What was
//! done of it is billed once, whichever of the two lives it was done in.

use crate::domain::booking::{consumed_beyond, has_consumed};
use crate::domain::event::{Change, Event};
use crate::domain::reservation::{Record, ReservationState};

/// How an event meets a reservation that is booked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// It is the next change of it.
    Next,
    /// The books have what it says: nothing is left to do, but for the gate where it counts it again.
    LedgerState,
    /// It begins a life of its own: what is booked of the id is another job, or came to nothing.
    NewLife,
    /// More was done in a life that the books did not take than they have: the rise is charged, late.
    Rise,
}

/// How `event` meets what is booked; an error when neither can be right. `is_past`: the key that it may begin with means a new job by
/// then.
pub(super) fn meet(event: &Event, before: &Record, is_past: bool) -> Result<Meeting, String> {
    if let Change::Reserve(record) | Change::Usage(record) = &event.change {
        return begins(record, before, is_past);
    }
    let (head, booked, units) = (event.head(), &before.head, event.units());
    let is_open = booked.state == ReservationState::Reserved;
    if units.len() != before.units.len() {
        return Ok(Meeting::Next);
    }
    let is_other_life = head.born_at_ms != booked.born_at_ms;
    if !is_open && (is_other_life || (head.late && head.step <= booked.step)) {
        return Ok(if consumed_beyond(before, units) { Meeting::Rise } else { Meeting::LedgerState });
    }
    if head.step > booked.step {
        return Ok(Meeting::Next);
    }
    let same = head.step == booked.step && head.state == booked.state && units == before.units;
    let passed = head.step < booked.step
        && units
            .iter()
            .zip(&before.units)
            .all(|(now, was)| now.held == was.held && now.consumed <= was.consumed);
    if same || passed {
        Ok(Meeting::LedgerState)
    } else {
        Err("it differs from what is booked as this step".into())
    }
}

/// Work that is recorded after it was done is the same work when it comes again, and so is a job of which something was consumed; a
/// job that came to nothing is done now. Past the horizon it is another job.
fn begins(record: &Record, before: &Record, is_past: bool) -> Result<Meeting, String> {
    if record.body.tenant != before.body.tenant {
        return Err("another tenant's request with this id is booked".into());
    }
    let is_same = record.body.fingerprint.repeats(&before.body.fingerprint);
    let is_resolved = before.head.state != ReservationState::Reserved;
    let is_other_life = record.head.born_at_ms != before.head.born_at_ms;
    match (is_same, is_resolved && is_other_life) {
        (true, true) if is_past || !has_consumed(before) => Ok(Meeting::NewLife),
        (true, _) => Ok(Meeting::LedgerState),
        (false, true) => Ok(Meeting::NewLife),
        (false, false) => Err("another request with this id is booked".into()),
    }
}
