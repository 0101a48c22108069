use super::*;

/// A tenant of 2026, asked on 10 November (unless said otherwise) to keep another calendar.
fn changed(before: (&str, u8), after: (&str, u8), asked_at: &str) -> Calendars {
    Calendars::from(calendar(before.0, before.1)).changed_to(calendar(after.0, after.1), minute(asked_at))
}

const UTC: (&str, u8) = ("UTC", 1);
const BERLIN: (&str, u8) = ("Europe/Berlin", 1);
const NEW_YORK: (&str, u8) = ("America/New_York", 1);
const KOLKATA: (&str, u8) = ("Asia/Kolkata", 1);

/// The last window of the old calendar and the first of the new, which share the instant of the change.
#[rstest]
#[case::east_hour(
    UTC,
    BERLIN,
    WindowKind::Hour,
    "2026-11-30T23:00Z",
    "2026-12-01T00:00Z",
    "2026-12-01T01:00Z"
)]
#[case::east_day(UTC, BERLIN, WindowKind::Day, "2026-11-30T00:00Z", "2026-12-01T00:00Z", "2026-12-01T23:00Z")]
#[case::east_week(
    UTC,
    BERLIN,
    WindowKind::Week,
    "2026-11-30T00:00Z",
    "2026-12-01T00:00Z",
    "2026-12-06T23:00Z"
)]
#[case::east_month(
    UTC,
    BERLIN,
    WindowKind::Month,
    "2026-11-01T00:00Z",
    "2026-12-01T00:00Z",
    "2026-12-31T23:00Z"
)]
#[case::east_period(
    UTC,
    BERLIN,
    WindowKind::Period,
    "2026-11-01T00:00Z",
    "2026-12-01T00:00Z",
    "2026-12-31T23:00Z"
)]
#[case::west_hour(
    UTC,
    NEW_YORK,
    WindowKind::Hour,
    "2026-11-30T23:00Z",
    "2026-12-01T00:00Z",
    "2026-12-01T01:00Z"
)]
#[case::west_day(
    UTC,
    NEW_YORK,
    WindowKind::Day,
    "2026-11-30T00:00Z",
    "2026-12-01T00:00Z",
    "2026-12-01T05:00Z"
)]
#[case::west_week(
    UTC,
    NEW_YORK,
    WindowKind::Week,
    "2026-11-30T00:00Z",
    "2026-12-01T00:00Z",
    "2026-12-07T05:00Z"
)]
#[case::west_month(
    UTC,
    NEW_YORK,
    WindowKind::Month,
    "2026-11-01T00:00Z",
    "2026-12-01T00:00Z",
    "2026-12-01T05:00Z"
)]
#[case::west_period(
    UTC,
    NEW_YORK,
    WindowKind::Period,
    "2026-11-01T00:00Z",
    "2026-12-01T00:00Z",
    "2026-12-01T05:00Z"
)]
#[case::half_an_hour(
    UTC,
    KOLKATA,
    WindowKind::Hour,
    "2026-11-30T23:00Z",
    "2026-12-01T00:00Z",
    "2026-12-01T00:30Z"
)]
#[case::to_the_10th(UTC, ("UTC", 10), WindowKind::Period, "2026-11-01T00:00Z", "2026-12-01T00:00Z", "2026-12-10T00:00Z")]
#[case::to_the_15th(UTC, ("UTC", 15), WindowKind::Period, "2026-11-01T00:00Z", "2026-12-01T00:00Z", "2026-12-15T00:00Z")]
#[case::to_the_31st(UTC, ("UTC", 31), WindowKind::Period, "2026-11-01T00:00Z", "2026-12-01T00:00Z", "2026-12-31T00:00Z")]
#[case::to_the_31st_month(UTC, ("UTC", 31), WindowKind::Month, "2026-11-01T00:00Z", "2026-12-01T00:00Z", "2027-01-01T00:00Z")]
#[case::from_the_10th(("UTC", 10), ("UTC", 31), WindowKind::Period, "2026-11-10T00:00Z", "2026-12-10T00:00Z", "2026-12-31T00:00Z")]
#[case::from_the_10th_month(("UTC", 10), UTC, WindowKind::Month, "2026-12-01T00:00Z", "2026-12-10T00:00Z", "2027-01-01T00:00Z")]
#[case::both_day(BERLIN, ("America/New_York", 15), WindowKind::Day, "2026-11-29T23:00Z", "2026-11-30T23:00Z", "2026-12-01T05:00Z")]
#[case::both_period(BERLIN, ("America/New_York", 15), WindowKind::Period, "2026-10-31T23:00Z", "2026-11-30T23:00Z", "2026-12-15T05:00Z")]
fn a_change_holds_from_the_end_of_the_open_period_for_every_window(
    #[case] before: (&str, u8),
    #[case] after: (&str, u8),
    #[case] kind: WindowKind,
    #[case] start: &str,
    #[case] change: &str,
    #[case] end: &str,
) {
    let calendars = changed(before, after, "2026-11-10T12:00Z");
    assert_eq!(calendars.window(kind, minute(change) - 1), window(start, change));
    assert_eq!(calendars.window(kind, minute(change)), window(change, end));
}

#[rstest]
#[case::to_the_zone_that_changes(("UTC", 29), ("Europe/Berlin", 29), "2026-03-29T00:00Z", "2026-03-29T22:00Z", "2026-03-29T22:00Z")]
#[case::from_the_zone_that_changes(("Europe/Berlin", 29), ("UTC", 29), "2026-03-28T23:00Z", "2026-03-29T00:00Z", "2026-03-30T00:00Z")]
fn a_change_in_the_week_in_which_the_clocks_change_cuts_day_and_week(
    #[case] before: (&str, u8),
    #[case] after: (&str, u8),
    #[case] change: &str,
    #[case] day_end: &str,
    #[case] week_end: &str,
) {
    let calendars = changed(before, after, "2026-03-10T12:00Z");
    let windows = calendars.windows(minute(change));
    assert_eq!((windows.day, windows.week), (window(change, day_end), window(change, week_end)));
    let next_day = calendars.window(WindowKind::Day, minute(day_end));
    assert_eq!(next_day.start_ms, minute(day_end));
}

#[test]
fn the_last_that_was_asked_for_before_the_instant_holds() {
    let once = changed(UTC, BERLIN, "2026-11-10T12:00Z");
    let again = once.changed_to(calendar("America/New_York", 15), minute("2026-11-20T12:00Z"));
    assert_eq!(again, changed(UTC, ("America/New_York", 15), "2026-11-20T12:00Z"));
    assert_eq!(again.changed_to(calendar("UTC", 1), minute("2026-11-21T12:00Z")), calendar("UTC", 1).into());
}

#[test]
fn what_is_asked_for_in_the_last_minute_counts_as_asked_for_in_the_next_period() {
    let late = changed(UTC, BERLIN, "2026-11-30T23:59Z");
    assert_eq!(late.at(minute("2026-12-31T23:59Z")), &calendar("UTC", 1));
    assert_eq!(late.at(minute("2027-01-01T00:00Z")), &calendar("Europe/Berlin", 1));
    // What holds from the turn that is near stays, as some may act by it already.
    let pending = changed(UTC, ("UTC", 10), "2026-11-10T12:00Z");
    let both = pending.changed_to(calendar("Europe/Berlin", 1), minute("2026-11-30T23:59Z"));
    assert_eq!(both.at(minute("2026-12-01T00:00Z")), &calendar("UTC", 10));
    assert_eq!(both.at(minute("2026-12-10T00:00Z")), &calendar("Europe/Berlin", 1));
}

#[test]
fn what_is_to_come_is_shown_with_what_holds_until_then() {
    let calendars = changed(UTC, BERLIN, "2026-11-10T12:00Z");
    let zones = |at: &str| {
        let to_come = calendars.to_come(minute(at));
        to_come.iter().map(|dated| (dated.from_ms, dated.calendar.zone.name().to_owned())).collect::<Vec<_>>()
    };
    let change_ms = minute("2026-12-01T00:00Z");
    let both = [(0, "UTC".to_owned()), (change_ms, "Europe/Berlin".to_owned())];
    assert_eq!(zones("2026-11-10T12:00Z"), both);
    assert_eq!(zones("2026-12-01T00:00Z"), []);
    assert_eq!(Calendars::of(calendars.dated(), Calendar::default()), calendars);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn windows_are_contiguous_and_hold_their_instants_across_changes(
        first in any_calendar(),
        changes in proptest::collection::vec((any_calendar(), 0_i64..5_000_000_000), 0..5),
        share in 0_i64..1000,
        near in proptest::option::of((0_usize..5, -7_200_000_i64..7_200_000)),
    ) {
        let mut asked_ms = 1_780_000_000_000;
        let mut calendars = Calendars::from(first);
        for (calendar, later_ms) in changes {
            asked_ms += later_ms;
            let changed = calendars.changed_to(calendar, asked_ms);
            let (before, after) = (calendars.windows(asked_ms), changed.windows(asked_ms));
            prop_assert_eq!(before.period, after.period, "what is open stays as it is");
            for kind in WindowKind::ALL {
                prop_assert_eq!(before.get(kind).start_ms, after.get(kind).start_ms);
            }
            calendars = changed;
        }
        let dated = calendars.dated();
        let last_ms = dated.last().map_or(0, |dated| dated.from_ms).max(asked_ms);
        let at_ms = match near.and_then(|(index, near_ms)| Some(dated.get(index)?.from_ms + near_ms)) {
            Some(near_ms) => near_ms,
            None => 1_780_000_000_000 + (last_ms + 5_000_000_000 - 1_780_000_000_000) / 1000 * share,
        };
        let windows = calendars.windows(at_ms);
        prop_assert!(windows.valid().contains(at_ms));
        for kind in WindowKind::ALL {
            let window = windows.get(kind);
            prop_assert_eq!(calendars.window(kind, at_ms), window);
            prop_assert!(window.contains(at_ms), "{kind} {window:?}");
            prop_assert_eq!(calendars.window(kind, window.start_ms), window, "{}", kind);
            prop_assert_eq!(calendars.window(kind, window.end_ms - 1), window, "{}", kind);
            prop_assert_eq!(calendars.window(kind, window.end_ms).start_ms, window.end_ms, "{}", kind);
            prop_assert_eq!(calendars.window(kind, window.start_ms - 1).end_ms, window.start_ms, "{}", kind);
            let hour = calendars.window(WindowKind::Hour, window.start_ms);
            prop_assert_eq!(hour.start_ms, window.start_ms, "a {} is made of whole hours", kind);
        }
    }
}
