//! Amounts that may be below zero: what corrects another one.

use std::fmt;

use rust_decimal::Decimal;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::amount::{Amount, InvalidAmount};

/// An exact amount of a meter's units, above or below zero, with the digits of an [`Amount`].
///
/// On the way in a string of plain digits, with `-` before them or not, or a JSON integer; on the way out a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SignedAmount(Decimal);

impl SignedAmount {
    /// Reads plain digits, or `-` and plain digits.
    pub fn parse(text: &str) -> Result<Self, InvalidAmount> {
        let Some(digits) = text.strip_prefix('-') else { return Ok(Self(Amount::parse(text)?.decimal())) };
        match Amount::parse(digits) {
            Ok(size) => Ok(Self(-size.decimal())),
            Err(InvalidAmount::Negative) => Err(InvalidAmount::Malformed),
            Err(error) => Err(error),
        }
    }

    /// This exact decimal.
    pub fn from_decimal(value: Decimal) -> Self {
        Self(value.normalize())
    }

    /// The decimal.
    pub fn decimal(self) -> Decimal {
        self.0
    }

    /// How far it is from zero.
    pub fn size(self) -> Amount {
        Amount::from_decimal(self.0.abs()).unwrap_or_default()
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.0.is_zero()
    }

    /// Whether it is below zero.
    pub fn is_negative(self) -> bool {
        self.0 < Decimal::ZERO
    }
}

impl fmt::Display for SignedAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.normalize(), f)
    }
}

impl Serialize for SignedAmount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SignedAmount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SignedVisitor;
        impl Visitor<'_> for SignedVisitor {
            type Value = SignedAmount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a decimal number as a string, or an integer")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<SignedAmount, E> {
                SignedAmount::parse(text).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<SignedAmount, E> {
                if value < (1 << 53) {
                    Ok(SignedAmount(Decimal::from(value)))
                } else {
                    Err(E::custom("an integer beyond 2^53-1 must be written as a string"))
                }
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<SignedAmount, E> {
                let SignedAmount(size) = self.visit_u64(value.unsigned_abs())?;
                Ok(SignedAmount(if value < 0 { -size } else { size }))
            }
        }
        deserializer.deserialize_any(SignedVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_goes_before_plain_digits_and_nothing_else_does() {
        let read = |json: &str| serde_json::from_str::<SignedAmount>(json).map(|amount| amount.to_string());
        for (json, written) in
            [("\"-2.50\"", "-2.5"), ("\"3\"", "3"), ("-4", "-4"), ("5", "5"), ("\"-0\"", "0")]
        {
            assert_eq!(read(json).unwrap(), written);
        }
        for bad in ["\"--1\"", "\"+1\"", "\"- 1\"", "\"-\"", "-9007199254740992", "-1.5", "null", "\"1e3\""] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let below = SignedAmount::parse("-7").unwrap();
        assert!(below.is_negative() && !below.is_zero());
        assert_eq!(below.size(), Amount::from_integer(7));
    }
}
