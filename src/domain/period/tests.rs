mod calendars;
mod golden;

use super::*;
use proptest::prelude::*;
use rstest::rstest;

fn ms(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

fn calendar(zone: &str, anchor_day: u8) -> Calendar {
    Calendar::new(Zone::parse(zone).unwrap(), AnchorDay::new(anchor_day).unwrap())
}

/// Times as `2024-03-31T01:30Z`, without seconds.
fn window(start: &str, end: &str) -> Window {
    Window { start_ms: minute(start), end_ms: minute(end) }
}

fn minute(text: &str) -> i64 {
    ms(&text.replace('Z', ":00Z"))
}

#[rstest]
#[case::berlin_starts("Europe/Berlin", "2024-03-31T12:00Z", "2024-03-30T23:00Z", "2024-03-31T22:00Z")]
#[case::berlin_ends("Europe/Berlin", "2024-10-27T12:00Z", "2024-10-26T22:00Z", "2024-10-27T23:00Z")]
#[case::new_york_starts("America/New_York", "2024-03-10T12:00Z", "2024-03-10T05:00Z", "2024-03-11T04:00Z")]
#[case::new_york_ends("America/New_York", "2024-11-03T12:00Z", "2024-11-03T04:00Z", "2024-11-04T05:00Z")]
#[case::cairo_midnight_missing("Africa/Cairo", "2024-04-26T09:00Z", "2024-04-25T22:00Z", "2024-04-26T21:00Z")]
#[case::cairo_last_hour_twice("Africa/Cairo", "2024-10-31T21:30Z", "2024-10-30T21:00Z", "2024-10-31T22:00Z")]
#[case::beirut_midnight_missing("Asia/Beirut", "2024-03-31T09:00Z", "2024-03-30T22:00Z", "2024-03-31T21:00Z")]
#[case::sao_paulo_midnight_missing(
    "America/Sao_Paulo",
    "2018-11-04T09:00Z",
    "2018-11-04T03:00Z",
    "2018-11-05T02:00Z"
)]
#[case::havana_midnight_twice(
    "America/Havana",
    "2024-11-03T05:30Z",
    "2024-11-03T04:00Z",
    "2024-11-04T05:00Z"
)]
#[case::st_johns_back_over_midnight(
    "America/St_Johns",
    "2010-11-07T03:00Z",
    "2010-11-07T02:30Z",
    "2010-11-08T03:30Z"
)]
#[case::apia_before_the_lost_day(
    "Pacific/Apia",
    "2011-12-30T09:59Z",
    "2011-12-29T10:00Z",
    "2011-12-30T10:00Z"
)]
#[case::apia_after_the_lost_day(
    "Pacific/Apia",
    "2011-12-30T10:00Z",
    "2011-12-30T10:00Z",
    "2011-12-31T10:00Z"
)]
#[case::far_east("Pacific/Kiritimati", "2024-02-28T10:00Z", "2024-02-28T10:00Z", "2024-02-29T10:00Z")]
#[case::far_west("Pacific/Pago_Pago", "2024-02-29T10:59Z", "2024-02-28T11:00Z", "2024-02-29T11:00Z")]
fn days_follow_the_zone(#[case] zone: &str, #[case] at: &str, #[case] start: &str, #[case] end: &str) {
    assert_eq!(calendar(zone, 1).window(WindowKind::Day, minute(at)), window(start, end));
}

#[rstest]
#[case::kolkata("Asia/Kolkata", "2024-01-01T00:10Z", "2023-12-31T23:30Z", "2024-01-01T00:30Z")]
#[case::kathmandu("Asia/Kathmandu", "2024-01-01T00:10Z", "2023-12-31T23:15Z", "2024-01-01T00:15Z")]
#[case::berlin_before_the_gap("Europe/Berlin", "2024-03-31T00:59Z", "2024-03-31T00:00Z", "2024-03-31T01:00Z")]
#[case::berlin_after_the_gap("Europe/Berlin", "2024-03-31T01:00Z", "2024-03-31T01:00Z", "2024-03-31T02:00Z")]
#[case::berlin_repeated_first("Europe/Berlin", "2024-10-27T00:30Z", "2024-10-27T00:00Z", "2024-10-27T01:00Z")]
#[case::berlin_repeated_again("Europe/Berlin", "2024-10-27T01:30Z", "2024-10-27T01:00Z", "2024-10-27T02:00Z")]
#[case::lord_howe_before_the_gap(
    "Australia/Lord_Howe",
    "2024-10-05T15:29Z",
    "2024-10-05T14:30Z",
    "2024-10-05T15:30Z"
)]
#[case::lord_howe_half_hour_after_the_gap(
    "Australia/Lord_Howe",
    "2024-10-05T15:30Z",
    "2024-10-05T15:30Z",
    "2024-10-05T16:00Z"
)]
#[case::lord_howe_before_the_overlap(
    "Australia/Lord_Howe",
    "2024-04-06T14:59Z",
    "2024-04-06T14:00Z",
    "2024-04-06T15:00Z"
)]
#[case::lord_howe_half_hour_repeated(
    "Australia/Lord_Howe",
    "2024-04-06T15:00Z",
    "2024-04-06T15:00Z",
    "2024-04-06T15:30Z"
)]
#[case::lord_howe_whole_again(
    "Australia/Lord_Howe",
    "2024-04-06T15:30Z",
    "2024-04-06T15:30Z",
    "2024-04-06T16:30Z"
)]
#[case::st_johns_one_minute_hour(
    "America/St_Johns",
    "2010-11-07T02:30Z",
    "2010-11-07T02:30Z",
    "2010-11-07T02:31Z"
)]
fn hours_are_local_and_cut_at_transitions(
    #[case] zone: &str,
    #[case] at: &str,
    #[case] start: &str,
    #[case] end: &str,
) {
    assert_eq!(calendar(zone, 1).window(WindowKind::Hour, minute(at)), window(start, end));
}

#[rstest]
#[case::leap_february(31, "2024-02-15", "2024-01-31", "2024-02-29")]
#[case::on_the_leap_day(31, "2024-02-29", "2024-02-29", "2024-03-31")]
#[case::common_february(31, "2023-02-28", "2023-02-28", "2023-03-31")]
#[case::thirty_days(31, "2024-04-30", "2024-04-30", "2024-05-31")]
#[case::twenty_nine_common(29, "2023-02-27", "2023-01-29", "2023-02-28")]
#[case::thirty_leap(30, "2024-03-01", "2024-02-29", "2024-03-30")]
#[case::year_turn(15, "2025-01-01", "2024-12-15", "2025-01-15")]
#[case::first(1, "2024-12-31", "2024-12-01", "2025-01-01")]
fn periods_start_on_the_anchor_or_the_months_last_day(
    #[case] anchor_day: u8,
    #[case] at: &str,
    #[case] start: &str,
    #[case] end: &str,
) {
    let day = |text: &str| minute(&format!("{text}T00:00Z"));
    let expected = Window { start_ms: day(start), end_ms: day(end) };
    assert_eq!(calendar("UTC", anchor_day).window(WindowKind::Period, day(at)), expected);
}

#[rstest]
#[case::year_turn("2025-01-01T12:00Z", "2024-12-30T00:00Z", "2025-01-06T00:00Z")]
#[case::sunday("2023-01-01T23:59Z", "2022-12-26T00:00Z", "2023-01-02T00:00Z")]
#[case::monday("2024-01-01T00:00Z", "2024-01-01T00:00Z", "2024-01-08T00:00Z")]
fn weeks_start_on_monday(#[case] at: &str, #[case] start: &str, #[case] end: &str) {
    assert_eq!(calendar("UTC", 1).window(WindowKind::Week, minute(at)), window(start, end));
}

#[test]
fn months_start_on_the_first_at_local_midnight() {
    let berlin = calendar("Europe/Berlin", 15);
    let expected = window("2024-02-29T23:00Z", "2024-03-31T22:00Z");
    assert_eq!(berlin.window(WindowKind::Month, minute("2024-03-31T21:59Z")), expected);
    assert_eq!(
        berlin.window(WindowKind::Month, expected.end_ms),
        window("2024-03-31T22:00Z", "2024-04-30T22:00Z")
    );
}

#[test]
fn an_anchor_on_a_lost_day_starts_at_the_jump() {
    let apia = calendar("Pacific/Apia", 30);
    let period = apia.window(WindowKind::Period, ms("2012-01-05T00:00:00Z"));
    assert_eq!(period.start_ms, minute("2011-12-30T10:00Z"));
    assert_eq!(apia.window(WindowKind::Period, period.start_ms - 1).end_ms, period.start_ms);
}

#[test]
fn an_unknown_zone_is_named_with_the_nearest_one() {
    let message = |name: &str| Zone::parse(name).unwrap_err().to_string();
    assert_eq!(message("Berlin"), "`Berlin` is not an IANA time zone; did you mean `Europe/Berlin`?");
    assert!(message("Europe/Berln").contains("`Europe/Berlin`"));
    for bad in
        ["", "/", "../etc/passwd", "Mars/Olympus", "local", "Etc/Unknown", "+02:00", "EST5EDT4,M3", "é\0"]
    {
        assert!(Zone::parse(bad).is_err(), "{bad:?}");
    }
    assert_eq!(Zone::parse("europe/berlin").unwrap().name(), "Europe/Berlin");
    assert_eq!(Zone::parse("UTC").unwrap(), Zone::default());
}

#[test]
fn documents_refuse_a_wrong_zone_anchor_or_window() {
    assert!(serde_json::from_str::<Zone>("\"Nowhere\"").is_err());
    assert!(serde_json::from_str::<WindowKind>("\"year\"").is_err());
    for bad in ["0", "32", "-1", "1.5", "\"1\"", "300"] {
        assert!(serde_json::from_str::<AnchorDay>(bad).is_err(), "{bad}");
    }
    assert_eq!(u8::from(serde_json::from_str::<AnchorDay>("31").unwrap()), 31);
}

#[test]
fn instants_beyond_all_calendars_are_treated_as_the_nearest_inside() {
    for zone in ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "America/New_York"] {
        for anchor_day in [1, 31] {
            let calendar = calendar(zone, anchor_day);
            for (at_ms, nearest_ms) in [(i64::MIN, EARLIEST_MS), (i64::MAX, LATEST_MS)] {
                let windows = calendar.windows(at_ms);
                assert_eq!(windows, calendar.windows(nearest_ms));
                assert!(windows.valid().contains(nearest_ms), "{zone} {windows:?}");
            }
        }
    }
}

fn any_calendar() -> impl Strategy<Value = Calendar> {
    let names: Vec<String> = ZONES.available().map(|zone| zone.as_str().to_owned()).collect();
    let names = names.into_iter().filter(|name| Zone::parse(name).is_ok()).collect::<Vec<_>>();
    (proptest::sample::select(names), 1u8..=31).prop_map(|(zone, anchor_day)| calendar(&zone, anchor_day))
}

/// Anything from 2000 to 2060, half of it within an hour of a transition.
fn any_instant(calendar: &Calendar, at_ms: i64, near_ms: Option<i64>) -> i64 {
    let Some(near_ms) = near_ms else { return at_ms };
    calendar.next_transition_ms(at_ms).map_or(at_ms, |transition_ms| transition_ms + near_ms)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn windows_are_contiguous_and_hold_their_instants(
        calendar in any_calendar(),
        at_ms in 946_684_800_000_i64..2_871_763_200_000,
        near_ms in proptest::option::of(-3_700_000_i64..3_700_000),
    ) {
        let at_ms = any_instant(&calendar, at_ms, near_ms);
        let windows = calendar.windows(at_ms);
        for kind in WindowKind::ALL {
            let window = calendar.window(kind, at_ms);
            prop_assert_eq!(window, windows.get(kind));
            prop_assert!(window.contains(at_ms), "{kind} {window:?}");
            prop_assert_eq!(calendar.window(kind, window.start_ms), window, "{}", kind);
            prop_assert_eq!(calendar.window(kind, window.end_ms - 1), window, "{}", kind);
            prop_assert_eq!(calendar.window(kind, window.end_ms).start_ms, window.end_ms, "{}", kind);
            prop_assert_eq!(calendar.window(kind, window.start_ms - 1).end_ms, window.start_ms, "{}", kind);
            let hour = calendar.window(WindowKind::Hour, window.start_ms);
            prop_assert_eq!(hour.start_ms, window.start_ms, "a {} is made of whole hours", kind);
        }
    }

    #[test]
    fn the_five_windows_stay_while_they_are_valid(
        calendar in any_calendar(),
        at_ms in 946_684_800_000_i64..2_871_763_200_000,
        near_ms in proptest::option::of(-3_700_000_i64..3_700_000),
        share in 0_i64..1000,
    ) {
        let windows = calendar.windows(any_instant(&calendar, at_ms, near_ms));
        let valid = windows.valid();
        let inside = valid.start_ms + (valid.end_ms - valid.start_ms) * share / 1000;
        prop_assert_eq!(calendar.windows(inside), windows);
        prop_assert_ne!(calendar.windows(valid.end_ms), windows);
        prop_assert!(valid.end_ms - valid.start_ms <= HOUR_MS);
    }

    #[test]
    fn no_instant_panics(calendar in any_calendar(), at_ms in any::<i64>()) {
        let windows = calendar.windows(at_ms);
        prop_assert!(windows.valid().start_ms < windows.valid().end_ms);
    }
}
