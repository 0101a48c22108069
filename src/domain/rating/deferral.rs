//! What is earned of a paid grant: nothing when it is sold, its price bit by bit as it burns.

use super::{RatingError, exact, too_large};
use crate::domain::amount::Amount;
use crate::domain::grant::GrantPrice;
use crate::domain::money::Money;

impl GrantPrice {
    /// What a part of what it is for costs; none where that is nothing.
    pub fn of_part(self, part: Amount, whole: Amount) -> Option<Self> {
        let amount = exact::proportion(self.currency, self.amount, part, whole)?;
        (!amount.is_zero()).then_some(Self { amount, ..self })
    }
}

/// A paid grant's price, and how much of it is earned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deferral {
    price: GrantPrice,
    units: Amount,
    burnt: Amount,
    recognised: Money,
}

impl Deferral {
    /// The price of so many units, when nothing of it is earned.
    pub fn of(price: GrantPrice, units: Amount) -> Self {
        Self { price, units, burnt: Amount::ZERO, recognised: price.currency.money(0) }
    }

    /// So many more units have burnt. Returns what is earned by that: the share in the price of all that is burnt by
    /// now, rounded half to even, less what was earned before. So it does not matter how the burn was split, and it
    /// adds up to the price.
    ///
    /// # Errors
    /// The price is too large.
    pub fn burn(&mut self, more: Amount) -> Result<Money, RatingError> {
        let GrantPrice { currency, amount } = self.price;
        self.burnt = self.burnt.plus(more).min(self.units);
        let earned = exact::proportion(currency, amount, self.burnt, self.units);
        let earned = earned.ok_or_else(|| too_large("a paid grant"))?;
        let more = earned.checked_sub(self.recognised).ok_or_else(|| too_large("a paid grant"))?;
        self.recognised = earned;
        Ok(more)
    }

    /// What is earned of the price.
    pub fn recognised(&self) -> Money {
        self.recognised
    }

    /// What is not earned of the price: it is forfeited when the grant lapses, and given back when it is voided.
    pub fn left(&self) -> Money {
        // It is between nothing and the price.
        self.price.amount.checked_sub(self.recognised).unwrap_or(self.price.amount)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::domain::money::Currency;

    fn price(code: &str, minor_units: i64) -> GrantPrice {
        let currency = Currency::parse(code).unwrap();
        GrantPrice { currency, amount: currency.money(minor_units) }
    }

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    /// The golden table: what each burn earns, and what is left at the end.
    #[rstest]
    #[case::ten_euros_for_three(price("EUR", 1_000), "3", &["1", "1", "1"], &["3.33", "3.34", "3.33"], "0.00")]
    #[case::all_at_once(price("EUR", 1_000), "3", &["3"], &["10.00"], "0.00")]
    #[case::two_of_three(price("EUR", 1_000), "3", &["2"], &["6.67"], "3.33")]
    #[case::nothing_burnt(price("EUR", 1_000), "3", &["0"], &["0.00"], "10.00")]
    #[case::without_decimals(price("JPY", 100), "3", &["1", "1", "1"], &["33", "34", "33"], "0")]
    #[case::a_half_goes_to_the_even_one(price("JPY", 5), "2", &["1", "1"], &["2", "3"], "0")]
    #[case::three_decimals(price("KWD", 1_000), "3", &["1", "1"], &["0.333", "0.334"], "0.333")]
    #[case::parts_of_units(price("EUR", 100), "0.3", &["0.1", "0.15"], &["0.33", "0.50"], "0.17")]
    #[case::less_than_a_cent_each(price("EUR", 1), "4", &["1", "1", "1", "1"], &["0.00", "0.00", "0.01", "0.00"], "0.00")]
    #[case::never_more_than_all(price("EUR", 1_000), "3", &["2", "5", "1"], &["6.67", "3.33", "0.00"], "0.00")]
    #[case::the_largest(price("EUR", i64::MAX), "9000000000", &["9000000000"], &["92233720368547758.07"], "0.00")]
    fn a_price_is_earned_in_the_share_that_is_burnt(
        #[case] price: GrantPrice,
        #[case] units: &str,
        #[case] burns: &[&str],
        #[case] earned: &[&str],
        #[case] left: &str,
    ) {
        let mut deferral = Deferral::of(price, amount(units));
        let each = burns.iter().map(|more| deferral.burn(amount(more)).unwrap().to_string());
        assert_eq!(each.collect::<Vec<_>>(), earned);
        assert_eq!(deferral.left().to_string(), left);
    }

    proptest! {
        #[test]
        fn however_the_burn_is_split_the_same_is_earned_and_all_adds_up_to_the_price(
            code in prop::sample::select(vec!["EUR", "JPY", "KWD"]),
            minor_units in 1_i64..=100_000_000_000,
            units in 1_i64..=1_000_000_000,
            decimals in 0_u32..=6,
            cuts in prop::collection::vec(0_i64..=1_000, 1..20),
        ) {
            let of = |count: i64| Amount::from_decimal(rust_decimal::Decimal::new(count, decimals)).unwrap();
            let price = price(code, minor_units);
            let mut split = Deferral::of(price, of(units));
            let (mut burnt, mut sum) = (0, price.currency.money(0));
            for cut in cuts {
                let more = (units - burnt) * cut / 1_000;
                burnt += more;
                let earned = split.burn(of(more)).unwrap();
                prop_assert!(!earned.is_negative());
                sum = sum.checked_add(earned).unwrap();
            }
            let mut at_once = Deferral::of(price, of(units));
            prop_assert_eq!(at_once.burn(of(burnt)).unwrap(), sum);
            prop_assert_eq!(split.recognised(), sum);
            prop_assert_eq!(sum.checked_add(split.left()).unwrap(), price.amount);
            prop_assert!(!split.left().is_negative());
            at_once.burn(of(units - burnt)).unwrap();
            prop_assert!(at_once.left().is_zero());
        }
    }
}
