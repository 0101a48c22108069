//! Rollover: what of a closed period's quota goes on to the next period.

use rust_decimal::Decimal;

use super::burn::{BurnPlace, Burnable, burn};
use super::grant::{GrantId, GrantRollover};
use super::ids::OutboxId;
use super::period::Window;

/// What of a quota goes on to the next period, where it is unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RolloverTerms {
    /// How much at most; zero where nothing does.
    pub max: Decimal,
    /// How much at least: what is missing to it is granted.
    pub min: Decimal,
    /// Whether what came over before goes on again with its last period, as if the plan included it.
    pub reroll: bool,
}

impl RolloverTerms {
    /// What the next period gets where this much is unused.
    pub fn kept(&self, unused: Decimal) -> Decimal {
        self.max.min(self.min.max(unused))
    }
}

/// An amount that came over from earlier periods, as it stands in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolledIn {
    /// How much.
    pub amount: Decimal,
    /// When the last period ends in which it counts (unix ms).
    pub ends_at_ms: i64,
    /// In how many periods after this one it counts.
    pub periods_left: u8,
}

/// An amount that came over, and what of it has returned of carried holds since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolledAmount {
    /// All of it.
    pub rolled_in: RolledIn,
    /// What has returned, and after which cut.
    pub grows: Vec<(OutboxId, Decimal)>,
}

impl From<RolledIn> for RolledAmount {
    fn from(rolled_in: RolledIn) -> Self {
        Self { rolled_in, grows: Vec::new() }
    }
}

impl RolledAmount {
    /// These amounts of a period as what can burn, in their order: they burn from the period's start on, whenever its
    /// close has booked them, so that nothing depends on when that was.
    pub fn burnables(period: Window, amounts: &[Self]) -> Vec<Burnable> {
        let burnable = |(number, Self { rolled_in, grows }): (i64, &Self)| {
            let whole = Burnable::of_rolled_in(period, rolled_in.amount);
            // Its last period is counted; that may end sooner than was foreseen, where the tenant has another calendar.
            let is_last = rolled_in.periods_left == 0;
            let ends_at_ms = if is_last { period.end_ms } else { rolled_in.ends_at_ms.max(period.end_ms) };
            let place = BurnPlace {
                expires_at_ms: ends_at_ms,
                created_at_ms: whole.place.created_at_ms.saturating_add(number),
                ..whole.place
            };
            Burnable { place, grows: grows.clone(), ..whole }
        };
        (0..).zip(amounts).map(burnable).collect()
    }
}

/// A quota's period that is about to be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosingQuota {
    /// Its instants.
    pub period: Window,
    /// What the plan included.
    pub included: Decimal,
    /// What may go on.
    pub terms: RolloverTerms,
    /// What came over from earlier periods; what ends first comes first.
    pub rolled_in: Vec<RolledAmount>,
    /// The grants of the period.
    pub grants: Vec<ClosingGrant>,
    /// What was consumed of all of it: without what was consumed of holds that the period before has paid for.
    pub consumed: Decimal,
    /// What is available; open holds are not.
    pub available: Decimal,
    /// What open holds of earlier periods are set against grants: none of it is in what stands of these here.
    pub held_before: Vec<(GrantId, Decimal)>,
}

/// A grant of a period that is about to be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosingGrant {
    /// What of it can burn in the period.
    pub burnable: Burnable,
    /// What becomes of what is left of it.
    pub fate: Fate,
    /// How much of it goes on.
    pub rollover: GrantRollover,
}

/// What becomes of an amount's unused part when its period is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It lapses.
    Lapses,
    /// It is one of those that roll over together, as far as the quota's terms say.
    Rolls,
    /// It came over before, and all of it goes on until its last period.
    GoesOn(RolledIn),
    /// It is a grant that goes on until its end, as far as its own terms say.
    GrantGoesOn(GrantId),
    /// It is what the period got of a recurring grant: it rolls over by itself, as far as the grant's terms say.
    GrantRolls,
}

/// An amount of a closing period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// What becomes of it.
    pub fate: Fate,
    /// The grant that it is of.
    pub grant: Option<GrantId>,
    /// Its unburnt part, without the holds that are set against it.
    pub unused: Decimal,
    /// What of the open holds is set against it.
    pub held: Decimal,
    /// What else of it open holds of earlier periods are set against: it may return to it.
    pub held_before: Decimal,
    /// How much of it goes on, where it is a grant's.
    pub rollover: GrantRollover,
}

impl Part {
    /// What is left of it, with what may return to it.
    pub fn left(&self) -> Decimal {
        self.unused + self.held + self.held_before
    }

    /// What of it stands in the next period by itself: more than was unused where its grant goes on with at least so
    /// much.
    pub fn goes_on(&self) -> Decimal {
        match self.fate {
            Fate::Lapses | Fate::Rolls => Decimal::ZERO,
            Fate::GoesOn(_) => self.unused,
            Fate::GrantGoesOn(_) | Fate::GrantRolls => self.rollover.kept(self.unused),
        }
    }
}

impl ClosingQuota {
    /// The amounts that count at the period's end, in burn order, once open holds are set against what is unburnt.
    pub fn parts(&self) -> Vec<Part> {
        let base = BurnPlace::of_included((self.period.start_ms, self.period.end_ms));
        let rolled = RolledAmount::burnables(self.period, &self.rolled_in);
        let grants = self.grants.iter().map(|grant| grant.burnable.clone());
        let burnables: Vec<Burnable> = rolled.iter().cloned().chain(grants).collect();
        let burnt = burn((base, self.included), &burnables, self.consumed);
        let of_rolled =
            rolled.iter().zip(&self.rolled_in).map(|(burnable, RolledAmount { rolled_in, .. })| {
                let fate = match rolled_in.periods_left {
                    0 if self.terms.reroll => Fate::Rolls,
                    0 => Fate::Lapses,
                    _ => Fate::GoesOn(*rolled_in),
                };
                (burnable.place, burnable.amount, fate, GrantRollover::default())
            });
        let counts = |ClosingGrant { burnable, .. }: &&ClosingGrant| {
            burnable.ends.is_none() && burnable.amount >= Decimal::ZERO
        };
        let of_grants = self.grants.iter().filter(counts).map(|ClosingGrant { burnable, fate, rollover }| {
            (burnable.place, burnable.amount, *fate, *rollover)
        });
        let included = (base, self.included, Fate::Rolls, GrantRollover::default());
        let mut all: Vec<_> = [included].into_iter().chain(of_rolled).chain(of_grants).collect();
        all.sort_by_key(|(place, ..)| *place);
        let left = all.into_iter().map(|(place, amount, fate, rollover)| Part {
            fate,
            grant: place.id,
            // A grant that has no cut yet has burnt nothing.
            unused: amount - burnt.get(&place).copied().unwrap_or_default(),
            held: Decimal::ZERO,
            held_before: Decimal::ZERO,
            rollover,
        });
        self.without_holds(left.collect())
    }

    /// These parts without what of them the open holds are set against.
    fn without_holds(&self, mut parts: Vec<Part>) -> Vec<Part> {
        let all: Decimal = parts.iter().map(|part| part.unused).sum();
        let mut held = (all - self.available.max(Decimal::ZERO)).clamp(Decimal::ZERO, all.max(Decimal::ZERO));
        for part in &mut parts {
            part.held = held.min(part.unused);
            held -= part.held;
            part.unused -= part.held;
            let of_it = self.held_before.iter().filter(|(id, _)| Some(*id) == part.grant);
            part.held_before = of_it.map(|(_, held)| *held).sum();
            // A grant ends here where nothing of it goes on, nor would if all of the holds returned.
            let is_over = part.rollover.kept(part.left()).is_zero();
            if is_over && matches!(part.fate, Fate::GrantGoesOn(_)) {
                part.fate = Fate::Lapses;
            }
        }
        parts
    }
}

/// What is unused of those amounts of closing period that roll over together.
pub fn rolling(parts: &[Part]) -> Decimal {
    parts.iter().filter(|part| part.fate == Fate::Rolls).map(|part| part.unused).sum()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::domain::amount::Amount;
    use crate::domain::burn::Cut;
    use crate::domain::grant::{GrantId, GrantKind, Priority};
    use crate::domain::ids::{Epoch, IdempotencyKey, TenantId};

    const PERIOD: Window = Window { start_ms: 0, end_ms: 100 };

    fn terms(min: i64, max: i64) -> RolloverTerms {
        RolloverTerms { max: max.into(), min: min.into(), reroll: false }
    }

    fn rolled(amount: i64, periods_left: u8) -> RolledIn {
        let ends_at_ms = 100 * (i64::from(periods_left) + 1);
        RolledIn { amount: amount.into(), ends_at_ms, periods_left }
    }

    /// A period with fifty included, of which this much was consumed.
    fn closing(max_rollover: i64, rolled_in: i64, consumed: i64) -> ClosingQuota {
        ClosingQuota {
            period: PERIOD,
            included: 50.into(),
            terms: terms(0, max_rollover),
            rolled_in: vec![rolled(rolled_in, 0).into()],
            grants: Vec::new(),
            consumed: consumed.into(),
            available: (50 + rolled_in - consumed).into(),
            held_before: Vec::new(),
        }
    }

    fn kept(quota: &ClosingQuota) -> Decimal {
        quota.terms.kept(rolling(&quota.parts()))
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
        assert_eq!(kept(&quota), Decimal::from(expected));
    }

    /// The table of what the next period gets: at least `min`, at most `max`, of what is left of all that rolls.
    #[rstest]
    #[case::nothing_may_go_on((0, 0), 30, 0)]
    #[case::all_of_it((0, 50), 30, 30)]
    #[case::up_to_the_most((0, 20), 30, 20)]
    #[case::up_to_the_least((40, 50), 30, 40)]
    #[case::the_least_of_nothing((10, 50), 0, 10)]
    #[case::the_same_after_each_period((20, 20), 30, 20)]
    #[case::also_of_nothing((20, 20), 0, 20)]
    fn what_is_kept_is_at_least_the_least_and_at_most_the_most(
        #[case] (min, max): (i64, i64),
        #[case] unused: i64,
        #[case] expected: i64,
    ) {
        assert_eq!(terms(min, max).kept(unused.into()), Decimal::from(expected));
    }

    #[test]
    fn what_counts_for_the_last_time_burns_as_of_the_end_of_its_period_wherever_that_was_foreseen() {
        let later = RolledIn { ends_at_ms: 900, ..rolled(10, 0) };
        let amounts = [later, rolled(10, 2)].map(RolledAmount::from);
        let ends = RolledAmount::burnables(PERIOD, &amounts).into_iter().map(|one| one.place.expires_at_ms);
        assert_eq!(ends.collect::<Vec<_>>(), [100, 300]);
    }

    #[test]
    fn what_came_over_goes_on_until_its_last_period_and_with_reroll_rolls_over_again() {
        let quota = |consumed: i64, reroll| ClosingQuota {
            rolled_in: [rolled(20, 0), rolled(10, 1), rolled(5, 2)].map(RolledAmount::from).into(),
            terms: RolloverTerms { reroll, ..terms(0, 45) },
            available: (85 - consumed).into(),
            ..closing(45, 0, consumed)
        };
        let unused = |quota: &ClosingQuota| {
            let parts = quota.parts();
            parts.iter().map(|part| (part.fate, i64::try_from(part.unused).unwrap())).collect::<Vec<_>>()
        };
        let [one, two] = [(10, 1), (5, 2)].map(|(amount, left)| Fate::GoesOn(rolled(amount, left)));
        let (rolls, lapses) = (Fate::Rolls, Fate::Lapses);
        assert_eq!(unused(&quota(10, false)), [(rolls, 40), (lapses, 20), (one, 10), (two, 5)]);
        assert_eq!(
            unused(&quota(73, false)),
            [(rolls, 0), (lapses, 0), (one, 7), (two, 5)],
            "what ends first burns first"
        );
        assert_eq!(unused(&quota(10, true)), [(rolls, 40), (rolls, 20), (one, 10), (two, 5)]);
        assert_eq!(
            (kept(&quota(10, false)), kept(&quota(10, true))),
            (40.into(), 45.into()),
            "the most counts for both"
        );
    }

    fn grant(priority: u8, expires_at_ms: i64) -> Burnable {
        let key = IdempotencyKey::parse("k").unwrap();
        let place = BurnPlace {
            priority: Priority::new(priority).unwrap(),
            expires_at_ms,
            kind: GrantKind::Paid,
            effective_at_ms: 10,
            created_at_ms: 10,
            id: Some(GrantId::of(&TenantId::parse("acme").unwrap(), &key)),
        };
        let at = |sequence| Cut {
            place: OutboxId { epoch: Epoch(1), sequence },
            at_ms: 10,
            consumed: Decimal::ZERO,
        };
        Burnable {
            place,
            amount: 10.into(),
            grows: Vec::new(),
            is_of_plan: false,
            begins: Some(at(1)),
            ends: None,
        }
    }

    fn closing_grant(burnable: Burnable, goes_on: bool) -> ClosingGrant {
        let goes_on = burnable.place.id.filter(|_| goes_on);
        let fate = goes_on.map_or(Fate::Lapses, Fate::GrantGoesOn);
        ClosingGrant { burnable, fate, rollover: GrantRollover::default() }
    }

    /// What goes on of a grant of ten of which so much is consumed or held, whether it is over, and the same of what a
    /// period got of a recurring one.
    #[rstest]
    #[case::up_to_the_most(Some("4"), "0", 3, 0, (4, false))]
    #[case::less_than_the_most(Some("4"), "0", 8, 0, (2, false))]
    #[case::up_to_the_least(None, "5", 8, 0, (5, false))]
    #[case::the_least_of_nothing(Some("9"), "5", 10, 0, (5, false))]
    #[case::nothing_is_left(Some("9"), "0", 10, 0, (0, true))]
    #[case::nothing_may_go_on(Some("0"), "0", 3, 0, (0, true))]
    #[case::what_is_held_may_return(Some("4"), "0", 3, 7, (0, false))]
    fn what_goes_on_of_a_grant(
        #[case] max: Option<&str>,
        #[case] min: &str,
        #[case] consumed: i64,
        #[case] held: i64,
        #[case] (goes_on, is_over): (i64, bool),
    ) {
        let amount = |text: &str| Amount::parse(text).unwrap();
        let rollover = GrantRollover { max: max.map(amount), min: amount(min) };
        let of = |grant: ClosingGrant| {
            let grants = vec![ClosingGrant { rollover, ..grant }];
            let available = (10 - consumed - held).into();
            ClosingQuota { grants, available, ..closing(0, 0, 50 + consumed) }.parts()[2]
        };
        let once = of(closing_grant(grant(60, 500), true));
        assert_eq!((once.goes_on(), once.fate == Fate::Lapses), (goes_on.into(), is_over));
        let recurs = of(ClosingGrant { fate: Fate::GrantRolls, ..closing_grant(grant(60, 100), false) });
        assert_eq!((recurs.goes_on(), recurs.fate), (goes_on.into(), Fate::GrantRolls));
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
        let quota = ClosingQuota {
            grants: vec![closing_grant(grant(priority, expires_at_ms), false)],
            available: (60 - consumed).into(),
            ..closing(50, 0, consumed)
        };
        assert_eq!(kept(&quota), Decimal::from(expected));
    }

    #[test]
    fn a_grant_that_goes_on_keeps_what_is_left_of_it() {
        let of = |goes_on, consumed: i64| {
            let grants = vec![closing_grant(grant(60, 500), goes_on)];
            ClosingQuota { grants, available: (60 - consumed).into(), ..closing(0, 0, consumed) }.parts()[2]
        };
        let Fate::GrantGoesOn(_) = of(true, 54).fate else { panic!("it goes on") };
        assert_eq!((of(true, 54).unused, of(false, 54).unused), (6.into(), 6.into()));
        assert_eq!(of(false, 54).fate, Fate::Lapses);
        assert!(of(true, 54).grant.is_some() && of(true, 54).grant == of(false, 54).grant);
        assert_eq!(
            (of(true, 60).fate, of(true, 60).unused),
            (Fate::Lapses, 0.into()),
            "nothing is left of it"
        );
        let grants = vec![closing_grant(grant(60, 500), true)];
        let held_before = vec![(grants[0].burnable.place.id.unwrap(), 3.into())];
        let held = ClosingQuota { grants, held_before, available: 0.into(), ..closing(0, 0, 60) }.parts()[2];
        assert_eq!((held.unused, held.held_before), (0.into(), 3.into()));
        assert_eq!(held.fate, of(true, 54).fate, "what is held of it may return to it");
    }

    #[rstest]
    #[case::nothing_is_held(0, &[(40, 0), (20, 0)])]
    #[case::the_included_amount_is_held_first(15, &[(25, 15), (20, 0)])]
    #[case::then_what_came_over(55, &[(0, 40), (5, 15)])]
    #[case::more_than_there_is(90, &[(0, 40), (0, 20)])]
    fn open_holds_are_set_against_what_is_unburnt_in_burn_order(
        #[case] held: i64,
        #[case] expected: &[(i64, i64)],
    ) {
        let of_period = closing(50, 20, 10);
        let quota = ClosingQuota { available: of_period.available - Decimal::from(held), ..of_period };
        let parts = quota.parts().into_iter().map(|part| (part.unused, part.held));
        let expected = expected.iter().map(|(unused, held)| (Decimal::from(*unused), Decimal::from(*held)));
        assert_eq!(parts.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}
