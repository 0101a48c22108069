//! Entries: the movements of one step of an operation, as they are booked.

use std::num::TryFromIntError;

use super::amount::Amount;
use super::booking::{BookError, rest};
use super::event::Event;
use super::ids::{MeterId, ReservationId, TenantId};
use super::movements::{Account, EntryClass, EntryFlags, Movement};
use super::reservation::Record;

/// The ordinal of the first movement of what returns of a carried hold: behind all that an event itself moves of a
/// line.
pub const RETURN_LEG: u8 = 16;

/// The movements of one step of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// Its tenant.
    pub tenant: TenantId,
    /// The reservation or other operation that made it.
    pub operation_id: uuid::Uuid,
    /// The ordinal of that operation's change.
    pub step: u32,
    /// When it happened (unix ms).
    pub happened_at_ms: i64,
    /// The name of the operation; empty when none was given.
    pub operation: String,
    /// The start of the tenant's local hour it belongs to (unix ms).
    pub hour_start_ms: i64,
    /// The numbers of the subjects named, at most four.
    pub subjects: Vec<i64>,
    /// The lines that move.
    pub lines: Vec<PostedLine>,
}

/// The movements of one line of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostedLine {
    /// Its meter.
    pub meter: MeterId,
    /// The movements, in order.
    pub movements: Vec<Movement>,
    /// The ordinal of the first one: 0, unless other movements of the same step are booked before them.
    pub first_leg: u8,
    /// Whether these movements are the line's first consumption, for the count of operations.
    pub begins_to_consume: bool,
}

impl PostedLine {
    /// A line that moves nothing.
    pub fn unmoved(meter: MeterId) -> Self {
        Self { meter, movements: Vec::new(), first_leg: 0, begins_to_consume: false }
    }
}

/// A movement with everything that the books store of it: a row of the entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its tenant.
    pub tenant: TenantId,
    /// The reservation or other operation that made it.
    pub operation_id: uuid::Uuid,
    /// The ordinal of that operation's change.
    pub step: u32,
    /// The line of the operation, from 0.
    pub line: u8,
    /// Its ordinal among the line's movements of this step.
    pub leg: u8,
    /// Its meter.
    pub meter: MeterId,
    /// The start of the period it belongs to (unix ms).
    pub period_start_ms: i64,
    /// The account that it leaves.
    pub credit: Account,
    /// The account that it enters.
    pub debit: Account,
    /// The amount, above zero.
    pub amount: Amount,
    /// The reason for it.
    pub class: EntryClass,
    /// Remarkable facts about it.
    pub flags: EntryFlags,
    /// When it happened (unix ms).
    pub happened_at_ms: i64,
    /// The name of the operation; empty when none was given.
    pub operation: String,
    /// The start of the tenant's local hour it belongs to (unix ms).
    pub hour_start_ms: i64,
    /// The numbers of the subjects named, at most four.
    pub subjects: Vec<i64>,
}

impl Posting {
    /// The movements of an event: its `lines`, with the reservation's record `after` it. `subjects` are the numbers
    /// of the record's subjects, in its order.
    pub fn of_event(
        event: &Event,
        after: &Record,
        lines: Vec<PostedLine>,
        subjects: Vec<i64>,
    ) -> Result<Self, BookError> {
        let rest = rest(after)?;
        Ok(Self {
            tenant: after.body.tenant.clone(),
            operation_id: ReservationId::uuid(event.reservation),
            step: after.head.step,
            happened_at_ms: event.happened_at_ms(),
            operation: rest.operation.as_ref().map_or_else(String::new, ToString::to_string),
            hour_start_ms: rest.hour_start_ms,
            subjects,
            lines,
        })
    }

    /// Whether nothing moves.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.movements.is_empty())
    }

    /// Its entries, a row for each movement. Errors: more lines, or movements of one, than can be numbered.
    pub fn entries(&self) -> Result<Vec<Entry>, TryFromIntError> {
        let mut entries = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            for (leg, movement) in line.movements.iter().enumerate() {
                let leg = u8::try_from(usize::from(line.first_leg) + leg)?;
                entries.push(self.entry(number.try_into()?, leg, &line.meter, movement));
            }
        }
        Ok(entries)
    }

    fn entry(&self, line: u8, leg: u8, meter: &MeterId, movement: &Movement) -> Entry {
        Entry {
            tenant: self.tenant.clone(),
            operation_id: self.operation_id,
            step: self.step,
            line,
            leg,
            meter: meter.clone(),
            period_start_ms: movement.period.start_ms,
            credit: movement.credit,
            debit: movement.debit,
            amount: movement.amount,
            class: movement.class,
            flags: movement.flags,
            happened_at_ms: self.happened_at_ms,
            operation: self.operation.clone(),
            hour_start_ms: self.hour_start_ms,
            subjects: self.subjects.clone(),
        }
    }
}
