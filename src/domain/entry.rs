//! The books' movements: the one mapping from a gate event to entries, a function of the event and what was booked
//! before it for the same reservation, never of a balance.
//!
//! All lines of `BOOKS.md` section 1 follow from one rule by totals. With what a line held and had consumed before and
//! has after: the rise of the consumed total is taken from the hold as far as the hold ends by it, the rest from what is
//! available (`excess`, or `late` after expiry); what else of the hold ends is returned.

use super::amount::{Amount, Decimals, Units};
use super::event::{Change, Event};
use super::ids::{MeterId, ReservationId, TenantId};
use super::reservation::{BodyRest, Head, LineUnits, Record, ReservationState};

/// An account of a tenant's books for one meter and period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// Source: included amounts and grants.
    Granted,
    /// Source: unused quota of the period before.
    RolledIn,
    /// Source: holds carried over from the period before.
    CarriedIn,
    /// Source: what was used beyond the quota, settled at the close.
    Overage,
    /// Source: corrections.
    Adjusted,
    /// Place: what may be reserved; its negative part is the overage so far.
    Available,
    /// Place: held by open reservations.
    Reserved,
    /// Place: used up.
    Consumed,
    /// Place: unused at expiry or close.
    Lapsed,
    /// Place: taken back.
    Voided,
    /// Place: unused quota that went to the next period.
    RolledOut,
    /// Place: open holds that went to the next period.
    CarriedOut,
    /// Place: overage of the period before, paid from this one.
    Repaid,
}

impl Account {
    /// Every account: sources first, then places.
    pub const ALL: [Self; 13] = [
        Self::Granted,
        Self::RolledIn,
        Self::CarriedIn,
        Self::Overage,
        Self::Adjusted,
        Self::Available,
        Self::Reserved,
        Self::Consumed,
        Self::Lapsed,
        Self::Voided,
        Self::RolledOut,
        Self::CarriedOut,
        Self::Repaid,
    ];

    /// Whether a credit raises it; a debit raises the others.
    pub fn is_source(self) -> bool {
        matches!(self, Self::Granted | Self::RolledIn | Self::CarriedIn | Self::Overage | Self::Adjusted)
    }

    /// Its place in [`Self::ALL`].
    pub fn index(self) -> usize {
        match self {
            Self::Granted => 0,
            Self::RolledIn => 1,
            Self::CarriedIn => 2,
            Self::Overage => 3,
            Self::Adjusted => 4,
            Self::Available => 5,
            Self::Reserved => 6,
            Self::Consumed => 7,
            Self::Lapsed => 8,
            Self::Voided => 9,
            Self::RolledOut => 10,
            Self::CarriedOut => 11,
            Self::Repaid => 12,
        }
    }

    /// The word of the books.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::RolledIn => "rolled_in",
            Self::CarriedIn => "carried_in",
            Self::Overage => "overage",
            Self::Adjusted => "adjusted",
            Self::Available => "available",
            Self::Reserved => "reserved",
            Self::Consumed => "consumed",
            Self::Lapsed => "lapsed",
            Self::Voided => "voided",
            Self::RolledOut => "rolled_out",
            Self::CarriedOut => "carried_out",
            Self::Repaid => "repaid",
        }
    }

    /// The account with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|account| account.as_str() == word)
    }
}

/// Why an entry was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryClass {
    /// The gate did it.
    Usage,
    /// An amount was added to a quota.
    Grant,
    /// A period opened or closed.
    Period,
    /// A late fact or a corrected one.
    Correction,
}

impl EntryClass {
    /// The word of the books.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Grant => "grant",
            Self::Period => "period",
            Self::Correction => "correction",
        }
    }

    /// The class with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Usage, Self::Grant, Self::Period, Self::Correction]
            .into_iter()
            .find(|class| class.as_str() == word)
    }
}

/// What is remarkable about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryFlags {
    /// Consumed above the hold.
    pub excess: bool,
    /// Consumed after expiry.
    pub late: bool,
    /// The hold came from an earlier period.
    pub carried: bool,
    /// Of a reservation that a call changed while the gate was away.
    pub degraded: bool,
}

/// One movement: `amount` leaves the credited account and enters the debited one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    /// Which line of the reservation.
    pub line: u8,
    /// Its ordinal among the line's movements of this step.
    pub leg: u8,
    /// What is counted.
    pub meter: MeterId,
    /// Where it comes from.
    pub credit: Account,
    /// Where it goes.
    pub debit: Account,
    /// How much, above zero.
    pub amount: Amount,
    /// Why.
    pub class: EntryClass,
    /// What is remarkable.
    pub flags: EntryFlags,
}

/// What an event does to the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// The movements, in order of line and leg; none for an `extend`.
    pub movements: Vec<Movement>,
    /// The reservation's whole record after the event.
    pub after: Record,
    /// The lines that consumed for the first time, for the count of operations.
    pub first_consumed: Vec<u8>,
}

/// Why an event cannot be booked: it goes to quarantine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// The reservation was never booked.
    #[error("no reserve or usage of this reservation has been booked")]
    UnknownReservation,
    /// Its record has only what a resolved reservation keeps at the gate.
    #[error("the record lacks its subjects, period and hour")]
    Incomplete,
    /// Its number of lines is not the booked one.
    #[error("the event has {found} lines where {booked} are booked")]
    OtherLines {
        /// Lines of the booked record.
        booked: usize,
        /// Lines of the event.
        found: usize,
    },
    /// A total went down, or a hold changed.
    #[error("line {0} consumed less than was booked before, or its hold changed")]
    Decreased(u8),
    /// It changes what is resolved for good.
    #[error("the reservation is already {0}")]
    Resolved(ReservationState),
    /// An instant that the books cannot hold.
    #[error("an instant lies outside the years 1970 to 9999")]
    Instant,
    /// A reserve that consumes, or a usage that holds.
    #[error("a new reservation in state {0} is not what its event says")]
    WrongState(ReservationState),
}

const LAST_INSTANT_MS: i64 = 253_402_300_799_999;

/// Whether the books can hold this instant (years 1970 to 9999).
pub fn is_bookable_instant(ms: i64) -> bool {
    (0..=LAST_INSTANT_MS).contains(&ms)
}

/// What `event` does to the books, given the reservation's record as booked `before` it (none for a new one).
///
/// The steps between may be missing: amounts are totals, so the books are right again with the next event that is there.
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
    let mut booking = Booking { movements: Vec::new(), after, first_consumed: Vec::new() };
    for line in 0..booking.after.units.len() {
        book_line(&mut booking, was, line, is_usage)?;
    }
    Ok(booking)
}

/// What an event of a life that the books did not take adds to them: all that it consumed beyond what is booked, late.
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
    let mut booking = Booking { movements: Vec::new(), after, first_consumed: Vec::new() };
    for line in 0..booking.after.units.len() {
        book_line(&mut booking, Some(before), line, false)?;
    }
    Ok(booking)
}

/// Whether units say more was consumed than `before` has.
pub fn consumed_beyond(before: &Record, units: &[LineUnits]) -> bool {
    units.iter().zip(&before.units).any(|(now, was)| now.consumed > was.consumed)
}

/// Whether anything was consumed.
pub fn has_consumed(record: &Record) -> bool {
    record.units.iter().any(|line| line.consumed > Units::ZERO)
}

/// The part of a record that only a whole one has.
pub fn rest(record: &Record) -> Result<&BodyRest, BookError> {
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
    // Only an expired reservation still changes: by late consumes, of which the final one closes it.
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

fn book_line(
    booking: &mut Booking,
    was: Option<&Record>,
    line: usize,
    is_usage: bool,
) -> Result<(), BookError> {
    let number = u8::try_from(line).unwrap_or(u8::MAX);
    let now = booking.after.units[line];
    let before = was.map_or(LineUnits::new(now.held, Units::ZERO), |record| record.units[line]);
    let begins_wrong =
        was.is_none() && if is_usage { now.held > Units::ZERO } else { now.consumed > Units::ZERO };
    if now.consumed < before.consumed || now.held != before.held || begins_wrong {
        return Err(BookError::Decreased(number));
    }
    let head = &booking.after.head;
    let held_before = was.map_or(Units::ZERO, |record| outstanding(record.head.state, before));
    let held_now = outstanding(head.state, now);
    let rise = now.consumed.saturating_sub(before.consumed);
    let rule = &booking.after.body.lines[line];
    let mut legs = Legs {
        line: number,
        meter: rule.meter.clone(),
        decimals: rule.decimals,
        degraded: head.degraded,
        out: &mut booking.movements,
        leg: 0,
    };
    if was.is_none() && !is_usage {
        legs.add(Account::Available, Account::Reserved, held_now, EntryFlags::default());
    } else {
        let ended = held_before.saturating_sub(held_now);
        // Expiry has ended the hold of a late consume, even where its own event was lost.
        let from_hold = if head.late { Units::ZERO } else { rise.min(ended) };
        let beyond = rise.saturating_sub(from_hold);
        let flags = EntryFlags { excess: !is_usage && !head.late, late: head.late, ..EntryFlags::default() };
        legs.add(Account::Reserved, Account::Consumed, from_hold, EntryFlags::default());
        legs.add(Account::Available, Account::Consumed, beyond, flags);
        legs.add(
            Account::Reserved,
            Account::Available,
            ended.saturating_sub(from_hold),
            EntryFlags::default(),
        );
    }
    if before.consumed == Units::ZERO && now.consumed > Units::ZERO {
        booking.first_consumed.push(number);
    }
    Ok(())
}

fn outstanding(state: ReservationState, units: LineUnits) -> Units {
    if state == ReservationState::Reserved { units.outstanding() } else { Units::ZERO }
}

struct Legs<'a> {
    line: u8,
    meter: MeterId,
    decimals: Decimals,
    degraded: bool,
    out: &'a mut Vec<Movement>,
    leg: u8,
}

impl Legs<'_> {
    /// Adds a movement unless nothing moves.
    fn add(&mut self, credit: Account, debit: Account, units: Units, flags: EntryFlags) {
        if units == Units::ZERO {
            return;
        }
        self.out.push(Movement {
            line: self.line,
            leg: self.leg,
            meter: self.meter.clone(),
            credit,
            debit,
            amount: units.to_amount(self.decimals),
            class: EntryClass::Usage,
            flags: EntryFlags { degraded: self.degraded, ..flags },
        });
        self.leg += 1;
    }
}

/// A movement with everything that the books keep of it: a row of the entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Whose units.
    pub tenant: TenantId,
    /// The reservation or other operation that made it.
    pub operation_id: uuid::Uuid,
    /// The ordinal of that operation's change.
    pub step: u32,
    /// What moved.
    pub movement: Movement,
    /// The start of the period it belongs to (unix ms).
    pub period_start_ms: i64,
    /// When it happened (unix ms).
    pub happened_at_ms: i64,
    /// The name of the operation; empty when none was given.
    pub operation: String,
    /// The start of the tenant's local hour it belongs to (unix ms).
    pub hour_start_ms: i64,
    /// The numbers of the subjects named, at most four.
    pub subjects: Vec<i64>,
}

impl Entry {
    /// The entries of a booked event. `subjects` are the numbers of the record's subjects, in its order.
    pub fn of(event: &Event, booking: &Booking, subjects: &[i64]) -> Result<Vec<Self>, BookError> {
        let rest = rest(&booking.after)?;
        let entry = |movement: &Movement| Self {
            tenant: booking.after.body.tenant.clone(),
            operation_id: ReservationId::uuid(event.reservation),
            step: booking.after.head.step,
            movement: movement.clone(),
            period_start_ms: rest.period_ms.0,
            happened_at_ms: event.gate_time_ms,
            operation: rest.operation.as_ref().map_or_else(String::new, ToString::to_string),
            hour_start_ms: rest.hour_start_ms,
            subjects: subjects.to_vec(),
        };
        Ok(booking.movements.iter().map(entry).collect())
    }
}

#[cfg(test)]
mod tests;
