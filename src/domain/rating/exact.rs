//! Exact arithmetic between quantities and money: whole numbers of 128 bits, rounded once at the end.
//!
//! A decimal of the library holds 28 digits and rounds beyond them without a word; a quantity times a rate may have
//! more.

use rust_decimal::Decimal;

use crate::domain::amount::Amount;
use crate::domain::factor::Factor;
use crate::domain::money::{Currency, Money, PercentRate};

const QUANTITY_DECIMALS: u32 = 6;
const RATE_DECIMALS: u32 = 12;
const MONEY_DECIMALS: u32 = QUANTITY_DECIMALS + RATE_DECIMALS;

/// A quantity in millionths of a unit, zero or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quantity(i128);

impl Quantity {
    pub(super) const ZERO: Self = Self(0);

    /// The quantity, if it has at most six decimals.
    pub(super) fn of(amount: Amount) -> Option<Self> {
        scaled(amount.decimal(), QUANTITY_DECIMALS).map(Self)
    }

    pub(super) fn amount(self) -> Option<Amount> {
        let decimal = Decimal::try_from_i128_with_scale(self.0, QUANTITY_DECIMALS).ok()?;
        Amount::from_decimal(decimal).ok()
    }

    /// What is left after taking `other`, at least nothing.
    pub(super) fn saturating_sub(self, other: Self) -> Self {
        Self((self.0 - other.0).max(0))
    }

    /// How many packages of `size`, which is not zero, hold it.
    pub(super) fn packages(self, size: Self) -> i128 {
        let (full, rest) = (self.0 / size.0, self.0 % size.0);
        full + i128::from(rest > 0)
    }

    /// What it costs at `rate` a unit.
    pub(super) fn at(self, rate: Factor) -> Option<ExactMoney> {
        let rate = scaled(rate.decimal(), RATE_DECIMALS)?;
        self.0.checked_mul(rate).map(ExactMoney)
    }
}

/// An amount of money before it is rounded, in 10⁻¹⁸ of the currency's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExactMoney(i128);

impl ExactMoney {
    pub(super) const ZERO: Self = Self(0);

    /// So many times `rate`.
    pub(super) fn times(count: i128, rate: Factor) -> Option<Self> {
        scaled(rate.decimal(), MONEY_DECIMALS)?.checked_mul(count).map(Self)
    }

    pub(super) fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// In whole minor units of `currency`, half to even.
    pub(super) fn round(self, currency: Currency) -> Option<Money> {
        let divisor = 10_i128.pow(MONEY_DECIMALS - u32::from(currency.decimals()));
        let minor_units = i64::try_from(divide_half_even(self.0, divisor)?).ok()?;
        Some(currency.money(minor_units))
    }

    /// All of its digits, without zeros at the end.
    pub(super) fn text(self) -> String {
        let unit = 10_i128.pow(MONEY_DECIMALS);
        let fraction = format!("{:018}", self.0 % unit);
        match fraction.trim_end_matches('0') {
            "" => (self.0 / unit).to_string(),
            digits => format!("{}.{digits}", self.0 / unit),
        }
    }
}

/// A share of an amount, in whole minor units, half to even.
pub(super) fn share(currency: Currency, percent: PercentRate, of: Money) -> Option<Money> {
    let percent = scaled(percent.rate().decimal(), RATE_DECIMALS)?;
    let exact = i128::from(of.minor_units()).checked_mul(percent)?;
    let minor_units = divide_half_even(exact, 100 * 10_i128.pow(RATE_DECIMALS))?;
    Some(currency.money(i64::try_from(minor_units).ok()?))
}

/// The share of `part` in `whole` of an amount, in whole minor units, half to even; none of a whole that is zero.
pub(super) fn proportion(currency: Currency, of: Money, part: Amount, whole: Amount) -> Option<Money> {
    let (part, whole) = (part.decimal().normalize(), whole.decimal().normalize());
    let decimals = part.scale().max(whole.scale());
    let (part, whole) = (scaled(part, decimals)?, scaled(whole, decimals)?);
    let exact = i128::from(of.minor_units()).checked_mul(part)?;
    let minor_units = (whole > 0).then(|| divide_half_even(exact, whole))??;
    Some(currency.money(i64::try_from(minor_units).ok()?))
}

/// A decimal of zero or more as a whole number of 10^-`decimals`; none where it has more decimals or is too large.
fn scaled(decimal: Decimal, decimals: u32) -> Option<i128> {
    let normal = decimal.normalize();
    let missing = decimals.checked_sub(normal.scale())?;
    normal.mantissa().checked_mul(10_i128.pow(missing))
}

/// The quotient by a positive divisor: a half goes to the even neighbour.
fn divide_half_even(dividend: i128, divisor: i128) -> Option<i128> {
    let (whole, rest) = (dividend.div_euclid(divisor), dividend.rem_euclid(divisor));
    // From the floor, up: beyond the half, and at the half where the floor is odd.
    let doubled = rest.checked_mul(2)?;
    let up = doubled > divisor || (doubled == divisor && whole % 2 != 0);
    whole.checked_add(i128::from(up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_goes_to_the_even_neighbour_on_both_sides_of_zero() {
        for (dividend, quotient) in [
            (5, 0),
            (15, 2),
            (25, 2),
            (35, 4),
            (26, 3),
            (24, 2),
            (-5, 0),
            (-15, -2),
            (-25, -2),
            (-26, -3),
            (0, 0),
        ] {
            assert_eq!(divide_half_even(dividend, 10), Some(quotient), "{dividend}");
        }
        assert_eq!(divide_half_even(i128::MIN, 1), Some(i128::MIN));
    }

    #[test]
    fn exact_money_is_written_with_all_of_its_digits() {
        let at = |quantity: &str, rate: &str| {
            let quantity = Quantity::of(Amount::parse(quantity).unwrap()).unwrap();
            quantity.at(Factor::parse(rate).unwrap()).map(ExactMoney::text)
        };
        assert_eq!(at("1000", "0.02").unwrap(), "20");
        assert_eq!(at("0.000001", "0.000000000001").unwrap(), "0.000000000000000001");
        // 16 digits times 16: more than a decimal of the library holds.
        assert_eq!(
            at("9000000000.000001", "1234.123456789012").unwrap(),
            "11107111111101.109234123456789012"
        );
        assert_eq!(at("9000000000000000", "9999999999999999"), None);
        assert_eq!(Quantity::of(Amount::parse("0.0000001").unwrap()), None);
    }
}
