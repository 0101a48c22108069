//! Use of a hold after it was carried on to another period, and what corrections change of it.
//!
//! The period before has paid for a carried hold. Only its excess, and what holds pushed that one over its quota, burnt
//! something where it stands: so only that can be overage there.

use rust_decimal::Decimal;

/// What was consumed of a hold in a period to which it was carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarriedUse {
    /// All that was consumed of it there.
    pub consumed: Decimal,
    /// What of it burnt the quota of that period, at most.
    pub burnt: Decimal,
    /// What corrections have added to it, or taken back.
    pub corrected: Decimal,
    /// What of that the period before had paid for.
    pub corrected_of_paid: Decimal,
}

impl CarriedUse {
    /// What is left of it.
    pub fn left(&self) -> Decimal {
        self.consumed + self.corrected
    }

    /// How much of a correction by `amount` concerns what the period before had paid for. What burnt something is taken
    /// back first and added again last.
    pub fn paid_part(&self, amount: Decimal) -> Decimal {
        let paid = (self.corrected + amount + self.burnt.min(self.consumed)).min(Decimal::ZERO);
        let change = paid - self.corrected_of_paid;
        change.clamp(amount.min(Decimal::ZERO), amount.max(Decimal::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(burnt: i64, corrected: i64, corrected_of_paid: i64) -> CarriedUse {
        let [burnt, corrected, corrected_of_paid] = [burnt, corrected, corrected_of_paid].map(Decimal::from);
        CarriedUse { consumed: Decimal::from(20), burnt, corrected, corrected_of_paid }
    }

    #[rstest::rstest]
    #[case::all_was_paid(used(0, 0, 0), -5, -5)]
    #[case::what_burnt_is_taken_back_first(used(7, 0, 0), -5, 0)]
    #[case::then_what_was_paid(used(7, 0, 0), -10, -3)]
    #[case::also_by_a_second_one(used(7, -5, 0), -10, -8)]
    #[case::what_was_paid_is_added_again_first(used(7, -10, -3), 2, 2)]
    #[case::then_what_burnt(used(7, -10, -3), 10, 3)]
    #[case::more_than_was_consumed_was_paid_by_nobody(used(7, 0, 0), 4, 0)]
    #[case::no_more_has_burnt_than_was_consumed(used(25, 0, 0), -20, 0)]
    #[case::what_has_burnt_meanwhile_changes_no_earlier_part(used(9, -5, -5), -2, 0)]
    fn what_burnt_something_is_taken_back_first_and_added_again_last(
        #[case] used: CarriedUse,
        #[case] amount: i64,
        #[case] paid: i64,
    ) {
        assert_eq!(used.paid_part(Decimal::from(amount)), Decimal::from(paid));
    }

    #[test]
    fn what_is_taken_back_and_added_again_in_whatever_parts_leaves_nothing_of_the_paid() {
        for parts in [[-5, 5, 0], [-9, 4, 5], [-3, -7, 10], [6, -16, 10]] {
            let mut left = used(7, 0, 0);
            for amount in parts.map(Decimal::from) {
                left.corrected_of_paid += left.paid_part(amount);
                left.corrected += amount;
            }
            assert_eq!(left, used(7, 0, 0), "{parts:?}");
        }
    }
}
