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

/// The allowance is lowered by `amount`: voids grants, of which `unburnt` is left in burn order, from the one that
/// burns last, until they make up the amount or nothing is left of them.
pub fn lower_allowance(period: Window, amount: Amount, unburnt: &[Amount]) -> Vec<Movement> {
    let mut missing = amount;
    let voided = unburnt.iter().rev().flat_map(|unburnt| {
        let voided = missing.min(*unburnt);
        missing = missing.saturating_sub(voided);
        void(period, voided)
    });
    voided.collect()
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
