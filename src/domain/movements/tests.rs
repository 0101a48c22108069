use super::close::{carry_holds, go_on, repay_overage, return_carried, settle, settle_overage};
use super::grants::{change_included, expire, grant, take_back, void};
use super::*;
use crate::domain::money::Currency;
use crate::domain::rollover::RolloverTerms;
use proptest::prelude::*;

const P: Window = Window { start_ms: 0, end_ms: 1_000 };
const Q: Window = Window { start_ms: 1_000, end_ms: 2_000 };

fn of(units: u64) -> Amount {
    Amount::from_integer(units)
}

/// The movements, all of this class, each as `P available > reserved 5` with its flags.
fn text(class: EntryClass, movements: &[Movement]) -> Vec<String> {
    let text = |movement: &Movement| {
        assert_eq!(movement.class, class);
        let flags = movement.flags;
        let flags = [(flags.excess, " excess"), (flags.late, " late"), (flags.carried, " carried")];
        let flags: String = flags.into_iter().filter_map(|(set, name)| set.then_some(name)).collect();
        let period = if movement.period == P { "P" } else { "Q" };
        let accounts = [movement.credit, movement.debit].map(Account::as_str).join(" > ");
        format!("{period} {accounts} {}{flags}", movement.amount)
    };
    movements.iter().map(text).collect()
}

fn grants(movements: &[Movement]) -> Vec<String> {
    text(EntryClass::Grant, movements)
}

fn closes(movements: &[Movement]) -> Vec<String> {
    text(EntryClass::Period, movements)
}

const NONE: [&str; 0] = [];

#[test]
fn accounts_and_classes_are_read_by_the_words_that_they_write() {
    for (index, account) in Account::OF_UNITS.into_iter().enumerate() {
        assert_eq!(account.index(), index);
        assert_eq!(Account::from_word(account.as_str()), Some(account));
    }
    assert_eq!(EntryClass::from_word(EntryClass::Correction.as_str()), Some(EntryClass::Correction));
    assert_eq!(Account::from_word("other"), None);
}

#[test]
fn money_moves_between_its_accounts_and_the_other_way_where_it_is_owed_back() {
    let euros = |minor_units| Currency::parse("EUR").unwrap().money(minor_units);
    for (class, movement, expected) in [
        (EntryClass::Grant, money::sell(P, euros(1_050)), "P deferred > receivable 10.5"),
        (EntryClass::Period, money::recognise(P, euros(333)), "P revenue > deferred 3.33"),
        (EntryClass::Period, money::unearn(P, euros(333)), "P deferred > revenue 3.33"),
        (EntryClass::Period, money::forfeit(P, euros(667)), "P breakage > deferred 6.67"),
        (EntryClass::Grant, money::refund(P, euros(667)), "P receivable > deferred 6.67"),
        (EntryClass::Correction, money::adjust(P, euros(250)), "P revenue > receivable 2.5"),
        (EntryClass::Correction, money::adjust(P, euros(-250)), "P receivable > revenue 2.5"),
        (EntryClass::Period, money::statement_line(P, Account::Tax, euros(19)), "P tax > receivable 0.19"),
    ] {
        let movement = movement.unwrap().unwrap();
        assert_eq!(text(class, &[movement]), [expected]);
        assert!(!movement.is_of_units());
    }
    assert_eq!(money::recognise(P, euros(0)).unwrap(), None);
    assert!(money::sell(P, euros(-1)).is_err());
}

#[test]
fn an_opened_period_a_grant_and_a_refill_are_available() {
    assert_eq!(grants(&grant(P, of(90))), ["P granted > available 90"]);
    assert_eq!(grants(&grant(P, of(0))), NONE);
}

#[test]
fn what_a_period_was_opened_with_beyond_what_it_includes_is_taken_back() {
    assert_eq!(grants(&take_back(P, of(40))), ["P available > granted 40"]);
    assert_eq!(grants(&take_back(P, of(0))), NONE);
}

#[test]
fn a_grant_that_expires_lapses_by_its_unburnt_part() {
    assert_eq!(grants(&expire(P, of(7))), ["P available > lapsed 7"]);
    assert_eq!(grants(&expire(P, of(0))), NONE);
}

#[test]
fn a_voided_grant_is_taken_back_by_its_unburnt_part() {
    assert_eq!(grants(&void(P, of(7))), ["P available > voided 7"]);
}

#[rstest::rstest]
#[case::raised(100, 150, 20, &["P granted > available 50"])]
#[case::raised_over_the_quota(100, 150, -20, &["P granted > available 50"])]
#[case::lowered(100, 70, 50, &["P available > voided 30"])]
#[case::lowered_below_what_is_left(100, 70, 12, &["P available > voided 12"])]
#[case::lowered_over_the_quota(100, 70, -5, &[])]
#[case::the_same(100, 100, 50, &[])]
fn a_change_of_plan_grants_the_difference_or_voids_what_is_left_of_it(
    #[case] was: u64,
    #[case] now: u64,
    #[case] available: i64,
    #[case] expected: &[&str],
) {
    assert_eq!(grants(&change_included(P, of(was), of(now), available.into())), expected);
}

#[rstest::rstest]
#[case::unused("7", &["P available > lapsed 7"])]
#[case::a_part_of_a_unit("0.000000001", &["P available > lapsed 0.000000001"])]
#[case::used_up("0", &[])]
#[case::used_beyond_the_quota("-5", &["P overage > available 5"])]
fn a_close_without_open_holds_lets_the_rest_lapse_or_settles_overage(
    #[case] available: Decimal,
    #[case] expected: &[&str],
) {
    assert_eq!(closes(&settle(P, available)), expected);
}

/// What the next period gets for `unused`: at least `min` and at most `max`.
fn rollover(min: u64, max: u64) -> impl Fn(Amount) -> Amount {
    let terms = RolloverTerms { min: min.into(), max: max.into(), reroll: false };
    move |unused| Amount::from_decimal(terms.kept(unused.decimal())).unwrap()
}

/// A close where this much is unused.
fn close(period: Window, next: Window, unused: Amount, kept: impl Fn(Amount) -> Amount) -> Vec<Movement> {
    let kept = kept(unused);
    let rolled = unused.min(kept);
    go_on(period, next, unused, (rolled, kept.saturating_sub(rolled)))
}

#[rstest::rstest]
#[case::keeps_nothing(10, 0, 0, &["P available > lapsed 10"])]
#[case::keeps_all(10, 0, 50, &["P available > rolled_out 10", "Q rolled_in > available 10"])]
#[case::keeps_some(10, 0, 4, &["P available > rolled_out 4", "P available > lapsed 6", "Q rolled_in > available 4"])]
#[case::keeps_more_than_is_unused(
    10, 15, 50, &["P available > rolled_out 10", "Q rolled_in > available 10", "Q granted > available 5"]
)]
#[case::keeps_something_of_nothing(0, 15, 50, &["Q granted > available 15"])]
#[case::nothing_unused(0, 0, 50, &[])]
fn what_is_unused_at_the_close_rolls_over_or_lapses(
    #[case] unused: u64,
    #[case] min: u64,
    #[case] max: u64,
    #[case] expected: &[&str],
) {
    assert_eq!(closes(&close(P, Q, of(unused), rollover(min, max))), expected);
}

#[test]
fn a_negative_available_is_overage_at_the_close() {
    assert_eq!(closes(&settle_overage(P, (-8).into())), ["P overage > available 8"]);
    assert_eq!(closes(&settle_overage(P, 8.into())), NONE);
}

#[test]
fn preserved_overage_is_repaid_by_the_next_period_at_most_by_what_that_opened_with() {
    assert_eq!(closes(&repay_overage(Q, of(8), of(100))), ["Q available > repaid 8"]);
    assert_eq!(closes(&repay_overage(Q, of(8), of(5))), ["Q available > repaid 5"]);
    assert_eq!(closes(&repay_overage(Q, of(8), of(0))), NONE);
}

#[rstest::rstest]
#[case::within_the_quota(10, 3, &["P reserved > carried_out 10", "Q carried_in > reserved 10"])]
#[case::some_pushed_it_over(10, -4, &[
    "P reserved > available 4", "Q available > reserved 4", "P reserved > carried_out 6", "Q carried_in > reserved 6",
])]
#[case::it_was_over_without_them(10, -25, &["P reserved > available 10", "Q available > reserved 10"])]
#[case::none(0, -25, &[])]
fn open_holds_are_carried_over_and_those_that_pushed_the_period_over_are_charged_to_the_next(
    #[case] reserved: u64,
    #[case] available: i64,
    #[case] expected: &[&str],
) {
    assert_eq!(closes(&carry_holds(P, Q, of(reserved), available.into())), expected);
}

#[test]
fn what_is_consumed_of_a_carried_hold_is_booked_where_it_stands_now_and_what_returns_is_left_to_a_job() {
    let usage = |movements: &[Movement]| text(EntryClass::Usage, movements);
    let (consumed, returned) = gate::carried(gate::change(P, of(10), of(4)), Q);
    assert_eq!((usage(&consumed), returned), (vec!["Q reserved > consumed 4 carried".into()], of(6)));
    let (more, returned) = gate::carried(gate::change(P, of(10), of(12)), Q);
    let expected = ["Q reserved > consumed 10 carried", "Q available > consumed 2 excess carried"];
    assert_eq!((usage(&more), returned), (expected.map(String::from).to_vec(), of(0)));
}

#[rstest::rstest]
#[case::its_grant_keeps_nothing(6, 0, 0, 0, 0, &["Q reserved > lapsed 6 carried"])]
#[case::its_grant_keeps_all(6, 0, 3, 0, 50, &["Q reserved > available 6 carried"])]
#[case::up_to_what_it_keeps(6, 0, 3, 0, 5, &["Q reserved > available 2 carried", "Q reserved > lapsed 4 carried"])]
#[case::what_it_keeps_at_least_is_there_already(
    6, 0, 3, 8, 50, &["Q reserved > available 1 carried", "Q reserved > lapsed 5 carried"]
)]
#[case::what_is_owed_is_refilled_first(
    6, 4, 0, 0, 1, &["Q reserved > available 4 carried", "Q reserved > available 1 carried", "Q reserved > lapsed 1 carried"]
)]
#[case::less_than_is_owed(6, 9, 0, 0, 0, &["Q reserved > available 6 carried"])]
fn a_carried_hold_that_returns_is_available_as_far_as_its_grant_would_have_rolled_it_over(
    #[case] returned: u64,
    #[case] owed: u64,
    #[case] unused: u64,
    #[case] min: u64,
    #[case] max: u64,
    #[case] expected: &[&str],
) {
    let movements = return_carried(Q, of(returned), of(owed), of(unused), rollover(min, max));
    assert_eq!(closes(&movements), expected);
}

#[test]
fn a_fact_for_a_closed_period_is_the_same_movement_in_the_open_one_as_a_correction() {
    let corrected = |movements| text(EntryClass::Correction, &gate::corrected(movements, Q).0);
    assert_eq!(corrected(gate::usage(P, of(5))), ["Q available > consumed 5"]);
    assert_eq!(corrected(gate::late_consume(P, of(0), of(5))), ["Q available > consumed 5 late"]);
}

#[test]
fn wrong_usage_of_an_open_period_is_reversed_and_made_anew() {
    let movements = corrections::in_open_period(P, of(9), of(4));
    let expected = ["P consumed > available 9", "P available > consumed 4"];
    assert_eq!(text(EntryClass::Usage, &movements), expected);
    assert!(movements.iter().all(|movement| movement.flags.corrected));
}

#[test]
fn wrong_usage_of_a_closed_period_is_adjusted_in_the_open_one() {
    let corrected =
        |was, now| text(EntryClass::Correction, &corrections::in_closed_period(Q, of(was), of(now)));
    assert_eq!(corrected(9, 4), ["Q consumed > adjusted 5"]);
    assert_eq!(corrected(4, 9), ["Q adjusted > consumed 5"]);
    assert_eq!(corrected(4, 4), NONE);
}

#[test]
fn wrong_usage_of_a_carried_hold_is_adjusted_where_it_stands_and_never_by_the_gate() {
    let less = corrections::of_carried_hold(Q, of(9), of(4));
    assert_eq!(text(EntryClass::Correction, &less), ["Q consumed > adjusted 5 carried"]);
    let more = corrections::of_carried_hold(Q, of(4), of(9));
    assert_eq!(text(EntryClass::Correction, &more), ["Q adjusted > consumed 5 carried"]);
    assert!(less.iter().chain(&more).all(|moved| !moved.is_by_gate() && !moved.changes_capacity()));
    assert!(less.iter().chain(&more).all(|moved| moved.consumed_of_carried().is_zero()));
}

/// The books of one meter over periods that follow each other.
#[derive(Debug)]
struct Books(Vec<Accounts>);

const PERIODS: usize = 3;

fn period(index: usize) -> Window {
    let start_ms = i64::try_from(index).unwrap() * 1_000;
    Window { start_ms, end_ms: start_ms + 1_000 }
}

impl Books {
    fn post(&mut self, movements: &[Movement]) {
        for movement in movements {
            assert!(!movement.amount.is_zero());
            let index = usize::try_from(movement.period.start_ms / 1_000).unwrap();
            movement.apply(&mut self.0[index]);
        }
    }

    fn of(&self, index: usize, account: Account) -> Decimal {
        self.0[index][account.index()]
    }

    fn amount(&self, index: usize, account: Account) -> Amount {
        Amount::from_decimal(self.of(index, account)).unwrap()
    }

    fn sum(&self, index: usize, of_sources: bool) -> Decimal {
        let accounts = Account::OF_UNITS.into_iter().filter(|account| account.is_source() == of_sources);
        accounts.map(|account| self.of(index, account)).sum()
    }
}

fn any_movements() -> impl Strategy<Value = Vec<Movement>> {
    let amount = || prop_oneof![1 => Just(0), 4 => 0..50_u64].prop_map(of);
    let arguments = (0..PERIODS - 1, amount(), amount(), amount(), -50..50_i64);
    (0..19_u8, arguments).prop_map(|(which, (index, a, b, c, available))| {
        let (p, q, available) = (period(index), period(index + 1), Decimal::from(available));
        let capped = |unused: Amount| unused.max(b).min(c);
        match which {
            0 => gate::reserve(p, a),
            1 => gate::change(p, a, b),
            2 => gate::late_consume(p, a, b),
            3 => gate::usage(p, a),
            4 => gate::degraded(gate::change(p, a, b)),
            5 => gate::carried(gate::change(p, a, b), q).0,
            6 => gate::corrected(gate::change(p, a, b), q).0,
            7 => grant(p, a),
            8 => expire(p, a),
            9 => void(p, a),
            10 => change_included(p, a, b, available),
            11 => carry_holds(p, q, a, available),
            12 => close(p, q, a, capped),
            13 => settle_overage(p, available),
            14 => repay_overage(q, a, b),
            15 => return_carried(q, a, b, c, capped),
            16 => settle(p, available),
            17 => corrections::of_carried_hold(q, a, b),
            _ if a < b => corrections::in_open_period(p, a, b),
            _ => corrections::in_closed_period(q, a, b),
        }
    })
}

/// The grants' unburnt parts, in burn order, without the holds that are set against them.
fn unused(unburnt: &[Amount], holds: Amount) -> Vec<Amount> {
    let mut holds = holds;
    let unused = unburnt.iter().map(|unburnt| {
        let left = unburnt.saturating_sub(holds);
        holds = holds.saturating_sub(*unburnt);
        left
    });
    unused.collect()
}

proptest! {
    #[test]
    fn whatever_is_moved_sources_equal_places_and_what_leaves_a_period_enters_the_next(
        moved in prop::collection::vec(any_movements(), 0..40),
    ) {
        let mut books = Books(vec![Accounts::default(); PERIODS]);
        for movements in &moved {
            books.post(movements);
            for index in 0..PERIODS {
                prop_assert_eq!(books.sum(index, true), books.sum(index, false));
            }
            for index in 1..PERIODS {
                prop_assert_eq!(books.of(index - 1, Account::RolledOut), books.of(index, Account::RolledIn));
                prop_assert_eq!(books.of(index - 1, Account::CarriedOut), books.of(index, Account::CarriedIn));
            }
        }
    }

    #[test]
    fn a_close_leaves_nothing_available_or_reserved_and_bills_or_repays_all_overage(
        grants in prop::collection::vec(0..30_u64, 0..4),
        (consumed, held) in (0..100_u64, 0..40_u64),
        (min, max) in (0..10_u64, 0..40_u64),
        opened_with in 0..60_u64,
        is_preserved in any::<bool>(),
    ) {
        let mut books = Books(vec![Accounts::default(); 2]);
        grants.iter().for_each(|amount| books.post(&grant(P, of(*amount))));
        books.post(&grant(Q, of(opened_with)));
        books.post(&gate::usage(P, of(consumed)));
        books.post(&gate::reserve(P, of(held)));
        let granted: Vec<Amount> = grants.iter().copied().map(of).collect();
        let unburnt = unused(&granted, of(consumed));

        let reserved = books.amount(0, Account::Reserved);
        books.post(&carry_holds(P, Q, reserved, books.of(0, Account::Available)));
        for unused in unused(&unburnt, reserved) {
            books.post(&close(P, Q, unused, rollover(min, max)));
        }
        books.post(&settle_overage(P, books.of(0, Account::Available)));
        let overage = books.amount(0, Account::Overage);
        let included: u64 = grants.iter().sum();
        prop_assert_eq!(overage, of(consumed.saturating_sub(included)));
        if is_preserved {
            books.post(&repay_overage(Q, overage, of(opened_with)));
            prop_assert_eq!(books.amount(1, Account::Repaid), overage.min(of(opened_with)));
        }
        prop_assert_eq!(books.of(0, Account::Available), Decimal::ZERO);
        prop_assert_eq!(books.of(0, Account::Reserved), Decimal::ZERO);
        prop_assert_eq!(books.amount(1, Account::Reserved), reserved);
        prop_assert_eq!(books.of(0, Account::RolledOut), books.of(1, Account::RolledIn));
        prop_assert_eq!(books.of(0, Account::CarriedOut), books.of(1, Account::CarriedIn));
    }

    #[test]
    fn a_hold_returns_in_parts_as_it_would_at_once(
        parts in prop::collection::vec(0..20_u64, 0..5),
        (owed, unused) in (0..20_u64, 0..20_u64),
        (min, max) in (0..20_u64, 0..40_u64),
    ) {
        let whole = parts.iter().sum::<u64>();
        let mut at_once = Books(vec![Accounts::default(); 2]);
        at_once.post(&return_carried(Q, of(whole), of(owed), of(unused), rollover(min, max)));
        let mut in_parts = Books(vec![Accounts::default(); 2]);
        let (mut owed, mut unused) = (of(owed), of(unused));
        for part in parts.into_iter().map(of) {
            in_parts.post(&return_carried(Q, part, owed, unused, rollover(min, max)));
            unused = unused.plus(part.saturating_sub(owed));
            owed = owed.saturating_sub(part);
        }
        prop_assert_eq!(at_once.0, in_parts.0);
    }
}
