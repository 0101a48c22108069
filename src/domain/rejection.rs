//! Why a consume, release or extend does not change a reservation.

use super::ids::MeterId;

/// Why a call does not change a reservation, in order of precedence: of several reasons the first is answered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rejection {
    /// It is resolved already, with another result.
    AlreadyResolved,
    /// It has expired, and the call is too late. A release without used units is not rejected: it changes nothing.
    Expired,
    /// One amount was given for a reservation of several lines.
    AmountNeedsOneLine,
    /// A meter without a line.
    MeterNotReserved(MeterId),
    /// It has more decimals than the meter of this line.
    TooPrecise(usize),
    /// It is beyond the largest amount, at this line.
    TooLarge(usize),
    /// The total is below what is consumed already, at this line.
    AmountDecreased(usize),
    /// It is above the hold of a meter that rejects excess, at this line.
    ExcessRejected(usize),
}

impl Rejection {
    /// Whether it is answered rather than `other`. Of two of the same kind, the first one is.
    pub fn precedes(&self, other: &Self) -> bool {
        std::mem::discriminant(self) != std::mem::discriminant(other) && self < other
    }
}
