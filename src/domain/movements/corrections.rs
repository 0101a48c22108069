//! Usage that was recorded wrongly.

use super::{Account, EntryClass, EntryFlags, Movement, list};
use crate::domain::amount::Amount;
use crate::domain::period::Window;
use Account::{Adjusted, Available, Consumed};

/// In an open period, usage of `was` is taken back and usage of `now` is recorded. The gate does both, so both are
/// usage.
pub fn in_open_period(period: Window, was: Amount, now: Amount) -> Vec<Movement> {
    let flags = EntryFlags { corrected: true, ..EntryFlags::default() };
    let moved = list([
        Movement::new(EntryClass::Usage, period, Consumed, Available, was),
        Movement::new(EntryClass::Usage, period, Available, Consumed, now),
    ]);
    moved.into_iter().map(|movement| Movement { flags, ..movement }).collect()
}

/// For a closed period, the difference is booked in the `open` one, apart from its allowance.
pub fn in_closed_period(open: Window, was: Amount, now: Amount) -> Vec<Movement> {
    list([
        Movement::new(EntryClass::Correction, open, Consumed, Adjusted, was.saturating_sub(now)),
        Movement::new(EntryClass::Correction, open, Adjusted, Consumed, now.saturating_sub(was)),
    ])
}

/// The same for what was consumed of a hold after it was carried on: the gate never counted that.
pub fn of_carried_hold(open: Window, was: Amount, now: Amount) -> Vec<Movement> {
    let flags = EntryFlags { carried: true, ..EntryFlags::default() };
    in_closed_period(open, was, now).into_iter().map(|movement| Movement { flags, ..movement }).collect()
}
