//! Webhooks: receivers to which notices of quotas are delivered, signed by the rules of Standard Webhooks.

mod signature;
mod url;

pub use self::url::{WebhookHost, WebhookUrl};
pub use signature::{WebhookSecret, sign};

use super::uuid_id::uuid_ids;

uuid_ids! {
    /// The id of a webhook.
    WebhookId, "must be the id of a webhook";
    /// The id of a delivery: the same at each attempt, so that a receiver knows a repeat.
    DeliveryId, "must be the id of a delivery";
}

/// What a webhook can be notified about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookEvent {
    /// Booked usage has reached a threshold of a quota.
    Threshold,
    /// A quota is forecast to be used up before its period ends.
    Forecast,
    /// One of both holds no longer.
    Resolved,
}

impl WebhookEvent {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Threshold, Self::Forecast, Self::Resolved];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Threshold => "quota.threshold",
            Self::Forecast => "quota.forecast",
            Self::Resolved => "quota.resolved",
        }
    }

    /// The event with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == word)
    }
}

/// How far a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is sent at its next attempt.
    Waiting,
    /// The receiver has accepted it.
    Delivered,
    /// It was tried for a day.
    Failed,
}

impl DeliveryState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Delivered, Self::Failed];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    /// The state with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// How long a delivery is retried after its first failure.
pub const RETRIED_FOR_MS: i64 = 86_400_000;
const FIRST_WAIT_MS: i64 = 10_000;
const LONGEST_WAIT_MS: i64 = 3_600_000;

/// How long to wait after that many failed attempts: ten seconds, doubled each time, at most an hour; with up to a
/// fifth more by `jitter_thousandths` (0 to 1000), so that receivers that were away together are not called together.
pub fn wait_ms(attempts: u32, jitter_thousandths: u16) -> i64 {
    let doubled = attempts.saturating_sub(1).min(20);
    let wait_ms = (FIRST_WAIT_MS << doubled).min(LONGEST_WAIT_MS);
    wait_ms + wait_ms * i64::from(jitter_thousandths.min(1_000)) / 5_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_an_hour_and_a_day_has_some_thirty_of_them() {
        assert_eq!(
            [1, 2, 3, 9, 10, u32::MAX].map(|attempts| wait_ms(attempts, 0) / 1_000),
            [10, 20, 40, 2_560, 3_600, 3_600]
        );
        assert_eq!((wait_ms(1, 1_000), wait_ms(1, u16::MAX)), (12_000, 12_000));
        let mut passed_ms = 0;
        let attempts = (1..).take_while(|attempts| {
            passed_ms += wait_ms(*attempts, 500);
            passed_ms < RETRIED_FOR_MS
        });
        assert!((25..=35).contains(&attempts.count()));
    }

    #[test]
    fn words_lead_back_to_what_they_name() {
        for event in WebhookEvent::ALL {
            assert_eq!(WebhookEvent::from_word(event.as_str()), Some(event));
        }
        for state in DeliveryState::ALL {
            assert_eq!(DeliveryState::from_word(state.as_str()), Some(state));
        }
    }
}
