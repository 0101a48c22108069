mod unit_by_unit;

use super::*;
use crate::domain::grant::NO_END_MS;
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
    Some(Cut { place, at_ms: 10, consumed: consumed.into() })
}

fn grant(key: &str, amount: i64, begins: Option<Cut>, ends: Option<Cut>) -> Burnable {
    let place = place(key, 50, 50, GrantKind::Promotional);
    Burnable { place, amount: amount.into(), grows: Vec::new(), is_of_plan: false, begins, ends }
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
fn what_is_alike_otherwise_burns_by_its_making_then_by_its_id_and_what_has_no_end_burns_last() {
    let dated = place("dated", 50, NO_END_MS - 1, GrantKind::Paid);
    let endless = place("endless", 50, NO_END_MS, GrantKind::Promotional);
    assert!(BurnPlace::of_included((0, 100)) < dated && dated < endless);
    let higher = place("higher", 51, 1, GrantKind::Promotional);
    assert!(endless < higher, "an end counts within a priority");
    let made = |key: &str, effective_at_ms: i64, created_at_ms: i64| BurnPlace {
        effective_at_ms,
        created_at_ms,
        ..place(key, 50, 50, GrantKind::Paid)
    };
    assert!(made("a", 10, 11) > made("b", 10, 10) && made("b", 10, 11) > made("a", 10, 10));
    assert!(made("a", 9, 11) < made("b", 10, 10), "from when on it counts comes first");
    let (one, other) = (made("one", 10, 10), made("other", 10, 10));
    assert_eq!(one.cmp(&other), one.id.cmp(&other.id));
    assert_ne!(one.id, other.id);
    let both = |first: BurnPlace, second: BurnPlace| {
        let of = |place| Burnable { place, ..grant("a", 10, cut(1, 0), None) };
        burnt(0, &[of(first), of(second)], 4)
    };
    let expected = if one.id < other.id { [0, 4, 0] } else { [0, 0, 4] };
    assert_eq!(both(one, other), expected);
    assert_eq!(both(endless, dated), [0, 0, 4]);
    assert_eq!(both(made("a", 10, 11), made("b", 10, 10)), [0, 0, 4]);
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
fn what_comes_later_changes_nothing_of_the_segments_before() {
    let at = |sequence| OutboxId { epoch: Epoch(1), sequence };
    let whole = grant("a", 10, cut(1, 0), None);
    let grown = Burnable { grows: vec![(at(4), 4.into()), (at(7), 2.into())], ..whole };
    let last = Burnable {
        place: place("last", 60, 100, GrantKind::Paid),
        ..grant("last", 10, cut(2, 0), cut(4, 7))
    };
    let both = [grown.clone(), last.clone()];
    assert_eq!(burnt(0, &both, 7), [0, 4, 3], "four were there when three of the other had burnt");
    assert_eq!(burnt(0, &both, 9), [0, 6, 3]);
    let cut_at = |sequence| cut(sequence, 0).unwrap();
    let as_of = |sequence| grown.clone().as_of(cut_at(sequence));
    assert_eq!([4, 5, 7, 8].map(|place| as_of(place).amount), [4, 8, 8, 10].map(Decimal::from));
    assert_eq!(as_of(0).begins, None);
    let free = |sequence| {
        let base = (BurnPlace::of_included((0, 100)), 0.into());
        free(base, &both.clone().map(|one| one.as_of(cut_at(sequence))), 7.into(), 0.into())
    };
    assert_eq!([4, 5, 8].map(free), [0, 4, 6].map(Decimal::from));
    let beyond = [grown, Burnable { ends: cut(4, 20), ..last }];
    assert_eq!(burnt(0, &beyond, 20), [0, 10, 10], "what was used beyond all burns it as it comes");
}

#[test]
fn cuts_before_one_event_are_in_the_order_of_their_instants() {
    let at = |at_ms| cut(2, 8).map(|cut| Cut { at_ms, ..cut });
    let of = |key: &str, priority, begins| Burnable {
        place: place(key, priority, 100, GrantKind::Promotional),
        ..grant(key, 5, begins, None)
    };
    let both = |first, second| burnt(5, &[of("first", 1, first), of("second", 2, second)], 8);
    assert_eq!(both(at(20), at(20)), [5, 3, 0], "the burn order, where both begin at once");
    assert_eq!(both(at(20), at(10)), [5, 0, 3], "what began earlier has burnt the overage by then");
    let (later, lowered) = (of("later", 1, at(20)), at(15).unwrap());
    assert_eq!(later.clone().as_of(lowered).begins, None);
    assert_eq!(later.clone().as_of(at(20).unwrap()).begins, at(20));
    let ended = Burnable { ends: at(10), ..of("ended", 1, cut(1, 0)) };
    let period = Window { start_ms: 0, end_ms: 100 };
    let at_ends = burnt_at_ends(period, 5.into(), &[ended.clone(), later]);
    assert_eq!(at_ends, BTreeMap::from([(ended.place, 5.into())]));
}

#[test]
fn what_has_ended_before_it_begins_never_counts() {
    let (begins, ends) = (cut(3, 2), cut(2, 1));
    assert_eq!(burnt(20, &[grant("a", 10, begins, ends)], 9), [9, -1], "the clock was set back");
    let at = |at_ms| cut(2, 1).map(|cut| Cut { at_ms, ..cut });
    assert_eq!(burnt(20, &[grant("a", 10, at(20), at(10))], 9), [9, -1], "two clocks, and no event between");
    assert_eq!(burnt(20, &[grant("a", 10, cut(1, 0), ends)], 9), [8, 1]);
}

#[test]
fn once_use_is_taken_back_below_a_cut_the_grant_has_burnt_first_on_either_side_of_it() {
    let grants = [grant("a", 10, cut(1, 0), None)];
    let mut ended = grants.clone();
    ended[0].ends = cut(2, 30);
    assert_eq!(burnt(50, &ended, 25), [15, 10]);
    assert_eq!(burnt(50, &[Burnable { begins: cut(1, 60), ..grants[0].clone() }], 55), [45, 10]);
}

#[test]
fn a_lowered_plan_takes_what_plans_gave_first_and_the_last_of_it_first() {
    let raised = Burnable { is_of_plan: true, ..grant("raise", 30, cut(1, 0), None) };
    let given = Burnable { place: place("z", 60, 100, GrantKind::Paid), ..grant("z", 10, cut(1, 0), None) };
    let lowered = |by: i64, at: i64| Burnable {
        place: place("low", 50, 100, GrantKind::Promotional),
        ..grant("low", -by, cut(2, at), None)
    };
    let all = |by, at| [raised.clone(), given.clone(), lowered(by, at)];
    assert_eq!(
        burnt(50, &all(40, 0), 0),
        [40, 0, 0, -40],
        "the raise burns first, so what it includes goes first"
    );
    assert_eq!(burnt(50, &all(40, 45), 45), [50, 30, 5, -40], "then what nobody's plan gave");
    assert_eq!(burnt(50, &all(70, 0), 5), [50, 25, 0, -70], "what was taken burns no more");
    assert_eq!(burnt(50, &all(30, 60), 10), [20, 10, 10, -30], "what was taken stays taken");
}

#[test]
fn free_is_what_is_available_and_nobody_paid_for_and_holds_are_set_against_what_burns_first() {
    let paid = |priority| Burnable {
        place: place("paid", priority, 100, GrantKind::Paid),
        ..grant("paid", 30, cut(1, 0), None)
    };
    let left = |grant: &Burnable, consumed: i64, held: i64| {
        let base = (BurnPlace::of_included((0, 100)), 50.into());
        i64::try_from(free(base, std::slice::from_ref(grant), consumed.into(), held.into())).unwrap()
    };
    let (first, last) = (paid(1), paid(60));
    assert_eq!([left(&first, 0, 0), left(&last, 0, 0)], [50, 50], "what was paid for is not free");
    assert_eq!([left(&first, 20, 0), left(&last, 20, 0)], [50, 30]);
    assert_eq!([left(&first, 20, 15), left(&last, 20, 15)], [45, 15]);
    assert_eq!([left(&first, 20, 70), left(&last, 20, 70)], [0, 0]);
    assert_eq!([left(&first, 90, 0), left(&last, 90, 0)], [0, 0], "never less than nothing");
}

/// Twenty thousand grants of two units, of which the first burns first, and one unit is used before each begins.
fn very_many(end: impl Fn(u64) -> Option<Cut>) -> Vec<Burnable> {
    let numbered = |number: u16| {
        let begins = cut(number.into(), number.into());
        let grant = grant(&format!("grant-{number}"), 2, begins, end(number.into()));
        Burnable { place: BurnPlace { created_at_ms: number.into(), ..grant.place }, ..grant }
    };
    (0..20_000).map(numbered).collect()
}

/// Were each change to look at all that counts, these would be some hundred million looks each.
#[test]
fn what_very_many_grants_have_burnt_is_known_without_a_look_at_each_for_each() {
    let grants = very_many(|_| None);
    let base = (BurnPlace::of_included((0, 100)), Decimal::ZERO);
    let all = burn(base, &grants, 20_000.into());
    let of = |number: usize| all[&grants[number].place];
    assert_eq!([of(0), of(9_999), of(10_000), of(19_999)], [2, 2, 0, 0].map(Decimal::from));
    assert_eq!(all.values().sum::<Decimal>(), 20_000.into());
    assert_eq!(free(base, &grants, 19_999.into(), 1.into()), 20_000.into());
    assert_eq!(burn(base, &grants, 1.into()).values().sum::<Decimal>(), 1.into(), "all is taken back");
    let ended = very_many(|number| cut(20_000 + number, 20_000));
    let at_ends = burnt_at_ends(Window { start_ms: 0, end_ms: 100 }, Decimal::ZERO, &ended);
    assert_eq!((at_ends.len(), at_ends.values().sum::<Decimal>()), (20_000, 20_000.into()));
}
