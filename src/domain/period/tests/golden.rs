//! Windows of many zones and years, found by another implementation.

use super::*;

fn kind(word: &str) -> WindowKind {
    WindowKind::ALL.into_iter().find(|kind| kind.as_str() == word).unwrap()
}

#[test]
fn windows_are_those_that_another_implementation_finds() {
    let lines = include_str!("golden.txt").lines().filter(|line| !line.starts_with('#'));
    let mut cases = 0;
    for line in lines {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [word, zone, anchor_day, at, start, end] = columns[..] else { panic!("{line}") };
        let calendar = calendar(zone, anchor_day.parse().unwrap());
        assert_eq!(calendar.window(kind(word), minute(at)), window(start, end), "{line}");
        cases += 1;
    }
    assert_eq!(cases, 200);
}

#[test]
fn windows_around_a_change_of_calendar_are_those_that_another_implementation_finds() {
    let lines = include_str!("changes.txt").lines().filter(|line| !line.starts_with('#'));
    let mut cases = 0;
    for line in lines {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [word, old, old_anchor, asked_at, new, new_anchor, at, start, end] = columns[..] else {
            panic!("{line}")
        };
        let [before, after] = [(old, old_anchor), (new, new_anchor)]
            .map(|(zone, anchor_day)| calendar(zone, anchor_day.parse().unwrap()));
        let calendars = Calendars::from(before).changed_to(after, minute(asked_at));
        assert_eq!(calendars.window(kind(word), minute(at)), window(start, end), "{line}");
        cases += 1;
    }
    assert_eq!(cases, 160);
}
