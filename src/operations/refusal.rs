//! A refusal explains itself: every limit that refuses, whether its units are used up or only held, and how long to wait.

use std::collections::BTreeMap;

use super::answers::{Cause, LimitAnswer, Refusal, RefusalCode, RefusedBy};
use super::present;
use crate::domain::amount::Units;
use crate::domain::counter::Counter;
use crate::domain::ids::Subject;
use crate::domain::limit::Class;
use crate::gate::CounterReading;

/// What was asked for.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Per line.
    pub(super) amounts: &'a [Units],
    /// Whether any part of any line would have been granted.
    pub(super) best_effort: bool,
    /// For whom.
    pub(super) subjects: &'a [&'a Subject],
}

/// The refusal of a request under the counters `all`, given their readings and which of them do not fit all that was asked.
pub(super) fn refusal(
    asked: Asked<'_>,
    all: &[Counter],
    readings: &[CounterReading],
    refusing: &[(usize, Option<i64>)],
    now_ms: i64,
) -> Refusal {
    // Alternatives of which one must fit: the lines of a best effort, else the request as a whole.
    let mut parts: BTreeMap<usize, (RefusalCode, Option<i64>)> = BTreeMap::new();
    let mut refused_by = Vec::with_capacity(refusing.len());
    for (index, wait_ms) in refusing {
        let (Some(counter), Some(reading)) = (all.get(*index), readings.get(*index)) else { continue };
        let needed = asked.amounts.get(counter.line()).copied().unwrap_or_default();
        let least = if asked.best_effort { needed.min(Units::ONE) } else { needed };
        if least <= present::remaining(counter, reading) {
            continue;
        }
        let limit = present::limit(counter, asked.subjects, reading, now_ms);
        let (one, code) = refused_by_one(counter, limit, reading, (needed, least), *wait_ms);
        let part = if asked.best_effort { counter.line() } else { 0 };
        let part = parts.entry(part).or_insert((code, None));
        *part = (part.0.min(code), part.1.max(one.retry_after_ms));
        refused_by.push(one);
    }
    let parts = parts.into_values().map(|(code, wait_ms)| (code, wait_ms.filter(|_| waiting_helps(code))));
    let (code, retry_after_ms) = parts
        .min_by_key(|(code, wait_ms)| (!waiting_helps(*code), *wait_ms))
        .unwrap_or((RefusalCode::RateLimited, None));
    let answer = |(counter, reading)| present::limit(counter, asked.subjects, reading, now_ms);
    let limits = all.iter().zip(readings).map(answer).collect();
    let detail = refused_by.first().map_or_else(String::new, |first| first.message.clone());
    Refusal { code, detail, retry_after_ms, decision_id: present::decision_id(), refused_by, limits }
}

fn waiting_helps(code: RefusalCode) -> bool {
    matches!(code, RefusalCode::QuotaExceeded | RefusalCode::RateLimited)
}

/// One that refuses: it has less left than `least`, the smallest amount that would have been granted.
fn refused_by_one(
    counter: &Counter,
    limit: LimitAnswer,
    reading: &CounterReading,
    (needed, least): (Units, Units),
    wait_ms: Option<i64>,
) -> (RefusedBy, RefusalCode) {
    let decimals = counter.decimals;
    let left = present::remaining(counter, reading);
    let held_only = least <= present::capacity(counter, reading).saturating_sub(reading.consumed);
    let too_much = wait_ms.is_none();
    let code = match (too_much, counter.class == Class::Rate) {
        (true, _) => RefusalCode::ExceedsPlan,
        (false, true) => RefusalCode::RateLimited,
        (false, false) => RefusalCode::QuotaExceeded,
    };
    let cause = if held_only { Cause::Reserved } else { Cause::Consumed };
    let message = counter.message().map_or_else(
        || {
            let needs = present::amount(needed, decimals);
            let has = format!("{} of {} left in this {}", limit.remaining, limit.capacity, counter.span());
            match (too_much, held_only) {
                (true, _) => {
                    format!("{} needs {needs}, more than its whole capacity {}", limit.id, limit.capacity)
                }
                (_, true) => {
                    format!("{} needs {needs} and has {has}; the rest is held by running work", limit.id)
                }
                _ => format!("{} needs {needs} and has {has}; it resets at {}", limit.id, limit.resets_at),
            }
        },
        str::to_owned,
    );
    let refused = RefusedBy {
        cause,
        needed: present::amount(needed, decimals),
        shortfall: present::amount(needed.saturating_sub(left), decimals),
        retry_after_ms: wait_ms,
        next_hold_ends_at: reading.next_hold_ends_at_ms.map(present::instant),
        message,
        limit,
    };
    (refused, code)
}
