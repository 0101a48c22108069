use proptest::prelude::*;

use super::*;

fn units(value: i64) -> Units {
    Units::new(value).unwrap()
}

fn sketch(used: impl IntoIterator<Item = i64>) -> Sketch {
    let mut sketch = Sketch::default();
    used.into_iter().for_each(|used| sketch.add(units(used), REMEMBERED));
    sketch
}

fn at(sketch: &Sketch, percentile: &str) -> Option<i64> {
    sketch.covers(percentile.parse().unwrap()).map(Units::get)
}

#[test]
fn a_percentile_is_a_share_with_at_most_four_decimals() {
    for (text, written) in [("0.95", "0.95"), ("1", "1"), ("0.5000", "0.5"), ("0.0001", "0.0001")] {
        assert_eq!(text.parse::<Percentile>().unwrap().to_string(), written);
    }
    for text in ["0", "0.0", "1.0001", "0.00001", "-0.5", "+0.5", "95%", ".5", "1e-1", "NaN", ""] {
        assert_eq!(text.parse::<Percentile>(), Err(InvalidPercentile), "{text}");
    }
    assert!(
        serde_json::from_str::<Percentile>("0.95").is_err(),
        "a number of JSON is read as a float elsewhere"
    );
    assert_eq!(serde_json::from_str::<Percentile>("\"0.95\"").unwrap(), Percentile::USUAL);
}

#[test]
fn a_sketch_covers_the_share_that_is_asked_for() {
    let hundred = sketch(1..=100);
    assert_eq!(at(&hundred, "0.95"), Some(95));
    assert_eq!(at(&hundred, "0.951"), Some(96));
    assert_eq!(at(&hundred, "1"), Some(100));
    assert_eq!(at(&hundred, "0.0001"), Some(1));
    assert_eq!(at(&sketch([7]), "0.5"), Some(7));
    assert_eq!(at(&sketch([0, 0, 3]), "0.5"), Some(0));
    assert_eq!(at(&Sketch::default(), "0.95"), None);
}

#[test]
fn what_is_older_counts_less_until_it_is_forgotten() {
    let mut changed = sketch(std::iter::repeat_n(1_000, 5_000));
    assert!(changed.count() <= REMEMBERED && changed.count() >= REMEMBERED / 2, "{}", changed.count());
    for _ in 0..5_000 {
        changed.add(units(10), REMEMBERED);
    }
    assert_eq!(at(&changed, "0.95"), Some(10));
    assert_eq!(changed.counts().len(), 1, "what was long ago is gone");
}

#[test]
fn how_far_off_estimates_were_is_known_of_the_last_hundred() {
    let work = |held, used| Estimated { held: units(held), used: units(used) };
    assert_eq!(Latest::default().accuracy(), None);
    let old = std::iter::repeat_n(work(1, 1_000), 50);
    let recent = (1..=100).map(|used| work(80, used));
    let latest = Latest::of(old.chain(recent));
    let expected = Accuracy {
        count: 100,
        exceeded: 20,
        unused: units((0..80).sum()),
        excess: units((1..=20).sum()),
        median_percent: 50 * 100 / 80,
        high_percent: 90 * 100 / 80,
    };
    assert_eq!(latest.accuracy(), Some(expected));
    let huge = Estimated { held: units(1), used: Units::MAX };
    assert_eq!(Latest::of([huge, huge]).accuracy().unwrap().excess, Units::MAX);
}

#[test]
fn a_stored_sketch_that_makes_no_sense_is_none() {
    for counts in [vec![(2, 1), (1, 1)], vec![(1, 1), (1, 1)], vec![(1, 0)], vec![(u16::MAX, 1)]] {
        assert_eq!(Sketch::of(counts.clone()), None, "{counts:?}");
    }
    assert_eq!(Sketch::of(vec![(1, 2), (9, 1)]).unwrap().count(), 3);
}

proptest! {
    #[test]
    fn a_bucket_is_at_most_a_sixty_fourth_wide(value in 0..=Units::MAX.get()) {
        let bucket = bucket_of(units(value));
        let highest = highest_of(bucket).get();
        prop_assert!(highest >= value && i128::from(highest - value) * 64 <= i128::from(value), "{value} {highest}");
        prop_assert_eq!(bucket_of(units(highest)), bucket);
    }

    #[test]
    fn a_sketch_is_never_below_the_exact_percentile(
        mut used in prop::collection::vec(0..5_000_000_i64, 1..200),
        parts in 1..=10_000_u16,
    ) {
        let estimate = sketch(used.iter().copied()).covers(Percentile(parts)).unwrap().get();
        used.sort_unstable();
        let rank = (used.len() * usize::from(parts)).div_ceil(10_000);
        let exact = used[rank - 1];
        prop_assert!(estimate >= exact && (estimate - exact) * 64 <= exact, "{exact} {estimate}");
    }

    #[test]
    fn halving_moves_no_percentile_by_more_than_one_place(used in prop::collection::vec(0..127_i64, 2..300)) {
        let whole = sketch(used.iter().copied());
        let mut half = whole.clone();
        half.halve();
        prop_assert_eq!(half.count(), whole.count() / 2);
        let median = |sketch: &Sketch| at(sketch, "0.5").unwrap();
        let mut sorted = used.clone();
        sorted.sort_unstable();
        let middle = sorted.len().div_ceil(2);
        let near = &sorted[middle.saturating_sub(2)..(middle + 3).min(sorted.len())];
        prop_assert!(near.contains(&median(&half)), "{near:?} {}", median(&half));
    }
}
