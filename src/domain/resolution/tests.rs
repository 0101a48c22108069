use super::*;
use crate::domain::amount::Decimals;
use crate::domain::ids::{Epoch, TenantId};
use crate::domain::reservation::{Body, Head, LineRule};

const EXPIRES_MS: i64 = 60_000;

fn units(value: i64) -> Units {
    Units::new(value).unwrap()
}

/// A reservation of lines `a`, `b`, … that hold and have consumed this much.
fn standing(
    state: ReservationState,
    lines: &[(i64, i64)],
    on_excess: OnExcess,
    on_late: OnLate,
) -> ReservationView {
    let rule = |index: usize| LineRule {
        meter: MeterId::parse(["a", "b"][index]).unwrap(),
        decimals: Decimals::new(1).unwrap(),
        on_excess,
        on_late,
        late_within_seconds: 10,
        estimated: false,
        booked: true,
    };
    let record = Record {
        head: Head {
            state,
            late: false,
            degraded: false,
            step: 1,
            epoch: Epoch(1),
            expires_at_ms: EXPIRES_MS,
            born_at_ms: 0,
            latest_expiry_ms: EXPIRES_MS,
            last_sequence: 0,
            start_after_ms: 0,
            unmoved: 0,
            correction: None,
        },
        units: lines.iter().map(|(h, c)| LineUnits::new(units(*h), units(*c))).collect(),
        body: Body {
            fingerprint: crate::domain::fingerprint::Fingerprint([1; 16]),
            tenant: TenantId::parse("acme").unwrap(),
            lines: (0..lines.len()).map(rule).collect(),
            rest: None,
        },
    };
    ReservationView { record }
}

fn held(lines: &[(i64, i64)]) -> ReservationView {
    standing(ReservationState::Reserved, lines, OnExcess::Record, OnLate::Charge)
}

fn single(text: &str) -> Totals {
    Totals::Single(Amount::parse(text).unwrap())
}

fn named(meter: &str, text: &str) -> Totals {
    Totals::ByMeter(vec![(MeterId::parse(meter).unwrap(), Amount::parse(text).unwrap())])
}

#[track_caller]
fn changed(verdict: Verdict) -> (ReservationState, Vec<i64>, bool) {
    let Verdict::Changed(after) = verdict else { panic!("{verdict:?}") };
    let consumed = after.record.units.iter().map(|units| units.consumed.get()).collect();
    assert!(after.record.head.degraded);
    (after.record.head.state, consumed, after.record.head.late)
}

#[test]
fn a_consume_without_the_gate_moves_totals_as_its_script_would() {
    use ReservationState::{Consumed, Reserved};
    assert_eq!(changed(held(&[(50, 0)]).consume(&single("2"), true, 0)), (Consumed, vec![20], false));
    assert_eq!(changed(held(&[(50, 0)]).consume(&single("7"), true, 0)), (Consumed, vec![70], false));
    assert_eq!(changed(held(&[(50, 0)]).consume(&Totals::Default, true, 0)), (Consumed, vec![50], false));
    assert_eq!(changed(held(&[(50, 0)]).consume(&single("0"), true, 0)), (Consumed, vec![0], false));
    assert_eq!(changed(held(&[(50, 10)]).consume(&single("2"), false, 0)), (Reserved, vec![20], false));
    let two = held(&[(50, 0), (30, 10)]);
    assert_eq!(changed(two.consume(&named("a", "2"), true, 0)), (Consumed, vec![20, 30], false));
    assert_eq!(changed(two.consume(&named("a", "2"), false, 0)), (Reserved, vec![20, 10], false));
    assert_eq!(held(&[(50, 20)]).consume(&single("2"), false, 0), Verdict::Replayed);
}

#[test]
fn what_the_gate_would_refuse_is_refused_without_it() {
    let refused = |verdict: Verdict| {
        let Verdict::Rejected(refusal) = verdict else { panic!("{verdict:?}") };
        refusal
    };
    let two = held(&[(50, 0), (30, 10)]);
    assert_eq!(refused(held(&[(50, 20)]).consume(&single("1"), true, 0)), Rejection::AmountDecreased(0));
    assert_eq!(refused(two.consume(&single("1"), true, 0)), Rejection::AmountNeedsOneLine);
    let other = MeterId::parse("c").unwrap();
    assert_eq!(refused(two.consume(&named("c", "1"), true, 0)), Rejection::MeterNotReserved(other));
    assert_eq!(refused(two.consume(&named("b", "0.01"), true, 0)), Rejection::TooPrecise(1));
    assert_eq!(refused(two.consume(&named("a", "9000000000000000"), true, 0)), Rejection::TooLarge(0));
    let rejects = standing(ReservationState::Reserved, &[(50, 0)], OnExcess::Reject, OnLate::Charge);
    assert_eq!(refused(rejects.consume(&single("6"), true, 0)), Rejection::ExcessRejected(0));
    let consumed = standing(ReservationState::Consumed, &[(50, 20)], OnExcess::Record, OnLate::Charge);
    assert_eq!(refused(consumed.consume(&single("3"), true, 0)), Rejection::AlreadyResolved);
    assert_eq!(refused(consumed.release(&Totals::Default, 0)), Rejection::AlreadyResolved);
    assert_eq!(consumed.consume(&single("2"), true, 0), Verdict::Replayed);
}

#[test]
fn a_release_without_the_gate_charges_what_was_incurred() {
    use ReservationState::Released;
    assert_eq!(changed(held(&[(50, 0)]).release(&Totals::Default, 0)), (Released, vec![0], false));
    assert_eq!(changed(held(&[(50, 0)]).release(&single("1"), 0)), (Released, vec![10], false));
    let released = standing(Released, &[(50, 10)], OnExcess::Record, OnLate::Charge);
    assert_eq!(released.release(&Totals::Default, 0), Verdict::Replayed);
    assert_eq!(released.release(&single("1"), 0), Verdict::Replayed);
    for other in ["0", "2"] {
        assert_eq!(released.release(&single(other), 0), Verdict::Rejected(Rejection::AlreadyResolved));
    }
    assert_eq!(released.consume(&single("1"), true, 0), Verdict::Rejected(Rejection::AlreadyResolved));
}

#[test]
fn an_expired_one_is_late_and_what_may_have_expired_is_left_to_the_gate_where_late_is_refused() {
    let expired = |on_late| standing(ReservationState::Expired, &[(50, 0)], OnExcess::Record, on_late);
    let late = changed(expired(OnLate::Charge).consume(&single("1"), true, EXPIRES_MS + 1));
    assert_eq!(late, (ReservationState::Consumed, vec![10], true));
    let Verdict::Changed(part) = expired(OnLate::Charge).consume(&single("1"), false, EXPIRES_MS + 1) else {
        panic!("not changed")
    };
    assert_eq!((part.record.head.state, part.record.head.late), (ReservationState::Expired, true));
    assert_eq!(part.consume(&single("1"), false, EXPIRES_MS + 10_001), Verdict::Replayed);
    assert_eq!(changed(part.consume(&single("2"), false, EXPIRES_MS + 1)).0, ReservationState::Expired);
    assert_eq!(changed(part.consume(&single("1"), true, EXPIRES_MS + 1)).0, ReservationState::Consumed);
    let refused = Verdict::Rejected(Rejection::Expired);
    assert_eq!(expired(OnLate::Reject).consume(&single("1"), true, EXPIRES_MS + 1), refused);
    assert_eq!(expired(OnLate::Charge).consume(&single("1"), true, EXPIRES_MS + 10_001), refused);
    assert_eq!(expired(OnLate::Charge).release(&Totals::Default, EXPIRES_MS), refused);
    let open = |on_late| standing(ReservationState::Reserved, &[(50, 0)], OnExcess::Record, on_late);
    let undecided = Verdict::Undecided;
    assert_eq!(open(OnLate::Reject).consume(&single("1"), true, EXPIRES_MS), undecided);
    assert_eq!(changed(open(OnLate::Charge).consume(&single("1"), true, EXPIRES_MS)).1, [10]);
    assert_eq!(changed(open(OnLate::Reject).consume(&single("1"), true, EXPIRES_MS - 1)).1, [10]);
}

#[test]
fn a_cap_charges_no_more_than_the_hold_until_the_gate_decides_and_its_repeat_is_a_replay() {
    let open = standing(ReservationState::Reserved, &[(50, 0)], OnExcess::Cap, OnLate::Charge);
    let Verdict::Changed(after) = open.consume(&single("8"), true, 0) else { panic!("not changed") };
    let line = after.record.units[0];
    assert_eq!((line.consumed, line.uncharged), (units(50), units(30)));
    assert_eq!(after.consume(&single("8"), true, 0), Verdict::Replayed);
    let other = after.consume(&single("9"), true, 0);
    assert_eq!(other, Verdict::Rejected(Rejection::AlreadyResolved), "it was asked for less");
}

#[test]
fn a_larger_total_of_a_capped_part_is_another_request() {
    let open = standing(ReservationState::Reserved, &[(50, 0)], OnExcess::Cap, OnLate::Charge);
    let Verdict::Changed(part) = open.consume(&single("8"), false, 0) else { panic!("not changed") };
    assert_eq!(part.consume(&single("8"), false, 0), Verdict::Replayed);
    let Verdict::Changed(more) = part.consume(&single("9"), false, 0) else { panic!("not changed") };
    assert_eq!((more.record.units[0].consumed, more.record.units[0].uncharged), (units(50), units(40)));
}

#[test]
fn a_total_is_covered_by_one_that_is_as_large() {
    let record = held(&[(50, 20)]).record;
    assert!(covers(&record, &single("2")) && covers(&record, &Totals::Default));
    assert!(!covers(&record, &single("2.1")));
}

#[test]
fn an_incurred_part_that_an_expired_reservation_might_not_be_charged_is_left_to_the_gate() {
    use ReservationState::Reserved;
    let undecided = Verdict::Undecided;
    let strict = standing(Reserved, &[(50, 20)], OnExcess::Record, OnLate::Reject);
    assert_eq!(strict.release(&single("3"), EXPIRES_MS), undecided);
    assert_eq!(changed(strict.release(&single("3"), EXPIRES_MS - 1)).1, [30]);
    assert_eq!(changed(strict.release(&single("2"), EXPIRES_MS)).1, [20], "nothing more is charged");
    assert_eq!(changed(strict.release(&Totals::Default, EXPIRES_MS)).1, [20]);
    let lenient = held(&[(50, 0)]);
    assert_eq!(lenient.release(&single("1"), EXPIRES_MS + 10_001), undecided);
    assert_eq!(changed(lenient.release(&single("1"), EXPIRES_MS + 10_000)).1, [10]);
    assert_eq!(changed(lenient.release(&single("9"), 0)).1, [90], "excess is recorded, late or not");
    for on_excess in [OnExcess::Reject, OnExcess::Cap] {
        let bounded = standing(Reserved, &[(50, 0)], on_excess, OnLate::Charge);
        assert_eq!(bounded.release(&single("6"), 0), undecided);
        assert_eq!(changed(bounded.release(&single("5"), 0)).1, [50]);
    }
}

#[test]
fn what_is_parked_of_a_consume_names_every_line_as_it_was_judged() {
    let both = |a: &str, b: &str| {
        let amount = |text| Amount::parse(text).unwrap();
        Totals::ByMeter(vec![
            (MeterId::parse("a").unwrap(), amount(a)),
            (MeterId::parse("b").unwrap(), amount(b)),
        ])
    };
    let two = held(&[(50, 0), (30, 10)]);
    assert_eq!(two.stated(&Totals::Default, true), both("5", "3"));
    assert_eq!(two.stated(&named("a", "2"), true), both("2", "3"));
    assert_eq!(two.stated(&named("a", "2"), false), both("2", "1"));
    let capped = standing(ReservationState::Reserved, &[(50, 0)], OnExcess::Cap, OnLate::Charge);
    assert_eq!(capped.stated(&single("8"), true), named("a", "8"), "the gate decides what there is room for");
}
