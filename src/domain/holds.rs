//! What open reservations hold, by the counter and window in which it was counted.

use std::collections::HashMap;

use super::algorithms::LineHold;
use super::amount::Units;
use super::counted_meter::CountedMeter;
use super::ids::{MeterId, OperationId, Subject};
use super::reservation::{BodyDetails, CounterField, CounterRef, Record};

/// A counter that was created inside its current window: reservations of that window count in it although they do not
/// name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCounter {
    /// The subject that it counts; none for the whole tenant.
    pub subject: Option<Subject>,
    /// Its field.
    pub field: CounterField,
    /// What it counts.
    pub meters: Vec<CountedMeter>,
    /// The operations that count; none for all.
    pub operations: Option<Vec<OperationId>>,
    /// Its window's start and end (unix ms).
    pub window_ms: (i64, i64),
}

impl NewCounter {
    /// Whether it counts a single meter, each smallest unit of it once.
    pub fn counts_units(&self) -> bool {
        matches!(self.meters.as_slice(), [CountedMeter { factor: 1, .. }])
    }

    /// What it counts of a reservation that does not name it.
    fn held_of(&self, record: &Record, rest: &BodyDetails) -> Option<Units> {
        let names = |place: &CounterRef| {
            place.field == self.field && subject_of(place, rest) == Some(self.subject.as_ref())
        };
        let subjects = rest.subjects.iter().map(|(subject, _)| subject);
        let counts = self.counts(record.head.born_at_ms, rest.operation.as_ref(), subjects)
            && !rest.counters.iter().any(names);
        let held = |meter: &MeterId| {
            let line = record.body.lines.iter().position(|line| line.booked && line.meter == *meter)?;
            record.units.get(line).map(|units| units.outstanding())
        };
        if counts { self.weigh(held) } else { None }
    }

    /// How many of its units are held, by what is held of each meter; none where none of its meters is among them.
    fn weigh(&self, held: impl Fn(&MeterId) -> Option<Units>) -> Option<Units> {
        let of_meter =
            |counted: &CountedMeter| Some(held(&counted.meter)?.get().saturating_mul(counted.factor));
        let units = self.meters.iter().filter_map(of_meter).reduce(i64::saturating_add)?;
        Some(Units::new(units).unwrap_or(Units::MAX))
    }

    fn counts<'a>(
        &self,
        born_at_ms: i64,
        operation: Option<&OperationId>,
        mut subjects: impl Iterator<Item = &'a Subject>,
    ) -> bool {
        let is_counted = |counted: &Vec<OperationId>| operation.is_some_and(|one| counted.contains(one));
        (self.window_ms.0..self.window_ms.1).contains(&born_at_ms)
            && self.subject.as_ref().is_none_or(|whose| subjects.any(|subject| subject == whose))
            && self.operations.as_ref().is_none_or(is_counted)
    }
}

/// A hold whose figures are booked, but not the counters that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookedHold {
    /// The units still held, by meter.
    pub held: Vec<(MeterId, Units)>,
    /// Its operation.
    pub operation: Option<OperationId>,
    /// Its subjects.
    pub subjects: Vec<Subject>,
    /// When it was made (unix ms).
    pub born_at_ms: i64,
    /// When it ends (unix ms).
    pub expires_at_ms: i64,
}

/// The scope of a record's counter, the tenant (none) or a subject; nothing for a subject that the reservation does not
/// name.
fn subject_of<'a>(place: &CounterRef, rest: &'a BodyDetails) -> Option<Option<&'a Subject>> {
    match usize::from(place.scope_index).checked_sub(1) {
        None => Some(None),
        Some(index) => rest.subjects.get(index).map(|(subject, _)| Some(subject)),
    }
}

/// The window's start of a counter that counts work of any time.
const TIMELESS_MS: i64 = 0;

/// The units held in one window of one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The units.
    pub units: Units,
    /// When the first of the holds ends (unix ms).
    pub first_end_ms: i64,
}

/// Holds by subject (none for the tenant's counters), field and window's start (unix ms).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holds(HashMap<(Option<Subject>, CounterField, i64), Held>);

impl Holds {
    /// The holds of these open reservations of one tenant, in the counters that they name and in `new` ones.
    pub fn of<'a>(open: impl IntoIterator<Item = &'a Record>, new: &[NewCounter]) -> Self {
        let mut holds = Self::default();
        for record in open {
            holds.add(record, new);
        }
        holds
    }

    /// Adds the holds of one more open reservation.
    pub fn add(&mut self, record: &Record, new: &[NewCounter]) {
        let Some(rest) = &record.body.rest else { return };
        for counter in new {
            if let Some(units) = counter.held_of(record, rest) {
                let key = (counter.subject.clone(), counter.field, counter.window_ms.0);
                self.add_units(key, units, record.head.expires_at_ms);
            }
        }
        for (number, place) in rest.counters.iter().enumerate() {
            let is_restored = place.parameters.holds_survive() && !place.is_light;
            let counts = is_restored && !record.head.leaves_out(number);
            let subject = subject_of(place, rest).filter(|_| counts);
            let Some(subject) = subject else { continue };
            let line = |&(line, weight): &(u8, i64)| {
                let units = record.units.get(usize::from(line))?;
                Some(LineHold { weight, held: units.held.get(), consumed: units.consumed.get() })
            };
            let lines: Vec<_> = place.lines.iter().filter_map(line).collect();
            let units = Units::new(place.parameters.held(&lines)).unwrap_or_default();
            let start_ms = place.parameters.window().map_or(TIMELESS_MS, |window| window.start_ms);
            self.add_units((subject.cloned(), place.field, start_ms), units, record.head.expires_at_ms);
        }
    }

    /// Adds a hold that names no counters, to every one of `counters` that would have counted it.
    pub fn add_booked(&mut self, hold: &BookedHold, counters: &[NewCounter]) {
        for counter in counters {
            if !counter.counts(hold.born_at_ms, hold.operation.as_ref(), hold.subjects.iter()) {
                continue;
            }
            let held = |meter: &MeterId| {
                let found = hold.held.iter().find(|(of, _)| of == meter);
                found.map(|(_, units)| *units)
            };
            if let Some(units) = counter.weigh(held) {
                let key = (counter.subject.clone(), counter.field, counter.window_ms.0);
                self.add_units(key, units, hold.expires_at_ms);
            }
        }
    }

    fn add_units(&mut self, key: (Option<Subject>, CounterField, i64), units: Units, end_ms: i64) {
        let held = self.0.entry(key).or_insert(Held { units: Units::ZERO, first_end_ms: i64::MAX });
        held.units = held.units.checked_add(units).unwrap_or(Units::MAX);
        held.first_end_ms = held.first_end_ms.min(end_ms);
    }

    /// The units held in one window of a counter.
    pub fn in_window(&self, subject: Option<&Subject>, field: CounterField, start_ms: i64) -> Units {
        let held = self.0.get(&(subject.cloned(), field, start_ms));
        held.map_or(Units::ZERO, |held| held.units)
    }

    /// The holds in the tenant's own counters, or in those of one subject, by field and window's start.
    pub fn into_counters_of(self, subject: Option<&Subject>) -> HashMap<(CounterField, i64), Held> {
        let own = self.0.into_iter().filter(|((whose, ..), _)| whose.as_ref() == subject);
        own.map(|((_, field, start_ms), held)| ((field, start_ms), held)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::amount::Decimals;

    const FIELD: CounterField = CounterField(*b"budget--");

    fn meter(id: &str) -> MeterId {
        MeterId::parse(id).unwrap()
    }

    fn units(value: i64) -> Units {
        Units::new(value).unwrap()
    }

    fn counter(meters: &[(&str, i64)]) -> NewCounter {
        let counted = |(id, factor): &(&str, i64)| CountedMeter {
            meter: meter(id),
            decimals: Decimals::default(),
            factor: *factor,
        };
        NewCounter {
            subject: None,
            field: FIELD,
            meters: meters.iter().map(counted).collect(),
            operations: None,
            window_ms: (1_000, 2_000),
        }
    }

    fn hold(held: &[(&str, i64)]) -> BookedHold {
        BookedHold {
            held: held.iter().map(|(id, value)| (meter(id), units(*value))).collect(),
            operation: None,
            subjects: Vec::new(),
            born_at_ms: 1_500,
            expires_at_ms: 3_000,
        }
    }

    #[test]
    fn a_hold_counts_in_a_budget_by_the_factor_of_each_meter_that_it_has() {
        let budget = counter(&[("page", 100), ("token", 3)]);
        let mut holds = Holds::default();
        for held in [&[("page", 2), ("token", 5), ("other", 7)][..], &[("token", 1)], &[("other", 9)]] {
            holds.add_booked(&hold(held), std::slice::from_ref(&budget));
        }
        assert_eq!(holds.in_window(None, FIELD, 1_000), units(218));
        assert_eq!(Holds::default().in_window(None, FIELD, 1_000), Units::ZERO);
    }

    #[test]
    fn more_than_the_largest_amount_is_the_largest() {
        let budget = counter(&[("page", Units::MAX.get()), ("token", 3)]);
        let mut holds = Holds::default();
        holds.add_booked(&hold(&[("page", 5), ("token", 5)]), &[budget]);
        assert_eq!(holds.in_window(None, FIELD, 1_000), Units::MAX);
    }

    #[test]
    fn a_single_meter_counts_units_and_a_budget_does_not() {
        let counts_units = [&[("page", 1)][..], &[("page", 2)], &[("page", 1), ("token", 1)]];
        let counts_units = counts_units.map(|meters| counter(meters).counts_units());
        assert_eq!(counts_units, [true, false, false]);
    }
}
