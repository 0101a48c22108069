//! What a bill carries after its usage lines: discounts, a minimum commitment and taxes. Each holds for periods that
//! start on one of its days.

use serde::{Deserialize, Serialize};

use crate::domain::amount::Amount;
use crate::domain::civil_date::CivilDate;
use crate::domain::ids::PriceId;
use crate::domain::money::{Currency, Money, PercentRate};

/// The discounts, commitments or taxes of a plan or tenant are at most so many.
pub const TERMS_MAX: usize = 100;

/// How a discount lowers a bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// By a share of what is left.
    Percent(PercentRate),
    /// By an amount, at most what is left, on bills in its currency.
    Fixed {
        /// The currency.
        currency: Currency,
        /// How much.
        amount: Money,
    },
}

/// A discount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "DiscountFields", into = "DiscountFields")]
pub struct Discount {
    /// Its name on the bill.
    pub id: PriceId,
    /// How much.
    pub reduction: Reduction,
    /// The first day; none: always.
    pub from: Option<CivilDate>,
    /// The first day after it; none: for ever.
    pub until: Option<CivilDate>,
}

/// The least that a period costs before taxes, on bills in its currency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "CommitmentFields", into = "CommitmentFields")]
pub struct Commitment {
    /// The currency.
    pub currency: Currency,
    /// How much.
    pub amount: Money,
    /// The first day; none: always.
    pub from: Option<CivilDate>,
    /// The first day after it; none: for ever.
    pub until: Option<CivilDate>,
}

/// A tax: how much is owed is not decided here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tax {
    /// Its name on the bill.
    pub code: PriceId,
    /// How much.
    pub percent: PercentRate,
    /// The first day; none: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<CivilDate>,
    /// The first day after it; none: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<CivilDate>,
}

/// What holds only for bills of some days, and perhaps of one currency.
pub trait Dated {
    /// The first day, and the first day after it.
    fn days(&self) -> (Option<CivilDate>, Option<CivilDate>);

    /// The currency of the bills; none for all.
    fn currency(&self) -> Option<Currency>;

    /// What it is called; of the same name one holds at most.
    fn name(&self) -> String;

    /// Whether it holds for a period that starts on this day and is paid in this currency.
    fn holds(&self, currency: Currency, day: CivilDate) -> bool {
        let (from, until) = self.days();
        self.currency().is_none_or(|own| own == currency)
            && from.is_none_or(|from| from <= day)
            && until.is_none_or(|until| day < until)
    }

    /// Whether a bill could have both by their days and currencies.
    fn meets(&self, other: &Self) -> bool {
        let begins_before_end = |one: &Self, other: &Self| match (one.days().0, other.days().1) {
            (Some(from), Some(until)) => from < until,
            _ => true,
        };
        let of_one_currency = match (self.currency(), other.currency()) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        of_one_currency && begins_before_end(self, other) && begins_before_end(other, self)
    }
}

impl Dated for Discount {
    fn days(&self) -> (Option<CivilDate>, Option<CivilDate>) {
        (self.from, self.until)
    }

    fn currency(&self) -> Option<Currency> {
        match self.reduction {
            Reduction::Percent(_) => None,
            Reduction::Fixed { currency, .. } => Some(currency),
        }
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Dated for Commitment {
    fn days(&self) -> (Option<CivilDate>, Option<CivilDate>) {
        (self.from, self.until)
    }

    fn currency(&self) -> Option<Currency> {
        Some(self.currency)
    }

    fn name(&self) -> String {
        self.currency.to_string()
    }
}

impl Dated for Tax {
    fn days(&self) -> (Option<CivilDate>, Option<CivilDate>) {
        (self.from, self.until)
    }

    fn currency(&self) -> Option<Currency> {
        None
    }

    fn name(&self) -> String {
        self.code.to_string()
    }
}

/// Those that hold, in their order: the plan's, then the tenant's own, which go before the plan's of the same name.
pub(in crate::domain) fn in_force<T: Dated + Clone>(
    own: &[T],
    plan: &[T],
    currency: Currency,
    day: CivilDate,
) -> Vec<T> {
    let own = || own.iter().filter(|each| each.holds(currency, day));
    let is_replaced = |each: &&T| own().any(|other| other.name() == each.name());
    let of_plan = plan.iter().filter(|each| each.holds(currency, day) && !is_replaced(each));
    of_plan.chain(own()).cloned().collect()
}

/// What one bill carries after its usage lines. All of it holds for the bill's day and currency.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Terms {
    /// Discounts, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discounts: Vec<Discount>,
    /// The least that the period costs before taxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_commitment: Option<Money>,
    /// Taxes, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taxes: Vec<Tax>,
}

impl Terms {
    /// Whether they say nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A discount as it is written: `percent`, or `amount` and `currency`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "Discount")]
struct DiscountFields {
    id: PriceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    percent: Option<PercentRate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    amount: Option<Amount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    currency: Option<Currency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<CivilDate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<CivilDate>,
}

impl TryFrom<DiscountFields> for Discount {
    type Error = String;
    fn try_from(fields: DiscountFields) -> Result<Self, String> {
        let reduction = match (fields.percent, fields.amount, fields.currency) {
            (Some(percent), None, None) => Reduction::Percent(percent),
            (None, Some(amount), Some(currency)) => {
                Reduction::Fixed { currency, amount: currency.money_in("amount", amount)? }
            }
            _ => return Err("a discount has `percent`, or `amount` and `currency`".into()),
        };
        Ok(Self { id: fields.id, reduction, from: fields.from, until: fields.until })
    }
}

impl From<Discount> for DiscountFields {
    fn from(discount: Discount) -> Self {
        let (percent, amount, currency) = match discount.reduction {
            Reduction::Percent(percent) => (Some(percent), None, None),
            Reduction::Fixed { currency, amount } => (None, Some(written(amount)), Some(currency)),
        };
        Self { id: discount.id, percent, amount, currency, from: discount.from, until: discount.until }
    }
}

/// A commitment as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "Commitment")]
struct CommitmentFields {
    amount: Amount,
    currency: Currency,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<CivilDate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<CivilDate>,
}

impl TryFrom<CommitmentFields> for Commitment {
    type Error = String;
    fn try_from(fields: CommitmentFields) -> Result<Self, String> {
        let CommitmentFields { amount, currency, from, until } = fields;
        Ok(Self { currency, amount: currency.money_in("amount", amount)?, from, until })
    }
}

impl From<Commitment> for CommitmentFields {
    fn from(commitment: Commitment) -> Self {
        let Commitment { currency, amount, from, until } = commitment;
        Self { amount: written(amount), currency, from, until }
    }
}

/// It was an amount when it was read: it is never below zero.
fn written(money: Money) -> Amount {
    Amount::from_decimal(money.decimal()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn discount(fields: Value) -> Discount {
        serde_json::from_value(fields).unwrap()
    }

    fn refused<T: serde::de::DeserializeOwned + std::fmt::Debug>(fields: Value) -> String {
        serde_json::from_value::<T>(fields).unwrap_err().to_string()
    }

    fn names(own: &[Discount], plan: &[Discount], code: &str, day: &str) -> Vec<String> {
        let currency = Currency::parse(code).unwrap();
        in_force(own, plan, currency, day.parse().unwrap()).iter().map(Dated::name).collect()
    }

    #[test]
    fn terms_are_written_as_they_were_read() {
        for given in [
            json!({ "id": "early", "percent": "12.5", "from": "2026-01-01", "until": "2027-01-01" }),
            json!({ "id": "voucher", "amount": "4.5", "currency": "EUR" }),
        ] {
            assert_eq!(serde_json::to_value(discount(given.clone())).unwrap(), given);
        }
        let given = json!({ "amount": "50", "currency": "JPY", "from": "2026-01-01" });
        let commitment: Commitment = serde_json::from_value(given.clone()).unwrap();
        assert_eq!(serde_json::to_value(commitment).unwrap(), given);
    }

    #[test]
    fn a_discount_is_a_share_or_an_amount_of_a_currency() {
        for wrong in [
            json!({ "id": "d" }),
            json!({ "id": "d", "amount": "1" }),
            json!({ "id": "d", "percent": "1", "currency": "EUR" }),
            json!({ "id": "d", "percent": "1", "amount": "1", "currency": "EUR" }),
        ] {
            assert!(
                refused::<Discount>(wrong.clone()).contains("`percent`, or `amount` and `currency`"),
                "{wrong}"
            );
        }
        let finer = json!({ "id": "d", "amount": "1.5", "currency": "JPY" });
        assert!(
            refused::<Discount>(finer).contains("`amount` must be an amount of JPY with at most 0 decimals")
        );
        assert!(refused::<Discount>(json!({ "id": "d", "percent": "101" })).contains("at most 100 percent"));
        let finer = json!({ "amount": "0.001", "currency": "EUR" });
        assert!(refused::<Commitment>(finer).contains("at most 2 decimals"));
    }

    #[test]
    fn terms_hold_from_their_first_day_to_the_day_before_their_end() {
        let dated =
            [discount(json!({ "id": "d", "percent": "1", "from": "2026-02-01", "until": "2026-03-01" }))];
        for (day, holds) in
            [("2026-01-31", false), ("2026-02-01", true), ("2026-02-28", true), ("2026-03-01", false)]
        {
            assert_eq!(!names(&dated, &[], "EUR", day).is_empty(), holds, "{day}");
        }
    }

    #[test]
    fn a_fixed_discount_is_for_bills_in_its_currency() {
        let fixed = [discount(json!({ "id": "d", "amount": "1", "currency": "EUR" }))];
        assert_eq!(names(&fixed, &[], "EUR", "2026-01-01"), ["d"]);
        assert!(names(&fixed, &[], "USD", "2026-01-01").is_empty());
    }

    #[test]
    fn a_tenants_own_terms_go_before_the_plans_of_the_same_name_while_they_hold() {
        let share = |name: &str, percent: &str| discount(json!({ "id": name, "percent": percent }));
        let own = [discount(json!({ "id": "b", "percent": "9", "until": "2026-06-01" }))];
        let plan = [share("b", "1"), share("c", "2")];
        assert_eq!(names(&own, &plan, "EUR", "2026-05-01"), ["c", "b"]);
        assert_eq!(names(&own, &plan, "EUR", "2026-06-01"), ["b", "c"]);
    }

    #[test]
    fn two_terms_meet_where_a_bill_could_have_both() {
        let of = |changes: Value| {
            let mut fields = json!({ "amount": "1", "currency": "EUR" });
            changes.as_object().unwrap().iter().for_each(|(name, value)| fields[name] = value.clone());
            serde_json::from_value::<Commitment>(fields).unwrap()
        };
        let spring = of(json!({ "from": "2026-03-01", "until": "2026-06-01" }));
        for (changes, meets) in [
            (json!({}), true),
            (json!({ "until": "2026-03-02" }), true),
            (json!({ "until": "2026-03-01" }), false),
            (json!({ "from": "2026-05-31" }), true),
            (json!({ "from": "2026-06-01" }), false),
            (json!({ "currency": "USD" }), false),
        ] {
            let other = of(changes.clone());
            assert_eq!((spring.meets(&other), other.meets(&spring)), (meets, meets), "{changes}");
        }
    }
}
