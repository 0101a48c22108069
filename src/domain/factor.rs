//! Exact factors and weights, with arithmetic that fails when a result would not be exact.

use std::fmt;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::amount::{Amount, Decimals, InvalidAmount, UNITS_MAX, Units};

/// An exact factor or weight, zero or more, with at most 16 digits before and 12 after the point.
///
/// Read and written like an [`Amount`], but without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Factor(Amount);

impl Factor {
    /// Nothing.
    pub const ZERO: Self = Self(Amount::ZERO);
    /// The neutral factor.
    pub const ONE: Self = Self(Amount::ONE);

    /// Reads plain digits: `2`, `0.25`. No sign, exponent, space or NaN.
    pub fn parse(text: &str) -> Result<Self, InvalidAmount> {
        Amount::parse(text).map(Self)
    }

    /// The decimal.
    pub fn decimal(self) -> Decimal {
        self.0.decimal()
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.0.is_zero()
    }

    /// `units` times this factor, rounded down, at most [`UNITS_MAX`]: a larger capacity could never be reached.
    pub fn scale_down(self, units: Units) -> Units {
        let rate = self.decimal().normalize();
        let ten_to_scale = 10_i128.pow(rate.scale());
        let (whole, fraction) = (rate.mantissa() / ten_to_scale, rate.mantissa() % ten_to_scale);
        let units = i128::from(units.get());
        // In two parts, each far inside the range: 16 digits times 16, and 16 times 12.
        let scaled = units * whole + units * fraction / ten_to_scale;
        let bounded = i64::try_from(scaled).unwrap_or(UNITS_MAX).min(UNITS_MAX);
        Units::new(bounded).unwrap_or_default()
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// How a cost is rounded to its meter's decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// Up: a started unit is a unit.
    #[default]
    Up,
    /// Down.
    Down,
    /// To the nearest, a half up.
    HalfUp,
    /// To the nearest, a half to the even neighbour.
    HalfEven,
}

/// The product; none if it cannot be exact.
pub(crate) fn exact_product(left: Decimal, right: Decimal) -> Option<Decimal> {
    let (left, right) = (left.normalize(), right.normalize());
    if left.is_zero() || right.is_zero() {
        return Some(Decimal::ZERO);
    }
    // The library rounds a product that does not fit, and then keeps fewer decimals than the exact product has.
    let scale = left.scale() + right.scale();
    left.checked_mul(right).filter(|product| product.scale() == scale)
}

/// The sum; none if it cannot be exact.
pub(crate) fn exact_sum(left: Decimal, right: Decimal) -> Option<Decimal> {
    let (left, right) = (left.normalize(), right.normalize());
    match (left.is_zero(), right.is_zero()) {
        (true, _) => Some(right),
        (_, true) => Some(left),
        _ => {
            let scale = left.scale().max(right.scale());
            left.checked_add(right).filter(|sum| sum.scale() == scale)
        }
    }
}

/// A decimal of zero or more as whole smallest units, rounded; none beyond the largest amount.
pub(crate) fn round_to_units(value: Decimal, decimals: Decimals, rounding: Rounding) -> Option<Units> {
    let value = value.normalize();
    let kept = u32::from(decimals.count());
    let mantissa = value.mantissa();
    let units = if value.scale() <= kept {
        mantissa.checked_mul(10_i128.pow(kept - value.scale()))?
    } else {
        let divisor = 10_i128.pow(value.scale() - kept);
        let (whole, rest) = (mantissa / divisor, mantissa % divisor);
        let up = match rounding {
            Rounding::Up => rest > 0,
            Rounding::Down => false,
            Rounding::HalfUp => rest * 2 >= divisor,
            Rounding::HalfEven => rest * 2 > divisor || (rest * 2 == divisor && whole % 2 == 1),
        };
        whole + i128::from(up)
    };
    i64::try_from(units).ok().and_then(Units::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::from_str_exact(text).unwrap()
    }

    #[test]
    fn a_result_that_would_be_rounded_is_none() {
        let third = decimal("0.333333333333");
        assert_eq!(exact_product(third, decimal("3")), Some(decimal("0.999999999999")));
        let cubed = exact_product(third, third).and_then(|square| exact_product(square, third));
        assert_eq!(cubed, None);
        assert_eq!(
            exact_sum(decimal("9999999999999999.999999999999"), decimal("0.1")),
            Some(decimal("10000000000000000.099999999999"))
        );
        assert_eq!(exact_sum(Decimal::MAX, decimal("0.1")), None);
        assert_eq!(exact_sum(Decimal::MAX, Decimal::ONE), None);
    }

    #[test]
    fn rounding_goes_the_way_that_was_asked() {
        let cases = [
            ("1.001", [2, 1, 1, 1]),
            ("1.5", [2, 1, 2, 2]),
            ("2.5", [3, 2, 3, 2]),
            ("2.500001", [3, 2, 3, 3]),
            ("3", [3; 4]),
        ];
        for (text, expected) in cases {
            let ways = [Rounding::Up, Rounding::Down, Rounding::HalfUp, Rounding::HalfEven];
            for (way, units) in ways.into_iter().zip(expected) {
                let rounded = round_to_units(decimal(text), Decimals::default(), way).unwrap();
                assert_eq!(rounded.get(), units, "{text} {way:?}");
            }
        }
        assert_eq!(round_to_units(decimal("9000000000000000.1"), Decimals::default(), Rounding::Up), None);
    }

    proptest! {
        #[test]
        fn scaling_down_is_the_exact_quotient(units in 0..=UNITS_MAX, mantissa in 0..=10_i64.pow(12), scale in 0u32..=12) {
            let rate = Factor(Amount::from_decimal(Decimal::new(mantissa, scale)).unwrap());
            let expected = (i128::from(units) * i128::from(mantissa) / 10_i128.pow(scale)).min(i128::from(UNITS_MAX));
            prop_assert_eq!(i128::from(rate.scale_down(Units::new(units).unwrap()).get()), expected);
        }
    }
}
