//! What a limit counts: one meter, or a budget of several with weights.

use std::collections::BTreeMap;

use rust_decimal::Decimal;

use super::amount::{Decimals, UNITS_MAX};
use super::factor::{Factor, exact_product};
use super::ids::MeterId;

/// What a limit counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limited {
    /// One meter, in its own units.
    Meter(MeterId),
    /// Several, each by how much one of it counts.
    Budget {
        /// The meters, at least one, and their weights.
        meters: BTreeMap<MeterId, Factor>,
        /// The decimals of the budget's own unit.
        decimals: Decimals,
    },
}

impl Limited {
    /// The meters, sorted.
    pub fn meters(&self) -> impl Iterator<Item = &MeterId> {
        let (one, several) = match self {
            Self::Meter(meter) => (Some(meter), None),
            Self::Budget { meters, .. } => (None, Some(meters.keys())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// Whether it counts several meters by weight.
    pub fn is_budget(&self) -> bool {
        matches!(self, Self::Budget { .. })
    }

    /// The decimals in which it counts, from those of the meters; none where its only meter does not exist.
    pub fn decimals(&self, of_meter: impl Fn(&MeterId) -> Option<Decimals>) -> Option<Decimals> {
        match self {
            Self::Meter(meter) => of_meter(meter),
            Self::Budget { decimals, .. } => Some(*decimals),
        }
    }

    /// How many of its units one smallest unit of a meter with these decimals counts; none for a meter that it does not
    /// count, and where that is not a whole number from 1 to the largest amount.
    pub fn factor(&self, meter: &MeterId, of_meter: Decimals) -> Option<i64> {
        match self {
            Self::Meter(only) => (only == meter).then_some(1),
            Self::Budget { meters, decimals } => {
                let weight = meters.get(meter)?.decimal();
                let (more, less) = (u32::from(decimals.count()), u32::from(of_meter.count()));
                let factor = match more >= less {
                    true => exact_product(weight, Decimal::from(10_i64.pow(more - less)))?,
                    false => exact_product(weight, Decimal::new(1, less - more))?,
                };
                let whole = factor.normalize();
                let units = i64::try_from(whole.mantissa()).ok().filter(|_| whole.scale() == 0)?;
                (1..=UNITS_MAX).contains(&units).then_some(units)
            }
        }
    }

    /// The words that make it another counter when they change.
    pub fn signature(&self) -> Vec<String> {
        match self {
            Self::Meter(meter) => vec![meter.to_string()],
            Self::Budget { meters, decimals } => {
                let weight = |(meter, weight): (&MeterId, &Factor)| {
                    [meter.to_string(), weight.decimal().normalize().to_string()]
                };
                let words = ["budget".to_owned(), decimals.count().to_string()];
                words.into_iter().chain(meters.iter().flat_map(weight)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factor(weight: &str, of_budget: u8, of_meter: u8) -> Option<i64> {
        let meter = MeterId::parse("a").unwrap();
        let meters = BTreeMap::from([(meter.clone(), Factor::parse(weight).unwrap())]);
        let budget = Limited::Budget { meters, decimals: Decimals::new(of_budget).unwrap() };
        budget.factor(&meter, Decimals::new(of_meter).unwrap())
    }

    #[test]
    fn a_factor_is_the_weight_in_smallest_units_and_whole() {
        assert_eq!(
            [factor("1", 0, 0), factor("0.2", 1, 0), factor("0.2", 3, 2)],
            [Some(1), Some(2), Some(2)]
        );
        assert_eq!([factor("100", 0, 2), factor("1.5", 1, 0)], [Some(1), Some(15)]);
        assert_eq!([factor("0.2", 0, 0), factor("1", 0, 1), factor("0", 6, 0)], [None; 3]);
        assert_eq!(factor("9000000000000000", 0, 0), Some(UNITS_MAX));
        assert_eq!(factor("9000000000000000", 1, 0), None);
        assert_eq!(
            Limited::Meter(MeterId::parse("b").unwrap())
                .factor(&MeterId::parse("a").unwrap(), Decimals::default()),
            None
        );
    }
}
