//! What changes a quota's amount: grants, their end, and plans.

use rust_decimal::Decimal;

use super::{Account, EntryClass, Movement, list};
use crate::domain::amount::Amount;
use crate::domain::period::Window;
use Account::{Available, Granted, Lapsed, Voided};

/// A period opens with its included amount, a grant begins, or a recurring one refills.
pub fn grant(period: Window, amount: Amount) -> Vec<Movement> {
    list([change(period, Granted, Available, amount)])
}

/// A period was opened with more than it includes as it begins: the rest is taken back, as if it had never been
/// granted.
pub fn take_back(period: Window, amount: Amount) -> Vec<Movement> {
    list([change(period, Available, Granted, amount)])
}

/// A grant expires: its unburnt part lapses. Holds protect nothing.
pub fn expire(period: Window, unburnt: Amount) -> Vec<Movement> {
    list([change(period, Available, Lapsed, unburnt)])
}

/// A grant is taken back: its unburnt part is voided. Holds protect nothing.
pub fn void(period: Window, unburnt: Amount) -> Vec<Movement> {
    list([change(period, Available, Voided, unburnt)])
}

/// The plan includes `now` where it included `was`: the difference is granted, or voided as far as it is `available`.
pub fn change_included(period: Window, was: Amount, now: Amount, available: Decimal) -> Vec<Movement> {
    let left = Amount::from_decimal(available).unwrap_or(Amount::ZERO);
    let lowered = was.saturating_sub(now).min(left);
    [grant(period, now.saturating_sub(was)), void(period, lowered)].concat()
}

fn change(period: Window, credit: Account, debit: Account, amount: Amount) -> Option<Movement> {
    Movement::new(EntryClass::Grant, period, credit, debit, amount)
}
