//! What an instance admits in an emergency, while the gate does not answer: of each counter at most its limit's cap.
//!
//! Windows are the counter's own. Where it has none, what is admitted is forgotten at once, when all of it would have
//! left the counter: so no stretch of that length has more than the cap.

use super::amount::Units;
use super::by_counter::ByCounter;
use super::counter::{Counter, need};
use super::ids::TenantId;
use super::reservation::{CounterField, SubjectHash};

/// The most counters that are kept in mind at once, of all tenants. What would be one more is denied.
const COUNTERS_MAX: usize = 10_000;

/// A counter, among those of all tenants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CounterPlace {
    /// Whose it is; none where all tenants are counted.
    pub tenant: Option<TenantId>,
    /// The subject that it counts; none for the whole tenant.
    pub subject: Option<SubjectHash>,
    /// Its field.
    pub field: CounterField,
}

/// What work asks of a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmergencyAsk {
    /// The counter.
    pub place: CounterPlace,
    /// How much.
    pub need: i64,
    cap: i64,
    /// When the last of what is admitted now leaves the counter (unix ms).
    ends_at_ms: i64,
    /// Whether that is the end of a window, at which all of it leaves.
    has_windows: bool,
}

impl EmergencyAsk {
    /// What work of these amounts asks of a counter at `now_ms`.
    pub fn new(place: CounterPlace, counter: &Counter, amounts: &[Units], now_ms: i64) -> Self {
        Self {
            place,
            need: need(&counter.lines, amounts),
            cap: counter.emergency_capacity().get(),
            ends_at_ms: counter.ends_at_ms(now_ms),
            has_windows: counter.parameters.has_windows(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Admitted {
    units: i64,
    ends_at_ms: i64,
}

/// What was admitted, by counter.
#[derive(Debug)]
pub struct Caps {
    admitted: ByCounter<Admitted>,
    /// No window kept in mind ends before this (unix ms).
    first_end_ms: i64,
}

impl Default for Caps {
    fn default() -> Self {
        Self { admitted: ByCounter::new(COUNTERS_MAX), first_end_ms: i64::MAX }
    }
}

impl Caps {
    /// Whether a counter's cap has room for what is asked. By a window that is over nothing is admitted.
    pub fn has_room(&mut self, ask: &EmergencyAsk, now_ms: i64) -> bool {
        let admitted = match self.admitted.get(&ask.place) {
            Some(admitted) if now_ms < admitted.ends_at_ms => admitted.units,
            Some(_) => 0,
            None => {
                if !self.makes_room_for(ask.place.tenant.as_ref(), now_ms) {
                    return false;
                }
                0
            }
        };
        now_ms < ask.ends_at_ms && ask.need <= ask.cap.saturating_sub(admitted)
    }

    /// Counts what is asked as admitted. Returns when that is forgotten (unix ms).
    pub fn admit(&mut self, ask: &EmergencyAsk, now_ms: i64) -> i64 {
        let before = self.admitted.get(&ask.place).filter(|admitted| now_ms < admitted.ends_at_ms);
        let mut admitted = before.copied().unwrap_or(Admitted { units: 0, ends_at_ms: ask.ends_at_ms });
        admitted.units = admitted.units.saturating_add(ask.need);
        if !ask.has_windows {
            admitted.ends_at_ms = admitted.ends_at_ms.max(ask.ends_at_ms);
        }
        self.first_end_ms = self.first_end_ms.min(admitted.ends_at_ms);
        self.admitted.insert(ask.place.clone(), admitted);
        admitted.ends_at_ms
    }

    /// Puts back what came to nothing, unless its end has moved since.
    pub fn put_back(&mut self, place: &CounterPlace, units: i64, ends_at_ms: i64) {
        let admitted = self.admitted.get_mut(place).filter(|admitted| admitted.ends_at_ms == ends_at_ms);
        if let Some(admitted) = admitted {
            admitted.units = (admitted.units - units).max(0);
            if admitted.units == 0 {
                self.admitted.remove(place);
            }
        }
    }

    /// Whether another counter of this tenant has room; where it has none, windows that are over are forgotten first.
    fn makes_room_for(&mut self, tenant: Option<&TenantId>, now_ms: i64) -> bool {
        if !self.admitted.has_room_for(tenant) && self.first_end_ms <= now_ms {
            self.admitted.retain(|admitted| now_ms < admitted.ends_at_ms);
            let ends = self.admitted.iter().map(|(_, admitted)| admitted.ends_at_ms);
            self.first_end_ms = ends.min().unwrap_or(i64::MAX);
        }
        self.admitted.has_room_for(tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(number: u64, need: i64, ends_at_ms: i64, has_windows: bool) -> EmergencyAsk {
        let place = CounterPlace { tenant: None, subject: None, field: CounterField(number.to_le_bytes()) };
        EmergencyAsk { place, need, cap: 5, ends_at_ms, has_windows }
    }

    fn of(tenant: &str, number: u64, ends_at_ms: i64) -> EmergencyAsk {
        let EmergencyAsk { place, .. } = ask(number, 1, ends_at_ms, true);
        let place = CounterPlace { tenant: Some(TenantId::parse(tenant).unwrap()), ..place };
        EmergencyAsk { place, ..ask(number, 1, ends_at_ms, true) }
    }

    fn admits(caps: &mut Caps, ask: &EmergencyAsk, now_ms: i64) -> bool {
        let has_room = caps.has_room(ask, now_ms);
        if has_room {
            caps.admit(ask, now_ms);
        }
        has_room
    }

    #[test]
    fn a_cap_is_admitted_once_in_each_window() {
        let mut caps = Caps::default();
        let at = |need, ends_at_ms| ask(1, need, ends_at_ms, true);
        assert!(admits(&mut caps, &at(3, 100), 10) && admits(&mut caps, &at(2, 150), 50));
        assert!(!admits(&mut caps, &at(1, 199), 99));
        assert!(admits(&mut caps, &at(5, 200), 100), "the first window has ended");
        assert!(!admits(&mut caps, &at(1, 100), 100), "its own window is over");
        caps.put_back(&at(0, 0).place, 2, 100);
        assert!(!admits(&mut caps, &at(1, 200), 110), "what is put back late stays");
        caps.put_back(&at(0, 0).place, 2, 200);
        assert!(admits(&mut caps, &at(2, 200), 120) && !admits(&mut caps, &at(1, 200), 120));
    }

    #[test]
    fn without_windows_no_stretch_has_more_than_the_cap() {
        let mut caps = Caps::default();
        let at = |now_ms: i64, need: i64| ask(1, need, now_ms + 100, false);
        assert!(admits(&mut caps, &at(0, 1), 0) && admits(&mut caps, &at(90, 4), 90));
        assert!(!admits(&mut caps, &at(100, 1), 100), "what came at 90 counts");
        assert!(!admits(&mut caps, &at(189, 1), 189), "what is denied moves no end");
        assert!(admits(&mut caps, &at(190, 5), 190));
    }

    #[test]
    fn counters_of_one_tenant_leave_room_to_others_and_are_forgotten_when_their_windows_end() {
        let mut caps = Caps::default();
        let most = (0..).take_while(|number| admits(&mut caps, &of("acme", *number, 100), 0)).count();
        assert_eq!(most, COUNTERS_MAX - COUNTERS_MAX / 4);
        assert!(admits(&mut caps, &of("acme", 7, 100), 50), "a known one goes on");
        assert!(admits(&mut caps, &of("other", 0, 300), 50), "another tenant has room");
        assert!(!admits(&mut caps, &of("acme", u64::MAX, 200), 99));
        assert!(admits(&mut caps, &of("acme", u64::MAX, 200), 100));
        assert_eq!(caps.admitted.iter().count(), 2, "windows that are over are forgotten");
    }

    #[test]
    fn what_came_to_nothing_leaves_no_counter() {
        let mut caps = Caps::default();
        let asked = of("acme", 1, 100);
        let ends_at_ms = caps.admit(&asked, 0);
        caps.put_back(&asked.place, 1, ends_at_ms);
        assert_eq!(caps.admitted.iter().count(), 0);
    }
}
