//! Booking: the only mapping from a gate event to movements. It depends on the event and on what was booked before
//! for the same reservation, never on a balance.
//!
//! Everything follows from totals: from what a line held and had consumed before, and has after. The rise of the
//! consumed total is taken from the hold, as far as the event ends it, and otherwise from what is available. Any
//! other part of the hold that ends is returned.
//!
//! Once the period is closed, open holds have been carried over: what becomes of them is booked where they stand
//! then. Other facts are corrections there. What returns of a carried hold is left to the job that closes periods,
//! since how much of it is available again depends on what the period had left.
//!
//! A line of a meter that is not booked moves nothing. It keeps its number among the lines of the posting.

use rust_decimal::Decimal;

use super::amount::{Amount, Units};
use super::entry::PostedLine;
use super::event::{Change, Event};
use super::ids::MeterId;
use super::movements::{Movement, corrections, gate};
use super::open_periods::{OpenPeriods, UnknownCalendar};
use super::period::Window;
use super::reservation::{BodyDetails, Correction as Corrects, Head, LineUnits, Record, ReservationState};

/// The effect of an event on the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// The lines that move; none for an `extend`.
    pub lines: Vec<PostedLine>,
    /// What returns of holds that were carried over; nothing of it is in `lines`.
    pub returned: Vec<CarriedReturn>,
    /// What was consumed for closed periods, by lines; it is in `lines` too.
    pub corrections: Vec<Correction>,
    /// The reservation's whole record after the event.
    pub after: Record,
}

/// What was consumed for a closed period and is booked in a later one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correction {
    /// Its meter.
    pub meter: MeterId,
    /// The closed period.
    pub period: Window,
    /// Where it is booked.
    pub booked_in: Window,
    /// How much, above zero.
    pub consumed: Amount,
}

/// A part of a hold that returns in a later period than its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedReturn {
    /// The reservation's line, from 0.
    pub line: u8,
    /// Its meter.
    pub meter: MeterId,
    /// Where it stands.
    pub period: Window,
    /// How much, above zero.
    pub amount: Amount,
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
    /// Nothing says which period follows its closed one.
    #[error(transparent)]
    Calendar(#[from] UnknownCalendar),
    /// It corrects a period that is closed by now.
    #[error("the period that it corrects is closed")]
    Closed,
    /// A reserve that consumes, or a usage that holds.
    #[error("a new reservation in state {0} is not what its event says")]
    WrongState(ReservationState),
}

const LAST_INSTANT_MS: i64 = 253_402_300_799_999;

/// Whether the books can represent this instant (years 1970 to 9999).
pub fn is_bookable_instant(ms: i64) -> bool {
    (0..=LAST_INSTANT_MS).contains(&ms)
}

/// Books `event`, given the reservation's record as booked `before` it (none for a new one), in its period or in the
/// one of `open` where its units stand by then.
///
/// Steps between may be missing: amounts are totals, so the next event makes the books right again.
pub fn book(event: &Event, before: Option<&Record>, open: &OpenPeriods) -> Result<Booking, BookError> {
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
    booking(event, after, was, open)
}

/// Books an event of a life that the books did not take: everything that it consumed beyond what is booked, as late.
pub fn book_rise(event: &Event, before: &Record, open: &OpenPeriods) -> Result<Booking, BookError> {
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
    booking(event, after, Some(before), open)
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

fn booking(
    event: &Event,
    after: Record,
    was: Option<&Record>,
    open: &OpenPeriods,
) -> Result<Booking, BookError> {
    let is_usage = matches!(event.change, Change::Usage(_));
    let (mut lines, mut returned) = (Vec::with_capacity(after.units.len()), Vec::new());
    let mut corrections = Vec::new();
    for (index, rule) in after.body.lines.iter().enumerate() {
        let moves = line_moves(&after, was, index, is_usage)?;
        if !rule.booked {
            lines.push(PostedLine::unmoved(rule.meter.clone()));
            continue;
        }
        let stands = open.stands_in(&after.body.tenant, &rule.meter, moves.period, event.gate_time_ms)?;
        if after.head.correction.is_some() && stands.start_ms != moves.period.start_ms {
            return Err(BookError::Closed);
        }
        let (movements, returns) = moves.in_period(stands);
        if !returns.is_zero() {
            let (line, meter) = (number(index), rule.meter.clone());
            returned.push(CarriedReturn { line, meter, period: stands, amount: returns });
        }
        corrections.extend(moves.correction(&rule.meter, stands));
        lines.push(PostedLine {
            meter: rule.meter.clone(),
            movements: if after.head.degraded { gate::degraded(movements) } else { movements },
            first_leg: 0,
            begins_to_consume: moves.begins_to_consume,
        });
    }
    Ok(Booking { lines, returned, corrections, after })
}

/// What an event moves of one line.
struct LineMoves {
    /// The reservation's own period.
    period: Window,
    /// As the gate sees them: in that period.
    movements: Vec<Movement>,
    /// Whether they are work without a hold, or after its end: facts for which a closed period takes a correction.
    is_fact: bool,
    begins_to_consume: bool,
}

impl LineMoves {
    /// The movements where the units stand now, and what of them returns from a carried hold.
    fn in_period(&self, stands: Window) -> (Vec<Movement>, Amount) {
        let movements = self.movements.clone();
        match self.is_fact {
            _ if stands.start_ms == self.period.start_ms => (movements, Amount::ZERO),
            true => gate::corrected(movements, stands),
            false => gate::carried(movements, stands),
        }
    }

    /// What they correct of their own period, where the units stand in another one.
    fn correction(&self, meter: &MeterId, stands: Window) -> Option<Correction> {
        let is_elsewhere = stands.start_ms != self.period.start_ms;
        let consumed: Decimal = self.movements.iter().filter_map(Movement::consumed).sum();
        let consumed = Amount::from_decimal(consumed).unwrap_or_default();
        let (meter, period, booked_in) = (meter.clone(), self.period, stands);
        let correction = || Correction { meter, period, booked_in, consumed };
        (self.is_fact && is_elsewhere && !consumed.is_zero()).then(correction)
    }
}

fn line_moves(
    after: &Record,
    was: Option<&Record>,
    line: usize,
    is_usage: bool,
) -> Result<LineMoves, BookError> {
    let (now, rule, head) = (after.units[line], &after.body.lines[line], &after.head);
    let before = was.map_or(LineUnits::new(now.held, Units::ZERO), |record| record.units[line]);
    let begins_wrong =
        was.is_none() && if is_usage { now.held > Units::ZERO } else { now.consumed > Units::ZERO };
    if now.consumed < before.consumed || now.held != before.held || begins_wrong {
        return Err(BookError::Decreased(number(line)));
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
        None => match head.correction {
            None => gate::usage(period, rise),
            Some(Corrects::More) => corrections::in_open_period(period, Amount::ZERO, rise),
            Some(Corrects::Less) => corrections::in_open_period(period, rise, Amount::ZERO),
        },
        Some(_) => gate::change(period, ended, rise),
    };
    let begins_to_consume =
        before.consumed == Units::ZERO && now.consumed > Units::ZERO && !head.takes_back();
    Ok(LineMoves { period, movements, is_fact: is_usage || head.late, begins_to_consume })
}

/// A line's number; a reservation has few.
fn number(line: usize) -> u8 {
    u8::try_from(line).unwrap_or(u8::MAX)
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
