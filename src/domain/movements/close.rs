//! The close of a period, in this order: holds are carried over, what is unused rolls over or lapses, overage is
//! settled and, where it is preserved, repaid. Then nothing is available or reserved in it.

use rust_decimal::Decimal;

use super::{Account, EntryClass, Movement, list};
use crate::domain::amount::Amount;
use crate::domain::period::Window;
use Account::{
    Available, CarriedIn, CarriedOut, Granted, Lapsed, Overage, Repaid, Reserved, RolledIn, RolledOut,
};

/// Open holds of `reserved` go over to the period `next`. Those that pushed `available` below zero are charged to it:
/// they return in the closing period and are reserved again.
pub fn carry_holds(period: Window, next: Window, reserved: Amount, available: Decimal) -> Vec<Movement> {
    let pushed = overage(available).min(reserved);
    let carried = reserved.saturating_sub(pushed);
    list([
        closing(period, Reserved, Available, pushed),
        closing(next, Available, Reserved, pushed),
        closing(period, Reserved, CarriedOut, carried),
        closing(next, CarriedIn, Reserved, carried),
    ])
}

/// Of all that is `unused` of a period, `rolled` goes on to the next one, which is granted `added` beside it; the rest
/// lapses.
pub fn go_on(
    period: Window,
    next: Window,
    unused: Amount,
    (rolled, added): (Amount, Amount),
) -> Vec<Movement> {
    list([
        closing(period, Available, RolledOut, rolled),
        closing(period, Available, Lapsed, unused.saturating_sub(rolled)),
        closing(next, RolledIn, Available, rolled),
        closing(next, Granted, Available, added),
    ])
}

/// What is `available` once no hold is open: what is unused lapses, what was used beyond the quota becomes overage.
pub fn settle(period: Window, available: Decimal) -> Vec<Movement> {
    let unused = Amount::from_decimal(available).unwrap_or(Amount::ZERO);
    [list([closing(period, Available, Lapsed, unused)]), settle_overage(period, available)].concat()
}

/// What was used beyond the quota, the negative part of `available`, becomes overage.
pub fn settle_overage(period: Window, available: Decimal) -> Vec<Movement> {
    list([closing(period, Overage, Available, overage(available))])
}

/// The `next` period pays for preserved overage of the one before, at most what it opened with.
pub fn repay_overage(next: Window, overage: Amount, opened_with: Amount) -> Vec<Movement> {
    list([closing(next, Available, Repaid, overage.min(opened_with))])
}

/// `returned` units of a carried hold come back in the period that they were carried to. First they make up for what is
/// `owed` to what is available there: holds that pushed the closed period below zero. The rest is available as far as
/// its grant would have rolled it over, had it been unused then beside `unused`; what is left lapses.
pub fn return_carried(
    next: Window,
    returned: Amount,
    owed: Amount,
    unused: Amount,
    rollover: impl Fn(Amount) -> Amount,
) -> Vec<Movement> {
    let refilled = returned.min(owed);
    let rest = returned.saturating_sub(refilled);
    let kept = rollover(unused.plus(rest)).saturating_sub(rollover(unused)).min(rest);
    let mut movements = list([
        closing(next, Reserved, Available, refilled),
        closing(next, Reserved, Available, kept),
        closing(next, Reserved, Lapsed, rest.saturating_sub(kept)),
    ]);
    movements.iter_mut().for_each(|movement| movement.flags.carried = true);
    movements
}

fn overage(available: Decimal) -> Amount {
    Amount::from_decimal(-available).unwrap_or(Amount::ZERO)
}

fn closing(period: Window, credit: Account, debit: Account, amount: Amount) -> Option<Movement> {
    Movement::new(EntryClass::Period, period, credit, debit, amount)
}
