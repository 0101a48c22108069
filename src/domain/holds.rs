//! What open reservations hold, by the counter window in which each was counted.

use std::collections::HashMap;

use super::amount::Units;
use super::ids::Subject;
use super::reservation::{CounterField, Record};

/// What is held in one window of one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// How much.
    pub units: Units,
    /// When the first of the holds ends (unix ms).
    pub first_end_ms: i64,
}

/// Holds by whose counter it is (none for the tenant's), its field and its window's start (unix ms).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holds(HashMap<(Option<Subject>, CounterField, i64), Held>);

impl Holds {
    /// What these open reservations of one tenant hold.
    pub fn of<'a>(open: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut holds = Self::default();
        for record in open {
            holds.add(record);
        }
        holds
    }

    fn add(&mut self, record: &Record) {
        let Some(rest) = &record.body.rest else { return };
        for place in &rest.counters {
            let subject = match usize::from(place.holder).checked_sub(1) {
                None => None,
                Some(index) => match rest.subjects.get(index) {
                    Some((subject, _)) => Some(subject.clone()),
                    None => continue,
                },
            };
            let weighted = place.pairs.iter().filter_map(|(line, weight)| {
                let units = record.units.get(usize::from(*line))?.outstanding();
                units.get().checked_mul(*weight).and_then(Units::new)
            });
            let sum = weighted.fold(Units::ZERO, |sum, units| sum.checked_add(units).unwrap_or(sum));
            let key = (subject, place.field, place.window_start_ms);
            let held = self.0.entry(key).or_insert(Held { units: Units::ZERO, first_end_ms: i64::MAX });
            held.units = held.units.checked_add(sum).unwrap_or(held.units);
            held.first_end_ms = held.first_end_ms.min(record.head.expires_at_ms);
        }
    }

    /// What is held in one window of a counter.
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
