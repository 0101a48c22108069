//! Movements of the gate: reserve, consume, release, expiry, usage.

use super::{Account, EntryClass, EntryFlags, Movement, list};
use crate::domain::amount::Amount;
use crate::domain::period::Window;
use Account::{Available, Consumed, Reserved};

/// A reserve holds `held`: the amount asked for, or the part of it that was granted.
pub fn reserve(period: Window, held: Amount) -> Vec<Movement> {
    list([usage_of(period, Available, Reserved, held)])
}

/// A consume, partial or final, a release or an expiry: `ended` of the hold ends, and the consumed total rises by
/// `rise`. The rise is taken from what ends of the hold, then from what is available; what else ends is returned.
pub fn change(period: Window, ended: Amount, rise: Amount) -> Vec<Movement> {
    let from_hold = rise.min(ended);
    let excess = EntryFlags { excess: true, ..EntryFlags::default() };
    list([
        usage_of(period, Reserved, Consumed, from_hold),
        flagged(usage_of(period, Available, Consumed, rise.saturating_sub(from_hold)), excess),
        usage_of(period, Reserved, Available, ended.saturating_sub(from_hold)),
    ])
}

/// A consume after expiry, which has ended the hold. `ended` is what the books still hold if the expiry's own event was
/// lost.
pub fn late_consume(period: Window, ended: Amount, rise: Amount) -> Vec<Movement> {
    let late = EntryFlags { late: true, ..EntryFlags::default() };
    list([
        flagged(usage_of(period, Available, Consumed, rise), late),
        usage_of(period, Reserved, Available, ended),
    ])
}

/// Work without a hold.
pub fn usage(period: Window, consumed: Amount) -> Vec<Movement> {
    list([usage_of(period, Available, Consumed, consumed)])
}

/// The same movements for a reservation that a call changed while the gate was away.
pub fn degraded(mut movements: Vec<Movement>) -> Vec<Movement> {
    movements.iter_mut().for_each(|movement| movement.flags.degraded = true);
    movements
}

/// The same movements for a reservation whose hold was carried to the period `next`, and how much of the hold returns.
/// Where the returned part goes depends on what its grant may keep ([`super::close::return_carried`]).
pub fn carried(movements: Vec<Movement>, next: Window) -> (Vec<Movement>, Amount) {
    let (mut moved, returned) = without_return(movements);
    for movement in &mut moved {
        movement.period = next;
        movement.flags.carried = true;
    }
    (moved, returned)
}

/// The same movements for a closed period: booked in the tenant's open one, as a correction. What they return of a hold
/// is returned apart, as for [`carried`].
pub fn corrected(movements: Vec<Movement>, open: Window) -> (Vec<Movement>, Amount) {
    let (mut moved, returned) = without_return(movements);
    for movement in &mut moved {
        movement.period = open;
        movement.class = EntryClass::Correction;
    }
    (moved, returned)
}

/// The movements but for what they return of a hold, and how much that is.
fn without_return(movements: Vec<Movement>) -> (Vec<Movement>, Amount) {
    let is_return = |movement: &Movement| (movement.credit, movement.debit) == (Reserved, Available);
    let (returned, moved): (Vec<_>, Vec<_>) = movements.into_iter().partition(is_return);
    (moved, returned.first().map_or(Amount::ZERO, |movement| movement.amount))
}

fn usage_of(period: Window, credit: Account, debit: Account, amount: Amount) -> Option<Movement> {
    Movement::new(EntryClass::Usage, period, credit, debit, amount)
}

fn flagged(movement: Option<Movement>, flags: EntryFlags) -> Option<Movement> {
    movement.map(|movement| Movement { flags, ..movement })
}
