//! What an instance keeps of counters, of so many at the most. The subjects of one tenant leave room to other tenants.

use std::collections::HashMap;

use super::emergency::CounterPlace;
use super::ids::TenantId;

/// Of all places, those that only tenants take which have few: one of so many.
const LEFT_TO_OTHERS: usize = 4;
/// Of all places, as many as a tenant has that has few: one of so many.
const FEW: usize = 100;

/// Values by counter.
#[derive(Debug)]
pub struct ByCounter<V> {
    most: usize,
    values: HashMap<CounterPlace, V>,
    /// How many of them each tenant has.
    of_tenants: HashMap<Option<TenantId>, usize>,
}

impl<V> ByCounter<V> {
    /// Takes this many values.
    pub fn new(most: usize) -> Self {
        Self { most, values: HashMap::new(), of_tenants: HashMap::new() }
    }

    /// Whether the value of another counter of this tenant is taken; the counters of all tenants count as one's.
    pub fn has_room_for(&self, tenant: Option<&TenantId>) -> bool {
        let has_few = || {
            let has = self.of_tenants.get(&tenant.cloned()).copied().unwrap_or_default();
            has < (self.most / FEW).max(1)
        };
        self.values.len() < self.most - self.most / LEFT_TO_OTHERS
            || (self.values.len() < self.most && has_few())
    }

    /// The value of a counter.
    pub fn get(&self, place: &CounterPlace) -> Option<&V> {
        self.values.get(place)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, place: &CounterPlace) -> Option<&mut V> {
        self.values.get_mut(place)
    }

    /// All counters with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&CounterPlace, &V)> {
        self.values.iter()
    }

    /// Keeps the value of a counter.
    pub fn insert(&mut self, place: CounterPlace, value: V) {
        let tenant = place.tenant.clone();
        if self.values.insert(place, value).is_none() {
            *self.of_tenants.entry(tenant).or_default() += 1;
        }
    }

    /// Forgets the value of a counter.
    pub fn remove(&mut self, place: &CounterPlace) {
        if self.values.remove(place).is_some() {
            leave(&mut self.of_tenants, &place.tenant);
        }
    }

    /// Forgets the values that do not stay.
    pub fn retain(&mut self, stays: impl Fn(&V) -> bool) {
        let of_tenants = &mut self.of_tenants;
        self.values.retain(|place, value| {
            let stays = stays(value);
            if !stays {
                leave(of_tenants, &place.tenant);
            }
            stays
        });
    }
}

fn leave(of_tenants: &mut HashMap<Option<TenantId>, usize>, tenant: &Option<TenantId>) {
    if let Some(has) = of_tenants.get_mut(tenant) {
        *has -= 1;
        if *has == 0 {
            of_tenants.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::reservation::CounterField;

    fn place(tenant: &str, number: u64) -> CounterPlace {
        let tenant = Some(TenantId::parse(tenant).unwrap());
        CounterPlace { tenant, subject: None, field: CounterField(number.to_le_bytes()) }
    }

    /// Keeps as many counters of a tenant as it may have, and says how many these are.
    fn fill(values: &mut ByCounter<u64>, tenant: &str) -> u64 {
        let mut taken = 0;
        while values.has_room_for(place(tenant, 0).tenant.as_ref()) {
            values.insert(place(tenant, taken), taken);
            taken += 1;
        }
        taken
    }

    #[test]
    fn the_counters_of_one_tenant_leave_a_quarter_of_the_places_to_tenants_that_have_few() {
        let mut values = ByCounter::new(1_000);
        assert_eq!(fill(&mut values, "acme"), 750);
        for number in 0..25 {
            assert_eq!(fill(&mut values, &format!("t{number}")), 10);
        }
        assert_eq!((fill(&mut values, "late"), values.values.len()), (0, 1_000));
    }

    #[test]
    fn a_place_that_is_left_is_free_for_whoever_comes() {
        let mut values = ByCounter::new(8);
        assert_eq!((fill(&mut values, "acme"), fill(&mut values, "other")), (6, 1));
        values.insert(place("other", 0), 7);
        values.remove(&place("other", 1));
        values.remove(&place("other", 0));
        assert_eq!(fill(&mut values, "other"), 1, "each place is counted once");
        values.retain(|number| *number >= 5);
        assert_eq!((values.get(&place("acme", 4)), values.get(&place("acme", 5))), (None, Some(&5)));
        assert_eq!(fill(&mut values, "other"), 5);
        values.retain(|_| false);
        assert_eq!((values.iter().count(), values.of_tenants.len()), (0, 0));
    }
}
