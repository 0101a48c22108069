//! Reads the headers about limits as strictly as RFC 9651 says: every answer that a test receives passes here.

use reqwest::header::HeaderMap;
use sfv::{BareItem, List, ListEntry, Parser};

/// A limit as a header names it, with the integers asked for, in their order.
type Named = (String, Vec<i64>);

/// Checks the headers about limits of one answer.
///
/// Panics: one is no structured field of the draft's shape, a limit lacks its policy, the tightest is not first, a wait
/// is no whole number, or an older trio is incomplete or not the tightest's.
#[track_caller]
pub fn check(headers: &HeaderMap) {
    let state = items(headers, "ratelimit", &["r", "t"]);
    let policy = items(headers, "ratelimit-policy", &["q", "w"]);
    let names = |of: &[Named]| of.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&state), names(&policy), "each limit has its policy, in one order");
    let shares: Vec<(i128, i128)> =
        state.iter().zip(&policy).map(|(left, of)| (left.1[0].into(), of.1[0].max(1).into())).collect();
    assert!(shares.is_sorted_by(|a, b| a.0 * b.1 <= b.0 * a.1), "the tightest is first: {headers:?}");
    whole_numbers(headers, "retry-after");
    for trio in ["ratelimit", "x-ratelimit"] {
        let [limit, remaining, reset] =
            ["limit", "remaining", "reset"].map(|figure| whole_numbers(headers, &format!("{trio}-{figure}")));
        let expected = |of: &[Named], at: usize| match limit.len() {
            0 => Vec::new(),
            _ => of.iter().take(1).map(|(_, integers)| integers[at]).collect(),
        };
        let of_tightest = [expected(&policy, 0), expected(&state, 0), expected(&state, 1)];
        assert_eq!([limit.clone(), remaining, reset], of_tightest, "{trio} is the tightest's: {headers:?}");
    }
}

/// The values of a header, of which each is a whole number.
#[track_caller]
fn whole_numbers(headers: &HeaderMap, name: &str) -> Vec<i64> {
    let values = headers.get_all(name).iter().map(|value| value.to_str().unwrap());
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    values
        .map(|text| {
            assert!(is_plain(text), "{name}: {text}");
            text.parse().unwrap()
        })
        .collect()
}

#[track_caller]
fn items(headers: &HeaderMap, name: &str, parameters: &[&str]) -> Vec<Named> {
    let values: Vec<&[u8]> = headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
    let joined = values.join(&b", "[..]);
    let parsed: Result<List, _> = Parser::new(&joined).parse();
    let list = parsed.unwrap_or_else(|error| panic!("{name} is no structured field: {error}: {headers:?}"));
    list.iter().map(|entry| item(name, entry, parameters)).collect()
}

#[track_caller]
fn item(name: &str, entry: &ListEntry, parameters: &[&str]) -> Named {
    let ListEntry::Item(item) = entry else { panic!("{name} holds an inner list: {entry:?}") };
    let BareItem::String(id) = &item.bare_item else { panic!("{name} names a limit by a string: {entry:?}") };
    let keys: Vec<&str> = item.params.keys().map(|key| key.as_str()).collect();
    let has_no_window = name == "ratelimit-policy" && keys == ["q"];
    assert!(keys == parameters || has_no_window, "{name}: {entry:?}");
    let integers = item.params.values().map(|value| match value {
        BareItem::Integer(integer) => i64::from(*integer),
        other => panic!("{name} holds {other:?}, which is no integer"),
    });
    let integers: Vec<i64> = integers.collect();
    assert!(integers.iter().all(|integer| *integer >= 0), "{name}: {entry:?}");
    (id.as_str().to_owned(), integers)
}
