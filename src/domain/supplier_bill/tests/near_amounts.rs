//! Pairs of amounts that nearly agree, however many wait.

use proptest::prelude::*;
use uuid::Uuid;

use super::{SPAN_SECONDS, amount, billed, by_time, compare, used, walk};
use crate::domain::supplier_bill::passes::PassKind;
use crate::domain::supplier_bill::{Item, Outcome, Source, TOLERANCE_SECONDS_MAX, Tolerance};

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

proptest! {
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
}
