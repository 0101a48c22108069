//! How single values on the command line are read and named.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use jiff::{Span, SpanRelativeTo, Timestamp};

use crate::clock::Clock;
use crate::domain::ids::{OutboxId, Partition};
use crate::domain::instant::{Instant, InvalidInstant};
use crate::domain::policy::edit::Prune;

/// An event's place: its partition and its id in that outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventPlace {
    /// The partition.
    pub partition: Partition,
    /// The place in its outbox.
    pub event: OutboxId,
}

impl ValueEnum for Prune {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Meters => "Meters that are not in the books",
            Self::Operations => "Operations",
            Self::CostDefaults => "The cost defaults",
            Self::Limits => "Limits: default ones, and those that a list in the file leaves out",
            Self::Plans => "Plans that no tenant is on",
            Self::Quotas => "Quotas that a plan of the file leaves out",
            Self::Subjects => "Subjects with a plan of their own that a tenant of the file leaves out",
            Self::Overrides => "Overrides that a tenant of the file leaves out",
            Self::Bans => "Bans that a tenant of the file leaves out",
            Self::Prices => "Prices that a plan or tenant of the file leaves out",
            Self::Discounts => "Discounts that a plan or tenant of the file leaves out",
            Self::MinimumCommitments => "Minimum commitments that a plan or tenant of the file leaves out",
            Self::Taxes => "Taxes that a tenant of the file leaves out",
        };
        Some(PossibleValue::new(self.as_str()).help(help))
    }
}

/// The word that clap reads for a value: the same as the API's.
pub(in crate::cli) fn word<Value: ValueEnum>(value: Value) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// An instant, in RFC 3339.
pub(super) fn instant(text: &str) -> Result<Timestamp, InvalidInstant> {
    text.parse().map(Instant::timestamp)
}

/// The same, or so long ago: `24h`, `7d`.
pub(super) fn instant_or_ago(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = instant(text) {
        return Ok(at);
    }
    let wrong = || "must be an instant such as 2026-11-22T00:00:00Z, or a time such as 24h or 7d".to_owned();
    let ago: Span = text.parse().map_err(|_| wrong())?;
    let ago = ago.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    let ago_ms = i64::try_from(ago.as_millis()).ok().filter(|ms| *ms > 0).ok_or_else(wrong)?;
    let at = Instant::from_ms(Clock::system().now_ms().saturating_sub(ago_ms)).ok_or_else(wrong)?;
    Ok(at.timestamp())
}

/// The same, or the word `now`.
pub(super) fn instant_or_now(text: &str) -> Result<Timestamp, InvalidInstant> {
    let now = || Instant::from_ms(Clock::system().now_ms()).ok_or(InvalidInstant::Malformed);
    if text == "now" { now().map(Instant::timestamp) } else { instant(text) }
}

/// An event of the quarantine, as its list shows it: `p07:1-42`.
pub(super) fn event_place(text: &str) -> Result<EventPlace, String> {
    let parse = || {
        let (partition, event) = text.strip_prefix('p')?.split_once(':')?;
        let partition = Partition::new(partition.parse().ok()?)?;
        let event = event.split_once('-').and_then(|_| event.parse().ok())?;
        Some(EventPlace { partition, event })
    };
    parse().ok_or_else(|| {
        "must be an id as `tollgate quarantine list` shows it, for example p07:1-42".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_named_as_the_list_shows_it() {
        let place = event_place("p07:1-42").unwrap();
        assert_eq!((place.partition.to_string(), place.event.to_string()), ("p07".into(), "1-42".into()));
        for bad in ["", "07:1-42", "p07", "p07:1", "p999:1-2", "p07:x-1", "p07:1-"] {
            assert!(event_place(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_time_ago_is_read_beside_an_instant() {
        let at = instant_or_ago("2026-03-10T00:00:00Z").unwrap();
        assert_eq!(at.to_string(), "2026-03-10T00:00:00Z");
        let ago_ms = |text| {
            let at = instant_or_ago(text).unwrap();
            Clock::system().now_ms() - at.as_millisecond()
        };
        assert!((86_400_000..86_460_000).contains(&ago_ms("24h")));
        assert!((604_800_000..604_860_000).contains(&ago_ms("7d")));
        for bad in ["", "24", "-24h", "0h", "yesterday"] {
            assert!(instant_or_ago(bad).is_err(), "{bad:?}");
        }
    }
}
