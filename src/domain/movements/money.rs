//! Money that a tenant owes: the lines of statements and of the notes that correct them, and the prices of paid grants,
//! which are earned only as they burn.

use super::{Account, EntryClass, Movement};
use crate::domain::amount::{Amount, InvalidAmount};
use crate::domain::money::Money;
use crate::domain::period::Window;
use Account::{Breakage, Deferred, Receivable, Revenue};

/// A line of the statement of this period; `earned` is [`Account::Revenue`] or [`Account::Tax`].
///
/// # Errors
/// The amount is larger than the books can hold.
pub fn statement_line(
    period: Window,
    earned: Account,
    amount: Money,
) -> Result<Option<Movement>, InvalidAmount> {
    owed(EntryClass::Period, period, earned, amount)
}

/// A line of a credit note to a statement of this period.
///
/// # Errors
/// As for a statement.
pub fn note_line(period: Window, earned: Account, amount: Money) -> Result<Option<Movement>, InvalidAmount> {
    owed(EntryClass::Correction, period, earned, amount)
}

/// Finance adjusts what is owed in this period.
///
/// # Errors
/// As for a statement.
pub fn adjust(period: Window, amount: Money) -> Result<Option<Movement>, InvalidAmount> {
    owed(EntryClass::Correction, period, Revenue, amount)
}

/// A paid grant is sold: its price is owed, and not earned yet.
///
/// # Errors
/// As for a statement; also for those below.
pub fn sell(period: Window, price: Money) -> Result<Option<Movement>, InvalidAmount> {
    moved(EntryClass::Grant, period, Deferred, Receivable, price)
}

/// A part of a paid grant has burnt in this period: it is earned.
///
/// # Errors
/// As for a statement.
pub fn recognise(period: Window, amount: Money) -> Result<Option<Movement>, InvalidAmount> {
    moved(EntryClass::Period, period, Revenue, Deferred, amount)
}

/// A part of a paid grant that ended in this period had not burnt after all: it was not earned.
///
/// # Errors
/// As for a statement.
pub fn unearn(period: Window, amount: Money) -> Result<Option<Movement>, InvalidAmount> {
    moved(EntryClass::Period, period, Deferred, Revenue, amount)
}

/// What was not earned of a paid grant when it ended stays with us.
///
/// # Errors
/// As for a statement.
pub fn forfeit(period: Window, amount: Money) -> Result<Option<Movement>, InvalidAmount> {
    moved(EntryClass::Period, period, Breakage, Deferred, amount)
}

/// What was not earned of a paid grant when it was voided is no longer owed.
///
/// # Errors
/// As for a statement.
pub fn refund(period: Window, amount: Money) -> Result<Option<Movement>, InvalidAmount> {
    moved(EntryClass::Grant, period, Receivable, Deferred, amount)
}

/// An amount of zero or more moves.
fn moved(
    class: EntryClass,
    period: Window,
    credit: Account,
    debit: Account,
    amount: Money,
) -> Result<Option<Movement>, InvalidAmount> {
    Ok(Movement::new(class, period, credit, debit, Amount::from_decimal(amount.decimal())?))
}

/// What is owed is receivable and earned; an amount below zero is the reverse.
fn owed(
    class: EntryClass,
    period: Window,
    earned: Account,
    amount: Money,
) -> Result<Option<Movement>, InvalidAmount> {
    let size = Amount::from_decimal(amount.decimal().abs())?;
    let (credit, debit) = if amount.is_negative() { (Receivable, earned) } else { (earned, Receivable) };
    Ok(Movement::new(class, period, credit, debit, size))
}
