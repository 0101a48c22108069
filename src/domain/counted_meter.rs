//! What a counter counts of a meter: of a budget's meters each by its factor, of its only one each unit once.

use super::amount::Decimals;
use super::ids::MeterId;

/// A meter that a counter counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedMeter {
    /// The meter.
    pub meter: MeterId,
    /// Its own decimals, which may differ from its budget's.
    pub decimals: Decimals,
    /// How many units of the counter one smallest unit of it is.
    pub factor: i64,
}

impl CountedMeter {
    /// Every meter of a counter: those of its budget, or where it has none this one, in its own units.
    pub fn all(budget: Option<&[Self]>, meter: &MeterId, decimals: Decimals) -> Vec<Self> {
        match budget {
            Some(meters) => meters.to_vec(),
            None => vec![Self { meter: meter.clone(), decimals, factor: 1 }],
        }
    }
}
