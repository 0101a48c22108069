//! Which period takes what happens to units of an older one: their own until it is closed, then the earliest period
//! after it that is not.
//!
//! A period is closed from its end and the grace on, by the gate time of what happens and not by when a job ran. The
//! closures that are booked count too, and so do statements: a period that was closed or billed stays closed, whatever
//! the grace is now.

use std::collections::{HashMap, HashSet};

use super::ids::{MeterId, TenantId};
use super::period::{Calendars, Window, WindowKind};

/// The closed and open periods of tenants' meters.
#[derive(Debug, Clone, Default)]
pub struct OpenPeriods {
    /// How long after its end a period still takes facts; none where periods are never closed.
    pub grace_ms: Option<i64>,
    /// The tenants' calendars.
    pub calendars: HashMap<TenantId, Calendars>,
    /// Periods that are closed, by tenant, meter and start (unix ms).
    pub closed: HashSet<(TenantId, MeterId, i64)>,
    /// Up to when tenants are billed (unix ms): a period of theirs that was billed is closed, also for meters that were
    /// not used in it.
    pub billed_until_ms: HashMap<TenantId, i64>,
}

/// The tenant's calendar is not known, so nothing says which period follows a closed one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its period is closed, and the calendar of {0} is not known")]
pub struct UnknownCalendar(TenantId);

impl OpenPeriods {
    /// The period in which units of `period` stand at `at_ms` (gate time, unix ms).
    pub fn stands_in(
        &self,
        tenant: &TenantId,
        meter: &MeterId,
        period: Window,
        at_ms: i64,
    ) -> Result<Window, UnknownCalendar> {
        let mut stands = period;
        while self.is_closed(tenant, meter, stands, at_ms) {
            let calendars = self.calendars.get(tenant).ok_or_else(|| UnknownCalendar(tenant.clone()))?;
            let next = calendars.window(WindowKind::Period, stands.end_ms);
            // No period follows the last one that a calendar can tell.
            if next.end_ms <= stands.end_ms {
                break;
            }
            stands = next;
        }
        Ok(stands)
    }

    fn is_closed(&self, tenant: &TenantId, meter: &MeterId, period: Window, at_ms: i64) -> bool {
        let by_time = self.grace_ms.is_some_and(|grace_ms| at_ms >= period.end_ms.saturating_add(grace_ms));
        let is_billed = self.billed_until_ms.get(tenant).is_some_and(|until_ms| period.end_ms <= *until_ms);
        by_time || is_billed || self.closed.contains(&(tenant.clone(), meter.clone(), period.start_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::period::{AnchorDay, Calendar, Zone};

    const HOUR_MS: i64 = 3_600_000;

    fn at(text: &str) -> i64 {
        text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
    }

    fn names() -> (TenantId, MeterId) {
        (TenantId::parse("acme").unwrap(), MeterId::parse("page").unwrap())
    }

    fn in_utc() -> OpenPeriods {
        let calendar = Calendar { zone: Zone::parse("UTC").unwrap(), anchor_day: AnchorDay::default() };
        let calendars = HashMap::from([(names().0, calendar.into())]);
        OpenPeriods { grace_ms: Some(HOUR_MS), calendars, ..OpenPeriods::default() }
    }

    /// The start of the period in which a unit of March stands.
    fn stands(open: &OpenPeriods, text: &str) -> i64 {
        let (tenant, meter) = names();
        let march = Window { start_ms: at("2026-03-01T00:00:00Z"), end_ms: at("2026-04-01T00:00:00Z") };
        open.stands_in(&tenant, &meter, march, at(text)).unwrap().start_ms
    }

    #[rstest::rstest]
    #[case::in_it("2026-03-31T23:59:59.999Z", "2026-03-01T00:00:00Z")]
    #[case::at_its_end("2026-04-01T00:00:00Z", "2026-03-01T00:00:00Z")]
    #[case::a_millisecond_before_the_grace_is_over("2026-04-01T00:59:59.999Z", "2026-03-01T00:00:00Z")]
    #[case::when_it_is_over("2026-04-01T01:00:00Z", "2026-04-01T00:00:00Z")]
    #[case::forty_days_later("2026-05-11T00:00:00Z", "2026-05-01T00:00:00Z")]
    #[case::in_the_grace_of_a_later_one("2026-05-01T00:30:00Z", "2026-04-01T00:00:00Z")]
    fn units_stand_in_their_period_until_it_is_closed(#[case] when: &str, #[case] expected: &str) {
        assert_eq!(stands(&in_utc(), when), at(expected));
    }

    #[test]
    fn what_was_closed_stays_closed_whatever_the_grace_is_now() {
        let mut open = in_utc();
        let (tenant, meter) = names();
        open.closed.insert((tenant.clone(), meter, at("2026-03-01T00:00:00Z")));
        assert_eq!(stands(&open, "2026-03-31T00:00:00Z"), at("2026-04-01T00:00:00Z"));
        let other = (tenant, MeterId::parse("token").unwrap(), at("2026-03-01T00:00:00Z"));
        open.closed = HashSet::from([other]);
        assert_eq!(stands(&open, "2026-03-31T00:00:00Z"), at("2026-03-01T00:00:00Z"));
    }

    #[test]
    fn what_was_billed_is_closed_for_every_meter() {
        let mut open = in_utc();
        let end_ms = at("2026-04-01T00:00:00Z");
        open.billed_until_ms.insert(names().0, end_ms - 1);
        assert_eq!(stands(&open, "2026-03-31T00:00:00Z"), at("2026-03-01T00:00:00Z"));
        open.billed_until_ms.insert(names().0, end_ms);
        assert_eq!(stands(&open, "2026-03-31T00:00:00Z"), end_ms);
    }

    #[test]
    fn without_a_calendar_the_next_period_is_not_guessed() {
        let open = OpenPeriods { calendars: HashMap::new(), ..in_utc() };
        let (tenant, meter) = names();
        let period = Window { start_ms: 0, end_ms: 1_000 };
        assert_eq!(open.stands_in(&tenant, &meter, period, 999), Ok(period));
        let refused = open.stands_in(&tenant, &meter, period, i64::MAX).unwrap_err();
        assert_eq!(refused.to_string(), "its period is closed, and the calendar of acme is not known");
    }
}
