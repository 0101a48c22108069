//! The one module that knows every boundary: hours, days, weeks, months and billing periods in a tenant's zone.
//!
//! Windows are half-open, contiguous and never overlap. A day starts at the first instant whose local date is that day
//! or, where the clock was set back over midnight, at the first of its two midnights. A local hour is cut where the
//! zone changes its offset, so that every longer window consists of whole hours.

use std::fmt;
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

mod calendars;
#[cfg(test)]
mod tests;

pub use calendars::{Calendars, DatedCalendar};

use super::civil_date::CivilDate;
use super::whole_number::whole_number;

const HOUR_MS: i64 = 3_600_000;

/// How long before its start a period is opened at the earliest (ms).
pub const OPENED_AHEAD_MS: i64 = 24 * HOUR_MS;

/// Calendars work between these instants (years 1 to 9999); an instant outside counts as the nearer of them.
const EARLIEST_MS: i64 = -62_135_596_800_000;
const LATEST_MS: i64 = 253_370_764_800_000;

/// The zones of the world, built into the program: the same on every machine.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone by its IANA name, such as `Europe/Berlin`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone(TimeZone);

/// There is no zone of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not an IANA time zone; did you mean `{near}`?")]
pub struct UnknownZone {
    name: String,
    near: String,
}

impl Zone {
    /// The zone of this IANA name, in any letter case; the error names the nearest one.
    pub fn parse(name: &str) -> Result<Self, UnknownZone> {
        match ZONES.get(name) {
            Ok(zone) if zone.iana_name().is_some() && !zone.is_unknown() => Ok(Self(zone)),
            _ => Err(UnknownZone { name: name.chars().take(64).collect(), near: nearest_zone(name) }),
        }
    }

    /// Its IANA name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl TryFrom<String> for Zone {
    type Error = UnknownZone;
    fn try_from(name: String) -> Result<Self, UnknownZone> {
        Self::parse(&name)
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> String {
        zone.name().to_owned()
    }
}

/// The zone whose name, or last part of it, is closest: people leave out the continent more often than they mistype.
fn nearest_zone(name: &str) -> String {
    let wanted = name.chars().take(64).collect::<String>().to_ascii_lowercase();
    let distance = |zone: &str| {
        let zone = zone.to_ascii_lowercase();
        let city = zone.rsplit('/').next().unwrap_or(&zone);
        strsim::osa_distance(&wanted, &zone).min(strsim::osa_distance(&wanted, city))
    };
    let names = ZONES.available().map(|zone| zone.as_str().to_owned());
    names.min_by_key(|zone| (distance(zone), zone.len())).unwrap_or_else(|| "UTC".to_owned())
}

/// The day of the month on which a billing period starts, 1 to 31; in shorter months their last day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "u8")]
pub struct AnchorDay(i8);

impl AnchorDay {
    /// The day, if it is 1 to 31.
    pub fn new(day: u8) -> Option<Self> {
        i8::try_from(day).ok().filter(|day| (1..=31).contains(day)).map(Self)
    }

    /// This day in the month of `date`, or the month's last.
    fn in_month_of(self, date: Date) -> Date {
        Date::new(date.year(), date.month(), self.0.min(date.days_in_month())).unwrap_or(date)
    }
}

impl Default for AnchorDay {
    fn default() -> Self {
        Self(1)
    }
}

impl<'de> Deserialize<'de> for AnchorDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let day = whole_number(deserializer, 1..=31)?;
        i8::try_from(day).map(Self).map_err(D::Error::custom)
    }
}

impl From<AnchorDay> for u8 {
    fn from(day: AnchorDay) -> u8 {
        day.0.unsigned_abs()
    }
}

/// The stretch of time over which a limit counts, in the tenant's zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowKind {
    /// The local hour.
    Hour,
    /// The local day.
    Day,
    /// The ISO week, from Monday.
    Week,
    /// The month, from the 1st.
    Month,
    /// The billing period, from the anchor day.
    Period,
}

impl WindowKind {
    /// All of them, shortest first.
    pub const ALL: [Self; 5] = [Self::Hour, Self::Day, Self::Week, Self::Month, Self::Period];

    /// Its name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Period => "period",
        }
    }
}

impl fmt::Display for WindowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A stretch of time, half-open, in unix milliseconds. Its start is its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// The first instant inside.
    pub start_ms: i64,
    /// The first instant after it.
    pub end_ms: i64,
}

impl Window {
    /// Whether `at_ms` lies inside.
    pub fn contains(&self, at_ms: i64) -> bool {
        self.start_ms <= at_ms && at_ms < self.end_ms
    }

    /// The part of it inside `outer`, which it overlaps.
    fn within(self, outer: Self) -> Self {
        Self { start_ms: self.start_ms.max(outer.start_ms), end_ms: self.end_ms.min(outer.end_ms) }
    }
}

/// The five windows around one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// The local hour.
    pub hour: Window,
    /// The local day.
    pub day: Window,
    /// The ISO week.
    pub week: Window,
    /// The month.
    pub month: Window,
    /// The billing period.
    pub period: Window,
}

impl Windows {
    /// The window of one kind.
    pub fn get(&self, kind: WindowKind) -> Window {
        match kind {
            WindowKind::Hour => self.hour,
            WindowKind::Day => self.day,
            WindowKind::Week => self.week,
            WindowKind::Month => self.month,
            WindowKind::Period => self.period,
        }
    }

    /// Each of them, cut to the part inside `outer`.
    fn within(self, outer: Window) -> Self {
        Self {
            hour: self.hour.within(outer),
            day: self.day.within(outer),
            week: self.week.within(outer),
            month: self.month.within(outer),
            period: self.period.within(outer),
        }
    }

    /// When the last of them ends.
    pub fn last_end_ms(&self) -> i64 {
        WindowKind::ALL.iter().fold(i64::MIN, |last, kind| last.max(self.get(*kind).end_ms))
    }

    /// The span in which all five stay the same.
    pub fn valid(&self) -> Window {
        WindowKind::ALL.iter().map(|kind| self.get(*kind)).fold(self.hour, |valid, window| Window {
            start_ms: valid.start_ms.max(window.start_ms),
            end_ms: valid.end_ms.min(window.end_ms),
        })
    }
}

/// A zone and an anchor day: boundaries depend on nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Calendar {
    /// Where days begin.
    pub zone: Zone,
    /// When billing periods begin.
    pub anchor_day: AnchorDay,
}

impl Calendar {
    /// The calendar of a zone and an anchor day.
    pub fn new(zone: Zone, anchor_day: AnchorDay) -> Self {
        Self { zone, anchor_day }
    }

    /// The window of `kind` around `at_ms`; outside the years 1 to 9999, that of the nearest instant inside.
    pub fn window(&self, kind: WindowKind, at_ms: i64) -> Window {
        let at_ms = at_ms.clamp(EARLIEST_MS, LATEST_MS);
        match kind {
            WindowKind::Hour => self.hour(at_ms),
            _ => self.days(kind, self.local_date(at_ms), at_ms),
        }
    }

    /// The five windows around `at_ms`; valid until [`Windows::valid`] ends.
    pub fn windows(&self, at_ms: i64) -> Windows {
        let at_ms = at_ms.clamp(EARLIEST_MS, LATEST_MS);
        let today = self.local_date(at_ms);
        Windows {
            hour: self.hour(at_ms),
            day: self.days(WindowKind::Day, today, at_ms),
            week: self.days(WindowKind::Week, today, at_ms),
            month: self.days(WindowKind::Month, today, at_ms),
            period: self.days(WindowKind::Period, today, at_ms),
        }
    }

    /// The local hour, cut at the zone's transitions. A repeated hour is two windows with their own starts.
    fn hour(&self, at_ms: i64) -> Window {
        let zone = &self.zone.0;
        let offset_at = |ms: i64| zone.to_offset(timestamp(ms));
        let offset = offset_at(at_ms);
        let offset_ms = i64::from(offset.seconds()) * 1000;
        let start_ms = (at_ms + offset_ms).div_euclid(HOUR_MS) * HOUR_MS - offset_ms;
        let end_ms = start_ms + HOUR_MS;
        let started = offset_at(start_ms) == offset;
        let lasts = offset_at(end_ms - 1) == offset;
        Window {
            start_ms: if started { start_ms } else { self.last_transition_ms(at_ms).unwrap_or(start_ms) },
            end_ms: if lasts { end_ms } else { self.next_transition_ms(at_ms).unwrap_or(end_ms) },
        }
    }

    /// A window of whole days around `at_ms`, whose local date is `today`.
    fn days(&self, kind: WindowKind, today: Date, at_ms: i64) -> Window {
        let mut first = self.first_day(kind, today);
        let mut window = Window { start_ms: self.day_start_ms(first), end_ms: 0 };
        // Where the clock was set back over midnight, the local date lags the day by at most one.
        for _ in 0..3 {
            let next = self.next_first_day(kind, first);
            window.end_ms = self.day_start_ms(next);
            if at_ms < window.end_ms {
                break;
            }
            window.start_ms = window.end_ms;
            first = next;
        }
        window
    }

    /// The local day at `at_ms`.
    pub fn date(&self, at_ms: i64) -> CivilDate {
        self.local_date(at_ms.clamp(EARLIEST_MS, LATEST_MS)).into()
    }

    fn local_date(&self, at_ms: i64) -> Date {
        self.zone.0.to_datetime(timestamp(at_ms)).date()
    }

    fn first_day(&self, kind: WindowKind, date: Date) -> Date {
        match kind {
            WindowKind::Hour | WindowKind::Day => date,
            WindowKind::Week => {
                let since_monday = i64::from(date.weekday().to_monday_zero_offset());
                date.checked_sub(since_monday.days()).unwrap_or(date)
            }
            WindowKind::Month => date.first_of_month(),
            WindowKind::Period => {
                let anchored = self.anchor_day.in_month_of(date);
                let month_before = date.first_of_month().yesterday().unwrap_or(date);
                if anchored <= date { anchored } else { self.anchor_day.in_month_of(month_before) }
            }
        }
    }

    fn next_first_day(&self, kind: WindowKind, first: Date) -> Date {
        let month_after = || first.last_of_month().tomorrow().unwrap_or(first);
        match kind {
            WindowKind::Hour | WindowKind::Day => first.tomorrow().unwrap_or(first),
            WindowKind::Week => first.checked_add(7.days()).unwrap_or(first),
            WindowKind::Month => month_after(),
            WindowKind::Period => self.anchor_day.in_month_of(month_after()),
        }
    }

    /// The first instant of a local day: its (first) midnight or, where the clock jumps over that, the jump.
    fn day_start_ms(&self, date: Date) -> i64 {
        let midnight = date.at(0, 0, 0, 0);
        let start = match self.zone.0.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(midnight),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(midnight),
            AmbiguousOffset::Gap { before, .. } => before.to_timestamp(midnight).map(|after_jump| {
                let jump_ms = self.last_transition_ms(after_jump.as_millisecond());
                jump_ms.map_or(after_jump, timestamp)
            }),
        };
        // Dates stay in the calendar's years, where every offset fits: the bound is never used.
        start.map_or(LATEST_MS, |start| start.as_millisecond())
    }

    /// The last transition at or before `at_ms`.
    fn last_transition_ms(&self, at_ms: i64) -> Option<i64> {
        self.zone.0.preceding(timestamp(at_ms + 1)).next().map(|t| t.timestamp().as_millisecond())
    }

    /// The first transition after `at_ms`.
    fn next_transition_ms(&self, at_ms: i64) -> Option<i64> {
        self.zone.0.following(timestamp(at_ms)).next().map(|t| t.timestamp().as_millisecond())
    }
}

fn timestamp(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH)
}
