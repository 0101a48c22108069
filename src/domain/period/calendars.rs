//! A tenant's calendars, one after the other. Where one ends, all its windows end, and the next one's windows begin no
//! earlier. So windows stay contiguous through a change, and none covers the time of two calendars.

use serde::{Deserialize, Serialize};

use super::{Calendar, Window, WindowKind, Windows};

/// Instances learn of a change of policy within this time; a change takes effect no sooner. In ms.
const CHANGE_SPREADS_MS: i64 = 60_000;

/// A calendar and the instant from which it applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatedCalendar {
    /// The first instant at which it applies (unix ms).
    pub from_ms: i64,
    /// Its zone and anchor day.
    #[serde(flatten)]
    pub calendar: Calendar,
}

/// All calendars of a tenant, with no time between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendars {
    first: Calendar,
    /// By their beginnings.
    later: Vec<DatedCalendar>,
}

impl From<Calendar> for Calendars {
    /// One calendar, from the beginning without end.
    fn from(calendar: Calendar) -> Self {
        Self { first: calendar, later: Vec::new() }
    }
}

impl Calendars {
    /// The stored calendars, of which the earliest applies from the beginning; only `otherwise` where none is stored.
    pub fn of(mut stored: Vec<DatedCalendar>, otherwise: Calendar) -> Self {
        stored.sort_by_key(|dated| dated.from_ms);
        let mut stored = stored.into_iter();
        match stored.next() {
            None => otherwise.into(),
            Some(first) => Self { first: first.calendar, later: stored.collect() },
        }
    }

    /// All of them in order, the first from 1970 on.
    pub fn dated(&self) -> Vec<DatedCalendar> {
        let first = DatedCalendar { from_ms: 0, calendar: self.first.clone() };
        std::iter::once(first).chain(self.later.iter().cloned()).collect()
    }

    /// The calendar at `at_ms`.
    pub fn at(&self, at_ms: i64) -> &Calendar {
        self.segment(at_ms).0
    }

    /// The window of `kind` around `at_ms`.
    pub fn window(&self, kind: WindowKind, at_ms: i64) -> Window {
        let (calendar, segment) = self.segment(at_ms);
        calendar.window(kind, at_ms).within(segment)
    }

    /// The five windows around `at_ms`; valid until [`Windows::valid`] ends.
    pub fn windows(&self, at_ms: i64) -> Windows {
        let (calendar, segment) = self.segment(at_ms);
        calendar.windows(at_ms).within(segment)
    }

    /// The calendars after `calendar` was asked for at `now_ms`. It applies from the end of the billing period that is
    /// open then, and replaces whatever was asked for from that time on. A request in a period's last minute, when some
    /// instance may not learn of it in time, counts as one of the next period.
    pub fn changed_to(&self, calendar: Calendar, now_ms: i64) -> Self {
        let settled_ms = now_ms.saturating_add(CHANGE_SPREADS_MS);
        let mut changed = self.clone();
        changed.later.retain(|dated| dated.from_ms <= settled_ms);
        if *changed.at(settled_ms) != calendar {
            let from_ms = changed.window(WindowKind::Period, settled_ms).end_ms;
            changed.later.push(DatedCalendar { from_ms, calendar });
        }
        changed
    }

    /// The calendar at `now_ms` and those after it; none where no other follows.
    pub fn to_come(&self, now_ms: i64) -> Vec<DatedCalendar> {
        let mut dated = self.dated();
        let begun = dated.iter().filter(|dated| dated.from_ms <= now_ms).count();
        if begun == dated.len() {
            return Vec::new();
        }
        dated.split_off(begun.saturating_sub(1))
    }

    /// The calendar around `at_ms`, and the span in which it applies.
    fn segment(&self, at_ms: i64) -> (&Calendar, Window) {
        let begun = self.later.partition_point(|dated| dated.from_ms <= at_ms);
        let current = begun.checked_sub(1).and_then(|index| self.later.get(index));
        let calendar = current.map_or(&self.first, |dated| &dated.calendar);
        let start_ms = current.map_or(i64::MIN, |dated| dated.from_ms);
        let end_ms = self.later.get(begun).map_or(i64::MAX, |dated| dated.from_ms);
        (calendar, Window { start_ms, end_ms })
    }
}
