//! The pace at which a quota is used, and when it is used up if it goes on so.

use super::amount::Units;
use super::period::Window;

const DAY_MS: i128 = 86_400_000;
/// The share of a period that has to be over before its pace says anything about its end.
const FIRST_TENTH: i128 = 10;

/// The use of a quota's period so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The period.
    pub period: Window,
    /// The instant until which it was used (unix ms).
    pub at_ms: i64,
    /// What was consumed until then.
    pub consumed: Units,
    /// What may be consumed at all.
    pub allowance: Units,
}

impl Pace {
    /// What is used in 24 hours, rounded down; nothing before any time has passed.
    pub fn per_day(self) -> Units {
        let passed_ms = self.passed_ms();
        if passed_ms <= 0 {
            return Units::ZERO;
        }
        let units = i128::from(self.consumed.get()) * DAY_MS / passed_ms;
        i64::try_from(units).ok().and_then(Units::new).unwrap_or(Units::MAX)
    }

    /// When all is used (unix ms), if that is before the period ends and after now; not before a tenth of the period is
    /// over.
    pub fn runs_out_at_ms(self) -> Option<i64> {
        let (passed_ms, whole_ms) = (self.passed_ms(), i128::from(self.period.end_ms - self.period.start_ms));
        let [consumed, allowance] = [self.consumed, self.allowance].map(|units| i128::from(units.get()));
        let is_early = passed_ms * FIRST_TENTH < whole_ms;
        if is_early || consumed >= allowance || consumed * whole_ms <= allowance * passed_ms {
            return None;
        }
        let after_ms = i64::try_from(allowance * passed_ms / consumed).ok()?;
        self.period.start_ms.checked_add(after_ms)
    }

    fn passed_ms(self) -> i128 {
        i128::from(self.at_ms.min(self.period.end_ms)) - i128::from(self.period.start_ms)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const DAY: i64 = 86_400_000;

    /// A period of thirty days with a hundred units.
    fn after(days: i64, consumed: i64) -> Pace {
        let units = |value| Units::new(value).unwrap();
        Pace {
            period: Window { start_ms: 5, end_ms: 5 + 30 * DAY },
            at_ms: 5 + days * DAY,
            consumed: units(consumed),
            allowance: units(100),
        }
    }

    #[rstest]
    #[case::five_days(after(5, 20), 4, Some(25))]
    #[case::rounded_down(after(7, 20), 2, None)]
    #[case::exactly_until_the_end(after(6, 20), 3, None)]
    #[case::a_little_faster(after(6, 21), 3, Some(28))]
    #[case::a_tenth_is_over(after(3, 50), 16, Some(6))]
    #[case::a_tenth_is_not_over(after(2, 50), 25, None)]
    #[case::nothing_used(after(10, 0), 0, None)]
    #[case::all_used(after(10, 100), 10, None)]
    #[case::no_time_has_passed(after(0, 50), 0, None)]
    #[case::after_its_end(after(40, 99), 3, None)]
    fn a_pace(#[case] pace: Pace, #[case] per_day: i64, #[case] runs_out_on_day: Option<i64>) {
        let day = pace.runs_out_at_ms().map(|at_ms| (at_ms - 5) / DAY);
        assert_eq!((pace.per_day().get(), day), (per_day, runs_out_on_day));
    }

    #[test]
    fn the_largest_amounts_overflow_nothing() {
        let pace = Pace { consumed: Units::MAX, allowance: Units::MAX, ..after(1, 0) };
        assert_eq!((pace.per_day(), pace.runs_out_at_ms()), (Units::MAX, None));
        let pace = Pace { at_ms: 6, ..pace };
        assert_eq!(pace.per_day(), Units::MAX);
    }
}
