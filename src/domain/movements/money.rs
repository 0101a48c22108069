//! Money that a tenant owes: the lines of statements and of the notes that correct them.

use super::{Account, EntryClass, Movement};
use crate::domain::amount::{Amount, InvalidAmount};
use crate::domain::money::Money;
use crate::domain::period::Window;
use Account::Receivable;

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
