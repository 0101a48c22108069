//! When each row is due.

use std::time::Duration;

use rust_decimal::Decimal;
use tokio::time::{Instant, sleep_until};

/// How fast a trace is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speed {
    /// As fast as the service answers.
    Max,
    /// So many times faster than recorded: `numerator` / `denominator`, both above 0.
    Scaled {
        /// Above the line.
        numerator: i128,
        /// Below the line.
        denominator: i128,
    },
}

impl Speed {
    /// Reads `real`, `max` or a plain decimal number above 0.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "max" => Ok(Self::Max),
            "real" => Ok(Self::Scaled { numerator: 1, denominator: 1 }),
            number => Self::scaled(number)
                .ok_or_else(|| "must be `real`, `max`, or a number above 0 such as 10 or 0.5".to_owned()),
        }
    }

    fn scaled(text: &str) -> Option<Self> {
        let is_plain = text.len() <= 12 && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let factor = Decimal::from_str_exact(text).ok().filter(|factor| is_plain && !factor.is_zero())?;
        Some(Self::Scaled { numerator: factor.mantissa(), denominator: 10_i128.pow(factor.scale()) })
    }

    /// How long after the start a row is due that was recorded `offset_us` after the first.
    fn due(self, offset_us: i64) -> Duration {
        match self {
            Self::Max => Duration::ZERO,
            Self::Scaled { numerator, denominator } => {
                let due_us = i128::from(offset_us.max(0)) * denominator / numerator;
                Duration::from_micros(u64::try_from(due_us).unwrap_or(u64::MAX))
            }
        }
    }
}

/// The start of a replay, and how fast it goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    speed: Speed,
    started: Instant,
    first_us: i64,
}

impl Pace {
    /// A replay that starts now with a row recorded at `first_us`.
    pub(super) fn start(speed: Speed, first_us: i64) -> Self {
        Self { speed, started: Instant::now(), first_us }
    }

    /// Waits until a row recorded at `at_us` is due.
    pub(super) async fn wait(&self, at_us: i64) {
        let due = self.speed.due(at_us.saturating_sub(self.first_us));
        if let Some(due) = self.started.checked_add(due).filter(|_| !due.is_zero()) {
            sleep_until(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_due_when_it_was_recorded_or_sooner() {
        let due_us = |speed: &str, offset_us| Speed::parse(speed).unwrap().due(offset_us).as_micros();
        assert_eq!(due_us("real", 1_500_000), 1_500_000);
        assert_eq!(due_us("10", 1_500_000), 150_000);
        assert_eq!(due_us("0.5", 1_500_000), 3_000_000);
        assert_eq!(due_us("max", 1_500_000), 0);
        assert_eq!(due_us("real", -5), 0, "a row out of order is due at once");
    }

    #[test]
    fn only_speeds_above_zero_are_taken() {
        for bad in ["", "0", "0.0", "-1", "fast", "1e3", "NaN", "1.2.3", "1000000000000"] {
            assert!(Speed::parse(bad).is_err(), "{bad:?}");
        }
    }
}
