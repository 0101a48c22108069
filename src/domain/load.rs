//! How busy the installation is, and by how much the capacities of limits that ask for it shrink.
//!
//! A load is in parts per thousand. Measured loads are averaged over five seconds, so that a moment's spike changes
//! nothing. The level falls at once and rises only after the load was low for ten seconds, so that it does not swing.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::amount::{Amount, Decimals, Units};

/// Over how long measured loads are averaged, in ms.
const AVERAGED_MS: i64 = 5_000;

/// For how long the load must be low before capacities grow again, in ms.
pub const CALM_MS: i64 = 10_000;

/// How much of what can be done is being done, in parts per thousand; 1,000 is all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Amount", into = "String")]
pub struct LoadFactor(u16);

/// A number is no load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be \"0\" to \"1\" in plain digits, with at most 3 decimals")]
pub struct InvalidLoad;

impl LoadFactor {
    /// All that can be done.
    pub const FULL: Self = Self(1_000);

    /// So many parts of so many; more than all, or a part of nothing, is all.
    pub fn of(part: u64, whole: u64) -> Self {
        let thousandths = u128::from(part).saturating_mul(1_000).checked_div(u128::from(whole));
        let bounded = thousandths.and_then(|thousandths| u16::try_from(thousandths).ok());
        bounded.map_or(Self::FULL, |thousandths| Self(thousandths).min(Self::FULL))
    }

    /// So many parts per thousand; more than 1,000 are 1,000.
    pub fn from_thousandths(thousandths: u16) -> Self {
        Self(thousandths).min(Self::FULL)
    }

    /// The parts per thousand.
    pub fn thousandths(self) -> u16 {
        self.0
    }
}

impl FromStr for LoadFactor {
    type Err = InvalidLoad;
    fn from_str(text: &str) -> Result<Self, InvalidLoad> {
        Amount::parse(text).map_err(|_| InvalidLoad)?.try_into()
    }
}

/// It is read as every number is: from a string or an integer.
impl TryFrom<Amount> for LoadFactor {
    type Error = InvalidLoad;
    fn try_from(amount: Amount) -> Result<Self, InvalidLoad> {
        let decimals = Decimals::new(3).ok_or(InvalidLoad)?;
        let units = amount.to_units(decimals).map_err(|_| InvalidLoad)?;
        let thousandths = u16::try_from(units.get()).map_err(|_| InvalidLoad)?;
        if thousandths <= 1_000 { Ok(Self(thousandths)) } else { Err(InvalidLoad) }
    }
}

impl From<LoadFactor> for String {
    fn from(factor: LoadFactor) -> String {
        factor.to_string()
    }
}

impl fmt::Display for LoadFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Decimal::new(i64::from(self.0), 3).normalize(), f)
    }
}

/// For how long a pushed load holds: 1 second to a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct LoadSeconds(u32);

impl LoadSeconds {
    /// The longest.
    pub const MAX: u32 = 86_400;

    /// The seconds.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for LoadSeconds {
    type Error = String;
    fn try_from(seconds: u32) -> Result<Self, String> {
        match seconds {
            1..=Self::MAX => Ok(Self(seconds)),
            _ => Err(format!("must be 1 to {} seconds", Self::MAX)),
        }
    }
}

impl From<LoadSeconds> for u32 {
    fn from(seconds: LoadSeconds) -> u32 {
        seconds.0
    }
}

/// By how much capacities are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum LoadLevel {
    /// Not at all.
    #[default]
    Full,
    /// To three quarters.
    ThreeQuarters,
    /// To a half.
    Half,
}

impl LoadLevel {
    /// All of them, by number.
    pub const ALL: [Self; 3] = [Self::Full, Self::ThreeQuarters, Self::Half];

    /// Its number, from 0: the higher, the less is admitted.
    pub fn number(self) -> u8 {
        match self {
            Self::Full => 0,
            Self::ThreeQuarters => 1,
            Self::Half => 2,
        }
    }

    /// The level of this number.
    pub fn of_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// The factor as answers show it; none where nothing is scaled.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Full => None,
            Self::ThreeQuarters => Some("0.75"),
            Self::Half => Some("0.5"),
        }
    }

    /// A capacity at this level: rounded down, and at least one unit of what is more than none.
    pub fn scale(self, capacity: Units) -> Units {
        let quarters = match self {
            Self::Full => return capacity,
            Self::ThreeQuarters => 3,
            Self::Half => 2,
        };
        let units = capacity.get();
        // In two parts, so that no product leaves the range.
        let scaled = units / 4 * quarters + units % 4 * quarters / 4;
        Units::new(scaled.max(units.min(1))).unwrap_or(capacity)
    }
}

/// Measured loads of the last seconds.
#[derive(Debug, Clone, Default)]
pub struct MeasuredLoad {
    samples: VecDeque<(i64, LoadFactor)>,
}

impl MeasuredLoad {
    /// Adds a load that was measured at `at_ms`, later than all before; returns their average.
    pub fn take(&mut self, at_ms: i64, load: LoadFactor) -> LoadFactor {
        self.samples.push_back((at_ms, load));
        while self.samples.front().is_some_and(|(taken_ms, _)| *taken_ms <= at_ms - AVERAGED_MS) {
            self.samples.pop_front();
        }
        self.average()
    }

    /// The average of what was measured; nothing where nothing was.
    pub fn average(&self) -> LoadFactor {
        let sum: u64 = self.samples.iter().map(|(_, load)| u64::from(load.thousandths())).sum();
        let count = u64::try_from(self.samples.len()).unwrap_or(u64::MAX);
        let average = sum.checked_div(count).and_then(|average| u16::try_from(average).ok());
        LoadFactor::from_thousandths(average.unwrap_or_default())
    }
}

/// From which load on capacities fall to a level, and below which they may leave it again.
const STEPS: [(LoadLevel, u16, u16); 2] = [(LoadLevel::ThreeQuarters, 600, 500), (LoadLevel::Half, 800, 700)];

/// The level of the load over time.
#[derive(Debug, Clone, Default)]
pub struct LoadSteps {
    level: LoadLevel,
    /// Since when the load was low enough to leave each level, in the order of [`STEPS`].
    calm_since_ms: [Option<i64>; 2],
}

impl LoadSteps {
    /// The level that was found last.
    pub fn level(&self) -> LoadLevel {
        self.level
    }

    /// Takes the load at `now_ms`, not before the last one, and returns the level: a heavier one at once, a lighter one
    /// once the load was low enough for [`CALM_MS`].
    pub fn take(&mut self, load: LoadFactor, now_ms: i64) -> LoadLevel {
        let mut level = LoadLevel::Full;
        for ((of_step, from, below), calm_since_ms) in STEPS.into_iter().zip(&mut self.calm_since_ms) {
            let is_calm = load.thousandths() < below;
            *calm_since_ms = if is_calm { Some(calm_since_ms.unwrap_or(now_ms)) } else { None };
            let was_calm = calm_since_ms.is_some_and(|since_ms| now_ms - since_ms >= CALM_MS);
            let stays = self.level >= of_step && !was_calm;
            if load.thousandths() >= from || stays {
                level = of_step;
            }
        }
        self.level = level;
        level
    }
}

#[cfg(test)]
mod tests;
