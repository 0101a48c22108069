//! Grants: amounts beside what a plan includes, and how a quota's capacity follows from them over time.

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize};

use super::amount::{Amount, Decimals, Units};
use super::ids::{IdempotencyKey, MeterId, TenantId};
use super::money::{Currency, Money};
use super::uuid_id::{self, uuid_ids};
use super::whole_number::whole_number;

uuid_ids! {
    /// The id of a grant: a hash of its tenant and key, so that a repeated call names the same grant.
    GrantId, "must be the id of a grant";
}

impl GrantId {
    /// The id under this key.
    pub fn of(tenant: &TenantId, key: &IdempotencyKey) -> Self {
        Self(uuid_id::of_texts("tollgate grant v1", &[tenant.as_str(), key.as_str()]))
    }

    /// The id of what the period that starts at `start_ms` (unix ms) gets of the recurring grant with this id.
    pub fn repeated_at(self, start_ms: i64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate repeat of a grant v1");
        hasher.update(self.0.as_bytes());
        hasher.update(&start_ms.to_le_bytes());
        Self(uuid_id::of_hash(&hasher))
    }
}

/// Who pays for a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantKind {
    /// Nobody: it is given.
    Promotional,
    /// The tenant.
    Paid,
}

impl GrantKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Promotional => "promotional",
            Self::Paid => "paid",
        }
    }

    /// The kind with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Promotional, Self::Paid].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// How often a grant is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recurrence {
    /// Once.
    #[default]
    None,
    /// Again in each period that begins before its end.
    Period,
}

impl Recurrence {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Period => "period",
        }
    }

    /// The recurrence with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::None, Self::Period].into_iter().find(|recurrence| recurrence.as_str() == word)
    }
}

/// What a paid grant costs; one that recurs costs it in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantPrice {
    /// The currency.
    pub currency: Currency,
    /// How much, above zero.
    pub amount: Money,
}

/// How much of what is unused of a grant goes on when a period is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GrantRollover {
    /// At most; where it is none, all of a grant that is given once, and nothing of one that recurs.
    pub max: Option<Amount>,
    /// At least: what is missing to it is granted.
    pub min: Amount,
}

impl GrantRollover {
    /// What the next period gets where this much is unused.
    pub fn kept(&self, unused: Decimal) -> Decimal {
        let least = self.min.decimal().max(unused);
        self.max.map_or(least, |max| max.decimal().min(least))
    }
}

/// Which grants burn first: 0 (first) to 100, 50 unless it is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The priority, if it is 0 to 100.
    pub fn new(priority: u8) -> Option<Self> {
        (priority <= 100).then_some(Self(priority))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self(50)
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        whole_number(deserializer, 0..=100).map(Self)
    }
}

/// The end (unix ms) of a grant that has none: the last day of the last year that can be written, after any other end.
pub const NO_END_MS: i64 = 253_402_214_400_000;

/// When a grant ends (unix ms) that is kept with this end; none where it has none.
pub fn end_of(expires_at_ms: i64) -> Option<i64> {
    (expires_at_ms < NO_END_MS).then_some(expires_at_ms)
}

/// What is granted, as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantTerms {
    /// Whose quota.
    pub tenant: TenantId,
    /// Of which meter.
    pub meter: MeterId,
    /// How much, above zero.
    pub amount: Amount,
    /// Who pays.
    pub kind: GrantKind,
    /// What it costs; none where it is given, or paid for elsewhere.
    pub price: Option<GrantPrice>,
    /// Which grants burn first.
    pub priority: Priority,
    /// From when on (unix ms); none for at once.
    pub effective_at_ms: Option<i64>,
    /// Until when (unix ms); [`NO_END_MS`] where it has no end.
    pub expires_at_ms: i64,
    /// How often it is given.
    pub recurrence: Recurrence,
    /// How much of it goes on when a period is closed.
    pub rollover: GrantRollover,
    /// Why, for people.
    pub reason: String,
}

impl GrantTerms {
    /// A hash of what is asked for: another one under the same key is another grant.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate grant terms v1");
        let amount = self.amount.to_string();
        for text in [self.meter.as_str(), &amount, self.kind.as_str(), &self.reason] {
            hasher.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.update(&[self.priority.get()]);
        hasher.update(&self.expires_at_ms.to_le_bytes());
        if let Some(at_ms) = self.effective_at_ms {
            hasher.update(&at_ms.to_le_bytes());
        }
        // Nothing for one that is given once: its fingerprint is the one that it had before others could recur.
        if self.recurrence != Recurrence::None {
            hasher.update(self.recurrence.as_str().as_bytes());
        }
        if let Some(price) = self.price {
            hasher.update(price.currency.code().as_bytes());
            hasher.update(price.amount.to_string().as_bytes());
        }
        if self.rollover != GrantRollover::default() {
            let max = self.rollover.max.map_or("all".to_owned(), |max| max.to_string());
            hasher.update(format!("rollover {max} {}", self.rollover.min).as_bytes());
        }
        *hasher.finalize().as_bytes()
    }
}

/// A change of a quota's capacity that is known before it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityChange {
    /// From when on (unix ms).
    pub at_ms: i64,
    /// By how much it rises; negative where a grant ends.
    pub rise: Decimal,
    /// Whether a grant ends there: how much of it is unburnt is not known yet, so the whole is taken.
    pub is_end: bool,
}

/// A quota's capacity over a period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityOverTime {
    /// From which instant (unix ms, ascending) which capacity holds.
    pub parts: Vec<(i64, Units)>,
    /// From which instant on (unix ms) the parts are only bounds.
    pub bound_from_ms: Option<i64>,
}

/// A quota's capacity over a period: from the period's start on what is booked, then with each change that is not
/// booked yet. It has a part for each instant of a change.
pub fn capacity_over_time(
    period_start_ms: i64,
    booked: Decimal,
    changes: &[CapacityChange],
    decimals: Decimals,
) -> CapacityOverTime {
    let mut changes: Vec<_> = changes.iter().collect();
    changes.sort_by_key(|change| change.at_ms);
    let (mut amount, mut parts) = (booked, vec![(period_start_ms, units_of(booked, decimals))]);
    for change in &changes {
        amount += change.rise;
        let (from_ms, units) = (change.at_ms.max(period_start_ms), units_of(amount, decimals));
        match parts.last_mut() {
            Some(last) if last.0 == from_ms => last.1 = units,
            _ => parts.push((from_ms, units)),
        }
    }
    let first_end = changes.iter().find(|change| change.is_end);
    CapacityOverTime { parts, bound_from_ms: first_end.map(|change| change.at_ms.max(period_start_ms)) }
}

/// A capacity as the gate counts it: never more than the amount, and nothing where that is negative.
fn units_of(amount: Decimal, decimals: Decimals) -> Units {
    Amount::from_decimal(amount).map_or(Units::ZERO, |amount| amount.floor_units(decimals))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::amount::UNITS_MAX;

    fn terms() -> GrantTerms {
        GrantTerms {
            tenant: TenantId::parse("acme").unwrap(),
            meter: MeterId::parse("page").unwrap(),
            amount: Amount::parse("10").unwrap(),
            kind: GrantKind::Paid,
            price: None,
            priority: Priority::default(),
            effective_at_ms: None,
            expires_at_ms: 9_000,
            recurrence: Recurrence::None,
            rollover: GrantRollover::default(),
            reason: "a gift".into(),
        }
    }

    fn rollover(max: Option<&str>, min: &str) -> GrantRollover {
        let amount = |text: &str| Amount::parse(text).unwrap();
        GrantRollover { max: max.map(amount), min: amount(min) }
    }

    #[rstest::rstest]
    #[case::all_of_it(None, "0", 7, 7)]
    #[case::up_to_the_most(Some("5"), "0", 7, 5)]
    #[case::less_than_the_most(Some("5"), "0", 3, 3)]
    #[case::up_to_the_least(None, "5", 3, 5)]
    #[case::the_least_of_nothing(Some("5"), "5", 0, 5)]
    #[case::nothing_may_go_on(Some("0"), "0", 7, 0)]
    fn what_goes_on_of_a_grant_is_at_least_the_least_and_at_most_the_most(
        #[case] max: Option<&str>,
        #[case] min: &str,
        #[case] unused: i64,
        #[case] expected: i64,
    ) {
        assert_eq!(rollover(max, min).kept(unused.into()), Decimal::from(expected));
    }

    fn price(code: &str) -> Option<GrantPrice> {
        let currency = Currency::parse(code).unwrap();
        Some(GrantPrice { currency, amount: currency.money(1_000) })
    }

    #[test]
    fn another_price_is_another_grant() {
        let of = |code| GrantTerms { price: price(code), ..terms() }.fingerprint();
        assert!(of("EUR") == of("EUR") && of("EUR") != of("USD") && of("EUR") != of("JPY"));
    }

    #[test]
    fn a_grant_is_the_same_one_as_ever() {
        let key = |text: &str| IdempotencyKey::parse(text).unwrap();
        let (acme, other) = (TenantId::parse("acme").unwrap(), TenantId::parse("other").unwrap());
        let id = GrantId::of(&acme, &key("k"));
        assert_eq!(id, GrantId::of(&acme, &key("k")));
        assert!(id != GrantId::of(&other, &key("k")) && id != GrantId::of(&acme, &key("l")));
        let repeated = id.repeated_at(1_000);
        assert_eq!(repeated, id.repeated_at(1_000));
        assert!(repeated != id && repeated != id.repeated_at(1_001));
    }

    #[test]
    fn whatever_is_asked_for_otherwise_is_another_grant() {
        let first = terms().fingerprint();
        assert_eq!(GrantTerms { amount: Amount::parse("10.0").unwrap(), ..terms() }.fingerprint(), first);
        for other in [
            GrantTerms { meter: MeterId::parse("token").unwrap(), ..terms() },
            GrantTerms { amount: Amount::parse("11").unwrap(), ..terms() },
            GrantTerms { kind: GrantKind::Promotional, ..terms() },
            GrantTerms { priority: Priority::new(51).unwrap(), ..terms() },
            GrantTerms { effective_at_ms: Some(1), ..terms() },
            GrantTerms { expires_at_ms: 9_001, ..terms() },
            GrantTerms { recurrence: Recurrence::Period, ..terms() },
            GrantTerms { reason: String::new(), ..terms() },
            GrantTerms { price: price("EUR"), ..terms() },
            GrantTerms { rollover: rollover(Some("5"), "0"), ..terms() },
            GrantTerms { rollover: rollover(None, "5"), ..terms() },
        ] {
            assert_ne!(other.fingerprint(), first, "{other:?}");
        }
    }

    #[test]
    fn capacity_rises_where_grants_begin_and_is_a_bound_from_the_first_end_on() {
        let change =
            |at_ms, amount: &str, is_end| CapacityChange { at_ms, rise: amount.parse().unwrap(), is_end };
        let rise = |at_ms, amount| change(at_ms, amount, false);
        let over = |changes: &[CapacityChange]| {
            let over = capacity_over_time(100, "1.5".parse().unwrap(), changes, Decimals::new(2).unwrap());
            let parts = over.parts.into_iter().map(|(from_ms, units)| (from_ms, units.get()));
            (parts.collect::<Vec<_>>(), over.bound_from_ms)
        };
        assert_eq!(over(&[]), (vec![(100, 150)], None));
        let rises = [rise(300, "2"), rise(200, "1"), rise(300, "0.25")];
        assert_eq!(over(&rises), (vec![(100, 150), (200, 250), (300, 475)], None));
        assert_eq!(
            over(&[rise(50, "1")]),
            (vec![(100, 250)], None),
            "what began before counts from the start"
        );
        assert_eq!(over(&[rise(200, "999999999999999999")]).0[1].1, UNITS_MAX, "no counter goes beyond it");
        let ends = [change(400, "-2", true), rise(200, "1"), change(300, "-0.5", true)];
        assert_eq!(over(&ends), (vec![(100, 150), (200, 250), (300, 200), (400, 0)], Some(300)));
    }
}
