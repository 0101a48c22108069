mod reading;

use proptest::prelude::*;
use rstest::rstest;

use super::finding::Finding;
use super::passes::{Found, Order, PassKind};
use super::summary::Summary;
use super::*;

const NOON_MS: i64 = 1_800_000_000_000;

/// How long the span is that bills are compared with. It begins at noon.
const SPAN_SECONDS: i64 = 3_000;

fn amount(text: &str) -> Amount {
    Amount::parse(text).unwrap()
}

fn decimal(text: &str) -> Decimal {
    Decimal::from_str_exact(text).unwrap()
}

fn tolerance(seconds: u32) -> Tolerance {
    Tolerance { seconds, ..Tolerance::default() }
}

fn terms(columns: Columns, tolerance: Tolerance) -> BillTerms {
    BillTerms {
        supplier: "acme ocr".into(),
        tenant: None,
        meter: MeterId::parse("ocr.page").unwrap(),
        from_ms: NOON_MS,
        to_ms: NOON_MS + SPAN_SECONDS * 1_000,
        columns,
        reference: UseReference::Reservation,
        delimiter: b',',
        tolerance,
        dry_run: false,
    }
}

fn by_reference(tolerance: Tolerance) -> BillTerms {
    terms(
        Columns { amount: "pages".into(), reference: Some("job".into()), time: None, tenant: None },
        tolerance,
    )
}

fn by_time(tolerance: Tolerance) -> BillTerms {
    terms(
        Columns { amount: "pages".into(), reference: None, time: Some("at".into()), tenant: None },
        tolerance,
    )
}

fn used(reference: &str, amount: &str, second: i64) -> Item {
    let at_ms = NOON_MS + second * 1_000;
    let source = Source::Use {
        tenant: "acme".into(),
        reservation: Uuid::from_u128(u128::from(second.cast_unsigned())),
        is_inside: (0..SPAN_SECONDS).contains(&second),
    };
    Item { scope: String::new(), reference: reference.into(), amount: decimal(amount), at_ms, source }
}

fn billed(reference: &str, amount: &str, second: i64, line: u64) -> Item {
    let at_ms = NOON_MS + second * 1_000;
    let source = Source::Row { line };
    Item { scope: String::new(), reference: reference.into(), amount: decimal(amount), at_ms, source }
}

/// What the database's order does to items.
fn sort(items: &mut [Item], order: Order) {
    let last = |item: &Item| match &item.source {
        Source::Use { tenant, reservation, .. } => (0, tenant.clone(), *reservation, 0),
        Source::Row { line } => (1, String::new(), Uuid::nil(), *line),
    };
    items.sort_by(|one, other| {
        let by_time = one.at_ms.cmp(&other.at_ms);
        let first = match order {
            Order::Reference => one.reference.cmp(&other.reference),
            Order::Amount => one.amount.cmp(&other.amount).then(by_time),
            Order::AmountBackwards => one.amount.cmp(&other.amount).then(by_time.reverse()),
            Order::Time => by_time,
        };
        one.scope.cmp(&other.scope).then(first).then_with(|| last(one).cmp(&last(other)))
    });
}

/// One walk. Returns what it leaves over.
fn walk(kind: PassKind, terms: &BillTerms, items: &mut [Item], findings: &mut Vec<Finding>) -> Vec<Item> {
    sort(items, kind.order());
    let (mut pass, mut found) = (kind.begin(terms), Found::default());
    for item in items {
        pass.take(item.clone(), &mut found).unwrap();
    }
    pass.finish(&mut found).unwrap();
    findings.extend(found.findings);
    found.left
}

/// All walks of a comparison, with all items in memory.
fn compare(terms: &BillTerms, mut items: Vec<Item>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for kind in PassKind::of(terms) {
        let mut past = Vec::new();
        if let Some(sieve) = kind.sieve(terms) {
            past = walk(sieve, terms, &mut items, &mut findings);
            for item in &past {
                items.remove(items.iter().position(|other| other == item).unwrap());
            }
        }
        past.extend(walk(kind, terms, &mut items, &mut findings));
        items = past;
    }
    assert!(items.is_empty(), "the last walk leaves nothing over: {items:?}");
    findings
}

/// `outcome here there`, sorted.
fn said(findings: &[Finding]) -> Vec<String> {
    let words = findings.iter().map(|finding| {
        let Finding { outcome, here, there, .. } = finding;
        format!("{} {} {}", outcome.as_str(), here.amount.normalize(), there.amount.normalize())
    });
    let mut words: Vec<_> = words.collect();
    words.sort();
    words
}

#[rstest]
#[case::the_same(vec![used("a", "3", 1), billed("a", "3.0", 0, 2)], &["matched 3 3"])]
#[case::other_amount(vec![used("a", "3", 1), billed("a", "4", 0, 2)], &["different 3 4"])]
#[case::only_there(vec![billed("a", "4", 0, 2)], &["missing_here 0 4"])]
#[case::only_here(vec![used("a", "3", 1)], &["missing_there 3 0"])]
#[case::many_rows(vec![used("a", "3", 1), billed("a", "1", 0, 2), billed("a", "2", 0, 3)], &["matched 3 3"])]
#[case::many_uses(vec![used("a", "1", 1), used("a", "2", 2), billed("a", "3", 0, 2)], &["matched 3 3"])]
#[case::charged_twice(vec![used("a", "3", 1), billed("a", "3", 0, 2), billed("a", "3", 0, 3)], &["different 3 6"])]
#[case::a_credit(vec![used("a", "3", 1), billed("a", "5", 0, 2), billed("a", "-2", 0, 3)], &["matched 3 3"])]
#[case::free_of_charge(vec![billed("a", "0", 0, 2)], &["matched 0 0"])]
#[case::no_reference_is_no_group(
    vec![billed("", "1", 0, 2), billed("", "1", 0, 3), used("", "2", 1)],
    &["missing_here 0 1", "missing_here 0 1", "missing_there 2 0"]
)]
#[case::around_the_span(vec![used("a", "3", -5), used("b", "4", -5), billed("a", "3", 0, 2)], &["matched 3 3"])]
fn by_reference_sums_are_compared(#[case] items: Vec<Item>, #[case] expected: &[&str]) {
    assert_eq!(said(&compare(&by_reference(tolerance(10)), items)), expected);
}

#[rstest]
#[case::exact("0", "0", "100", "100", true)]
#[case::a_little_more("0", "0", "100", "100.000001", false)]
#[case::within_amount("0.5", "0", "100", "99.5", true)]
#[case::beyond_amount("0.5", "0", "100", "99.4", false)]
#[case::within_percent("0", "1", "100", "101", true)]
#[case::beyond_percent("0", "1", "100", "101.1", false)]
#[case::percent_is_of_what_is_booked("0", "1", "101", "100", true)]
#[case::either("2", "1", "100", "102", true)]
fn amounts_are_the_same_within_either_tolerance(
    #[case] absolute: &str,
    #[case] percent: &str,
    #[case] here: &str,
    #[case] there: &str,
    #[case] expected: bool,
) {
    let tolerance = Tolerance { amount: amount(absolute), percent: amount(percent), seconds: 0 };
    assert_eq!(tolerance.covers(decimal(here), decimal(there)), expected);
}

#[rstest]
#[case::near(vec![used("", "3", 10), billed("", "3", 69, 2)], &["matched 3 3"])]
#[case::at_the_tolerance(vec![used("", "3", 10), billed("", "3", 70, 2)], &["matched 3 3"])]
#[case::too_late(vec![used("", "3", 10), billed("", "3", 71, 2)], &["missing_here 0 3", "missing_there 3 0"])]
#[case::alone_with_each_other(vec![used("", "3", 10), billed("", "4", 20, 2)], &["different 3 4"])]
#[case::one_row_of_several_uses(
    vec![used("", "3", 10), used("", "4", 20), billed("", "7", 30, 2)],
    &["matched 7 7"]
)]
#[case::one_use_in_several_rows(
    vec![used("", "7", 10), billed("", "3", 20, 2), billed("", "4", 30, 3)],
    &["matched 7 7"]
)]
#[case::a_sum_of_what_is_far_from_it_is_none(
    vec![used("", "3", 10), used("", "4", 70), used("", "1", 130), billed("", "8", 10, 2)],
    &["missing_here 0 8", "missing_there 1 0", "missing_there 3 0", "missing_there 4 0"]
)]
#[case::several_with_several_is_left_open(
    vec![used("", "3", 10), used("", "4", 11), billed("", "2", 12, 2), billed("", "5", 13, 3)],
    &["missing_here 0 2", "missing_here 0 5", "missing_there 3 0", "missing_there 4 0"]
)]
#[case::the_use_before_the_span_does_not_take_the_row_of_one_in_it(
    vec![used("", "3", -30), used("", "3", 20), billed("", "3", 25, 2)],
    &["matched 3 3"]
)]
#[case::the_use_before_the_span_may_have_a_row(
    vec![used("", "3", -30), used("", "3", 20), billed("", "3", 25, 2), billed("", "3", 2, 3)],
    &["matched 3 3", "matched 3 3"]
)]
#[case::a_use_before_the_span_is_not_missed(vec![used("", "3", -30)], &[])]
#[case::rows_of_uses_before_and_in_the_span(
    vec![used("", "5", -30), used("", "5", 50), billed("", "5", 10, 2), billed("", "5", 50, 3)],
    &["matched 5 5", "matched 5 5"]
)]
#[case::rows_of_uses_in_and_after_the_span(
    vec![used("", "5", 2_950), used("", "5", 3_030), billed("", "5", 2_950, 2), billed("", "5", 2_990, 3)],
    &["matched 5 5", "matched 5 5"]
)]
#[case::a_first_row_leaves_the_later_use_to_the_later_row(
    vec![used("", "3", 0), used("", "3", 60), billed("", "3", 60, 2), billed("", "3", 120, 3)],
    &["matched 3 3", "matched 3 3"]
)]
fn by_amount_and_time_pairs_come_first_and_then_sums(#[case] items: Vec<Item>, #[case] expected: &[&str]) {
    assert_eq!(said(&compare(&by_time(tolerance(60)), items)), expected);
}

#[test]
fn near_amounts_are_paired_after_equal_ones() {
    let near = Tolerance { amount: amount("1"), percent: Amount::ZERO, seconds: 60 };
    let items = vec![
        used("", "3", 1),
        used("", "4", 2),
        billed("", "4", 3, 2),
        billed("", "2.5", 4, 3),
        used("", "9", 5),
        billed("", "10.5", 6, 4),
    ];
    assert_eq!(said(&compare(&by_time(near), items)), ["different 9 10.5", "matched 3 2.5", "matched 4 4"]);
}

#[test]
fn a_bill_of_which_nothing_fits_is_compared_without_a_look_at_each_use_for_each_row() {
    const EACH: u64 = 30_000;
    let near = Tolerance { percent: amount("1"), seconds: TOLERANCE_SECONDS_MAX, ..Tolerance::default() };
    let second = |number: u64| i64::try_from(number).unwrap() % SPAN_SECONDS;
    let here = (0..EACH).map(|number| used("", "1", second(number)));
    let there = (0..EACH).map(|number| billed("", "3", second(number), number + 2));
    let items = here.chain(there).collect();
    let began = std::time::Instant::now();
    let findings = compare(&by_time(near), items);
    // A look at each would take minutes.
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    let missing = |outcome| findings.iter().filter(|finding| finding.outcome == outcome).count();
    assert_eq!(missing(Outcome::MissingHere) + missing(Outcome::MissingThere), findings.len());
    assert_eq!(findings.len(), usize::try_from(2 * EACH).unwrap());
}

/// The pairs that are made where each item is held against all that wait, the one that waits longest first.
fn pairs_of_a_look_at_all(near: Tolerance, items: &[Item]) -> Vec<(Uuid, u64)> {
    let (mut waiting, mut pairs) = (Vec::<&Item>::new(), Vec::new());
    for item in items {
        waiting.retain(|held| item.at_ms - held.at_ms <= near.ms());
        let sides = |other: &Item| match (&item.source, &other.source) {
            (Source::Use { reservation, .. }, Source::Row { line }) => {
                Some(((item.amount, other.amount), (*reservation, *line)))
            }
            (Source::Row { line }, Source::Use { reservation, .. }) => {
                Some(((other.amount, item.amount), (*reservation, *line)))
            }
            _ => None,
        };
        let fits = |other: &Item| sides(other).is_some_and(|((here, there), _)| near.covers(here, there));
        match waiting.iter().copied().position(fits) {
            Some(place) => pairs.extend(sides(waiting.remove(place)).map(|(_, names)| names)),
            None => waiting.push(item),
        }
    }
    pairs
}

#[test]
fn only_rows_and_uses_of_one_tenant_are_matched() {
    let of = |mut item: Item, tenant: &str| {
        item.scope = tenant.into();
        if let Source::Use { tenant: whose, .. } = &mut item.source {
            *whose = tenant.into();
        }
        item
    };
    let items = || {
        vec![
            of(used("a", "3", 1), "acme"),
            of(used("a", "3", 2), "other"),
            of(billed("a", "3", 3, 2), "acme"),
            of(billed("a", "3", 3, 3), "acme"),
        ]
    };
    assert_eq!(said(&compare(&by_reference(tolerance(0)), items())), ["different 3 6", "missing_there 3 0"]);
    let expected = ["matched 3 3", "missing_here 0 3", "missing_there 3 0"];
    assert_eq!(said(&compare(&by_time(tolerance(60)), items())), expected);
}

#[test]
fn a_finding_names_the_first_ten_of_many() {
    let rows = (0..25).map(|line| billed("a", "1", 0, line + 2));
    let findings = compare(&by_reference(tolerance(0)), rows.chain([used("a", "25", 1)]).collect());
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    assert_eq!((finding.outcome, finding.there.count), (Outcome::Matched, 25));
    assert_eq!(finding.there.named, (2..12).collect::<Vec<_>>());
}

#[test]
fn amounts_that_no_book_can_keep_are_an_error_and_no_wrong_sum() {
    let huge = "999999999999";
    let mut pass = PassKind::Reference.begin(&by_reference(tolerance(0)));
    let mut found = Found::default();
    let taken = (0..1_000_002).try_for_each(|line| pass.take(billed("a", huge, 0, line), &mut found));
    assert_eq!(taken, Err(super::finding::Unmatchable::TooLarge));
}

/// A use with the line of its row, how far apart they are, and what is done to the row.
type Planted = (u16, i64, i64, u8);

fn planted(seconds: std::ops::Range<i64>) -> impl Strategy<Value = Vec<Planted>> {
    prop::collection::vec((1..4_u16, seconds, -60..=60_i64, 0..12_u8), 1..60)
}

fn units(number: u64) -> String {
    number.to_string()
}

/// Finds a row for a use at this second, if need be by giving another use another row.
fn find_row(second: i64, rows: &[i64], pairs: &mut [Option<i64>], tried: &mut Vec<usize>) -> bool {
    for (place, row) in rows.iter().enumerate() {
        if row.abs_diff(second) > 60 || tried.contains(&place) {
            continue;
        }
        tried.push(place);
        if pairs[place].is_none_or(|holder| find_row(holder, rows, pairs, tried)) {
            pairs[place] = Some(second);
            return true;
        }
    }
    false
}

proptest! {
    #[test]
    fn a_bill_of_what_was_used_shows_no_difference_however_late_and_shuffled_its_rows_are(
        planted in planted(-60..SPAN_SECONDS + 60),
        seed in any::<u64>(),
    ) {
        let mut items = Vec::new();
        for (line, (size, second, late, change)) in (2..).zip(&planted) {
            let text = units(u64::from(*size));
            let is_inside = (0..SPAN_SECONDS).contains(second);
            items.push(used(&format!("job-{line}"), &text, *second));
            // The supplier may count a use around the span in another one.
            if is_inside || change % 2 == 0 {
                items.push(billed(&format!("job-{line}"), &text, second + late, line ^ (seed % 1_024)));
            }
        }
        let rows = items.iter().filter(|item| !item.is_use()).count();
        for terms in [by_time(tolerance(60)), by_reference(tolerance(0))] {
            let findings = compare(&terms, items.clone());
            prop_assert!(findings.iter().all(|it| it.outcome == Outcome::Matched), "{:?}", said(&findings));
            prop_assert_eq!(findings.len(), rows);
        }
    }

    #[test]
    fn no_other_choice_of_pairs_leaves_less_over(
        uses in prop::collection::vec(-60..SPAN_SECONDS / 10, 0..14),
        after in prop::collection::vec(SPAN_SECONDS - 100..SPAN_SECONDS + 60, 0..14),
        rows in prop::collection::vec(prop_oneof![-100..SPAN_SECONDS / 10, SPAN_SECONDS - 150..SPAN_SECONDS + 100], 0..28),
    ) {
        let uses: Vec<i64> = uses.into_iter().chain(after).collect();
        let here = uses.iter().map(|second| used("", "5", *second));
        let there = (2..).zip(&rows).map(|(line, second)| billed("", "5", *second, line));
        let findings = compare(&by_time(tolerance(60)), here.chain(there).collect());
        let missing = |outcome| findings.iter().filter(|finding| finding.outcome == outcome).count();
        let (inside, around): (Vec<i64>, Vec<i64>) =
            uses.iter().partition(|second| (0..SPAN_SECONDS).contains(*second));
        let mut pairs = vec![None; rows.len()];
        let matched = inside.iter().filter(|second| find_row(**second, &rows, &mut pairs, &mut vec![])).count();
        let matched_too = around.iter().filter(|second| find_row(**second, &rows, &mut pairs, &mut vec![])).count();
        prop_assert_eq!(missing(Outcome::MissingThere), inside.len() - matched);
        prop_assert_eq!(missing(Outcome::MissingHere), rows.len() - matched - matched_too);
    }

    #[test]
    fn amounts_that_nearly_agree_are_paired_as_by_a_look_at_all_that_wait(
        uses in prop::collection::vec((1..2_000_u32, 0..SPAN_SECONDS), 0..60),
        rows in prop::collection::vec((-300..2_000_i32, 0..SPAN_SECONDS), 0..60),
        absolute in 0..40_u32,
        percent in 0..=100_u32,
        seconds in 0..3_000_u32,
    ) {
        let near = Tolerance {
            amount: amount(&absolute.to_string()),
            percent: amount(&percent.to_string()),
            seconds,
        };
        let mut items = Vec::new();
        for (number, (size, second)) in (1..).zip(&uses) {
            let (tenant, reservation) = ("acme".to_owned(), Uuid::from_u128(number));
            let source = Source::Use { tenant, reservation, is_inside: true };
            items.push(Item { source, ..used("", &size.to_string(), *second) });
        }
        items.extend((2..).zip(&rows).map(|(line, (size, at))| billed("", &size.to_string(), *at, line)));
        let mut findings = Vec::new();
        walk(PassKind::NearAmounts, &by_time(near), &mut items, &mut findings);
        let pairs: Vec<_> = findings.iter().map(|found| (found.here.named[0], found.there.named[0])).collect();
        prop_assert_eq!(pairs, pairs_of_a_look_at_all(near, &items));
    }

    #[test]
    fn by_reference_exactly_what_is_planted_is_found(planted in planted(0..SPAN_SECONDS)) {
        let (mut items, mut expected) = (Vec::new(), Vec::new());
        for (line, (size, second, late, change)) in (2..).zip(&planted) {
            let (name, text) = (format!("job-{line}"), units(u64::from(*size)));
            let row = |amount: &str| billed(&name, amount, second + late, line);
            let (more, again) = (units(u64::from(*size) + 1), units(2 * u64::from(*size)));
            let (use_of, rows, outcome) = match change {
                0 => (true, vec![], format!("missing_there {text} 0")),
                1 => (false, vec![row(&text)], format!("missing_here 0 {text}")),
                2 => (true, vec![row(&more)], format!("different {text} {more}")),
                3 => (true, vec![row(&text), row(&text)], format!("different {text} {again}")),
                _ => (true, vec![row(&text)], format!("matched {text} {text}")),
            };
            items.extend(use_of.then(|| used(&name, &text, *second)));
            items.extend(rows);
            expected.push(outcome);
        }
        expected.sort();
        prop_assert_eq!(said(&compare(&by_reference(tolerance(0)), items)), expected);
    }

    #[test]
    fn every_use_and_row_is_in_one_finding_whatever_the_bill_says(
        uses in prop::collection::vec((1..5_u16, 0..500_i64), 0..40),
        rows in prop::collection::vec((0..5_u16, 0..500_i64), 0..40),
        seconds in 0..100_u32,
        slack in 0..3_u8,
    ) {
        let near = Tolerance { amount: amount(&slack.to_string()), percent: Amount::ZERO, seconds };
        let here = uses.iter().map(|(size, second)| used("", &units(u64::from(*size)), *second));
        let there = (2..).zip(&rows);
        let there = there.map(|(line, (size, second))| billed("", &units(u64::from(*size)), *second, line));
        let findings = compare(&by_time(near), here.chain(there).collect());
        let mut summary = Summary::default();
        findings.iter().for_each(|finding| summary.add(finding).unwrap());
        let shares = [summary.matched, summary.different, summary.missing_here, summary.missing_there];
        let sum = |of: fn(&super::summary::Share) -> u64| shares.iter().map(of).sum::<u64>();
        prop_assert_eq!(sum(|it| it.uses), u64::try_from(uses.len()).unwrap());
        prop_assert_eq!(sum(|it| it.rows), u64::try_from(rows.len()).unwrap());
        for finding in &findings {
            let (here, there) = (&finding.here, &finding.there);
            if here.count > 0 && there.count > 0 {
                let is_the_same = near.covers(here.amount, there.amount);
                prop_assert_eq!(is_the_same, finding.outcome == Outcome::Matched, "{:?}", finding);
            }
        }
    }
}

#[test]
fn other_terms_have_another_fingerprint() {
    let one = by_time(tolerance(60));
    let mut other = one.clone();
    assert_eq!(one.fingerprint(), other.fingerprint());
    other.tolerance.seconds = 61;
    assert_ne!(one.fingerprint(), other.fingerprint());
}
