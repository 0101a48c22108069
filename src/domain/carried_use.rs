//! Use of a hold after it was carried on to another period, and what corrections change of it.
//!
//! The period before has paid for what was held, but for what holds pushed it over its quota: that is charged to the
//! period to which they were carried, and burns its quota as far as they are consumed. What goes beyond a hold burns it
//! too. Only what burnt something can be overage there.

use rust_decimal::Decimal;

/// What was consumed of a hold in a period to which it was carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarriedUse {
    /// All that was consumed of it there.
    pub consumed: Decimal,
    /// What of that went beyond the hold.
    pub excess: Decimal,
    /// What corrections have added to it, or taken back.
    pub corrected: Decimal,
    /// What of that was held.
    pub corrected_of_held: Decimal,
}

impl CarriedUse {
    /// What is left of it.
    pub fn left(&self) -> Decimal {
        self.consumed + self.corrected
    }

    /// How much of a correction by `amount` was held. What went beyond the hold is taken back first and added again
    /// last, and so is what is more than was consumed.
    pub fn held_part(&self, amount: Decimal) -> Decimal {
        let of_held = (self.corrected + amount + self.excess).min(Decimal::ZERO);
        let change = of_held - self.corrected_of_held;
        change.clamp(amount.min(Decimal::ZERO), amount.max(Decimal::ZERO))
    }
}

/// What the period before had paid for of that which corrections take back of what was held: of all holds that were
/// carried to a period together. Nobody had paid for `charged` of what was consumed of them there: that is taken back
/// first and added again last.
pub fn paid_before(corrected_of_held: Decimal, charged: Decimal) -> Decimal {
    (corrected_of_held + charged.max(Decimal::ZERO)).min(Decimal::ZERO)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn used(excess: i64, corrected: i64, corrected_of_held: i64) -> CarriedUse {
        let [excess, corrected, corrected_of_held] =
            [excess, corrected, corrected_of_held].map(Decimal::from);
        CarriedUse { consumed: Decimal::from(20), excess, corrected, corrected_of_held }
    }

    #[rstest::rstest]
    #[case::all_was_held(used(0, 0, 0), -5, -5)]
    #[case::what_went_beyond_it_is_taken_back_first(used(7, 0, 0), -5, 0)]
    #[case::then_what_was_held(used(7, 0, 0), -10, -3)]
    #[case::also_by_a_second_one(used(7, -5, 0), -10, -8)]
    #[case::what_was_held_is_added_again_first(used(7, -10, -3), 2, 2)]
    #[case::then_what_went_beyond_it(used(7, -10, -3), 10, 3)]
    #[case::more_than_was_consumed_was_held_by_nobody(used(7, 0, 0), 4, 0)]
    #[case::what_went_beyond_it_meanwhile_changes_no_earlier_part(used(9, -5, -5), -2, 0)]
    #[case::but_a_later_one(used(9, -5, -5), 2, 2)]
    fn what_went_beyond_the_hold_is_taken_back_first_and_added_again_last(
        #[case] used: CarriedUse,
        #[case] amount: i64,
        #[case] of_held: i64,
    ) {
        assert_eq!(used.held_part(Decimal::from(amount)), Decimal::from(of_held));
    }

    #[rstest::rstest]
    #[case::all_was_paid(-5, 0, -5)]
    #[case::what_was_charged_is_taken_back_first(-5, 7, 0)]
    #[case::then_what_was_paid(-10, 7, -3)]
    #[case::nothing_is_taken_back(0, 7, 0)]
    #[case::less_was_consumed_than_was_paid_for(-5, -30, -5)]
    fn what_was_charged_is_taken_back_before_what_was_paid_for(
        #[case] of_held: i64,
        #[case] charged: i64,
        #[case] paid: i64,
    ) {
        assert_eq!(paid_before(Decimal::from(of_held), Decimal::from(charged)), Decimal::from(paid));
    }

    const HELD: [i64; 3] = [5, 20, 45];
    const EXCESS: [i64; 3] = [7, 0, 3];
    const CHARGED: i64 = 30;

    /// What these corrections, each of a hold, take back in all of what burnt the quota.
    fn burnt(corrections: &[(usize, i64)]) -> Decimal {
        let mut uses: Vec<_> = HELD
            .iter()
            .zip(EXCESS)
            .map(|(held, excess)| CarriedUse { consumed: Decimal::from(held + excess), ..used(excess, 0, 0) })
            .collect();
        for (hold, amount) in corrections {
            let (used, amount) = (&mut uses[*hold], Decimal::from(*amount));
            used.corrected_of_held += used.held_part(amount);
            used.corrected += amount;
        }
        let sum = |part: fn(&CarriedUse) -> Decimal| uses.iter().map(part).sum::<Decimal>();
        sum(|used| used.corrected) - paid_before(sum(|used| used.corrected_of_held), Decimal::from(CHARGED))
    }

    /// The same from what is left of each hold alone.
    fn burnt_of_what_is_left(corrected: [i64; 3]) -> i64 {
        let mut held_in_all = 0;
        let mut beyond = 0;
        for ((held, excess), corrected) in HELD.into_iter().zip(EXCESS).zip(corrected) {
            let left = held + excess + corrected;
            held_in_all += left.min(held);
            beyond += left.max(held) - held;
        }
        let paid_for = HELD.iter().sum::<i64>() - CHARGED;
        let was = EXCESS.iter().sum::<i64>() + CHARGED;
        beyond + (held_in_all - paid_for).max(0) - was
    }

    proptest! {
        #[test]
        fn the_bill_follows_from_what_is_left_in_whatever_order_and_parts_it_was_corrected(
            corrections in prop::collection::vec((0_usize..3, -9_i64..9), 0..12),
        ) {
            let mut taken = [0; 3];
            let possible: Vec<_> = corrections
                .into_iter()
                .filter(|(hold, amount)| {
                    let is_left = HELD[*hold] + EXCESS[*hold] + taken[*hold] + amount >= 0;
                    taken[*hold] += if is_left { *amount } else { 0 };
                    is_left
                })
                .collect();
            prop_assert_eq!(burnt(&possible), Decimal::from(burnt_of_what_is_left(taken)));
            let undone: Vec<_> = possible.iter().map(|(hold, amount)| (*hold, -amount)).collect();
            prop_assert_eq!(burnt(&[possible, undone].concat()), Decimal::ZERO);
        }
    }
}
