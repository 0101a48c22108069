//! A price: what a tenant pays for the use of a meter in a billing period, from a day on.

mod coverage;
mod fields;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::civil_date::CivilDate;
use super::factor::Factor;
use super::ids::{MeterId, PriceId};
use super::money::{Currency, Money};

pub use coverage::{PeriodPrices, is_unpriced};
use fields::PriceFields;

/// Prices of a plan or tenant, all versions counted, are at most so many.
pub const PRICES_MAX: usize = 1_000;
/// Tiers of a price are at most so many.
pub const TIERS_MAX: usize = 100;

/// Which units of a period a price is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargeOn {
    /// All that were consumed.
    #[default]
    Consumed,
    /// Those consumed beyond the quota.
    Overage,
}

impl ChargeOn {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Consumed => "consumed",
            Self::Overage => "overage",
        }
    }
}

/// How a price turns units into money, by its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceModel {
    /// Each unit costs the same.
    PerUnit,
    /// Units are sold in packages; a started one is paid in full.
    Package,
    /// Each tier's units cost what the tier says.
    Graduated,
    /// All units cost what the tier says in which the last of them lies.
    Volume,
    /// The same for each period, however much is used.
    Flat,
}

impl PriceModel {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PerUnit => "per_unit",
            Self::Package => "package",
            Self::Graduated => "graduated",
            Self::Volume => "volume",
            Self::Flat => "flat",
        }
    }
}

/// How a price turns units into money.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Charge {
    /// Each unit costs the same.
    PerUnit {
        /// What one costs.
        unit: Factor,
    },
    /// Units are sold in packages; a started one is paid in full.
    Package {
        /// What a package costs.
        unit: Factor,
        /// How many units are in it, above zero.
        package_size: Amount,
    },
    /// Each tier's units cost what the tier says.
    Graduated(Tiers),
    /// All units cost what the tier says in which the last of them lies.
    Volume(Tiers),
    /// The same for each period, however much is used.
    Flat {
        /// What a period costs.
        flat: Money,
    },
}

/// Units up to a bound, and what each of them costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// The last unit of the tier, which belongs to it; none for the tier without an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to: Option<Amount>,
    /// What a unit costs.
    pub unit: Factor,
}

/// Tiers from the first unit on: each ends above the one before, and the last has no end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Tier>", into = "Vec<Tier>")]
pub struct Tiers(Vec<Tier>);

impl Tiers {
    /// The tiers, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = &Tier> {
        self.0.iter()
    }
}

impl TryFrom<Vec<Tier>> for Tiers {
    type Error = String;
    fn try_from(tiers: Vec<Tier>) -> Result<Self, String> {
        let Some((last, bounded)) = tiers.split_last() else {
            return Err("must have at least one tier".into());
        };
        if tiers.len() > TIERS_MAX {
            return Err(format!("must have at most {TIERS_MAX} tiers"));
        }
        if last.up_to.is_some() {
            return Err("must end with a tier without `up_to`, for all units beyond the others".into());
        }
        let mut before = Amount::ZERO;
        for (index, tier) in bounded.iter().enumerate() {
            match tier.up_to {
                None => return Err(format!("tier {index} needs an `up_to`: only the last one has none")),
                Some(up_to) if up_to <= before => {
                    return Err(format!("the `up_to` of tier {index} must be above {before}"));
                }
                Some(up_to) => before = up_to,
            }
        }
        Ok(Self(tiers))
    }
}

impl From<Tiers> for Vec<Tier> {
    fn from(tiers: Tiers) -> Self {
        tiers.0
    }
}

/// A price. The same fields in a plan and of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PriceFields", into = "PriceFields")]
pub struct Price {
    /// What is used.
    pub meter: MeterId,
    /// Which of several prices of the meter it is; none where the meter has one.
    pub id: Option<PriceId>,
    /// In which currency it is.
    pub currency: Currency,
    /// Which units it is for.
    pub charge_on: ChargeOn,
    /// How many of them are free of charge in each period.
    pub included: Amount,
    /// How they become money.
    pub charge: Charge,
    /// The least that a period costs.
    pub minimum: Option<Money>,
    /// The first day on which a period must start for it to hold there.
    pub effective_from: CivilDate,
}

/// What is one price in all its versions, of which a period has one at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriceKey<'a> {
    /// What is used.
    pub meter: &'a MeterId,
    /// Which of several prices of the meter.
    pub id: Option<&'a PriceId>,
}

impl Price {
    /// What it is a version of.
    pub fn key(&self) -> PriceKey<'_> {
        PriceKey { meter: &self.meter, id: self.id.as_ref() }
    }

    /// What tells it from every other price of its list.
    pub fn name(&self) -> String {
        let id = self.id.as_ref().map(PriceId::as_str);
        price_name(self.meter.as_str(), id, self.currency.code(), &self.effective_from.to_string())
    }

    /// The word of its model.
    pub fn model(&self) -> PriceModel {
        match self.charge {
            Charge::PerUnit { .. } => PriceModel::PerUnit,
            Charge::Package { .. } => PriceModel::Package,
            Charge::Graduated(_) => PriceModel::Graduated,
            Charge::Volume(_) => PriceModel::Volume,
            Charge::Flat { .. } => PriceModel::Flat,
        }
    }

    /// Every amount of the meter's units in it, with the field that it stands in.
    pub fn amounts(&self) -> Vec<(String, Amount)> {
        let mut amounts = vec![("/included".to_owned(), self.included)];
        match &self.charge {
            Charge::Package { package_size, .. } => amounts.push(("/package_size".into(), *package_size)),
            Charge::Graduated(tiers) | Charge::Volume(tiers) => {
                let bounds = tiers
                    .iter()
                    .enumerate()
                    .filter_map(|(index, tier)| Some((format!("/tiers/{index}/up_to"), tier.up_to?)));
                amounts.extend(bounds);
            }
            Charge::PerUnit { .. } | Charge::Flat { .. } => {}
        }
        amounts
    }
}

/// What tells a price from every other one of its list.
pub fn price_name(meter: &str, id: Option<&str>, currency: &str, effective_from: &str) -> String {
    let parts = [Some(meter), id, Some(currency), Some(effective_from)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The currency that a tenant pays in: the one asked for or, without one, that of all prices.
///
/// # Errors
/// The currencies of the prices, where there are several and none is asked for.
pub fn currency_of<'a>(
    asked: Option<Currency>,
    prices: impl IntoIterator<Item = &'a Price>,
) -> Result<Option<Currency>, BTreeSet<Currency>> {
    if asked.is_some() {
        return Ok(asked);
    }
    let currencies: BTreeSet<Currency> = prices.into_iter().map(|price| price.currency).collect();
    if currencies.len() > 1 { Err(currencies) } else { Ok(currencies.into_iter().next()) }
}

/// The prices in `currency` that hold for a period that starts on `start`, by their keys: of each price the version
/// that took effect last, a tenant's own before its plan's. A version that takes effect inside the period waits for the
/// next.
pub fn in_force<'a>(
    own: &'a [Price],
    plan: &'a [Price],
    currency: Currency,
    start: CivilDate,
) -> Vec<&'a Price> {
    let mut found: BTreeMap<PriceKey<'a>, &'a Price> = BTreeMap::new();
    for prices in [plan, own] {
        let mut latest: BTreeMap<PriceKey<'a>, &'a Price> = BTreeMap::new();
        let holds = |price: &&Price| price.currency == currency && price.effective_from <= start;
        for price in prices.iter().filter(holds) {
            let is_later = |known: &&Price| known.effective_from <= price.effective_from;
            if latest.get(&price.key()).is_none_or(is_later) {
                latest.insert(price.key(), price);
            }
        }
        found.extend(latest);
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::field_error::{FieldError, read_json};

    fn fields(changes: Value) -> Value {
        let mut price = json!({ "meter": "page", "currency": "EUR", "effective_from": "2026-01-01" });
        changes.as_object().unwrap().iter().for_each(|(name, value)| price[name] = value.clone());
        price
    }

    fn read(changes: Value) -> Result<Price, FieldError> {
        read_json(&fields(changes))
    }

    #[test]
    fn each_model_takes_its_own_fields_and_is_written_as_it_was_read() {
        let tiers = json!([{ "up_to": "1000", "unit": "0.02" }, { "unit": "0.01" }]);
        for given in [
            json!({ "model": "per_unit", "unit": "0.000000000001", "charge_on": "overage", "included": "5" }),
            json!({ "model": "package", "unit": "5", "package_size": "100", "charge_on": "consumed", "included": "0" }),
            json!({ "model": "graduated", "tiers": tiers, "charge_on": "consumed", "included": "0" }),
            json!({ "model": "volume", "tiers": tiers, "minimum": "3.5", "charge_on": "consumed", "included": "0" }),
            json!({ "model": "flat", "flat": "20", "id": "base", "charge_on": "consumed", "included": "0" }),
        ] {
            let price = read(given.clone()).unwrap();
            assert_eq!(serde_json::to_value(price).unwrap(), fields(given));
        }
    }

    #[test]
    fn a_price_that_cannot_be_meant_is_refused_with_the_field_named() {
        for (given, named) in [
            (json!({ "model": "per_unit" }), "`unit`"),
            (json!({ "model": "per_unit", "unit": "1", "flat": "2" }), "`flat`"),
            (json!({ "model": "package", "unit": "1" }), "`package_size`"),
            (json!({ "model": "package", "unit": "1", "package_size": "0" }), "`package_size`"),
            (json!({ "model": "graduated", "unit": "1" }), "`unit`"),
            (json!({ "model": "volume" }), "`tiers`"),
            (json!({ "model": "flat", "flat": "1", "minimum": "2" }), "`minimum`"),
            (json!({ "model": "flat", "flat": "1", "included": "2" }), "`included`"),
            (json!({ "model": "flat", "flat": "1", "charge_on": "overage" }), "`charge_on`"),
            (json!({ "model": "flat", "flat": "1.001" }), "`flat`"),
            (json!({ "model": "flat", "flat": "1.5", "currency": "JPY" }), "`flat`"),
            (json!({ "model": "per_unit", "unit": "1", "minimum": "0.001" }), "`minimum`"),
            (
                json!({ "model": "flat", "flat": "9999999999999999", "currency": "KWD" }),
                "`flat` must be at most 9000000000000.000 KWD",
            ),
            (json!({ "model": "per_unit", "unit": "0.0000000000001" }), "at most 12 decimals"),
            (json!({ "model": "per_unit", "unit": "1", "discount": "2" }), "`discount`"),
        ] {
            let error = read(given.clone()).unwrap_err();
            assert!(error.message.contains(named), "{given}: {error}");
        }
        for (given, pointer) in [
            (json!({ "model": "tiered", "unit": "1" }), "/model"),
            (json!({ "model": "per_unit", "unit": "-1" }), "/unit"),
            (json!({ "model": "per_unit", "unit": 0.5 }), "/unit"),
            (json!({ "model": "per_unit", "unit": "0.0000000000001" }), "/unit"),
            (json!({ "model": "per_unit", "unit": "1", "currency": "XAU" }), "/currency"),
            (json!({ "model": "per_unit", "unit": "1", "effective_from": "2026-1-1" }), "/effective_from"),
        ] {
            assert_eq!(read(given.clone()).unwrap_err().pointer, pointer, "{given}");
        }
    }

    #[test]
    fn tiers_rise_and_the_last_has_no_end() {
        for (tiers, named) in [
            (json!([]), "at least one"),
            (json!([{ "up_to": "5", "unit": "1" }]), "without `up_to`"),
            (json!([{ "unit": "1" }, { "unit": "1" }]), "tier 0"),
            (json!([{ "up_to": "0", "unit": "1" }, { "unit": "1" }]), "tier 0"),
            (
                json!([{ "up_to": "5", "unit": "1" }, { "up_to": "5", "unit": "1" }, { "unit": "1" }]),
                "tier 1 must be above 5",
            ),
            (json!(vec![json!({ "unit": "1" }); 101]), "at most 100"),
        ] {
            let error = read(json!({ "model": "graduated", "tiers": tiers })).unwrap_err();
            assert_eq!(error.pointer, "/tiers", "{error}");
            assert!(error.message.contains(named), "{error}");
        }
    }

    fn dated(meter: &str, id: Option<&str>, day: &str, currency: &str) -> Price {
        let mut changes = json!({ "model": "per_unit", "unit": "1", "meter": meter, "effective_from": day, "currency": currency });
        if let Some(id) = id {
            changes["id"] = json!(id);
        }
        read(changes).unwrap()
    }

    #[test]
    fn a_version_holds_for_periods_that_start_on_its_day_or_later_and_never_inside_one() {
        let plan = ["2026-03-01", "2026-01-01", "2026-02-15"].map(|day| dated("page", None, day, "EUR"));
        let at = |start: &str| {
            let found = in_force(&[], &plan, Currency::parse("EUR").unwrap(), start.parse().unwrap());
            found.first().map(|price| price.effective_from.to_string())
        };
        assert_eq!(at("2025-12-31"), None);
        assert_eq!(at("2026-01-01").unwrap(), "2026-01-01");
        assert_eq!(at("2026-02-01").unwrap(), "2026-01-01", "the one of the 15th waits for the next period");
        assert_eq!(at("2026-02-15").unwrap(), "2026-02-15");
        assert_eq!(at("2026-03-01").unwrap(), "2026-03-01");
        assert_eq!(at("9999-12-31").unwrap(), "2026-03-01");
    }

    #[test]
    fn a_tenants_price_goes_before_its_plans_once_it_is_in_force() {
        let plan = [
            dated("page", None, "2026-01-01", "EUR"),
            dated("page", Some("base"), "2026-01-01", "EUR"),
            dated("token", None, "2026-01-01", "EUR"),
            dated("token", None, "2026-01-01", "JPY"),
        ];
        let own = [dated("page", None, "2025-06-01", "EUR"), dated("token", None, "2026-06-01", "EUR")];
        let found = in_force(&own, &plan, Currency::parse("EUR").unwrap(), "2026-02-01".parse().unwrap());
        let shown: Vec<_> = found
            .iter()
            .map(|price| {
                let id = price.id.as_ref().map_or("", |id| id.as_str());
                format!("{} {id} {}", price.meter, price.effective_from)
            })
            .collect();
        assert_eq!(shown, ["page  2025-06-01", "page base 2026-01-01", "token  2026-01-01"]);
    }
}
