use proptest::prelude::*;

use super::*;
use crate::domain::amount::UNITS_MAX;

fn factor(thousandths: u16) -> LoadFactor {
    LoadFactor::from_thousandths(thousandths)
}

fn scaled(level: LoadLevel, units: i64) -> i64 {
    level.scale(Units::new(units).unwrap()).get()
}

#[test]
fn a_load_is_plain_digits_from_0_to_1_with_at_most_3_decimals() {
    for (text, thousandths) in
        [("0", 0), ("1", 1_000), ("0.6", 600), ("0.75", 750), ("0.125", 125), ("1.000", 1_000)]
    {
        assert_eq!(text.parse(), Ok(factor(thousandths)), "{text}");
    }
    for text in ["", ".", ".5", "1.", "1.001", "2", "-0.1", "+1", "0.1234", "1e0", " 1", "0,5", "0.5.", "NaN"]
    {
        assert_eq!(text.parse::<LoadFactor>(), Err(InvalidLoad), "{text:?}");
    }
    assert_eq!(
        ["0", "0.5", "0.125", "1"].map(|text| text.parse::<LoadFactor>().unwrap().to_string()),
        ["0", "0.5", "0.125", "1"]
    );
}

#[test]
fn a_part_of_a_whole_is_rounded_down_and_never_more_than_all() {
    let of = |part, whole| LoadFactor::of(part, whole).thousandths();
    assert_eq!([of(0, 7), of(1, 3), of(2, 3), of(3, 3), of(4, 3)], [0, 333, 666, 1_000, 1_000]);
    assert_eq!([of(1, 0), of(u64::MAX, 1), of(u64::MAX, u64::MAX)], [1_000; 3]);
}

#[test]
fn a_capacity_is_scaled_down_to_whole_units_and_at_least_one() {
    use LoadLevel::{Full, Half, ThreeQuarters};
    for (units, three_quarters, half) in
        [(100, 75, 50), (10, 7, 5), (7, 5, 3), (3, 2, 1), (1, 1, 1), (0, 0, 0)]
    {
        let found = [Full, ThreeQuarters, Half].map(|level| scaled(level, units));
        assert_eq!(found, [units, three_quarters, half], "{units}");
    }
    assert_eq!(scaled(ThreeQuarters, UNITS_MAX), UNITS_MAX / 4 * 3);
}

proptest! {
    #[test]
    fn a_scaled_capacity_is_the_exact_share(units in 1..=UNITS_MAX) {
        prop_assert_eq!(i128::from(scaled(LoadLevel::ThreeQuarters, units)), (i128::from(units) * 3 / 4).max(1));
        prop_assert_eq!(i128::from(scaled(LoadLevel::Half, units)), (i128::from(units) / 2).max(1));
    }
}

#[test]
fn measured_loads_are_averaged_over_the_last_five_seconds() {
    let mut measured = MeasuredLoad::default();
    assert_eq!(measured.average(), factor(0));
    for half_second in 0..9 {
        assert_eq!(measured.take(half_second * 500, factor(0)), factor(0));
    }
    assert_eq!(measured.take(4_500, factor(1_000)), factor(100), "one of ten");
    assert_eq!(measured.take(5_000, factor(1_000)), factor(200), "the first has left");
    assert_eq!(measured.take(60_000, factor(700)), factor(700), "what is old says nothing");
}

/// The levels at these times (s) and loads (in thousandths).
fn levels(course: &[(i64, u16)]) -> Vec<u8> {
    let mut steps = LoadSteps::default();
    course.iter().map(|(second, load)| steps.take(factor(*load), second * 1_000).number()).collect()
}

#[test]
fn the_level_falls_at_once_and_rises_only_after_ten_seconds_of_a_lower_load() {
    assert_eq!(levels(&[(0, 599), (1, 600), (2, 799), (3, 800), (4, 1_000)]), [0, 1, 1, 2, 2]);
    // From a half to three quarters: below 0.7 for ten seconds.
    assert_eq!(levels(&[(0, 800), (1, 699), (10, 699), (11, 699), (60, 699)]), [2, 2, 2, 1, 1]);
    assert_eq!(levels(&[(0, 800), (1, 700), (60, 700)]), [2, 2, 2], "0.7 is not below it");
    // From three quarters to all: below 0.5.
    assert_eq!(levels(&[(0, 600), (1, 499), (10, 499), (11, 499)]), [1, 1, 1, 0]);
    assert_eq!(levels(&[(0, 600), (1, 500), (60, 500)]), [1, 1, 1], "0.5 is not below it");
    // A load that is low for both leaves both at once.
    assert_eq!(levels(&[(0, 1_000), (1, 0), (10, 0), (11, 0)]), [2, 2, 2, 0]);
}

#[test]
fn a_load_that_comes_back_starts_the_ten_seconds_again() {
    assert_eq!(levels(&[(0, 600), (1, 400), (10, 500), (11, 400), (20, 400), (21, 400)]), [1, 1, 1, 1, 1, 0]);
    assert_eq!(levels(&[(0, 800), (1, 650), (8, 720), (9, 650), (18, 650), (19, 650)]), [2, 2, 2, 2, 2, 1]);
    // From a half at 0.55 to three quarters, and no further: that needs less than 0.5.
    assert_eq!(
        levels(&[(0, 900), (1, 550), (11, 550), (90, 550), (91, 499), (101, 499)]),
        [2, 2, 1, 1, 1, 0]
    );
    // While it is calm, a heavier load counts at once.
    assert_eq!(levels(&[(0, 600), (1, 0), (9, 800), (10, 0), (19, 0), (20, 0)]), [1, 1, 2, 2, 2, 0]);
}

proptest! {
    #[test]
    fn no_level_is_lighter_than_its_load_and_none_is_left_within_ten_seconds(
        course in prop::collection::vec((0_i64..4_000, 0_u16..=1_000), 1..60),
    ) {
        let (mut steps, mut now_ms) = (LoadSteps::default(), 0);
        let mut heavy_at_ms: [i64; 2] = [i64::MIN / 2; 2];
        for (pause_ms, load) in course {
            now_ms += pause_ms;
            let level = steps.take(factor(load), now_ms);
            for (place, (from, below)) in [(600, 500), (800, 700)].into_iter().enumerate() {
                let of_step = LoadLevel::of_number(u8::try_from(place).unwrap() + 1);
                if load >= from {
                    prop_assert!(level >= of_step);
                    heavy_at_ms[place] = now_ms;
                }
                // A level stays while the load was not below its lower bound.
                if load >= below && steps.level() < of_step {
                    prop_assert!(heavy_at_ms[place] <= now_ms - CALM_MS);
                }
                if now_ms - heavy_at_ms[place] < CALM_MS {
                    prop_assert!(level >= of_step, "left {} ms after it was heavy", now_ms - heavy_at_ms[place]);
                }
            }
        }
    }
}
