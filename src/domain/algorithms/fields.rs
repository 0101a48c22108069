//! The fields of a limit that its algorithm reads.

use serde::{Deserialize, Serialize};

use super::concurrency::Counts;
use crate::domain::amount::Amount;
use crate::domain::field_error::about;
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
    /// `counts`.
    pub counts: Option<Counts>,
    /// `drain`.
    pub drain: Option<Amount>,
    /// `max_wait_seconds`.
    pub max_wait_seconds: Option<SpanSeconds>,
    /// `entries_max`.
    pub entries_max: Option<EntriesMax>,
}

impl Fields {
    /// Refuses fields that `algorithm` does not have.
    pub(super) fn only(&self, algorithm: &str, taken: &[&str]) -> Result<(), String> {
        let given = [
            ("window", self.window.is_some()),
            ("window_seconds", self.window_seconds.is_some()),
            ("aligned", self.aligned.is_some()),
            ("sub_windows", self.sub_windows.is_some()),
            ("refill", self.refill.is_some()),
            ("per_seconds", self.per_seconds.is_some()),
            ("counts", self.counts.is_some()),
            ("drain", self.drain.is_some()),
            ("max_wait_seconds", self.max_wait_seconds.is_some()),
            ("entries_max", self.entries_max.is_some()),
        ];
        match given.iter().find(|(name, is_given)| *is_given && !taken.contains(name)) {
            Some((name, _)) => Err(about(name, format!("the algorithm `{algorithm}` takes no `{name}`"))),
            None => Ok(()),
        }
    }
}

/// A length of time apart from the calendar: 1 second to 366 days.
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

/// The number of steps in which a window slides: 2 to 60.
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

/// How many entries a log has at most: 1 to 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct EntriesMax(u16);

impl EntriesMax {
    /// The most.
    pub const MAX: u16 = 10_000;
    /// The most where a limit does not say.
    pub const DEFAULT: u16 = 1_000;

    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for EntriesMax {
    type Error = String;
    fn try_from(count: u16) -> Result<Self, String> {
        match count {
            1..=Self::MAX => Ok(Self(count)),
            _ => Err(format!("must be 1 to {}", Self::MAX)),
        }
    }
}

impl From<EntriesMax> for u16 {
    fn from(count: EntriesMax) -> u16 {
        count.0
    }
}
