//! Money: currencies, rates in percent, and amounts in whole minor units. Never a float.

use std::fmt;

use rust_decimal::Decimal;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::amount::{Amount, InvalidAmount};
use super::factor::Factor;
use super::field_error::about;

/// The most minor units of one amount that somebody names: hundreds of them still add up to what the books hold.
const MINOR_UNITS_MAX: i64 = 9_000_000_000_000_000;

/// Codes of ISO 4217 whose currencies have no minor unit.
const WITHOUT_DECIMALS: &str = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF";
/// Codes of ISO 4217 whose minor unit is a thousandth.
const WITH_THREE_DECIMALS: &str = "BHD IQD JOD KWD LYD OMR TND";
/// Codes of ISO 4217 whose minor unit is a hundredth.
const WITH_TWO_DECIMALS: &str = "\
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC \
    CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD \
    KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO \
    NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL \
    THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG";

/// A currency of ISO 4217 with 0, 2 or 3 decimals, by its code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub struct Currency {
    code: &'static str,
    decimals: u8,
}

/// A text is not the code of a currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be the code of a currency of ISO 4217 with 0, 2 or 3 decimals, in capital letters, such as EUR"
)]
pub struct UnknownCurrency;

impl Currency {
    /// The currency of this code.
    pub fn parse(code: &str) -> Result<Self, UnknownCurrency> {
        let of = |codes: &'static str, decimals: u8| {
            let code = codes.split_ascii_whitespace().find(|known| *known == code)?;
            Some(Self { code, decimals })
        };
        of(WITH_TWO_DECIMALS, 2)
            .or_else(|| of(WITHOUT_DECIMALS, 0))
            .or_else(|| of(WITH_THREE_DECIMALS, 3))
            .ok_or(UnknownCurrency)
    }

    /// Its code.
    pub fn code(self) -> &'static str {
        self.code
    }

    /// How many decimals its amounts have.
    pub fn decimals(self) -> u8 {
        self.decimals
    }

    /// So many of its minor units.
    pub fn money(self, minor_units: i64) -> Money {
        Money(Decimal::new(minor_units, u32::from(self.decimals)))
    }

    /// An amount of it with any sign, whatever zeros the decimal ends with.
    ///
    /// # Errors
    /// It has more decimals than the currency, or is too large.
    pub fn signed_money(self, decimal: Decimal) -> Result<Money, InvalidMoney> {
        let mut scaled = decimal;
        scaled.rescale(u32::from(self.decimals));
        if scaled == decimal { Money::try_from(scaled) } else { Err(InvalidMoney) }
    }

    /// An amount of it.
    ///
    /// # Errors
    /// It has more decimals than the currency, or is too large.
    pub fn exact_money(self, amount: Amount) -> Result<Money, InvalidAmount> {
        let scale = u32::from(self.decimals);
        let normal = amount.decimal().normalize();
        if normal.scale() > scale {
            return Err(InvalidAmount::TooPrecise(self.decimals));
        }
        let minor_units = normal.mantissa().checked_mul(10_i128.pow(scale - normal.scale()));
        let minor_units = minor_units.and_then(|units| i64::try_from(units).ok());
        let bounded = minor_units.filter(|units| *units <= MINOR_UNITS_MAX);
        bounded.map(|units| self.money(units)).ok_or(InvalidAmount::TooLarge)
    }

    /// An amount of it, of the field `name`.
    ///
    /// # Errors
    /// What is wrong with the field, as for [`Self::exact_money`].
    pub fn money_of(self, name: &str, amount: Amount) -> Result<Money, String> {
        self.exact_money(amount).map_err(|error| match error {
            InvalidAmount::TooLarge => {
                format!("`{name}` must be at most {} {self}", self.money(MINOR_UNITS_MAX))
            }
            _ => {
                let decimals = self.decimals;
                format!("`{name}` must be an amount of {self} with at most {decimals} decimals")
            }
        })
    }

    /// The same in a decoder, whose message names the field.
    pub(super) fn money_in(self, name: &str, amount: Amount) -> Result<Money, String> {
        self.money_of(name, amount).map_err(|message| about(name, message))
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let code = String::deserialize(deserializer)?;
        Self::parse(&code).map_err(D::Error::custom)
    }
}

impl From<Currency> for &'static str {
    fn from(currency: Currency) -> &'static str {
        currency.code
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

/// An amount of one currency, below zero where it is owed back: whole minor units, as a decimal with all of the
/// currency's decimals. The currency stands beside it, once for a whole statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Decimal", into = "Decimal")]
pub struct Money(Decimal);

/// A decimal is not an amount of money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be an amount of money with 0, 2 or 3 decimals, at most 9223372036854775807 of its smallest units"
)]
pub struct InvalidMoney;

impl TryFrom<Decimal> for Money {
    type Error = InvalidMoney;
    fn try_from(decimal: Decimal) -> Result<Self, InvalidMoney> {
        let is_whole = i64::try_from(decimal.mantissa()).is_ok();
        if is_whole && matches!(decimal.scale(), 0 | 2 | 3) { Ok(Self(decimal)) } else { Err(InvalidMoney) }
    }
}

impl From<Money> for Decimal {
    fn from(money: Money) -> Self {
        money.0
    }
}

impl Money {
    /// The decimal.
    pub fn decimal(self) -> Decimal {
        self.0
    }

    /// How many minor units it is.
    pub fn minor_units(self) -> i64 {
        // Each is made of an i64 of minor units.
        i64::try_from(self.0.mantissa()).unwrap_or_default()
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.0.is_zero()
    }

    /// Whether it is owed back.
    pub fn is_negative(self) -> bool {
        self.minor_units() < 0
    }

    /// The sum of two amounts of one currency; none where it is too large, or their currencies have other decimals.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.of_same_decimals(other)?;
        self.with(self.minor_units().checked_add(other.minor_units())?)
    }

    /// The difference of two amounts of one currency; none where it is too large, or as for the sum.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.of_same_decimals(other)?;
        self.with(self.minor_units().checked_sub(other.minor_units())?)
    }

    /// The same amount with the other sign; none for the one amount that has no opposite.
    pub fn checked_neg(self) -> Option<Self> {
        self.with(self.minor_units().checked_neg()?)
    }

    fn of_same_decimals(self, other: Self) -> Option<()> {
        (self.0.scale() == other.0.scale()).then_some(())
    }

    fn with(self, minor_units: i64) -> Option<Self> {
        Some(Self(Decimal::new(minor_units, self.0.scale())))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A share in percent, 0 to 100, with at most 12 decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Factor", into = "Factor")]
pub struct PercentRate(Factor);

impl PercentRate {
    /// The rate as it is written: 19 stands for 19 %.
    pub fn rate(self) -> Factor {
        self.0
    }
}

impl TryFrom<Factor> for PercentRate {
    type Error = &'static str;
    fn try_from(rate: Factor) -> Result<Self, &'static str> {
        if rate.decimal() <= Decimal::ONE_HUNDRED {
            Ok(Self(rate))
        } else {
            Err("must be at most 100 percent")
        }
    }
}

impl From<PercentRate> for Factor {
    fn from(percent: PercentRate) -> Factor {
        percent.0
    }
}

impl fmt::Display for PercentRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn currency(code: &str) -> Currency {
        Currency::parse(code).unwrap()
    }

    #[test]
    fn a_currency_has_the_decimals_of_the_standard() {
        for (code, decimals) in [("EUR", 2), ("USD", 2), ("JPY", 0), ("KRW", 0), ("KWD", 3), ("TND", 3)] {
            assert_eq!(currency(code).decimals(), decimals, "{code}");
        }
        // Not a code; funds and units of account; four decimals; metals.
        for code in ["", "eur", "EURO", "EU", "AAA", "XDR", "CLF", "UYW", "XAU", " EUR", "EUR "] {
            assert_eq!(Currency::parse(code), Err(UnknownCurrency), "{code}");
        }
    }

    #[test]
    fn no_code_is_listed_twice() {
        let lists = [WITH_TWO_DECIMALS, WITHOUT_DECIMALS, WITH_THREE_DECIMALS];
        let mut codes: Vec<_> = lists.iter().flat_map(|list| list.split_ascii_whitespace()).collect();
        assert!(codes.iter().all(|code| code.len() == 3));
        let listed = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), listed);
    }

    #[test]
    fn money_is_written_with_all_decimals_of_its_currency() {
        for (code, minor_units, text) in [
            ("EUR", 2500, "25.00"),
            ("EUR", -5, "-0.05"),
            ("EUR", 0, "0.00"),
            ("JPY", 2500, "2500"),
            ("KWD", 2500, "2.500"),
            ("EUR", i64::MAX, "92233720368547758.07"),
        ] {
            let money = currency(code).money(minor_units);
            assert_eq!(money.to_string(), text);
            assert_eq!(serde_json::to_string(&money).unwrap(), format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Money>(&format!("\"{text}\"")).unwrap().to_string(), text);
            assert_eq!(money.minor_units(), minor_units);
        }
    }

    #[test]
    fn a_sum_beyond_the_largest_amount_is_none() {
        let (largest, least) = (currency("EUR").money(i64::MAX), currency("EUR").money(i64::MIN));
        assert_eq!(largest.checked_add(currency("EUR").money(1)), None);
        assert_eq!(least.checked_sub(currency("EUR").money(1)), None);
        assert_eq!(least.checked_neg(), None);
        assert_eq!(largest.checked_add(least), Some(currency("EUR").money(-1)));
    }

    #[test]
    fn money_of_other_decimals_or_too_large_is_not_read_and_not_added() {
        for wrong in ["1.5", "1.0000", "9223372036854775808", "92233720368547758.08"] {
            assert!(serde_json::from_str::<Money>(&format!("\"{wrong}\"")).is_err(), "{wrong}");
        }
        let (whole, cents) = (currency("JPY").money(25), currency("EUR").money(100));
        assert_eq!((whole.checked_add(cents), whole.checked_sub(cents)), (None, None));
    }

    #[test]
    fn an_amount_finer_than_the_currency_is_refused() {
        let money = |code: &str, text: &str| currency(code).exact_money(Amount::parse(text).unwrap());
        assert_eq!(money("EUR", "4.50").unwrap().to_string(), "4.50");
        assert_eq!(money("EUR", "4.501"), Err(InvalidAmount::TooPrecise(2)));
        assert_eq!(money("JPY", "4.5"), Err(InvalidAmount::TooPrecise(0)));
        assert_eq!(money("KWD", "9999999999999999.999"), Err(InvalidAmount::TooLarge));
        assert_eq!(money("JPY", "9000000000000000").unwrap().to_string(), "9000000000000000");
        assert_eq!(money("JPY", "9000000000000001"), Err(InvalidAmount::TooLarge));
    }
}
