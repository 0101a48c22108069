//! A meter: what is counted, with its unit and number of decimals.

use serde::{Deserialize, Serialize};

use super::amount::Decimals;
use super::field_error::FieldError;
use super::ids::MeterId;
use super::reservation::{OnExcess, OnLate};

/// Money is booked under this and the code of its currency; no meter's name begins with it.
pub const MONEY_PREFIX: &str = "money:";

/// The longest a reservation may ask to be held at once: a day, in seconds.
pub const TTL_SECONDS_MAX: u32 = 86_400;
/// How long a hold may be asked to live: 1 second to a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldSeconds(u32);

impl HoldSeconds {
    /// The seconds, if a hold may live that long.
    ///
    /// # Errors
    /// The permitted range.
    pub fn new(seconds: u32) -> Result<Self, String> {
        match seconds {
            1..=TTL_SECONDS_MAX => Ok(Self(seconds)),
            _ => Err(format!("must be 1 to {TTL_SECONDS_MAX} seconds")),
        }
    }

    /// The seconds.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The longest a reservation may live in all its extensions: 31 days, in seconds.
pub const LIFE_SECONDS_MAX: u32 = 31 * 86_400;
/// The latest a late consume may be charged: 400 days after expiry, in seconds.
pub const LATE_SECONDS_MAX: u32 = 400 * 86_400;

/// How a tenant is treated on a meter for which it has neither limit nor quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WithoutLimit {
    /// As the configuration says.
    #[default]
    Config,
    /// Refused.
    Deny,
    /// Unlimited.
    Unlimited,
}

/// What is counted. The same fields in a file, over the API and in storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meter {
    /// Its name: `ocr.page`.
    pub id: MeterId,
    /// The name of one unit: `page`. 1 to 64 printable characters, fixed after first use.
    pub unit: String,
    /// How many decimals its amounts have, 0 to 6; fixed after first use.
    #[serde(default)]
    pub decimals: Decimals,
    /// Whether its use is booked. If not, the gate alone counts it, by checks. A booked meter stays so after first use.
    #[serde(default = "default_booked")]
    pub booked: bool,
    /// How a consume above the hold is treated.
    #[serde(default)]
    pub on_excess: OnExcess,
    /// How a consume after expiry is treated.
    #[serde(default)]
    pub on_late: OnLate,
    /// How long after expiry a late consume is still charged, in seconds.
    #[serde(default = "default_late_within_seconds")]
    pub late_within_seconds: u32,
    /// How tenants with neither limit nor quota on it are treated.
    #[serde(default)]
    pub without_limit: WithoutLimit,
    /// How long a reservation holds by default, 1 to 86400 seconds.
    #[serde(default = "default_ttl_seconds")]
    pub ttl_seconds: u32,
    /// How long extensions may keep a reservation alive in all, in seconds; at least `ttl_seconds`.
    #[serde(default = "default_max_life_seconds")]
    pub max_life_seconds: u32,
    /// Whether new work on it is refused while its books remain.
    #[serde(default)]
    pub archived: bool,
}

fn default_booked() -> bool {
    true
}

fn default_late_within_seconds() -> u32 {
    604_800
}

fn default_ttl_seconds() -> u32 {
    60
}

fn default_max_life_seconds() -> u32 {
    86_400
}

impl Meter {
    /// Everything that is wrong with the meter by itself.
    pub fn errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if self.id.as_str().starts_with(MONEY_PREFIX) {
            errors.push(FieldError::new("/id", "must not begin with `money:`: money is booked under it"));
        }
        if !is_label(&self.unit, 64) {
            errors.push(FieldError::new("/unit", "must be 1 to 64 characters without control characters"));
        }
        if let Err(message) = HoldSeconds::new(self.ttl_seconds) {
            errors.push(FieldError::new("/ttl_seconds", message));
        }
        if !(1..=LIFE_SECONDS_MAX).contains(&self.max_life_seconds) {
            errors.push(FieldError::new("/max_life_seconds", "must be 1 to 2678400 seconds (31 days)"));
        } else if self.ttl_seconds > self.max_life_seconds {
            errors.push(FieldError::new("/ttl_seconds", "must not be above max_life_seconds"));
        }
        if self.late_within_seconds > LATE_SECONDS_MAX {
            errors
                .push(FieldError::new("/late_within_seconds", "must be at most 34560000 seconds (400 days)"));
        }
        errors
    }

    /// The differences from `new` that are allowed only while the meter is unused: unit, decimals and being booked are
    /// fixed after that.
    pub fn change_needs_unused(&self, new: &Self) -> Vec<FieldError> {
        let fixed = |pointer: &str, changed: bool| {
            changed.then(|| {
                FieldError::new(pointer, "is fixed after the meter's first use; make a new meter instead")
            })
        };
        fixed("/unit", self.unit != new.unit)
            .into_iter()
            .chain(fixed("/decimals", self.decimals != new.decimals))
            .chain(fixed("/booked", self.booked && !new.booked))
            .collect()
    }
}

/// Whether `text` is 1 to `characters` long and has no control characters.
pub(crate) fn is_label(text: &str, characters: usize) -> bool {
    !text.trim().is_empty() && text.chars().count() <= characters && !text.chars().any(char::is_control)
}
