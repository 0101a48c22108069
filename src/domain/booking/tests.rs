use super::*;
use crate::domain::amount::Decimals;
use crate::domain::ids::{Epoch, MeterId, OutboxId, ReservationId, TenantId};
use crate::domain::movements::{Account, Accounts, EntryClass, Movement};
use crate::domain::period::{AnchorDay, Calendar, Zone};
use crate::domain::reservation::{Body, LineRule, OnExcess, OnLate};
use proptest::prelude::*;

static ALWAYS_OPEN: std::sync::LazyLock<OpenPeriods> = std::sync::LazyLock::new(OpenPeriods::default);

fn units(value: i64) -> Units {
    Units::new(value).unwrap()
}

fn record(lines: &[(i64, i64)], state: ReservationState) -> Record {
    let rule = |index: usize| LineRule {
        meter: MeterId::parse(&format!("meter-{index}")).unwrap(),
        decimals: Decimals::new(0).unwrap(),
        on_excess: OnExcess::Record,
        on_late: OnLate::Charge,
        late_within_seconds: 60,
        estimated: false,
        booked: true,
    };
    let line = |(held, consumed): &(i64, i64)| LineUnits::new(units(*held), units(*consumed));
    Record {
        head: Head {
            state,
            late: false,
            degraded: false,
            step: 1,
            epoch: Epoch(1),
            expires_at_ms: 60_000,
            born_at_ms: 0,
            latest_expiry_ms: 120_000,
            last_sequence: 0,
            start_after_ms: 0,
            unmoved: 0,
            correction: None,
        },
        units: lines.iter().map(line).collect(),
        body: Body {
            fingerprint: crate::domain::fingerprint::Fingerprint([0; 16]),
            tenant: TenantId::parse("acme").unwrap(),
            lines: (0..lines.len()).map(rule).collect(),
            rest: Some(BodyDetails {
                subjects: Vec::new(),
                counters: Vec::new(),
                keyed: false,
                operation: None,
                policy_version: 1,
                period_ms: (0, 1_000_000),
                hour_start_ms: 0,
                metadata: String::new(),
            }),
        },
    }
}

fn event(change: Change) -> Event {
    let outbox_id = OutboxId { epoch: Epoch(1), sequence: 0 };
    Event { outbox_id, gate_time_ms: 1_000, reservation: ReservationId::from_bytes([1; 16]), change }
}

/// A change of `before` to a state with these totals.
fn to(before: &Record, state: ReservationState, totals: &[i64]) -> (Head, Vec<LineUnits>) {
    let late = before.head.state == ReservationState::Expired;
    let head = Head { state, late, step: before.head.step + 1, ..before.head };
    let line = |(line, total): (&LineUnits, &i64)| LineUnits { consumed: units(*total), ..*line };
    (head, before.units.iter().zip(totals).map(line).collect())
}

fn consume(before: &Record, totals: &[i64], is_final: bool) -> Change {
    let state = if is_final { ReservationState::Consumed } else { before.head.state };
    let (head, units) = to(before, state, totals);
    Change::Consume { is_final, head, units }
}

fn release(before: &Record, totals: &[i64]) -> Change {
    let (head, units) = to(before, ReservationState::Released, totals);
    Change::Release { head, units }
}

fn expire(before: &Record) -> Change {
    let totals: Vec<i64> = before.units.iter().map(|line| line.consumed.get()).collect();
    let (head, units) = to(before, ReservationState::Expired, &totals);
    Change::Expire { head, units }
}

fn lines(change: Change, before: Option<&Record>) -> Vec<String> {
    let booking = book(&event(change), before, &ALWAYS_OPEN).unwrap();
    let text = |movement: &Movement| {
        let flags = movement.flags;
        let flags = [
            (flags.excess, " excess"),
            (flags.late, " late"),
            (flags.degraded, " degraded"),
            (flags.corrected, " corrected"),
        ];
        let flags: String = flags.into_iter().filter_map(|(set, name)| set.then_some(name)).collect();
        let accounts = [movement.credit, movement.debit].map(Account::as_str).join(" > ");
        format!("{accounts} {}{flags}", movement.amount)
    };
    booking.lines.iter().flat_map(|line| &line.movements).map(text).collect()
}

const OPEN: ReservationState = ReservationState::Reserved;
const DAY_MS: i64 = 86_400_000;

#[test]
fn a_reserve_moves_what_is_held_and_best_effort_what_was_granted() {
    assert_eq!(lines(Change::Reserve(record(&[(10, 0)], OPEN)), None), ["available > reserved 10"]);
    assert_eq!(lines(Change::Reserve(record(&[(7, 0), (0, 0)], OPEN)), None), ["available > reserved 7"]);
}

#[rstest::rstest]
#[case::first(10, 0, 4, &["reserved > consumed 4"])]
#[case::next(10, 4, 6, &["reserved > consumed 2"])]
#[case::over_the_hold(10, 4, 13, &["reserved > consumed 6", "available > consumed 3 excess"])]
#[case::beyond_it_already(10, 13, 15, &["available > consumed 2 excess"])]
fn a_partial_consume_moves_the_rise_of_the_total(
    #[case] held: i64,
    #[case] before: i64,
    #[case] total: i64,
    #[case] expected: &[&str],
) {
    let before = record(&[(held, before)], OPEN);
    assert_eq!(lines(consume(&before, &[total], false), Some(&before)), expected);
}

#[rstest::rstest]
#[case::less(10, 0, 4, &["reserved > consumed 4", "reserved > available 6"])]
#[case::less_after_a_part(10, 3, 4, &["reserved > consumed 1", "reserved > available 6"])]
#[case::equal(10, 3, 10, &["reserved > consumed 7"])]
#[case::nothing(10, 0, 0, &["reserved > available 10"])]
#[case::no_more(10, 4, 4, &["reserved > available 6"])]
#[case::more(10, 0, 13, &["reserved > consumed 10", "available > consumed 3 excess"])]
#[case::more_after_a_part(10, 4, 13, &["reserved > consumed 6", "available > consumed 3 excess"])]
#[case::more_after_more(10, 12, 13, &["available > consumed 1 excess"])]
fn a_final_consume_ends_the_hold(
    #[case] held: i64,
    #[case] before: i64,
    #[case] total: i64,
    #[case] expected: &[&str],
) {
    let before = record(&[(held, before)], OPEN);
    assert_eq!(lines(consume(&before, &[total], true), Some(&before)), expected);
}

#[test]
fn a_capped_consume_books_what_was_charged_and_keeps_the_rest() {
    let before = record(&[(10, 0)], OPEN);
    let (head, mut charged) = to(&before, ReservationState::Consumed, &[12]);
    charged[0].uncharged = units(5);
    let change = Change::Consume { is_final: true, head, units: charged };
    let booking = book(&event(change.clone()), Some(&before), &ALWAYS_OPEN).unwrap();
    assert_eq!(booking.after.units[0].uncharged, units(5));
    assert_eq!(lines(change, Some(&before)), ["reserved > consumed 10", "available > consumed 2 excess"]);
}

#[rstest::rstest]
#[case::nothing_incurred(10, 0, 0, &["reserved > available 10"])]
#[case::nothing_more_after_a_part(10, 4, 4, &["reserved > available 6"])]
#[case::nothing_left(10, 12, 12, &[])]
#[case::some(10, 1, 4, &["reserved > consumed 3", "reserved > available 6"])]
#[case::more_than_held(10, 0, 12, &["reserved > consumed 10", "available > consumed 2 excess"])]
fn a_release_returns_what_was_not_incurred(
    #[case] held: i64,
    #[case] before: i64,
    #[case] incurred: i64,
    #[case] expected: &[&str],
) {
    let before = record(&[(held, before)], OPEN);
    assert_eq!(lines(release(&before, &[incurred]), Some(&before)), expected);
}

#[test]
fn an_expiry_returns_what_is_still_held() {
    let before = record(&[(10, 4)], OPEN);
    assert_eq!(lines(expire(&before), Some(&before)), ["reserved > available 6"]);
}

#[test]
fn a_late_consume_takes_from_what_is_available() {
    let before = record(&[(10, 4)], ReservationState::Expired);
    assert_eq!(lines(consume(&before, &[9], true), Some(&before)), ["available > consumed 5 late"]);
    assert_eq!(lines(consume(&before, &[15], true), Some(&before)), ["available > consumed 11 late"]);
    assert_eq!(lines(consume(&before, &[4], true), Some(&before)), Vec::<String>::new());
}

#[test]
fn late_parts_are_charged_by_the_rise_of_their_totals_and_stay_expired() {
    let mut now = record(&[(10, 4)], ReservationState::Expired);
    for (total, is_final, expected) in [
        (6, false, vec!["available > consumed 2 late"]),
        (15, false, vec!["available > consumed 9 late"]),
        (15, true, vec![]),
    ] {
        let change = consume(&now, &[total], is_final);
        assert_eq!(lines(change.clone(), Some(&now)), expected);
        now = book(&event(change), Some(&now), &ALWAYS_OPEN).unwrap().after;
    }
    assert_eq!(now.head.state, ReservationState::Consumed);
    assert_eq!(
        book(&event(consume(&now, &[16], true)), Some(&now), &ALWAYS_OPEN).unwrap_err(),
        BookError::Resolved(ReservationState::Consumed)
    );
}

#[test]
fn only_a_consume_changes_what_has_expired() {
    let expired = record(&[(10, 4)], ReservationState::Expired);
    let resolved = BookError::Resolved(ReservationState::Expired);
    for change in [release(&expired, &[5]), expire(&expired)] {
        assert_eq!(book(&event(change), Some(&expired), &ALWAYS_OPEN).unwrap_err(), resolved);
    }
    let (head, units) = to(&expired, OPEN, &[5]);
    let opened = Change::Consume { is_final: false, head, units };
    assert_eq!(book(&event(opened), Some(&expired), &ALWAYS_OPEN).unwrap_err(), resolved);
}

#[test]
fn a_late_consume_returns_the_hold_first_when_the_expiry_was_lost() {
    let before = record(&[(10, 4)], OPEN);
    let (head, units) = to(&record(&[(10, 4)], ReservationState::Expired), ReservationState::Consumed, &[9]);
    let change = Change::Consume { is_final: true, head, units };
    assert_eq!(lines(change, Some(&before)), ["available > consumed 5 late", "reserved > available 6"]);
}

#[test]
fn usage_takes_from_what_is_available() {
    let usage = record(&[(0, 10)], ReservationState::Consumed);
    assert_eq!(lines(Change::Usage(usage), None), ["available > consumed 10"]);
}

#[rstest::rstest]
#[case::more(Corrects::More, "available > consumed 10 corrected")]
#[case::less(Corrects::Less, "consumed > available 10 corrected")]
fn a_correction_moves_what_usage_moves_or_the_reverse_while_its_period_is_open(
    #[case] correction: Corrects,
    #[case] expected: &str,
) {
    let mut usage = record(&[(0, 10)], ReservationState::Consumed);
    usage.head.correction = Some(correction);
    assert_eq!(lines(Change::Usage(usage.clone()), None), [expected]);
    let begins = book(&event(Change::Usage(usage)), None, &ALWAYS_OPEN).unwrap().lines[0].begins_to_consume;
    assert_eq!(begins, correction == Corrects::More);
    let mut late = of_january(&[(0, 10)], ReservationState::Consumed);
    late.head.correction = Some(correction);
    let refused = in_april_if_it_can_be(Change::Usage(late), None);
    assert_eq!(refused.unwrap_err(), BookError::Closed);
}

#[test]
fn what_is_taken_while_the_gate_is_away_is_booked_like_any_other_and_flagged() {
    let mut open = record(&[(10, 0)], OPEN);
    open.head.degraded = true;
    assert_eq!(lines(Change::Reserve(open.clone()), None), ["available > reserved 10 degraded"]);
    assert_eq!(
        lines(consume(&open, &[12], true), Some(&open)),
        ["reserved > consumed 10 degraded", "available > consumed 2 excess degraded"]
    );
    let mut usage = record(&[(0, 3)], ReservationState::Consumed);
    usage.head.degraded = true;
    assert_eq!(lines(Change::Usage(usage), None), ["available > consumed 3 degraded"]);
}

#[rstest::rstest]
#[case::the_first_consume(0, &[4, 0], &[true, false])]
#[case::another_one(2, &[4, 0], &[false, false])]
fn a_line_counts_as_an_operation_when_it_consumes_for_the_first_time(
    #[case] before: i64,
    #[case] totals: &[i64],
    #[case] expected: &[bool],
) {
    let before = record(&[(10, before), (10, 0)], OPEN);
    let booking = book(&event(consume(&before, totals, true)), Some(&before), &ALWAYS_OPEN).unwrap();
    let begins: Vec<bool> = booking.lines.iter().map(|line| line.begins_to_consume).collect();
    assert_eq!(begins, expected);
}

#[test]
fn an_extend_books_nothing_but_the_row_learns_the_expiry() {
    let before = record(&[(10, 0)], OPEN);
    let head = Head { step: 2, expires_at_ms: 90_000, ..before.head };
    let booking =
        book(&event(Change::Extend { head, units: before.units.clone() }), Some(&before), &ALWAYS_OPEN)
            .unwrap();
    assert!(booking.lines.iter().all(|line| line.movements.is_empty()));
    assert_eq!(booking.after.head.expires_at_ms, 90_000);
}

#[test]
fn what_cannot_be_right_is_not_booked() {
    let open = record(&[(10, 4)], OPEN);
    let done = record(&[(10, 4)], ReservationState::Consumed);
    let mut bare = record(&[(10, 0)], OPEN);
    bare.body.rest = None;
    let other_hold = record(&[(11, 4)], OPEN);
    let refused = |change, before| book(&event(change), before, &ALWAYS_OPEN).unwrap_err();
    assert_eq!(refused(consume(&open, &[5], true), None), BookError::UnknownReservation);
    assert_eq!(refused(consume(&open, &[3], false), Some(&open)), BookError::Decreased(0));
    assert_eq!(refused(consume(&other_hold, &[5], false), Some(&open)), BookError::Decreased(0));
    assert_eq!(
        refused(consume(&done, &[5], true), Some(&done)),
        BookError::Resolved(ReservationState::Consumed)
    );
    assert_eq!(refused(Change::Reserve(bare), None), BookError::Incomplete);
    assert_eq!(refused(Change::Reserve(open.clone()), None), BookError::Decreased(0));
    assert_eq!(
        refused(Change::Reserve(done.clone()), None),
        BookError::WrongState(ReservationState::Consumed)
    );
    assert_eq!(refused(Change::Usage(open.clone()), None), BookError::WrongState(OPEN));
    assert_eq!(refused(Change::Usage(done.clone()), None), BookError::Decreased(0));
    let (head, _) = to(&open, OPEN, &[4]);
    let two = vec![LineUnits::default(); 2];
    let lines = BookError::OtherLines { booked: 1, found: 2 };
    assert_eq!(refused(Change::Release { head, units: two }, Some(&open)), lines);
    let head = Head { expires_at_ms: i64::MAX, ..head };
    assert_eq!(refused(Change::Extend { head, units: open.units.clone() }, Some(&open)), BookError::Instant);
}

/// What an event of the first of April, 1970, books for a reservation of January. January was closed an hour after its
/// end, February likewise; March takes facts until one o'clock.
fn in_april_if_it_can_be(change: Change, before: Option<&Record>) -> Result<Booking, BookError> {
    let calendar = Calendar { zone: Zone::parse("UTC").unwrap(), anchor_day: AnchorDay::default() };
    let calendars = [(TenantId::parse("acme").unwrap(), calendar.into())].into();
    let open = OpenPeriods { grace_ms: Some(3_600_000), calendars, ..OpenPeriods::default() };
    let event = Event { gate_time_ms: 90 * DAY_MS + 1_000, ..event(change) };
    book(&event, before, &open)
}

/// Its entries and what returns.
fn in_april(change: Change, before: Option<&Record>) -> (Vec<String>, Vec<String>) {
    let booking = in_april_if_it_can_be(change, before).unwrap();
    let day = |ms: i64| ms / DAY_MS;
    let text = |movement: &Movement| {
        let accounts = [movement.credit, movement.debit].map(Account::as_str).join(" > ");
        let carried = if movement.flags.carried { " carried" } else { "" };
        let correction = if movement.class == EntryClass::Correction { " correction" } else { "" };
        format!("{} {accounts} {}{carried}{correction}", day(movement.period.start_ms), movement.amount)
    };
    let entries = booking.lines.iter().flat_map(|line| &line.movements).map(text).collect();
    let returned =
        |part: &CarriedReturn| format!("{} line {} {}", day(part.period.start_ms), part.line, part.amount);
    (entries, booking.returned.iter().map(returned).collect())
}

/// A record of January.
fn of_january(lines: &[(i64, i64)], state: ReservationState) -> Record {
    let mut record = record(lines, state);
    record.body.rest.as_mut().unwrap().period_ms = (0, 31 * 86_400_000);
    record
}

#[test]
fn after_its_periods_close_a_hold_is_booked_where_it_was_carried_to() {
    let before = of_january(&[(10, 2), (5, 0)], OPEN);
    let (entries, returned) = in_april(consume(&before, &[14, 3], true), Some(&before));
    let expected = [
        "59 reserved > consumed 8 carried",
        "59 available > consumed 4 carried",
        "59 reserved > consumed 3 carried",
    ];
    assert_eq!(entries, expected, "March is the sixtieth day and still takes facts");
    assert_eq!(returned, ["59 line 1 2"]);
    let (entries, returned) = in_april(expire(&before), Some(&before));
    assert_eq!((entries.len(), returned), (0, vec!["59 line 0 8".to_owned(), "59 line 1 5".to_owned()]));
}

#[test]
fn after_its_periods_close_work_without_a_hold_is_a_correction_in_the_open_one() {
    let usage = of_january(&[(0, 10)], ReservationState::Consumed);
    let (entries, _) = in_april(Change::Usage(usage), None);
    assert_eq!(entries, ["59 available > consumed 10 correction"]);
    let expired = of_january(&[(10, 4)], ReservationState::Expired);
    let (entries, returned) = in_april(consume(&expired, &[9], true), Some(&expired));
    assert_eq!((entries, returned.len()), (vec!["59 available > consumed 5 correction".to_owned()], 0));
    // The expiry's own event was lost.
    let held = of_january(&[(10, 4)], OPEN);
    let (entries, returned) = in_april(consume(&expired, &[9], true), Some(&held));
    assert_eq!(entries, ["59 available > consumed 5 correction"]);
    assert_eq!(returned, ["59 line 0 6"]);
}

/// One thing that may happen to a reservation.
#[derive(Debug, Clone)]
enum Act {
    Consume(Vec<i64>, bool),
    Release(Vec<i64>),
    Expire,
}

fn act() -> impl Strategy<Value = Act> {
    let rises = || prop::collection::vec(0..1_000_i64, 3);
    prop_oneof![
        4 => (rises(), any::<bool>()).prop_map(|(rises, is_final)| Act::Consume(rises, is_final)),
        1 => rises().prop_map(Act::Release),
        1 => Just(Act::Expire),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_the_identity_holds_and_the_accounts_say_what_the_record_says(
        held in prop::collection::vec(0..1_000_i64, 3),
        acts in prop::collection::vec((act(), any::<bool>()), 0..12),
    ) {
        let start: Vec<(i64, i64)> = held.iter().map(|held| (*held, 0)).collect();
        let mut now = record(&start, OPEN);
        let mut booked = now.clone();
        let mut accounts = [Accounts::default(); 3];
        let mut all = vec![(Change::Reserve(now.clone()), None, false)];
        for (act, is_lost) in acts {
            let totals = |rises: &[i64]| -> Vec<i64> {
                now.units.iter().zip(rises).map(|(line, rise)| line.consumed.get() + rise).collect()
            };
            let change = match (&act, now.head.state) {
                (Act::Consume(rises, is_final), OPEN) => consume(&now, &totals(rises), *is_final),
                (Act::Consume(rises, is_final), ReservationState::Expired) => consume(&now, &totals(rises), *is_final),
                (Act::Release(rises), OPEN) => release(&now, &totals(rises)),
                (Act::Expire, OPEN) => expire(&now),
                _ => continue,
            };
            let change = event(change);
            now = Record { head: *change.head(), units: change.units().to_vec(), body: now.body.clone() };
            all.push((change.change, Some(()), is_lost));
        }
        let last = all.len() - 1;
        for (index, (change, before, is_lost)) in all.into_iter().enumerate() {
            // Any event between the first and the last may be lost: totals make up for it.
            if is_lost && index != last {
                continue;
            }
            let booking = book(&event(change), before.map(|()| &booked), &ALWAYS_OPEN).unwrap();
            for (line, accounts) in booking.lines.iter().zip(&mut accounts) {
                line.movements.iter().for_each(|movement| movement.apply(accounts));
            }
            booked = booking.after;
        }
        prop_assert_eq!(&booked.units, &now.units);
        for (line, accounts) in now.units.iter().zip(accounts) {
            let stands = |account: Account| accounts[account.index()];
            let (sources, places): (Vec<_>, Vec<_>) = Account::OF_UNITS.into_iter().partition(|account| account.is_source());
            let sum = |accounts: Vec<Account>| accounts.into_iter().map(stands).sum::<rust_decimal::Decimal>();
            prop_assert_eq!(sum(sources), sum(places));
            let open = now.head.state == OPEN;
            prop_assert_eq!(stands(Account::Reserved), (if open { line.outstanding().get() } else { 0 }).into());
            prop_assert_eq!(stands(Account::Consumed), line.consumed.get().into());
        }
    }
}

#[test]
fn a_line_that_is_not_booked_moves_nothing_and_the_lines_after_it_keep_their_numbers() {
    let mut held = record(&[(10, 0), (20, 0)], ReservationState::Reserved);
    held.body.lines[0].booked = false;
    let reserved = book(&event(Change::Reserve(held.clone())), None, &ALWAYS_OPEN).unwrap();
    let consumed = book(&event(consume(&held, &[12, 25], true)), Some(&held), &ALWAYS_OPEN).unwrap();
    for booking in [&reserved, &consumed] {
        let [unbooked, booked] = &booking.lines[..] else { panic!("{:?}", booking.lines) };
        assert!(unbooked.movements.is_empty() && !unbooked.begins_to_consume);
        assert!(!booked.movements.is_empty());
    }
    assert_eq!(consumed.after.units[0].consumed, units(12), "the record has it all the same");
    let wrong = book(&event(consume(&consumed.after, &[11, 25], true)), Some(&consumed.after), &ALWAYS_OPEN);
    assert!(wrong.is_err());
}
