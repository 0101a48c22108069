//! Rollover: what of a closed period's quota goes on to the next period.

use std::cmp::Ordering;

use rust_decimal::Decimal;

use super::amount::Amount;
use super::burn::{BurnPlace, Burnable, burn};
use super::period::Window;

/// A quota's period that is about to be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosingQuota {
    /// Its instants.
    pub period: Window,
    /// What the plan included.
    pub included: Decimal,
    /// How much of that goes on at most.
    pub max_rollover: Decimal,
    /// What came over from the period before: it does not go on again.
    pub rolled_in: Decimal,
    /// The grants of the period: they end with it.
    pub grants: Vec<Burnable>,
    /// What was consumed of all of it: without what was consumed of holds that the period before has paid for.
    pub consumed: Decimal,
    /// What is available; open holds are not.
    pub available: Decimal,
}

/// What of a closing period's included amount is unused, and what of the open holds is set against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unused {
    /// The included amount's unburnt part, without the holds that are set against it.
    pub included: Decimal,
    /// What of the holds is set against the included amount.
    pub held_of_included: Decimal,
    /// What of them is set against what burns after it.
    pub held_after: Decimal,
}

impl ClosingQuota {
    /// What of the included amount is unused, once open holds are set against what is unburnt, in burn order.
    pub fn unused(&self) -> Unused {
        let place = BurnPlace::of_included((self.period.start_ms, self.period.end_ms));
        let mut burnables = self.grants.clone();
        burnables.push(Burnable::of_rolled_in(self.period, self.rolled_in));
        let burnt = burn((place, self.included), &burnables, self.consumed);
        let ended = |at: &BurnPlace| burnables.iter().any(|other| other.place == *at && other.ends.is_some());
        let amount = |at: &BurnPlace| {
            burnables.iter().find(|other| other.place == *at).map_or(self.included, |other| other.amount)
        };
        let left = burnt.iter().filter(|(at, _)| !ended(at)).map(|(at, burnt)| (*at, amount(at) - *burnt));
        let unburnt: Vec<(BurnPlace, Decimal)> = left.collect();
        let all: Decimal = unburnt.iter().map(|(_, left)| *left).sum();
        let mut held = (all - self.available.max(Decimal::ZERO)).clamp(Decimal::ZERO, all.max(Decimal::ZERO));
        let mut unused = Unused::default();
        for (at, left) in unburnt {
            let set = held.min(left);
            held -= set;
            match at.cmp(&place) {
                Ordering::Less => {}
                Ordering::Equal => {
                    (unused.included, unused.held_of_included) = (left - set, set);
                }
                Ordering::Greater => unused.held_after += set,
            }
        }
        unused
    }

    /// What of the unused included amount goes on: at most what may.
    pub fn rolled_over(&self) -> Amount {
        let unused = self.unused().included.min(self.max_rollover).min(self.available);
        Amount::from_decimal(unused).unwrap_or(Amount::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::domain::burn::Cut;
    use crate::domain::grant::{GrantId, GrantKind, Priority};
    use crate::domain::ids::{Epoch, IdempotencyKey, OutboxId, TenantId};

    const PERIOD: Window = Window { start_ms: 0, end_ms: 100 };

    /// A period with fifty included, of which this much was consumed.
    fn closing(max_rollover: i64, rolled_in: i64, consumed: i64) -> ClosingQuota {
        ClosingQuota {
            period: PERIOD,
            included: 50.into(),
            max_rollover: max_rollover.into(),
            rolled_in: rolled_in.into(),
            grants: Vec::new(),
            consumed: consumed.into(),
            available: (50 + rolled_in - consumed).into(),
        }
    }

    #[rstest]
    #[case::nothing_rolls_where_nothing_may(closing(0, 0, 10), 0)]
    #[case::all_that_is_unused(closing(50, 0, 10), 40)]
    #[case::at_most_so_much(closing(25, 0, 10), 25)]
    #[case::all_is_used(closing(50, 0, 50), 0)]
    #[case::more_is_used_than_there_was(closing(50, 0, 60), 0)]
    #[case::what_came_over_burns_after_the_included_amount(closing(50, 20, 30), 20)]
    #[case::and_does_not_go_on_again(closing(50, 20, 60), 0)]
    #[case::not_even_where_nothing_was_used(closing(80, 20, 0), 50)]
    #[case::never_more_than_is_available(ClosingQuota { available: 5.into(), ..closing(50, 0, 10) }, 5)]
    #[case::what_is_held_is_not_unused(ClosingQuota { available: 25.into(), ..closing(50, 0, 10) }, 25)]
    #[case::nothing_below_zero(ClosingQuota { available: (-5).into(), ..closing(50, 0, 10) }, 0)]
    fn what_goes_on(#[case] quota: ClosingQuota, #[case] expected: i64) {
        assert_eq!(quota.rolled_over().decimal(), Decimal::from(expected));
    }

    #[rstest]
    #[case::that_burns_first_spares_the_included_amount(10, 100, 40, 20)]
    #[case::that_ends_sooner_too(50, 90, 40, 20)]
    #[case::that_burns_last_is_not_spared(60, 100, 40, 10)]
    fn a_grant(
        #[case] priority: u8,
        #[case] expires_at_ms: i64,
        #[case] consumed: i64,
        #[case] expected: i64,
    ) {
        let key = IdempotencyKey::parse("k").unwrap();
        let place = BurnPlace {
            priority: Priority::new(priority).unwrap(),
            expires_at_ms,
            kind: GrantKind::Paid,
            effective_at_ms: 10,
            created_at_ms: 10,
            id: Some(GrantId::of(&TenantId::parse("acme").unwrap(), &key)),
        };
        let at = |sequence| Cut { place: OutboxId { epoch: Epoch(1), sequence }, consumed: Decimal::ZERO };
        let grant = Burnable { place, amount: 10.into(), begins: Some(at(1)), ends: None };
        let quota = ClosingQuota {
            grants: vec![grant],
            available: (60 - consumed).into(),
            ..closing(50, 0, consumed)
        };
        assert_eq!(quota.rolled_over().decimal(), Decimal::from(expected));
    }

    #[rstest]
    #[case::nothing_is_held(0, (40, 0, 0))]
    #[case::the_included_amount_is_held_first(15, (25, 15, 0))]
    #[case::then_what_came_over(55, (0, 40, 15))]
    #[case::more_than_there_is(90, (0, 40, 20))]
    fn open_holds_are_set_against_what_is_unburnt_in_burn_order(
        #[case] held: i64,
        #[case] (included, held_of_included, held_after): (i64, i64, i64),
    ) {
        let of_period = closing(50, 20, 10);
        let quota = ClosingQuota { available: of_period.available - Decimal::from(held), ..of_period };
        let [included, held_of_included, held_after] =
            [included, held_of_included, held_after].map(Decimal::from);
        assert_eq!(quota.unused(), Unused { included, held_of_included, held_after });
    }
}
