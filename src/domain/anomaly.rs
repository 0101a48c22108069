//! What a limit does to a subject that suddenly calls much more often than it used to: it says so, or refuses.

use rust_decimal::prelude::ToPrimitive;
use serde::{Deserialize, Serialize};

use super::factor::{Factor, exact_product};
use super::field_error::about;

/// After how many intervals between calls a subject is known well enough to be judged: 2 to 1,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct SampleCount(u16);

impl SampleCount {
    /// The fewest.
    pub const MIN: u16 = 2;
    /// The most.
    pub const MAX: u16 = 1_000;

    /// The number.
    pub fn get(self) -> i64 {
        i64::from(self.0)
    }
}

impl TryFrom<u16> for SampleCount {
    type Error = String;
    fn try_from(count: u16) -> Result<Self, String> {
        match count {
            Self::MIN..=Self::MAX => Ok(Self(count)),
            _ => Err(format!("must be {} to {} samples", Self::MIN, Self::MAX)),
        }
    }
}

impl From<SampleCount> for u16 {
    fn from(count: SampleCount) -> u16 {
        count.0
    }
}

/// By how many of its usual deviations a subject's calls come closer together than usual: 0.1 to 100, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Factor", into = "Factor")]
pub struct Deviations {
    factor: Factor,
    thousandths: i64,
}

impl Deviations {
    /// The number in thousandths.
    pub fn thousandths(self) -> i64 {
        self.thousandths
    }
}

impl TryFrom<Factor> for Deviations {
    type Error = String;
    fn try_from(factor: Factor) -> Result<Self, String> {
        let thousandths = exact_product(factor.decimal(), 1_000.into())
            .filter(rust_decimal::Decimal::is_integer)
            .and_then(|thousandths| thousandths.to_i64())
            .filter(|thousandths| (100..=100_000).contains(thousandths));
        match thousandths {
            Some(thousandths) => Ok(Self { factor, thousandths }),
            None => Err("must be 0.1 to 100, with at most three decimals".into()),
        }
    }
}

impl From<Deviations> for Factor {
    fn from(deviations: Deviations) -> Factor {
        deviations.factor
    }
}

/// What is done about a call that comes much sooner than usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is admitted with a warning, and counted in a metric.
    Monitor,
    /// It is refused.
    Throttle,
}

/// What is done from each of the two bounds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Actions {
    /// From `monitor_z` on.
    #[serde(default = "monitor")]
    pub monitor: Action,
    /// From `throttle_z` on.
    #[serde(default = "throttle")]
    pub throttle: Action,
}

fn monitor() -> Action {
    Action::Monitor
}

fn throttle() -> Action {
    Action::Throttle
}

impl Default for Actions {
    fn default() -> Self {
        Self { monitor: monitor(), throttle: throttle() }
    }
}

/// What a limit does to a subject that suddenly calls much more often than it used to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "AnomalyFields", into = "AnomalyFields")]
pub struct Anomaly {
    /// After how many intervals a subject is judged.
    pub min_samples: SampleCount,
    /// From how many deviations on a call is an anomaly.
    pub monitor_z: Deviations,
    /// From how many on it is a grave one.
    pub throttle_z: Deviations,
    /// What is done about each.
    pub actions: Actions,
}

impl Anomaly {
    /// From how many deviations on, in thousandths, calls are refused; none: never.
    pub fn refuses_from(&self) -> Option<i64> {
        match (self.actions.monitor, self.actions.throttle) {
            (Action::Throttle, _) => Some(self.monitor_z.thousandths()),
            (Action::Monitor, Action::Throttle) => Some(self.throttle_z.thousandths()),
            (Action::Monitor, Action::Monitor) => None,
        }
    }
}

/// The same as it is written.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "Anomaly")]
struct AnomalyFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_samples: Option<SampleCount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    monitor_z: Option<Deviations>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    throttle_z: Option<Deviations>,
    #[serde(default)]
    actions: Actions,
}

/// The bounds and samples where nothing is said of them.
const MIN_SAMPLES: u16 = 10;
const MONITOR_Z: &str = "2";
const THROTTLE_Z: &str = "3";

impl TryFrom<AnomalyFields> for Anomaly {
    type Error = String;
    fn try_from(fields: AnomalyFields) -> Result<Self, String> {
        let or = |given: Option<Deviations>, z: &str| match given {
            Some(given) => Ok(given),
            None => Factor::parse(z).map_err(|error| error.to_string()).and_then(Deviations::try_from),
        };
        let (monitor_z, throttle_z) = (or(fields.monitor_z, MONITOR_Z)?, or(fields.throttle_z, THROTTLE_Z)?);
        if throttle_z.thousandths() < monitor_z.thousandths() {
            return Err(about("throttle_z", "`throttle_z` must not be below `monitor_z`"));
        }
        if fields.actions.throttle < fields.actions.monitor {
            return Err(about("actions", "what is graver must not be treated more mildly"));
        }
        let min_samples = match fields.min_samples {
            Some(min_samples) => min_samples,
            None => SampleCount::try_from(MIN_SAMPLES)?,
        };
        Ok(Self { min_samples, monitor_z, throttle_z, actions: fields.actions })
    }
}

impl From<Anomaly> for AnomalyFields {
    fn from(anomaly: Anomaly) -> Self {
        let Anomaly { min_samples, monitor_z, throttle_z, actions } = anomaly;
        Self {
            min_samples: Some(min_samples),
            monitor_z: Some(monitor_z),
            throttle_z: Some(throttle_z),
            actions,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::field_error::read_json;

    fn read(fields: Value) -> Result<Anomaly, String> {
        read_json(&fields).map_err(|error| format!("{}: {}", error.pointer, error.message))
    }

    #[test]
    fn it_is_written_as_it_is_read_with_all_that_is_left_out() {
        let full = json!({
            "min_samples": 10, "monitor_z": "2", "throttle_z": "3",
            "actions": { "monitor": "monitor", "throttle": "throttle" }
        });
        assert_eq!(serde_json::to_value(read(full.clone()).unwrap()).unwrap(), full);
        assert_eq!(serde_json::to_value(read(json!({})).unwrap()).unwrap(), full);
    }

    #[test]
    fn it_refuses_from_the_bound_on_whose_action_says_so() {
        let from = |actions: Value| read(json!({ "actions": actions })).unwrap().refuses_from();
        assert_eq!(from(json!({})), Some(3_000));
        assert_eq!(from(json!({ "throttle": "monitor" })), None);
        assert_eq!(from(json!({ "monitor": "throttle" })), Some(2_000));
    }

    #[test]
    fn what_is_wrong_names_its_field() {
        for (fields, field) in [
            (json!({ "min_samples": 1 }), "min_samples"),
            (json!({ "min_samples": 1001 }), "min_samples"),
            (json!({ "monitor_z": "0.09" }), "monitor_z"),
            (json!({ "monitor_z": "1.0005" }), "monitor_z"),
            (json!({ "throttle_z": "101" }), "throttle_z"),
            (json!({ "throttle_z": "1.9" }), "throttle_z"),
            (json!({ "monitor_z": "3.1" }), "throttle_z"),
            (json!({ "actions": { "monitor": "throttle", "throttle": "monitor" } }), "actions"),
            (json!({ "actions": { "monitor": "ban" } }), "actions/monitor"),
            (json!({ "actions": { "colour": "red" } }), "actions"),
            (json!({ "colour": "red" }), "colour"),
        ] {
            let error = read(fields.clone()).unwrap_err();
            assert!(error.contains(field), "{fields}: {error}");
        }
    }
}
