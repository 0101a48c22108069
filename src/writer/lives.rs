//! Decides what a new event of a booked operation means: the gate had forgotten it and admitted it again. The work is
//! billed once, in whichever of the two lives it was done.

use crate::domain::booking::{consumed_beyond, has_consumed};
use crate::domain::event::{Change, Event};
use crate::domain::reservation::{Record, ReservationState};

/// How an event relates to a booked reservation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// The reservation's next change.
    Next,
    /// A repeat of what is booked: only the gate may have to give units back.
    Booked,
    /// A new life: the booked one is another job, or nothing was consumed in it.
    NewLife,
    /// A life that was not booked consumed more than is booked: the rise is charged, late.
    Rise,
}

/// Relates `event` to what is booked; an error when the two contradict each other. `is_past`: the event begins after
/// the horizon, when its key means a new job.
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
        return Ok(if consumed_beyond(before, units) { Meeting::Rise } else { Meeting::Booked });
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
        Ok(Meeting::Booked)
    } else {
        Err("it differs from what is booked as this step".into())
    }
}

/// Usage that comes again is a repeat, and so is a job that consumed something. A job that consumed nothing begins
/// a new life, and after the horizon every job does.
fn begins(record: &Record, before: &Record, is_past: bool) -> Result<Meeting, String> {
    if record.body.tenant != before.body.tenant {
        return Err("another tenant's request with this id is booked".into());
    }
    let is_same = record.body.fingerprint.repeats(&before.body.fingerprint);
    let is_resolved = before.head.state != ReservationState::Reserved;
    let is_other_life = record.head.born_at_ms != before.head.born_at_ms;
    match (is_same, is_resolved && is_other_life) {
        (true, true) if is_past || !has_consumed(before) => Ok(Meeting::NewLife),
        (true, _) => Ok(Meeting::Booked),
        (false, true) => Ok(Meeting::NewLife),
        (false, false) => Err("another request with this id is booked".into()),
    }
}
