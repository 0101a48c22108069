//! A refusal with its reasons: every limit that refuses, whether its units are used up or only held, and how long to
//! wait.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::domain::amount::Units;
use crate::domain::counter::{Counter, least_need, need};
use crate::domain::ids::Subject;
use crate::domain::instant::rfc3339;
use crate::domain::limit::Class;
use crate::domain::load::CALM_MS;
use crate::domain::plan::QuotaMode;
use crate::gate::CounterReading;
use crate::operations::answers::{Cause, Refusal, RefusalCode, RefusedLimit};
use crate::operations::limit_status::LimitStatus;
use crate::operations::preparation::Line;

/// What was asked for.
#[derive(Clone, Copy)]
pub(in crate::operations) struct Asked<'a> {
    /// The lines.
    pub(in crate::operations) lines: &'a [Line],
    /// The amount of each line.
    pub(in crate::operations) amounts: &'a [Units],
    /// Per counter, what is asked for together with it and comes before; none where it is asked for alone.
    pub(super) before: &'a [Units],
    /// Whether a part of a line would have been enough.
    pub(super) best_effort: bool,
    /// Its subjects.
    pub(in crate::operations) subjects: &'a [&'a Subject],
    /// The version of the policy by which it is decided.
    pub(super) policy_version: u64,
}

/// The refusal of a request under these counters, from their readings and the counters without room for all that was
/// asked.
pub(in crate::operations) fn refusal(
    asked: Asked<'_>,
    counters: &[Counter],
    readings: &[CounterReading],
    refusing: &[(usize, Option<i64>)],
    now_ms: i64,
) -> Refusal {
    let stand = |(counter, reading): (&Counter, _)| {
        LimitStatus::new(counter.clone(), asked.subjects, reading, now_ms)
    };
    let limits: Vec<_> = counters.iter().zip(readings).map(stand).collect();
    // Alternatives, of which one must fit: each line of a best effort, otherwise the request as a whole.
    let mut parts: BTreeMap<usize, (RefusalCode, Option<i64>)> = BTreeMap::new();
    let mut refused_by = Vec::with_capacity(refusing.len());
    for (index, wait_ms) in refusing {
        let Some(limit) = limits.get(*index) else { continue };
        let all = need(&limit.counter.lines, asked.amounts);
        let least = if asked.best_effort { least_need(&limit.counter.lines, asked.amounts) } else { all };
        let before = asked.before.get(*index).copied().unwrap_or_default();
        let need = |units: i64| limit.counter.parameters.need(units, false).saturating_add(before.get());
        let [needed, least] = [all, least].map(|units| Units::new(need(units)).unwrap_or(Units::MAX));
        let is_banned = limit.conduct.is_banned();
        if asked.best_effort && least <= limit.remaining && !is_banned {
            continue;
        }
        // Each may fit alone, and all of them together never.
        let wait_ms = wait_ms.filter(|_| before == Units::ZERO || needed <= limit.capacity);
        // What the load alone leaves no room for may fit once it has been low for long enough.
        let wait_ms = wait_ms.or_else(|| limit.counter.fits_without_load(least).then_some(CALM_MS));
        let (one, code) = refused_by_one(limit.clone(), (needed, least), wait_ms);
        let of_lines = limit.counter.lines.iter().map(|(line, _)| usize::from(*line));
        // A ban stops the call as a whole.
        let in_parts = asked.best_effort && !is_banned;
        let refused_parts: Vec<_> = if in_parts { of_lines.collect() } else { vec![0] };
        for number in refused_parts {
            let part = parts.entry(number).or_insert((code, None));
            *part = (part.0.min(code), part.1.max(one.retry_after_ms));
        }
        refused_by.push(one);
    }
    let parts = parts.into_values().map(|(code, wait_ms)| (code, wait_ms.filter(|_| waiting_helps(code))));
    let (code, retry_after_ms) = parts
        .min_by_key(|(code, wait_ms)| (!waiting_helps(*code), *wait_ms))
        .unwrap_or((RefusalCode::RateLimited, None));
    // A caller that this refusal bans waits for the ban, also where room comes sooner.
    let ban_left_ms = limits.iter().filter_map(LimitStatus::ban_left_ms).max();
    let retry_after_ms = retry_after_ms.map(|wait_ms| wait_ms.max(ban_left_ms.unwrap_or_default()));
    let detail = refused_by.first().map_or_else(String::new, |first| first.message.clone());
    Refusal {
        code,
        detail,
        retry_after_ms,
        decision_id: Uuid::now_v7(),
        asked: asked.lines.iter().map(Line::asked).collect(),
        policy_version: asked.policy_version,
        refused_by,
        limits,
    }
}

fn waiting_helps(code: RefusalCode) -> bool {
    matches!(code, RefusalCode::Banned | RefusalCode::QuotaExceeded | RefusalCode::RateLimited)
}

/// A limit that refuses; `least` is the smallest amount that would have been granted.
fn refused_by_one(
    limit: LimitStatus,
    (needed, least): (Units, Units),
    wait_ms: Option<i64>,
) -> (RefusedLimit, RefusalCode) {
    let (consumed, reserved, capacity) = (limit.consumed.get(), limit.reserved.get(), limit.capacity.get());
    let room = |reserved: i64| limit.counter.parameters.room(consumed, reserved, capacity);
    // What has less left than its figures say refuses by more than these.
    let held_only = reserved > 0 && least.get() <= room(0) && limit.remaining.get() == room(reserved).max(0);
    let ban_left_ms = limit.ban_left_ms();
    let needs_grant = limit.counter.quota_mode().is_some_and(QuotaMode::needs_grant) && !held_only;
    let wait_ms = wait_ms.filter(|_| !needs_grant);
    let code = match (wait_ms, limit.counter.class) {
        _ if limit.conduct.is_banned() => RefusalCode::Banned,
        _ if needs_grant => RefusalCode::BalanceExhausted,
        (None, _) => RefusalCode::ExceedsPlan,
        (Some(_), Class::Rate) => RefusalCode::RateLimited,
        (Some(_), Class::Quota) => RefusalCode::QuotaExceeded,
    };
    let refused = RefusedLimit {
        cause: match (limit.counter.is_interval(), held_only) {
            _ if limit.conduct.is_banned() => Cause::Banned,
            _ if limit.counter.is_anomaly() => Cause::Anomaly,
            (true, _) => Cause::Interval,
            (false, true) => Cause::Reserved,
            (false, false) => Cause::Consumed,
        },
        needed,
        shortfall: needed.saturating_sub(limit.remaining),
        retry_after_ms: wait_ms.map(|wait_ms| wait_ms.max(ban_left_ms.unwrap_or_default())),
        message: limit
            .counter
            .message()
            .filter(|_| !limit.conduct.is_banned())
            .map_or_else(|| message(&limit, needed, held_only, wait_ms), str::to_owned),
        limit,
    };
    (refused, code)
}

fn message(limit: &LimitStatus, needed: Units, held_only: bool, wait_ms: Option<i64>) -> String {
    let write = |units: Units| units.to_amount(limit.counter.decimals);
    let (name, span) = (limit.counter.name(), limit.counter.span());
    let (needs, left, capacity) = (write(needed), write(limit.remaining), write(limit.capacity));
    if limit.conduct.is_banned() {
        let until = rfc3339(limit.conduct.banned_until_ms);
        return match &limit.subject {
            Some(subject) => {
                format!("{name} has banned this {} until {until}: it was refused too often", subject.kind)
            }
            None => format!("{name} has banned this tenant until {until}: it was refused too often"),
        };
    }
    let Some(wait_ms) = wait_ms else {
        return match limit.counter.quota_mode().is_some_and(QuotaMode::needs_grant) {
            true => format!("{name} needs {needs} and has {left} of {capacity} left; only a grant helps"),
            false => format!("{name} needs {needs}, more than its whole capacity {capacity}"),
        };
    };
    if limit.counter.is_anomaly() {
        let next = rfc3339(limit.as_of_ms.saturating_add(wait_ms));
        return format!(
            "{name}: calls come much sooner than they used to; as usual the next one would come at {next}"
        );
    }
    if limit.counter.is_interval() {
        let (seconds, next) = (limit.window_seconds(), rfc3339(limit.resets_at_ms));
        return format!("{name} admits one call in {seconds} s; the next one at {next}");
    }
    if limit.counter.fits_without_load(needed) {
        let full = write(limit.counter.capacity);
        return format!("{name} needs {needs}, and the load leaves it {capacity} of {full} for now");
    }
    if limit.counter.is_global() {
        let resets_at = rfc3339(limit.resets_at_ms);
        return format!("{name} counts all tenants and has no room for {needs}; it resets at {resets_at}");
    }
    let why = match (held_only, span.per_seconds()) {
        (true, _) => "the rest is held by running work".to_owned(),
        (false, None) => format!("it resets at {}", rfc3339(limit.resets_at_ms)),
        (false, Some(_)) => format!("it has as much at {}", rfc3339(limit.as_of_ms.saturating_add(wait_ms))),
    };
    format!("{name} needs {needs} and has {left} of {capacity} left {span}; {why}")
}
