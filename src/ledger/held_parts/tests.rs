//! What returns of carried holds.

use super::*;
use crate::domain::movements::{Account, Accounts};

const PERIOD: Window = Window { start_ms: 0, end_ms: 1_000 };

fn part(held: i64, fate: HeldFate) -> HeldPart {
    HeldPart::of(held.into(), fate)
}

/// Ten are charged, then these parts; four more of what rolls over were unused.
fn holds(min: i64, max: i64, parts: Vec<HeldPart>) -> ReturningHolds {
    ReturningHolds {
        charged: 10.into(),
        parts,
        unused: 4.into(),
        terms: RolloverTerms { max: max.into(), min: min.into(), reroll: false },
        rolls_as: None,
        returned: Decimal::ZERO,
        kept: Vec::new(),
        ended: HashMap::new(),
    }
}

fn at(sequence: u64) -> OutboxId {
    OutboxId { epoch: Epoch(1), sequence }
}

/// Five were set against what came over, fifteen against the included amount, and the rest against a grant.
fn plain(max_rollover: i64) -> ReturningHolds {
    holds(0, max_rollover, vec![part(15, HeldFate::Rolls), part(5, HeldFate::Lapses)])
}

/// What is available again and what lapses, part by part.
fn returns(mut holds: ReturningHolds, parts: &[u64]) -> Vec<(i64, i64)> {
    let take = |part: &u64| {
        let mut accounts = Accounts::default();
        let movements = holds.take(PERIOD, at(1), Amount::from_integer(*part));
        movements.iter().for_each(|movement| movement.apply(&mut accounts));
        let of = |account: Account| i64::try_from(accounts[account.index()]).unwrap();
        assert_eq!(-of(Account::Reserved), i64::try_from(*part).unwrap());
        (of(Account::Available), of(Account::Lapsed))
    };
    parts.iter().map(take).collect()
}

#[rstest::rstest]
#[case::what_is_charged_first(100, &[6, 4], &[(6, 0), (4, 0)])]
#[case::then_what_burns_last_and_lapses(100, &[13, 2], &[(10, 3), (0, 2)])]
#[case::then_the_included_amount_which_goes_on(100, &[15, 15], &[(10, 5), (15, 0)])]
#[case::as_far_as_it_may_beside_what_was_unused(12, &[15, 5, 10], &[(10, 5), (5, 0), (3, 7)])]
#[case::then_what_burns_first_and_lapses(100, &[30, 10], &[(25, 5), (0, 10)])]
#[case::nothing_goes_on(0, &[40], &[(10, 30)])]
#[case::all_at_once(12, &[40], &[(18, 22)])]
fn what_returns_of_carried_holds(
    #[case] max_rollover: i64,
    #[case] parts: &[u64],
    #[case] expected: &[(i64, i64)],
) {
    assert_eq!(returns(plain(max_rollover), parts), expected);
}

#[test]
fn what_returns_goes_on_with_the_amount_that_it_was_set_against() {
    let older = RolledIn { amount: Decimal::ZERO, ends_at_ms: 5_000, periods_left: 2 };
    let parts = vec![part(6, HeldFate::Rolls), part(4, HeldFate::Rolls), part(3, HeldFate::GoesOn(older))];
    let of = |min| holds(min, 12, parts.clone());
    assert_eq!(
        returns(of(0), &[10, 2, 1, 4, 6]),
        [(10, 0), (2, 0), (1, 0), (4, 0), (4, 2)],
        "twelve roll over at most"
    );
    let least = [(10, 0), (3, 0), (0, 4), (4, 2)];
    assert_eq!(returns(of(8), &[10, 3, 4, 6]), least, "four of what was unused were granted at the close");
    let mut all = of(0);
    all.take(PERIOD, at(1), Amount::from_integer(23));
    let kept: Decimal = all.kept.iter().map(|(_, part)| part.held).sum();
    assert_eq!(kept, Decimal::from(11));
    assert!(all.kept.contains(&(at(1), part(3, HeldFate::GoesOn(older)))), "{:?}", all.kept);
}

#[test]
fn what_returns_of_a_grant_is_its_own_until_it_has_ended_and_lapses_then() {
    let grant = GrantId::from_uuid(uuid::Uuid::from_u128(7));
    let mut holds = holds(0, 0, vec![part(5, HeldFate::Grant(grant)), part(5, HeldFate::Lapses)]);
    holds.charged = Decimal::ZERO;
    holds.ended = HashMap::from([(grant, at(8))]);
    let mut take = |sequence, amount: u64| {
        let mut accounts = Accounts::default();
        let movements = holds.take(PERIOD, at(sequence), Amount::from_integer(amount));
        movements.iter().for_each(|movement| movement.apply(&mut accounts));
        [Account::Available, Account::Lapsed].map(|account| accounts[account.index()])
    };
    assert_eq!(take(7, 8), [3, 5].map(Decimal::from), "what burns last returns first");
    assert_eq!(take(8, 2), [0, 2].map(Decimal::from), "the grant has ended");
    let key = (TenantId::parse("acme").unwrap(), MeterId::parse("page").unwrap(), 0);
    let continued = holds.continued(&key);
    let came = continued.iter().map(|one| (one.grant, one.amount, one.returned_at)).collect::<Vec<_>>();
    assert_eq!(came, [(grant, Decimal::from(3), Some(at(7)))]);
}

#[test]
fn what_returns_of_grants_goes_on_as_far_as_their_terms_say_beside_what_was_unused() {
    let amount = Amount::from_integer;
    let bounded = |max, min, fate| HeldPart {
        rollover: GrantRollover { max: Some(amount(max)), min: amount(min) },
        unused: 2.into(),
        ..part(5, fate)
    };
    let grant = HeldFate::Grant(GrantId::from_uuid(uuid::Uuid::from_u128(7)));
    let recurs = HeldFate::GoesOn(RolledIn { amount: Decimal::ZERO, ends_at_ms: 5_000, periods_left: 0 });
    let of = |parts| ReturningHolds { charged: Decimal::ZERO, ..holds(0, 0, parts) };
    let once = of(vec![bounded(4, 0, grant), bounded(4, 0, grant)]);
    assert_eq!(returns(once, &[1, 3, 5]), [(1, 0), (1, 2), (0, 5)], "both holds count for one grant");
    assert_eq!(returns(of(vec![bounded(4, 3, recurs)]), &[2, 3]), [(1, 1), (0, 3)], "one was granted");
    let open = bounded(4, 0, grant).after(&[]);
    assert_eq!(open.fate, HeldFate::Lapses, "the grant has ended");
}

#[rstest::rstest]
#[case::nothing_has_returned(0, 40, [5, 5, 20])]
#[case::what_is_charged_has_returned(10, 30, [5, 5, 20])]
#[case::what_burns_last_has_returned(32, 8, [5, 3, 0])]
#[case::some_returned_and_some_was_consumed(12, 20, [0, 2, 18])]
#[case::all_but_what_is_charged_was_consumed(0, 10, [0, 0, 0])]
#[case::nothing_is_open(7, 0, [0, 0, 0])]
fn what_is_open_is_set_against_what_neither_returned_nor_was_consumed(
    #[case] returned: i64,
    #[case] open: i64,
    #[case] expected: [i64; 3],
) {
    let grant = HeldFate::Grant(GrantId::from_uuid(uuid::Uuid::from_u128(7)));
    let parts = vec![part(5, HeldFate::Rolls), part(5, grant), part(20, HeldFate::Lapses)];
    let holds = ReturningHolds { returned: returned.into(), ..holds(0, 0, parts) };
    let still = holds.still_set(open.into());
    assert_eq!(still.iter().map(|part| part.held).collect::<Vec<_>>(), expected.map(Decimal::from));
    assert_eq!(still[1].fate, grant);
}
