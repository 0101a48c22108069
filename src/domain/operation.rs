//! An operation: a named piece of work and the rule of its costs.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use rust_decimal::Decimal;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::algorithms::interval::Interval;
use super::amount::{Amount, Decimals, InvalidAmount, Units};
use super::endpoint::EndpointPattern;
use super::estimate::{Estimate, EstimateRule, Percentile};
use super::factor::{Factor, Rounding, exact_product, exact_sum, round_to_units};
use super::field_error::{FieldError, child};
use super::guard::GuardSeconds;
use super::ids::{MeterId, OperationId};
use super::policy::intervals::OperationInterval;
use super::reservation::LINES_MAX;

/// The most weights, and the most factors, of one cost.
pub const TERMS_MAX: usize = 32;
/// The most patterns of endpoints of one operation.
pub const PATTERNS_MAX: usize = 32;

/// A named piece of work with its cost. The same fields in a file, over the API and in storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// Its name: `ocr.submit`.
    pub id: OperationId,
    /// Its costs, one for each meter: 1 to 8.
    pub costs: Vec<Cost>,
    /// The calls of endpoints by which a check finds it: at most 32.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<EndpointPattern>,
    /// The least time between two calls of it by one subject, or by the tenant where a call names no subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_interval_seconds: Option<GuardSeconds>,
    /// For how long the same payload again, by the same subjects, is refused as a duplicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_within_seconds: Option<GuardSeconds>,
    /// Whether new work under it is refused.
    #[serde(default)]
    pub archived: bool,
}

/// The cost of an operation on one meter: `clamp(round((base + sum of weight × attribute) × product of factors))`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The meter.
    pub meter: MeterId,
    /// Always counted.
    #[serde(default)]
    pub base: Factor,
    /// Counted for each unit of a numeric attribute.
    #[serde(default, deserialize_with = "unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, Factor>,
    /// What the sum is multiplied by.
    #[serde(default, deserialize_with = "unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub factors: BTreeMap<String, AttributeFactor>,
    /// The lowest cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Amount>,
    /// The highest cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Amount>,
    /// How it is rounded to the meter's decimals.
    #[serde(default)]
    pub round: Rounding,
    /// How much a reserve holds where no attribute of `weights` says how much the work is; none: what the formula has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateRule>,
    /// Which share of the work an estimate covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_percentile: Option<Percentile>,
}

/// A line of a piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostedLine {
    /// The meter.
    pub meter: MeterId,
    /// How much.
    pub units: Units,
    /// Where that is an estimate, what it is made of.
    pub estimate: Option<Box<Estimate>>,
}

/// Estimates the cost of work that no attribute bounds, on a meter with these decimals.
pub type Estimating<'a> = &'a dyn Fn(&Cost, Decimals) -> Estimate;

/// A factor of a sum that depends on an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum AttributeFactor {
    /// Applies when the attribute is true.
    WhenTrue(Factor),
    /// The factor for the attribute's text; none when the attribute is missing.
    ByText(BTreeMap<String, Factor>),
}

impl<'de> Deserialize<'de> for AttributeFactor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FactorVisitor;
        impl<'de> Visitor<'de> for FactorVisitor {
            type Value = AttributeFactor;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a decimal number as a string, or a table from text to such numbers")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<AttributeFactor, E> {
                Factor::parse(text).map(AttributeFactor::WhenTrue).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<AttributeFactor, E> {
                Factor::deserialize(de::value::U64Deserializer::new(value)).map(AttributeFactor::WhenTrue)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<AttributeFactor, E> {
                Factor::deserialize(de::value::I64Deserializer::new(value)).map(AttributeFactor::WhenTrue)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AttributeFactor, A::Error> {
                unique_map(de::value::MapAccessDeserializer::new(map)).map(AttributeFactor::ByText)
            }
        }
        deserializer.deserialize_any(FactorVisitor)
    }
}

/// Reads a map whose keys must differ; the usual reader silently keeps the last of two.
pub fn unique_map<'de, D, V>(deserializer: D) -> Result<BTreeMap<String, V>, D::Error>
where
    D: Deserializer<'de>,
    V: Deserialize<'de>,
{
    struct UniqueVisitor<V>(PhantomData<V>);
    impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueVisitor<V> {
        type Value = BTreeMap<String, V>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table of distinct names")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut read = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<String, V>()? {
                if read.contains_key(&name) {
                    return Err(de::Error::custom(format_args!("`{name}` is given twice")));
                }
                read.insert(name, value);
            }
            Ok(read)
        }
    }
    deserializer.deserialize_map(UniqueVisitor(PhantomData))
}

/// The value of one attribute, which a caller gives for a piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum AttributeValue {
    /// A number, written as a JSON integer.
    Number(Amount),
    /// True or false.
    Bool(bool),
    /// A text; where a number is expected, its decimal digits.
    Text(String),
    /// Explicitly nothing, as if the attribute were missing.
    Absent,
}

impl<'de> Deserialize<'de> for AttributeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;
        impl Visitor<'_> for ValueVisitor {
            type Value = AttributeValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer, a decimal number as a string, a text, true or false")
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<AttributeValue, E> {
                Ok(AttributeValue::Bool(value))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<AttributeValue, E> {
                Ok(AttributeValue::Text(text.to_owned()))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<AttributeValue, E> {
                Amount::deserialize(de::value::U64Deserializer::new(value)).map(AttributeValue::Number)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<AttributeValue, E> {
                Amount::deserialize(de::value::I64Deserializer::new(value)).map(AttributeValue::Number)
            }
            fn visit_unit<E: de::Error>(self) -> Result<AttributeValue, E> {
                Ok(AttributeValue::Absent)
            }
        }
        deserializer.deserialize_any(ValueVisitor)
    }
}

/// The attributes of a piece of work, by name.
pub type Attributes = BTreeMap<String, AttributeValue>;

/// How an attribute is used; one name has one use in an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Weight,
    WhenTrue,
    ByText,
}

impl Operation {
    /// Its least time between calls, if it has one.
    pub fn interval(&self) -> Option<OperationInterval> {
        let interval = self.min_interval_seconds.map(|length| Interval { length })?;
        Some(OperationInterval { operation: self.id.clone(), interval })
    }

    /// The cost of a piece of work with these attributes: a line for each meter, in the order of `costs`, without zero
    /// lines.
    ///
    /// `decimals_of` returns a meter's decimals. `estimating` estimates what no attribute bounds; none where work is
    /// done that says what it used, so that nothing is left to estimate. Errors point into the request, at
    /// `/attributes/…` or `/operation`.
    pub fn cost(
        &self,
        attributes: &Attributes,
        decimals_of: impl Fn(&MeterId) -> Option<Decimals>,
        estimating: Option<Estimating<'_>>,
    ) -> Result<Vec<CostedLine>, Vec<FieldError>> {
        let unknown = self.unknown_attributes(attributes);
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let mut lines = Vec::with_capacity(self.costs.len());
        let mut errors = Vec::new();
        for cost in &self.costs {
            let Some(decimals) = decimals_of(&cost.meter) else {
                errors
                    .push(FieldError::new("/operation", format!("costs the unknown meter `{}`", cost.meter)));
                continue;
            };
            match cost.line(attributes, decimals, estimating) {
                Ok(line) if line.units == Units::ZERO => {}
                Ok(line) => lines.push(line),
                Err(error) => errors.push(error),
            }
        }
        errors.dedup();
        match (errors.is_empty(), lines.is_empty()) {
            (false, _) => Err(errors),
            (true, true) => {
                Err(vec![FieldError::new("/attributes", "cost nothing: every line of the operation is zero")])
            }
            (true, false) => Ok(lines),
        }
    }

    fn unknown_attributes(&self, attributes: &Attributes) -> Vec<FieldError> {
        let known = |name: &str| self.uses().any(|(used, _)| used == name);
        let unknown = attributes.keys().filter(|name| !known(name));
        unknown
            .map(|name| {
                let message = format!("is no attribute of the operation `{}`", self.id);
                FieldError::new(child("/attributes", name), message)
            })
            .collect()
    }

    fn uses(&self) -> impl Iterator<Item = (&str, Use)> {
        self.costs.iter().flat_map(|cost| {
            let weights = cost.weights.keys().map(|name| (name.as_str(), Use::Weight));
            weights.chain(cost.factors.iter().map(|(name, factor)| match factor {
                AttributeFactor::WhenTrue(_) => (name.as_str(), Use::WhenTrue),
                AttributeFactor::ByText(_) => (name.as_str(), Use::ByText),
            }))
        })
    }

    /// Everything that is wrong with the operation; `decimals_of` returns the decimals of meters that exist.
    pub fn errors(&self, decimals_of: impl Fn(&MeterId) -> Option<Decimals>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if !(1..=LINES_MAX).contains(&self.costs.len()) {
            errors.push(FieldError::new("/costs", format!("must name 1 to {LINES_MAX} costs")));
        }
        for (index, cost) in self.costs.iter().enumerate() {
            let at = format!("/costs/{index}");
            if self.costs[..index].iter().any(|earlier| earlier.meter == cost.meter) {
                errors.push(FieldError::new(
                    format!("{at}/meter"),
                    "is in an earlier cost too; one cost per meter",
                ));
            }
            match decimals_of(&cost.meter) {
                Some(decimals) => errors.extend(cost.errors(decimals).into_iter().map(|e| e.under(&at))),
                None => {
                    errors.push(FieldError::new(format!("{at}/meter"), format!("no meter `{}`", cost.meter)))
                }
            }
        }
        if self.endpoints.len() > PATTERNS_MAX {
            errors.push(FieldError::new("/match", format!("must be at most {PATTERNS_MAX}")));
        }
        let uses: Vec<_> = self.uses().collect();
        for (index, (name, role)) in uses.iter().enumerate() {
            if uses[..index].iter().any(|(earlier, other)| earlier == name && other != role) {
                let message =
                    format!("the attribute `{name}` must be a number, a boolean or a text, not two of them");
                errors.push(FieldError::new("/costs", message));
            }
        }
        errors
    }
}

impl Cost {
    /// The percentile of its estimates.
    pub fn percentile(&self) -> Percentile {
        self.estimate_percentile.unwrap_or(Percentile::USUAL)
    }

    /// What is held where so much is learned: within its bounds, and at least one unit, so that its meter is reserved.
    /// Nothing learned holds the maximum.
    pub fn estimated_units(&self, learned: Option<Units>, decimals: Decimals) -> Units {
        let bound = |bound: Option<Amount>| bound.and_then(|amount| amount.to_units(decimals).ok());
        let max = bound(self.max).unwrap_or(Units::MAX);
        let least = bound(self.min).unwrap_or_default().max(Units::ONE);
        learned.map_or(max, |learned| learned.max(least).min(max))
    }

    fn line(
        &self,
        attributes: &Attributes,
        decimals: Decimals,
        estimating: Option<Estimating<'_>>,
    ) -> Result<CostedLine, FieldError> {
        // Whatever is wrong with the attributes is found in any case.
        let units = self.units(attributes, decimals)?;
        let meter = self.meter.clone();
        if self.estimate.is_none() || self.is_bounded(attributes) {
            return Ok(CostedLine { meter, units, estimate: None });
        }
        let Some(estimating) = estimating else {
            let names: Vec<_> = self.weights.keys().map(String::as_str).collect();
            let message = format!(
                "say nothing of `{meter}`, and only a reserve estimates it: give {}`lines`",
                if names.is_empty() { String::new() } else { format!("one of {}, or ", names.join(", ")) }
            );
            return Err(FieldError::new("/attributes", message));
        };
        let estimate = estimating(self, decimals);
        Ok(CostedLine { meter, units: estimate.units, estimate: Some(Box::new(estimate)) })
    }

    /// Whether an attribute says how much the work is.
    fn is_bounded(&self, attributes: &Attributes) -> bool {
        let is_given = |name| !matches!(attributes.get(name), None | Some(AttributeValue::Absent));
        self.weights.keys().any(is_given)
    }

    fn units(&self, attributes: &Attributes, decimals: Decimals) -> Result<Units, FieldError> {
        let too_large = || {
            let message =
                format!("cost more of `{}`, or with more digits, than can be counted exactly", self.meter);
            FieldError::new("/attributes", message)
        };
        let mut total = self.base.decimal();
        for (name, weight) in &self.weights {
            let term = exact_product(weight.decimal(), number(attributes, name)?).ok_or_else(too_large)?;
            total = exact_sum(total, term).ok_or_else(too_large)?;
        }
        for (name, factor) in &self.factors {
            if let Some(rate) = factor.applies(attributes, name)? {
                total = exact_product(total, rate.decimal()).ok_or_else(too_large)?;
            }
        }
        let bound = |bound: Option<Amount>| bound.and_then(|amount| amount.to_units(decimals).ok());
        // A maximum also bounds a cost that is too large to count, so it applies before the total is checked.
        let rounded =
            round_to_units(total, decimals, self.round).or(bound(self.max)).ok_or_else(too_large)?;
        let capped = bound(self.max).map_or(rounded, |max| rounded.min(max));
        Ok(bound(self.min).map_or(capped, |min| capped.max(min)))
    }

    fn errors(&self, decimals: Decimals) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut bound = |name: &str, value: Option<Amount>| {
            let units = value.map(|amount| amount.to_units(decimals))?;
            units.map_err(|error| errors.push(FieldError::new(format!("/{name}"), error.to_string()))).ok()
        };
        let (min, max) = (bound("min", self.min), bound("max", self.max));
        if min.zip(max).is_some_and(|(min, max)| min > max) {
            errors.push(FieldError::new("/min", "must not be above max"));
        }
        let is_learned = self.estimate.is_some();
        let has_no_formula = self.is_always_zero() && min.unwrap_or_default() == Units::ZERO;
        if max == Some(Units::ZERO) || (has_no_formula && !is_learned) {
            errors.push(FieldError::new("", "is always zero; give a base, a weight or a min"));
        }
        if is_learned && self.max.is_none() {
            errors.push(FieldError::new("/max", "is required with `estimate`: no estimate is above it"));
        }
        if !is_learned && self.estimate_percentile.is_some() {
            errors.push(FieldError::new("/estimate_percentile", "goes with `estimate`"));
        }
        if self.weights.len() > TERMS_MAX {
            errors.push(FieldError::new("/weights", "must be at most 32"));
        }
        if self.factors.len() > TERMS_MAX {
            errors.push(FieldError::new("/factors", "must be at most 32"));
        }
        for (name, factor) in &self.factors {
            if matches!(factor, AttributeFactor::ByText(rates) if rates.is_empty() || rates.len() > TERMS_MAX)
            {
                errors.push(FieldError::new(child("/factors", name), "must map 1 to 32 texts"));
            }
        }
        let names = |table: &str, name: &String| {
            let message = "must be 1 to 64 characters without control characters";
            (!super::meter::is_label(name, 64))
                .then(|| FieldError::new(child(&format!("/{table}"), name), message))
        };
        errors.extend(self.weights.keys().filter_map(|name| names("weights", name)));
        errors.extend(self.factors.keys().filter_map(|name| names("factors", name)));
        errors
    }

    fn is_always_zero(&self) -> bool {
        self.base.is_zero() && self.weights.values().all(|weight| weight.is_zero())
    }
}

impl AttributeFactor {
    fn applies(&self, attributes: &Attributes, name: &str) -> Result<Option<Factor>, FieldError> {
        let wrong = |message: String| Err(FieldError::new(child("/attributes", name), message));
        match (self, attributes.get(name).unwrap_or(&AttributeValue::Absent)) {
            (_, AttributeValue::Absent) | (Self::WhenTrue(_), AttributeValue::Bool(false)) => Ok(None),
            (Self::WhenTrue(rate), AttributeValue::Bool(true)) => Ok(Some(*rate)),
            (Self::WhenTrue(_), _) => wrong("must be true or false".to_owned()),
            (Self::ByText(rates), AttributeValue::Text(text)) => match rates.get(text) {
                Some(rate) => Ok(Some(*rate)),
                None => {
                    wrong(format!("must be one of: {}", rates.keys().cloned().collect::<Vec<_>>().join(", ")))
                }
            },
            (Self::ByText(_), _) => wrong("must be a text".to_owned()),
        }
    }
}

fn number(attributes: &Attributes, name: &str) -> Result<Decimal, FieldError> {
    let wrong = |error: InvalidAmount| FieldError::new(child("/attributes", name), error.to_string());
    match attributes.get(name).unwrap_or(&AttributeValue::Absent) {
        AttributeValue::Number(amount) => Ok(amount.decimal()),
        AttributeValue::Text(text) => Amount::parse(text).map(Amount::decimal).map_err(wrong),
        AttributeValue::Bool(_) => Err(wrong(InvalidAmount::Malformed)),
        AttributeValue::Absent => Ok(Decimal::ZERO),
    }
}

#[cfg(test)]
mod tests;
