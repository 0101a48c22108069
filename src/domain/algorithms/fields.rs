//! The fields of a limit that its algorithm reads.

use serde::{Deserialize, Serialize};

use crate::domain::amount::Amount;
use crate::domain::period::WindowKind;

/// The fields of a limit that its algorithm reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields {
    /// `window`.
    pub window: Option<WindowKind>,
    /// `window_seconds`.
    pub window_seconds: Option<SpanSeconds>,
    /// `aligned`.
    pub aligned: Option<bool>,
    /// `sub_windows`.
    pub sub_windows: Option<SubWindows>,
    /// `refill`.
    pub refill: Option<Amount>,
    /// `per_seconds`.
    pub per_seconds: Option<SpanSeconds>,
}

impl Fields {
    /// Refuses fields that `algorithm` does not take.
    pub(super) fn only(&self, algorithm: &str, taken: &[&str]) -> Result<(), String> {
        let given = [
            ("window", self.window.is_some()),
            ("window_seconds", self.window_seconds.is_some()),
            ("aligned", self.aligned.is_some()),
            ("sub_windows", self.sub_windows.is_some()),
            ("refill", self.refill.is_some()),
            ("per_seconds", self.per_seconds.is_some()),
        ];
        match given.iter().find(|(name, is_given)| *is_given && !taken.contains(name)) {
            Some((name, _)) => Err(format!("the algorithm `{algorithm}` takes no `{name}`")),
            None => Ok(()),
        }
    }
}

/// A length of time that no calendar cuts: 1 second to 366 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct SpanSeconds(u32);

impl SpanSeconds {
    /// The longest.
    pub const MAX: u32 = 366 * 86_400;

    /// The seconds.
    pub fn get(self) -> u32 {
        self.0
    }

    /// In milliseconds.
    pub fn ms(self) -> i64 {
        i64::from(self.0) * 1000
    }
}

impl TryFrom<u32> for SpanSeconds {
    type Error = String;
    fn try_from(seconds: u32) -> Result<Self, String> {
        match seconds {
            1..=Self::MAX => Ok(Self(seconds)),
            _ => Err(format!("must be 1 to {} seconds", Self::MAX)),
        }
    }
}

impl From<SpanSeconds> for u32 {
    fn from(seconds: SpanSeconds) -> u32 {
        seconds.0
    }
}

/// In how many steps a window slides: 2 to 60.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct SubWindows(u8);

impl SubWindows {
    /// The fewest.
    pub const MIN: u8 = 2;
    /// The most.
    pub const MAX: u8 = 60;

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for SubWindows {
    fn default() -> Self {
        Self(10)
    }
}

impl TryFrom<u8> for SubWindows {
    type Error = String;
    fn try_from(count: u8) -> Result<Self, String> {
        match count {
            Self::MIN..=Self::MAX => Ok(Self(count)),
            _ => Err(format!("must be {} to {}", Self::MIN, Self::MAX)),
        }
    }
}

impl From<SubWindows> for u8 {
    fn from(count: SubWindows) -> u8 {
        count.0
    }
}
