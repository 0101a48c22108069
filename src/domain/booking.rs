//! Booking: the only mapping from a gate event to movements. It depends on the event and on what was booked before for
//! the same reservation, never on a balance.
//!
//! Everything follows from totals: from what a line held and had consumed before, and has after. The rise of the
//! consumed total is taken from the hold, as far as the event ends it, and otherwise from what is available. Any other
//! part of the hold that ends is returned.

use super::amount::Units;
use super::entry::PostedLine;
use super::event::{Change, Event};
use super::movements::gate;
use super::period::Window;
use super::reservation::{BodyDetails, Head, LineUnits, Record, ReservationState};

/// The effect of an event on the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// The lines that move; none for an `extend`.
    pub lines: Vec<PostedLine>,
    /// The reservation's whole record after the event.
    pub after: Record,
}

/// Why an event cannot be booked and goes to quarantine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// The reservation was never booked.
    #[error("no reserve or usage of this reservation has been booked")]
    UnknownReservation,
    /// Its record is a tombstone.
    #[error("the record lacks its subjects, period and hour")]
    Incomplete,
    /// Its number of lines differs from the booked one.
    #[error("the event has {found} lines where {booked} are booked")]
    OtherLines {
        /// Lines of the booked record.
        booked: usize,
        /// Lines of the event.
        found: usize,
    },
    /// A total fell, or a hold changed.
    #[error("line {0} consumed less than was booked before, or its hold changed")]
    Decreased(u8),
    /// It changes a reservation that is resolved for good.
    #[error("the reservation is already {0}")]
    Resolved(ReservationState),
    /// An instant that the books cannot represent.
    #[error("an instant lies outside the years 1970 to 9999")]
    Instant,
    /// A reserve that consumes, or a usage that holds.
    #[error("a new reservation in state {0} is not what its event says")]
    WrongState(ReservationState),
}

const LAST_INSTANT_MS: i64 = 253_402_300_799_999;

/// Whether the books can represent this instant (years 1970 to 9999).
pub fn is_bookable_instant(ms: i64) -> bool {
    (0..=LAST_INSTANT_MS).contains(&ms)
}

/// Books `event`, given the reservation's record as booked `before` it (none for a new one).
///
/// Steps between may be missing: amounts are totals, so the next event makes the books right again.
pub fn book(event: &Event, before: Option<&Record>) -> Result<Booking, BookError> {
    let (after, was) = match &event.change {
        Change::Reserve(record) => (begun(record, ReservationState::Reserved)?, None),
        Change::Usage(record) => (begun(record, ReservationState::Consumed)?, None),
        Change::Consume { head, units, .. }
        | Change::Release { head, units }
        | Change::Extend { head, units }
        | Change::Expire { head, units } => {
            let before = before.ok_or(BookError::UnknownReservation)?;
            let consumes = matches!(event.change, Change::Consume { .. });
            (changed(before, head, units, consumes)?, Some(before))
        }
    };
    check_instants(event, &after)?;
    let is_usage = matches!(event.change, Change::Usage(_));
    let lines = lines(&after, was, is_usage)?;
    Ok(Booking { lines, after })
}

/// Books an event of a life that the books did not take: everything that it consumed beyond what is booked, as late.
pub fn book_rise(event: &Event, before: &Record) -> Result<Booking, BookError> {
    let (head, booked) = (event.head(), &before.head);
    if before.units.len() != event.units().len() {
        return Err(BookError::OtherLines { booked: before.units.len(), found: event.units().len() });
    }
    let mut after = before.clone();
    after.head = Head {
        state: ReservationState::Consumed,
        late: true,
        degraded: booked.degraded || head.degraded,
        step: booked.step.saturating_add(1),
        epoch: head.epoch,
        last_sequence: head.last_sequence,
        ..*booked
    };
    for (line, now) in after.units.iter_mut().zip(event.units()) {
        *line = LineUnits::new(line.held, line.consumed.max(now.consumed));
    }
    check_instants(event, &after)?;
    let lines = lines(&after, Some(before), false)?;
    Ok(Booking { lines, after })
}

/// Whether these units have consumed more than `before`.
pub fn consumed_beyond(before: &Record, units: &[LineUnits]) -> bool {
    units.iter().zip(&before.units).any(|(now, was)| now.consumed > was.consumed)
}

/// Whether anything was consumed.
pub fn has_consumed(record: &Record) -> bool {
    record.units.iter().any(|line| line.consumed > Units::ZERO)
}

/// The details of a record, which a tombstone lacks.
pub fn rest(record: &Record) -> Result<&BodyDetails, BookError> {
    record.body.rest.as_ref().ok_or(BookError::Incomplete)
}

fn begun(record: &Record, state: ReservationState) -> Result<Record, BookError> {
    rest(record)?;
    if record.head.state != state {
        return Err(BookError::WrongState(record.head.state));
    }
    if record.body.lines.len() != record.units.len() {
        return Err(BookError::OtherLines { booked: record.body.lines.len(), found: record.units.len() });
    }
    Ok(record.clone())
}

fn changed(before: &Record, head: &Head, units: &[LineUnits], consumes: bool) -> Result<Record, BookError> {
    rest(before)?;
    if before.units.len() != units.len() {
        return Err(BookError::OtherLines { booked: before.units.len(), found: units.len() });
    }
    let was = before.head.state;
    // Only an expired reservation still changes, by late consumes; the final one closes it.
    let may_follow = matches!(head.state, ReservationState::Expired | ReservationState::Consumed);
    let is_late_consume = was == ReservationState::Expired && consumes && head.late && may_follow;
    if was != ReservationState::Reserved && !is_late_consume {
        return Err(BookError::Resolved(was));
    }
    Ok(Record { head: *head, units: units.to_vec(), body: before.body.clone() })
}

fn check_instants(event: &Event, after: &Record) -> Result<(), BookError> {
    let rest = rest(after)?;
    let head = &after.head;
    let instants = [
        event.gate_time_ms,
        head.expires_at_ms,
        head.born_at_ms,
        rest.hour_start_ms,
        rest.period_ms.0,
        rest.period_ms.1,
    ];
    if instants.into_iter().all(is_bookable_instant) { Ok(()) } else { Err(BookError::Instant) }
}

fn lines(after: &Record, was: Option<&Record>, is_usage: bool) -> Result<Vec<PostedLine>, BookError> {
    (0..after.units.len()).map(|line| book_line(after, was, line, is_usage)).collect()
}

fn book_line(
    after: &Record,
    was: Option<&Record>,
    line: usize,
    is_usage: bool,
) -> Result<PostedLine, BookError> {
    let (now, rule, head) = (after.units[line], &after.body.lines[line], &after.head);
    let before = was.map_or(LineUnits::new(now.held, Units::ZERO), |record| record.units[line]);
    let begins_wrong =
        was.is_none() && if is_usage { now.held > Units::ZERO } else { now.consumed > Units::ZERO };
    if now.consumed < before.consumed || now.held != before.held || begins_wrong {
        return Err(BookError::Decreased(u8::try_from(line).unwrap_or(u8::MAX)));
    }
    let amount = |units: Units| units.to_amount(rule.decimals);
    let held_before = was.map_or(Units::ZERO, |record| outstanding(record.head.state, before));
    let held_now = outstanding(head.state, now);
    let ended = amount(held_before.saturating_sub(held_now));
    let rise = amount(now.consumed.saturating_sub(before.consumed));
    let period = period(after)?;
    let movements = match was {
        None if !is_usage => gate::reserve(period, amount(held_now)),
        _ if head.late => gate::late_consume(period, ended, rise),
        None => gate::usage(period, rise),
        Some(_) => gate::change(period, ended, rise),
    };
    Ok(PostedLine {
        meter: rule.meter.clone(),
        movements: if head.degraded { gate::degraded(movements) } else { movements },
        begins_to_consume: before.consumed == Units::ZERO && now.consumed > Units::ZERO,
    })
}

fn period(record: &Record) -> Result<Window, BookError> {
    let (start_ms, end_ms) = rest(record)?.period_ms;
    Ok(Window { start_ms, end_ms })
}

fn outstanding(state: ReservationState, units: LineUnits) -> Units {
    if state == ReservationState::Reserved { units.outstanding() } else { Units::ZERO }
}

#[cfg(test)]
mod tests;
