//! Response headers: rate limits as structured fields, waits in whole seconds.

use std::cmp::Ordering;
use std::fmt::Write;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use super::shapes::LimitAnswer;
use crate::domain::limit::Kind;

/// The most limits named, the tightest first, so that headers stay small.
const LIMITS_MAX: usize = 10;

/// Waits up to this are named as they are, in seconds.
const SHORT_WAIT_SECONDS: i64 = 60;

/// The most that is added to a wait, in seconds.
const JITTER_MAX_SECONDS: i64 = 300;

/// The largest integer a structured field may hold (RFC 9651: fifteen digits).
const INTEGER_MAX: i64 = 999_999_999_999_999;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// From when on the books hold every entry, where a list reaches back before that.
pub(super) const ENTRIES_HELD_FROM: HeaderName = HeaderName::from_static("entries-held-from");
/// `true` when the answer repeats an earlier one.
pub(super) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// What is written beside `RateLimit` and `RateLimit-Policy`, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeaderOptions {
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` of the tightest limit.
    pub rate_limit_trio: bool,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` (seconds from now) of the tightest limit.
    pub x_rate_limit_trio: bool,
    /// How much is added at random to a long `Retry-After`, in percent of it; at most five minutes.
    pub retry_jitter_percent: u8,
}

/// Milliseconds as whole seconds, rounded up, so that no caller repeats too early.
pub(super) fn seconds_rounded_up(wait_ms: i64) -> i64 {
    wait_ms.max(0).saturating_add(999) / 1000
}

/// Writes when to repeat a call. Callers that wait for the same window get different waits, none too early, so that
/// they do not all return when it ends.
pub(super) fn write_retry_after(headers: &mut HeaderMap, wait_seconds: i64, options: HeaderOptions) {
    let jitter = rand::random_range(0..=jitter_max(wait_seconds, options.retry_jitter_percent));
    headers.insert(RETRY_AFTER, HeaderValue::from(wait_seconds.saturating_add(jitter)));
}

fn jitter_max(wait_seconds: i64, percent: u8) -> i64 {
    if wait_seconds <= SHORT_WAIT_SECONDS {
        return 0;
    }
    (wait_seconds.saturating_mul(i64::from(percent)) / 100).min(JITTER_MAX_SECONDS)
}

/// Writes the headers that describe `limits`; nothing if there are none.
pub(super) fn write_limits(headers: &mut HeaderMap, limits: &[LimitAnswer], options: HeaderOptions) {
    let mut tightest: Vec<&LimitAnswer> = limits
        .iter()
        .filter(|limit| is_plain(&limit.id) && acts(limit) && limit.remaining.is_some())
        .collect();
    tightest.sort_by(|a, b| tightness(a, b));
    tightest.truncate(LIMITS_MAX);
    let Some(first) = tightest.first() else { return };
    let (mut state, mut policy) = (String::new(), String::new());
    for limit in &tightest {
        let header = limit.header;
        append(&mut state, &limit.id, &[("r", header.remaining), ("t", header.reset_seconds)]);
        let quota = [("q", header.quota), ("w", header.window_seconds)];
        append(&mut policy, &limit.id, if header.window_seconds > 0 { &quota } else { &quota[..1] });
    }
    insert(headers, RATE_LIMIT, &state);
    insert(headers, RATE_LIMIT_POLICY, &policy);
    if options.rate_limit_trio {
        write_trio(headers, first, ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"]);
    }
    if options.x_rate_limit_trio {
        write_trio(headers, first, ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]);
    }
}

/// The limit of which the smallest share is left.
pub(super) fn tightest<'a>(limits: impl Iterator<Item = &'a LimitAnswer>) -> Option<&'a LimitAnswer> {
    limits.filter(|limit| acts(limit) && limit.remaining.is_some()).min_by(|a, b| tightness(a, b))
}

/// Whether callers should heed it: a shadow limit only watches.
fn acts(limit: &LimitAnswer) -> bool {
    limit.kind != Kind::Shadow.as_str()
}

fn write_trio(headers: &mut HeaderMap, limit: &LimitAnswer, names: [&'static str; 3]) {
    let values = [limit.header.quota, limit.header.remaining, limit.header.reset_seconds];
    for (name, value) in names.into_iter().zip(values) {
        headers.insert(HeaderName::from_static(name), HeaderValue::from(bounded(value)));
    }
}

/// By the share that is left, then by what is left, then by name.
fn tightness(a: &LimitAnswer, b: &LimitAnswer) -> Ordering {
    let share = |of: &LimitAnswer, over: &LimitAnswer| {
        i128::from(of.header.remaining.max(0)) * i128::from(over.header.quota.max(1))
    };
    share(a, b)
        .cmp(&share(b, a))
        .then(a.header.remaining.cmp(&b.header.remaining))
        .then_with(|| a.id.cmp(&b.id))
}

/// Ids are validated at the entrance; other characters do not belong in a structured string.
fn is_plain(id: &str) -> bool {
    id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b))
}

fn append(list: &mut String, name: &str, parameters: &[(&str, i64)]) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    let _ = write!(list, "\"{name}\"");
    for (key, value) in parameters {
        let _ = write!(list, ";{key}={}", bounded(*value));
    }
}

fn bounded(value: i64) -> i64 {
    value.clamp(0, INTEGER_MAX)
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::shapes::LimitHeader;

    fn limit(id: &str, quota: i64, remaining: i64) -> LimitAnswer {
        LimitAnswer {
            id: id.into(),
            meter: Some("ocr.page".into()),
            meters: None,
            scope: "tenant",
            subject: None,
            shared: false,
            algorithm: "calendar",
            window: Some("day"),
            window_seconds: None,
            refill: None,
            drain: None,
            per_seconds: None,
            capacity: quota.to_string(),
            load_factor: None,
            consumed: Some("0".into()),
            reserved: Some("0".into()),
            remaining: Some(remaining.to_string()),
            resets_at: "2026-01-02T00:00:00Z".into(),
            kind: "hard",
            class: "quota",
            level: "plan",
            header: LimitHeader { quota, remaining, window_seconds: 86_400, reset_seconds: 60 },
        }
    }

    fn written(limits: &[LimitAnswer], options: HeaderOptions) -> HeaderMap {
        let mut headers = HeaderMap::new();
        write_limits(&mut headers, limits, options);
        headers
    }

    #[test]
    fn the_tightest_limit_comes_first() {
        let limits = [limit("month", 1000, 900), limit("day", 100, 10), limit("hour", 10, 5)];
        let headers = written(&limits, HeaderOptions::default());
        assert_eq!(
            headers.get("ratelimit").unwrap(),
            "\"day\";r=10;t=60, \"hour\";r=5;t=60, \"month\";r=900;t=60"
        );
        assert_eq!(
            headers.get("ratelimit-policy").unwrap(),
            "\"day\";q=100;w=86400, \"hour\";q=10;w=86400, \"month\";q=1000;w=86400"
        );
        assert!(headers.get("x-ratelimit-limit").is_none());
    }

    #[test]
    fn no_limits_write_no_headers_and_many_limits_are_cut() {
        assert!(written(&[], HeaderOptions::default()).is_empty());
        let many: Vec<_> = (0..32).map(|n| limit(&format!("l{n}"), 100, 100 - n)).collect();
        let headers = written(&many, HeaderOptions::default());
        assert_eq!(headers.get("ratelimit").unwrap().to_str().unwrap().matches(";r=").count(), LIMITS_MAX);
    }

    #[test]
    fn integers_stay_within_fifteen_digits_and_zero() {
        let headers = written(&[limit("l", i64::MAX, -5)], HeaderOptions::default());
        assert_eq!(headers.get("ratelimit").unwrap(), "\"l\";r=0;t=60");
        assert_eq!(headers.get("ratelimit-policy").unwrap(), "\"l\";q=999999999999999;w=86400");
    }

    #[test]
    fn each_older_trio_has_its_own_switch() {
        let limits = [limit("a", 100, 40), limit("b", 100, 30)];
        let headers = written(&limits, HeaderOptions { rate_limit_trio: true, ..HeaderOptions::default() });
        assert_eq!(headers.get("ratelimit-remaining").unwrap(), "30");
        assert!(headers.get("x-ratelimit-remaining").is_none());
        let headers = written(&limits, HeaderOptions { x_rate_limit_trio: true, ..HeaderOptions::default() });
        assert_eq!(headers.get("x-ratelimit-limit").unwrap(), "100");
        assert!(headers.get("ratelimit-limit").is_none());
    }

    #[test]
    fn a_long_wait_is_spread_and_never_shortened() {
        let seen = |seconds, percent| {
            let options = HeaderOptions { retry_jitter_percent: percent, ..HeaderOptions::default() };
            let waits = std::iter::repeat_with(move || {
                let mut headers = HeaderMap::new();
                write_retry_after(&mut headers, seconds, options);
                headers.get(RETRY_AFTER).unwrap().to_str().unwrap().parse::<i64>().unwrap()
            });
            let waits: std::collections::BTreeSet<_> = waits.take(1_000).collect();
            (*waits.first().unwrap(), *waits.last().unwrap(), waits.len())
        };
        assert_eq!((seen(60, 5), seen(3_600, 0)), ((60, 60, 1), (3_600, 3_600, 1)));
        let (first, last, different) = seen(3_600, 5);
        assert!(first >= 3_600 && last <= 3_780 && different > 100, "{first} to {last}, {different}");
        assert_eq!(jitter_max(30 * 86_400, 5), 300, "a month's wait is not spread over days");
        assert_eq!(jitter_max(i64::MAX, 100), 300);
    }

    #[test]
    fn waits_are_rounded_up() {
        for (wait_ms, seconds) in [(0, 0), (1, 1), (1000, 1), (1001, 2), (-5, 0), (411_220, 412)] {
            assert_eq!(seconds_rounded_up(wait_ms), seconds, "{wait_ms}");
        }
    }
}
