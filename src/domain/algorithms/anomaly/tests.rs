#![allow(
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    reason = "made-up times, and a formula on fractions"
)]

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::*;

/// The bounds that hold where nothing is said of them: marked from 2 deviations on, refused from 3.
fn usual_bounds() -> Parameters {
    Anomaly(serde_json::from_value(json!({})).unwrap()).in_numbers()
}

/// The same where nothing is refused.
fn only_watching() -> Parameters {
    Anomaly(serde_json::from_value(json!({ "actions": { "throttle": "monitor" } })).unwrap()).in_numbers()
}

/// A subject by whose calls a cell learns.
struct Subject {
    bounds: Parameters,
    now_ms: i64,
    cell: Option<Cell>,
}

impl Subject {
    fn under(bounds: Parameters) -> Self {
        Self { bounds, now_ms: 1_700_000_000_000, cell: None }
    }

    /// Calls so long after the last try: whether it is an anomaly, and whether it is refused.
    fn call(&mut self, after_ms: i64) -> (bool, bool) {
        self.now_ms += after_ms;
        let mut loaded = self.bounds.load(self.cell.as_ref(), Moment::new_work(self.now_ms));
        let is_refused = self.bounds.room_for_new_work(&loaded, 1) == 0;
        if !is_refused {
            self.bounds.charge(&mut loaded, 1);
            self.cell = Some(loaded.cell.clone());
        }
        (loaded.cell.consumed == 1 || is_refused, is_refused)
    }

    /// The number, from 1, of the first of these calls that is an anomaly.
    fn first_marked(&mut self, intervals_ms: impl IntoIterator<Item = i64>) -> Option<usize> {
        intervals_ms.into_iter().position(|after_ms| self.call(after_ms).0).map(|place| place + 1)
    }
}

fn repeated(interval_ms: i64, count: usize) -> impl Iterator<Item = i64> {
    std::iter::repeat_n(interval_ms, count)
}

/// Intervals of about ten seconds: each of them up to a share longer or shorter, in percent.
fn noisy(seed: u64, percent: i64, count: usize) -> Vec<i64> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..count).map(|_| 10_000 + 100 * random.random_range(-percent..=percent)).collect()
}

/// Intervals of ten seconds on average by pure chance.
fn by_chance(seed: u64, count: usize) -> Vec<i64> {
    let mut random = StdRng::seed_from_u64(seed);
    let interval = |_| (-10_000.0 * (1.0 - random.random::<f64>()).ln()) as i64;
    (0..count).map(interval).collect()
}

#[test]
fn a_subject_that_turns_from_every_ten_seconds_to_every_half_second_is_marked_within_a_few_calls() {
    for (percent, most) in [(0, 3), (20, 5), (40, 8), (60, 15)] {
        for seed in 0..200 {
            let mut subject = Subject::under(only_watching());
            assert_eq!(subject.first_marked(noisy(seed, percent, 300)), None, "{percent} % noise, {seed}");
            let marked = subject.first_marked(repeated(500, 100));
            assert!(marked.is_some_and(|calls| calls <= most), "{percent} % noise, {seed}: {marked:?}");
        }
    }
}

#[test]
fn without_the_bound_on_short_intervals_nobody_would_be_marked() {
    // The formula as it is usually written, on numbers with fractions: each interval counts in full.
    let (mut short, mut mean, mut variance) = (10_000.0_f64, 10_000.0_f64, 1_000.0_f64 * 1_000.0);
    let largest = (0..1_000).map(|_| {
        short += (500.0 - short) / 10.0;
        mean += (500.0 - mean) / 100.0;
        variance += ((500.0 - mean).powi(2) - variance) / 100.0;
        (mean - short) / variance.sqrt().max(mean / 10.0).max(1.0)
    });
    assert!(largest.fold(0.0, f64::max) < 2.0);
}

#[test]
fn steady_noisy_and_random_subjects_are_not_marked() {
    for interval_ms in [0, 1, 20, 10_000, 600_000, 3 * PAUSE_MS] {
        let mut subject = Subject::under(usual_bounds());
        assert_eq!(subject.first_marked(repeated(interval_ms, 2_000)), None, "every {interval_ms} ms");
    }
    for seed in 0..50 {
        let mut subject = Subject::under(usual_bounds());
        assert_eq!(subject.first_marked(noisy(seed, 60, 5_000)), None, "{seed}");
        let mut subject = Subject::under(usual_bounds());
        assert_eq!(subject.first_marked(by_chance(seed, 5_000)), None, "{seed}");
    }
}

#[test]
fn a_subject_that_calls_less_often_is_not_marked_and_its_new_pace_becomes_usual() {
    let mut subject = Subject::under(usual_bounds());
    assert_eq!(subject.first_marked(noisy(1, 20, 300)), None);
    assert_eq!(subject.first_marked(repeated(60_000, 1_500)), None);
    let marked = subject.first_marked(repeated(10_000, 20));
    assert!(marked.is_some_and(|calls| calls <= 8), "what was usual once is too often now: {marked:?}");
}

#[test]
fn a_burst_or_a_pause_at_the_start_marks_nobody() {
    for start in [repeated(50, 30).collect::<Vec<_>>(), vec![1_800_000], vec![60_000, 60_000, 60_000, 10, 10]]
    {
        for then_ms in [200, 1_000, 10_000] {
            let mut subject = Subject::under(usual_bounds());
            let calls = start.iter().copied().chain(repeated(then_ms, 1_000));
            assert_eq!(subject.first_marked(calls), None, "{start:?}, then every {then_ms} ms");
        }
    }
    // Work that always comes in bursts is as usual in the middle of one.
    let in_bursts = (0..3_000).map(|call| if call % 10 == 0 { 60_000 } else { 100 });
    assert_eq!(Subject::under(usual_bounds()).first_marked(in_bursts), None);
}

#[test]
fn a_pause_over_night_leaves_it_known_and_hides_no_burst_after_it() {
    for calls_between in [0, 40] {
        let mut subject = Subject::under(usual_bounds());
        assert_eq!(subject.first_marked(noisy(1, 20, 500)), None);
        assert_eq!(subject.call(12 * 3_600_000), (false, false));
        assert_eq!(subject.first_marked(noisy(2, 20, calls_between)), None);
        let marked = subject.first_marked(repeated(500, 20));
        assert!(marked.is_some_and(|calls| calls <= 8), "{calls_between}: {marked:?}");
    }
}

#[test]
fn a_throttled_subject_is_slowed_to_near_its_usual_pace_and_gets_in_once_it_has_waited() {
    let mut subject = Subject::under(usual_bounds());
    assert_eq!(subject.first_marked(noisy(1, 20, 300)), None);
    let began_ms = subject.now_ms;
    let admitted = (0..2_000).filter(|_| !subject.call(500).1).count();
    let seconds = (subject.now_ms - began_ms) / 1_000;
    assert!((100..200).contains(&admitted), "{admitted} of 2000 calls in {seconds} s");
    while !subject.call(500).1 {}
    let usual_ms = subject.cell.as_ref().unwrap().own[2].div_euclid(1_000) + 1;
    assert_eq!(subject.call(usual_ms), (true, false), "as long as usual is long enough");
}

#[test]
fn who_waits_the_usual_time_is_admitted_however_fast_it_called_while_it_was_only_watched() {
    for (percent, seed) in [(0, 1), (20, 2), (60, 3)] {
        let mut subject = Subject::under(only_watching());
        assert_eq!(subject.first_marked(noisy(seed, percent, 300)), None);
        assert!(subject.first_marked(repeated(500, 10)).is_some());
        assert!((0..1_000).all(|_| subject.call(500).0));
        subject.bounds = usual_bounds();
        assert_eq!(subject.call(500), (true, true));
        for _ in 0..30 {
            let usual_ms = subject.cell.as_ref().unwrap().own[2].div_euclid(1_000) + 1;
            assert!(!subject.call(usual_ms).1, "{percent} % noise");
        }
    }
}

#[test]
fn what_is_usual_stands_still_under_an_anomaly() {
    let mut subject = Subject::under(only_watching());
    assert_eq!(subject.first_marked(noisy(1, 20, 300)), None);
    assert!(subject.first_marked(repeated(500, 10)).is_some());
    let usual = |subject: &Subject| subject.cell.as_ref().unwrap().own[2..].to_vec();
    let before = usual(&subject);
    assert!((0..10_000).all(|_| subject.call(500).0));
    assert_eq!(usual(&subject), before);
}

#[test]
fn after_a_day_without_a_call_it_is_a_new_subject_and_a_clock_that_went_back_is_no_reason() {
    let mut subject = Subject::under(usual_bounds());
    assert_eq!(subject.first_marked(noisy(1, 20, 300)), None);
    assert_eq!(subject.call(-5_000), (false, false));
    assert_eq!(subject.cell.as_ref().unwrap().mark, subject.now_ms + 5_000);
    subject.call(5_000 + MEMORY_MS);
    assert_eq!(subject.cell.as_ref().unwrap().own, [0; 4]);
    assert_eq!(subject.first_marked(repeated(500, 300)), None);
}

#[test]
fn it_judges_after_as_many_intervals_as_its_bounds_say() {
    let bounds = |min_samples| Parameters { min_samples, marks_from: 100, refuses_from: 0 };
    let first = |min_samples| {
        let slower = (0..1_000).map(|call| 10_000 - 9 * call);
        Subject::under(bounds(min_samples)).first_marked(slower)
    };
    assert!(first(1_000).is_none() && first(200) > Some(201), "{:?}", first(200));
    assert!(first(20) < first(200));
}

#[test]
fn all_its_numbers_stay_in_range_where_calls_are_as_irregular_as_can_be() {
    let mut random = StdRng::seed_from_u64(1);
    let mut subject = Subject::under(Parameters { min_samples: 2, marks_from: 100_000, refuses_from: 0 });
    for _ in 0..20_000 {
        subject.call(*[0, 1, 1_000, MEMORY_MS - 1].get(random.random_range(0..4)).unwrap());
        let own = &subject.cell.as_ref().unwrap().own;
        assert!(own.iter().all(|number| (0..9_000_000_000_000_000).contains(number)), "{own:?}");
    }
}

#[test]
fn its_parameters_are_read_as_they_are_packed() {
    let mut packed = Vec::new();
    usual_bounds().encode(&mut packed);
    assert_eq!(Parameters::decode(&mut Reader::new(&packed)), Ok(usual_bounds()));
    packed[..8].fill(0);
    assert!(Parameters::decode(&mut Reader::new(&packed)).is_err());
}
