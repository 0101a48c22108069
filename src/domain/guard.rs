//! What guards an operation beside its limits.

use serde::{Deserialize, Serialize};

/// How far a guard looks back: 1 second to a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct GuardSeconds(u32);

impl GuardSeconds {
    /// The longest.
    pub const MAX: u32 = 86_400;

    /// The seconds.
    pub fn get(self) -> u32 {
        self.0
    }

    /// In milliseconds.
    pub fn ms(self) -> i64 {
        i64::from(self.0) * 1000
    }
}

impl TryFrom<u32> for GuardSeconds {
    type Error = String;
    fn try_from(seconds: u32) -> Result<Self, String> {
        match seconds {
            1..=Self::MAX => Ok(Self(seconds)),
            _ => Err(format!("must be 1 to {} seconds", Self::MAX)),
        }
    }
}

impl From<GuardSeconds> for u32 {
    fn from(seconds: GuardSeconds) -> u32 {
        seconds.0
    }
}
