//! Cost defaults: what a check costs that names no operation and that no operation's pattern matches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::amount::{Amount, Decimals};
use super::endpoint::HttpMethod;
use super::field_error::{FieldError, child};
use super::ids::MeterId;
use super::operation::unique_map;

/// The most methods that have a cost of their own.
const METHODS_MAX: usize = 32;

/// What a call costs that is known by its method only. There is one of them at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostDefaults {
    /// What is counted.
    pub meter: MeterId,
    /// How much, by method.
    #[serde(default, deserialize_with = "unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub methods: BTreeMap<String, Amount>,
    /// How much for any other method; absent: such a check is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Amount>,
}

impl CostDefaults {
    /// The id under which the only one is stored.
    pub const ID: &str = "default";

    /// What a call by this method costs, if that is said.
    pub fn cost(&self, method: &HttpMethod) -> Option<Amount> {
        self.methods.get(method.as_str()).copied().or(self.other)
    }

    /// Everything wrong with it; `decimals_of` knows the meters that exist.
    pub fn errors(&self, decimals_of: impl Fn(&MeterId) -> Option<Decimals>) -> Vec<FieldError> {
        let Some(decimals) = decimals_of(&self.meter) else {
            return vec![FieldError::new("/meter", format!("no meter `{}`", self.meter))];
        };
        let mut errors = Vec::new();
        if self.methods.is_empty() && self.other.is_none() {
            errors.push(FieldError::new("/other", "give it, or a cost by method"));
        }
        if self.methods.len() > METHODS_MAX {
            errors.push(FieldError::new("/methods", format!("must be at most {METHODS_MAX}")));
        }
        let mut cost = |pointer: String, amount: Amount| match amount.to_units(decimals) {
            Err(error) => errors.push(FieldError::new(pointer, error.to_string())),
            Ok(_) if amount.is_zero() => errors.push(FieldError::new(pointer, "must be more than 0")),
            Ok(_) => {}
        };
        for (method, amount) in &self.methods {
            cost(child("/methods", method), *amount);
        }
        self.other.into_iter().for_each(|amount| cost("/other".to_owned(), amount));
        let wrong =
            self.methods.keys().filter_map(|name| Some((name, HttpMethod::try_from(name.clone()).err()?)));
        errors.extend(wrong.map(|(name, message)| FieldError::new(child("/methods", name), message)));
        errors
    }
}
