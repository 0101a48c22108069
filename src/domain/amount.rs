//! Exact quantities: decimals for people and books, whole smallest units for the gate. Never floats.

use std::fmt;

use rust_decimal::Decimal;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::whole_number::whole_number;

/// The bound of every amount, capacity and sum at the gate: Lua numbers are doubles, exact up to 2^53.
pub const UNITS_MAX: i64 = 9_000_000_000_000_000;

const DECIMALS_MAX: u8 = 6;

/// How many decimals a meter has: 0 to 6. Fixed after the meter's first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(into = "u8")]
pub struct Decimals(u8);

impl Decimals {
    /// The number of decimals, if it is 0 to 6.
    pub fn new(count: u8) -> Option<Self> {
        (count <= DECIMALS_MAX).then_some(Self(count))
    }

    /// The number.
    pub fn count(self) -> u8 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Decimals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        whole_number(deserializer, 0..=DECIMALS_MAX).map(Self)
    }
}

impl From<Decimals> for u8 {
    fn from(decimals: Decimals) -> u8 {
        decimals.0
    }
}

/// Why a text or number is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAmount {
    /// Not plain decimal digits.
    #[error("must be a decimal number in plain digits, as a string, or a JSON integer")]
    Malformed,
    /// Below zero where only zero and above make sense.
    #[error("must not be negative")]
    Negative,
    /// More decimals than the meter has.
    #[error("has more decimals than the meter's {0}")]
    TooPrecise(u8),
    /// More decimals than any number here has.
    #[error("must have at most 12 decimals")]
    TooFine,
    /// Beyond [`UNITS_MAX`] smallest units.
    #[error("is beyond the largest amount, 9000000000000000 of the meter's smallest units")]
    TooLarge,
}

/// An exact amount of a meter's units as people write it: zero or more, at most 16 digits before and 12 after the
/// point.
///
/// On the way in a string of plain digits or a JSON integer; on the way out a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(Decimal);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(Decimal::ZERO);
    /// One unit.
    pub const ONE: Self = Self(Decimal::ONE);

    /// Reads plain digits: `120`, `0.5`. No sign, exponent, space, underscore or NaN.
    pub fn parse(text: &str) -> Result<Self, InvalidAmount> {
        if let Some(rest) = text.strip_prefix('-') {
            return Err(if is_plain(rest) { InvalidAmount::Negative } else { InvalidAmount::Malformed });
        }
        if !is_plain(text) {
            return Err(InvalidAmount::Malformed);
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if whole.trim_start_matches('0').len() > 16 {
            return Err(InvalidAmount::TooLarge);
        }
        if fraction.len() > 12 {
            return Err(InvalidAmount::TooFine);
        }
        Decimal::from_str_exact(text).map(|d| Self(d.normalize())).map_err(|_| InvalidAmount::Malformed)
    }

    /// An amount of whole units.
    pub fn from_integer(value: u64) -> Self {
        Self(Decimal::from(value))
    }

    /// An amount from an exact decimal; a negative one is refused.
    pub fn from_decimal(value: Decimal) -> Result<Self, InvalidAmount> {
        if value.is_sign_negative() && !value.is_zero() {
            return Err(InvalidAmount::Negative);
        }
        Ok(Self(value.normalize()))
    }

    /// The decimal.
    pub fn decimal(self) -> Decimal {
        self.0
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.0.is_zero()
    }

    /// The sum.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(Decimal::ZERO))
    }

    /// Converts to whole smallest units of a meter with `decimals` decimals; refuses an amount with more decimals or
    /// beyond the largest.
    pub fn to_units(self, decimals: Decimals) -> Result<Units, InvalidAmount> {
        let normal = self.0.normalize();
        let scale = u32::from(decimals.count());
        if normal.scale() > scale {
            return Err(InvalidAmount::TooPrecise(decimals.count()));
        }
        let factor = i128::from(10_i64.pow(scale - normal.scale()));
        let units = normal.mantissa().checked_mul(factor).ok_or(InvalidAmount::TooLarge)?;
        i64::try_from(units).ok().and_then(Units::new).ok_or(InvalidAmount::TooLarge)
    }

    /// Converts to whole smallest units, rounded down and at most [`UNITS_MAX`]: for a capacity, which must never be
    /// exceeded.
    pub fn floor_units(self, decimals: Decimals) -> Units {
        let floored = self.0.trunc_with_scale(u32::from(decimals.count()));
        Self(floored).to_units(decimals).unwrap_or(Units(UNITS_MAX))
    }

    /// The digits without the point and how many of them are decimals, without trailing zeros: `1.50` is (15, 1).
    pub fn mantissa_and_scale(self) -> Result<(i64, u8), InvalidAmount> {
        let normal = self.0.normalize();
        let mantissa = i64::try_from(normal.mantissa()).map_err(|_| InvalidAmount::TooLarge)?;
        if mantissa > UNITS_MAX {
            return Err(InvalidAmount::TooLarge);
        }
        Ok((mantissa, u8::try_from(normal.scale()).map_err(|_| InvalidAmount::TooLarge)?))
    }
}

/// Formats units that may be negative, as amounts are written.
pub fn signed_amount(units: i64, decimals: Decimals) -> String {
    Decimal::new(units, u32::from(decimals.count())).normalize().to_string()
}

fn is_plain(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    digits(whole) && digits(fraction) && text.len() <= 64
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.normalize(), f)
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AmountVisitor;
        impl Visitor<'_> for AmountVisitor {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a decimal number as a string, or an integer")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
                Amount::parse(text).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Amount, E> {
                if value < (1 << 53) {
                    Ok(Amount::from_integer(value))
                } else {
                    Err(E::custom("an integer beyond 2^53-1 must be written as a string"))
                }
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Amount, E> {
                u64::try_from(value)
                    .map_err(|_| E::custom(InvalidAmount::Negative))
                    .and_then(|v| self.visit_u64(v))
            }
        }
        deserializer.deserialize_any(AmountVisitor)
    }
}

/// Whole smallest units of a meter, 0 to [`UNITS_MAX`]: what the gate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Units(i64);

impl Units {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The smallest positive number of units.
    pub const ONE: Self = Self(1);
    /// The most.
    pub const MAX: Self = Self(UNITS_MAX);
    /// Half of the most.
    pub const HALF_MAX: Self = Self(UNITS_MAX / 2);

    /// The units, if they are 0 to [`UNITS_MAX`].
    pub fn new(value: i64) -> Option<Self> {
        (0..=UNITS_MAX).contains(&value).then_some(Self(value))
    }

    /// The number.
    pub fn get(self) -> i64 {
        self.0
    }

    /// Converts to an exact amount of a meter with `decimals` decimals.
    pub fn to_amount(self, decimals: Decimals) -> Amount {
        Amount(Decimal::new(self.0, u32::from(decimals.count())).normalize())
    }

    /// The sum; none beyond the bound.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).and_then(Self::new)
    }

    /// The difference, at least zero.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self((self.0 - other.0).max(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_digits_are_amounts() {
        for bad in [
            "", " 5", "5 ", "+5", "1e3", "1_000", "NaN", "inf", "0x10", "٣", ".5", "5.", "1.2.3", "1,5",
            "--1",
        ] {
            assert_eq!(Amount::parse(bad), Err(InvalidAmount::Malformed), "{bad:?}");
        }
        assert_eq!(Amount::parse("-5"), Err(InvalidAmount::Negative));
        assert_eq!(Amount::parse(&"9".repeat(60)), Err(InvalidAmount::TooLarge));
        assert_eq!(Amount::parse("007.50").unwrap().to_string(), "7.5");
    }

    #[test]
    fn json_takes_strings_and_integers_only() {
        let read = |json: &str| serde_json::from_str::<Amount>(json);
        assert_eq!(read("\"2.5\"").unwrap().to_string(), "2.5");
        assert_eq!(read("9007199254740991").unwrap().to_string(), "9007199254740991");
        for bad in ["9007199254740992", "2.5", "1e3", "-1", "null", "true", "[]", "\"-1\"", "1e999"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn units_are_exact_or_refused() {
        let decimals = Decimals::new(2).unwrap();
        let units = |text: &str| Amount::parse(text).unwrap().to_units(decimals);
        assert_eq!(units("1.25").unwrap().get(), 125);
        assert_eq!(units("1.250").unwrap().get(), 125);
        assert_eq!(units("1.255"), Err(InvalidAmount::TooPrecise(2)));
        assert_eq!(units("90000000000000").unwrap().get(), UNITS_MAX);
        assert_eq!(units("90000000000000.01"), Err(InvalidAmount::TooLarge));
        assert_eq!(Units::new(125).unwrap().to_amount(decimals).to_string(), "1.25");
    }
}
