//! Why a consume, release or extend does not change a reservation.

use super::ids::MeterId;

/// Why a call does not change a reservation, in order of precedence: of several reasons the first is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rejection {
    /// Resolved otherwise.
    AlreadyResolved,
    /// Expired, and the call cannot be taken (a release without anything incurred changes nothing).
    Expired,
    /// One amount was given for a reservation of several lines.
    AmountNeedsOneLine,
    /// A meter without a line.
    MeterNotReserved(MeterId),
    /// More decimals than the meter of this line has.
    TooPrecise(usize),
    /// Beyond the largest amount, at this line.
    TooLarge(usize),
    /// A total below what is consumed already, at this line.
    AmountDecreased(usize),
    /// Above the hold of a meter that refuses excess, at this line.
    ExcessRejected(usize),
}

impl Rejection {
    /// Whether it is told rather than `other`. Of two of one kind the earlier one is.
    pub fn precedes(&self, other: &Self) -> bool {
        std::mem::discriminant(self) != std::mem::discriminant(other) && self < other
    }
}
