//! Which grants consumption burns: in burn order, and by segments.
//!
//! A segment ends wherever the set of active grants changes. Within one, its total consumption decides; it begins by
//! burning the overage so far from its active grants, so that unburnt units and overage never stand side by side.

use std::collections::BTreeMap;

use rust_decimal::Decimal;

use super::grant::{GrantId, GrantKind, Priority};
use super::ids::{Epoch, OutboxId};
use super::period::Window;

/// The place of a grant in the burn order: the smaller one burns first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BurnPlace {
    /// Its priority.
    pub priority: Priority,
    /// When it ends (unix ms).
    pub expires_at_ms: i64,
    /// Promotional before paid.
    pub kind: GrantKind,
    /// From when on it counts (unix ms).
    pub effective_at_ms: i64,
    /// When it was made (unix ms).
    pub created_at_ms: i64,
    /// Its id; none for what the plan includes.
    pub id: Option<GrantId>,
}

impl BurnPlace {
    /// The place of what the plan includes: a promotional grant of the whole period.
    pub fn of_included((start_ms, end_ms): (i64, i64)) -> Self {
        Self {
            priority: Priority::default(),
            expires_at_ms: end_ms,
            kind: GrantKind::Promotional,
            effective_at_ms: start_ms,
            created_at_ms: start_ms,
            id: None,
        }
    }

    /// The place of what the period before had left over: like what the plan includes, and right after it.
    pub fn of_rolled_in(period: Window) -> Self {
        let included = Self::of_included((period.start_ms, period.end_ms));
        Self { created_at_ms: included.created_at_ms.saturating_add(1), ..included }
    }
}

/// A place of the outbox, and what was consumed of the quota there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The boundary at which it was made.
    pub place: OutboxId,
    /// What was consumed in the period.
    pub consumed: Decimal,
}

impl Cut {
    /// The start of a period, when nothing was consumed.
    pub const START: Self =
        Self { place: OutboxId { epoch: Epoch(0), sequence: 0 }, consumed: Decimal::ZERO };
}

/// An amount that can burn, and between which cuts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burnable {
    /// Its place in the burn order.
    pub place: BurnPlace,
    /// How much.
    pub amount: Decimal,
    /// Where it begins; none while no cut was made.
    pub begins: Option<Cut>,
    /// Where it ends; none while it counts.
    pub ends: Option<Cut>,
}

impl Burnable {
    /// What the period before had left over. It burns from the period's start on, whenever its close has booked it, so
    /// that nothing depends on when that was.
    pub fn of_rolled_in(period: Window, amount: Decimal) -> Self {
        Self { place: BurnPlace::of_rolled_in(period), amount, begins: Some(Cut::START), ends: None }
    }
}

/// How much of each grant that has begun is burnt once this much is `consumed`: `included` from the period's start on,
/// the others between their cuts.
pub fn burn(
    included: (BurnPlace, Decimal),
    grants: &[Burnable],
    consumed: Decimal,
) -> BTreeMap<BurnPlace, Decimal> {
    let begins = grants.iter().filter_map(|grant| Some((grant.begins?, true, grant)));
    let ends = grants.iter().filter_map(|grant| Some((grant.ends?, false, grant)));
    let mut changes: Vec<_> = begins.chain(ends).collect();
    changes.sort_by_key(|(cut, begins, grant)| (cut.place, !begins, grant.place));
    let mut burning = Burning::default();
    burning.active.insert(included.0, included.1);
    burning.burnt.insert(included.0, Decimal::ZERO);
    for (cut, begins, grant) in changes {
        burning.advance(cut.consumed);
        if begins {
            burning.active.insert(grant.place, grant.amount);
            burning.burnt.insert(grant.place, Decimal::ZERO);
            let overage = std::mem::take(&mut burning.overage);
            burning.burn(overage);
        } else {
            burning.active.remove(&grant.place);
        }
    }
    burning.advance(consumed);
    burning.burnt
}

#[derive(Default)]
struct Burning {
    /// What is left of each grant that counts.
    active: BTreeMap<BurnPlace, Decimal>,
    burnt: BTreeMap<BurnPlace, Decimal>,
    consumed: Decimal,
    /// What was consumed beyond all grants.
    overage: Decimal,
}

impl Burning {
    /// Goes on to where this much is consumed.
    fn advance(&mut self, consumed: Decimal) {
        let more = consumed - self.consumed;
        self.consumed = consumed;
        if more >= Decimal::ZERO { self.burn(more) } else { self.unburn(-more) }
    }

    fn burn(&mut self, mut amount: Decimal) {
        for (place, left) in &mut self.active {
            let part = amount.min(*left);
            *left -= part;
            amount -= part;
            *self.burnt.entry(*place).or_default() += part;
        }
        self.overage += amount;
    }

    /// Gives back against the burn order.
    fn unburn(&mut self, mut amount: Decimal) {
        let part = amount.min(self.overage);
        self.overage -= part;
        amount -= part;
        for (place, left) in self.active.iter_mut().rev() {
            let burnt = self.burnt.entry(*place).or_default();
            let part = amount.min(*burnt);
            *burnt -= part;
            *left += part;
            amount -= part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{IdempotencyKey, TenantId};

    fn place(key: &str, priority: u8, expires_at_ms: i64, kind: GrantKind) -> BurnPlace {
        let id = GrantId::of(&TenantId::parse("acme").unwrap(), &IdempotencyKey::parse(key).unwrap());
        BurnPlace {
            priority: Priority::new(priority).unwrap(),
            expires_at_ms,
            kind,
            effective_at_ms: 10,
            created_at_ms: 10,
            id: Some(id),
        }
    }

    fn cut(sequence: u64, consumed: i64) -> Option<Cut> {
        let place = OutboxId { epoch: Epoch(1), sequence };
        Some(Cut { place, consumed: consumed.into() })
    }

    fn grant(key: &str, amount: i64, begins: Option<Cut>, ends: Option<Cut>) -> Burnable {
        let place = place(key, 50, 50, GrantKind::Promotional);
        Burnable { place, amount: amount.into(), begins, ends }
    }

    /// What is burnt of the included amount, then of each grant, as whole units.
    fn burnt(included: i64, grants: &[Burnable], consumed: i64) -> Vec<i64> {
        let base = BurnPlace::of_included((0, 100));
        let all = burn((base, included.into()), grants, consumed.into());
        let of = |place: &BurnPlace| {
            all.get(place).map_or(-1, |units| i64::try_from(units.trunc().mantissa()).unwrap())
        };
        std::iter::once(of(&base)).chain(grants.iter().map(|grant| of(&grant.place))).collect()
    }

    #[test]
    fn the_order_is_priority_then_end_then_promotional_then_dates() {
        let base = BurnPlace::of_included((0, 100));
        let order = [
            place("first", 1, 100, GrantKind::Paid),
            place("sooner", 50, 99, GrantKind::Paid),
            base,
            place("later", 50, 100, GrantKind::Promotional),
            place("paid", 50, 100, GrantKind::Paid),
            place("last", 51, 20, GrantKind::Promotional),
        ];
        assert!(order.is_sorted(), "{order:?}");
    }

    #[test]
    fn what_ends_sooner_burns_first_and_the_rest_stays_unburnt() {
        assert_eq!(burnt(50, &[grant("a", 10, cut(1, 0), None)], 4), [0, 4]);
        assert_eq!(burnt(50, &[grant("a", 10, cut(1, 0), None)], 14), [4, 10]);
        assert_eq!(burnt(50, &[grant("a", 10, cut(1, 5), None)], 14), [5, 9], "only from its cut on");
        assert_eq!(burnt(50, &[grant("a", 10, cut(1, 0), cut(2, 4))], 14), [10, 4], "only up to its end");
        assert_eq!(burnt(50, &[grant("a", 10, None, None)], 14), [14, -1], "it has no cut yet");
    }

    #[test]
    fn a_segment_begins_by_burning_the_overage_so_far() {
        assert_eq!(burnt(5, &[grant("a", 10, cut(1, 8), None)], 8), [5, 3]);
        let later = [grant("a", 10, cut(1, 20), None), grant("b", 10, cut(2, 20), cut(2, 20))];
        assert_eq!(burnt(5, &later, 20), [5, 10, 5], "the overage goes on to the next");
    }

    #[test]
    fn what_is_taken_back_unburns_against_the_order() {
        let grants = [grant("a", 10, cut(1, 0), None)];
        let mut ended = grants.clone();
        ended[0].ends = cut(2, 30);
        assert_eq!(burnt(50, &ended, 25), [15, 10]);
        assert_eq!(burnt(50, &[Burnable { begins: cut(1, 60), ..grants[0].clone() }], 55), [45, 10]);
    }
}
