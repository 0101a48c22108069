//! A refusal explains itself: every limit that refuses, whether its units are used up or only held, and how long to wait.

use std::collections::BTreeMap;

use super::answers::{Cause, Refusal, RefusalCode, RefusedBy};
use super::present::{self, Counted};
use crate::domain::amount::Units;
use crate::gate::CounterReading;

/// Where no end of a hold is known: any of them may end at any time.
const UNKNOWN_HOLD_WAIT_MS: i64 = 1_000;

/// What was asked for.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Per line.
    pub(super) amounts: &'a [Units],
    /// Whether any part of any line would have been granted.
    pub(super) best_effort: bool,
}

/// The refusal of a request under the counters `all`, given their readings and which of them do not fit all that was asked.
pub(super) fn refusal(
    asked: Asked<'_>,
    all: &[Counted<'_>],
    readings: &[CounterReading],
    refusing: &[usize],
    now_ms: i64,
) -> Refusal {
    // Alternatives of which one must fit: the lines of a best effort, else the request as a whole.
    let mut parts: BTreeMap<usize, (RefusalCode, Option<i64>)> = BTreeMap::new();
    let mut refused_by = Vec::with_capacity(refusing.len());
    for index in refusing {
        let (Some(counted), Some(reading)) = (all.get(*index), readings.get(*index)) else { continue };
        let needed = asked.amounts.get(counted.line()).copied().unwrap_or_default();
        let least = if asked.best_effort { needed.min(Units::ONE) } else { needed };
        if least <= left_of(counted, reading) {
            continue;
        }
        let (one, code) = refused_by_one(counted, reading, needed, least, now_ms);
        let part = if asked.best_effort { counted.line() } else { 0 };
        let part = parts.entry(part).or_insert((code, None));
        *part = (part.0.min(code), part.1.max(one.retry_after_ms));
        refused_by.push(one);
    }
    let parts = parts.into_values().map(|(code, wait_ms)| (code, wait_ms.filter(|_| waiting_helps(code))));
    let (code, retry_after_ms) = parts
        .min_by_key(|(code, wait_ms)| (!waiting_helps(*code), *wait_ms))
        .unwrap_or((RefusalCode::RateLimited, None));
    let limits = all.iter().zip(readings).map(|(counted, reading)| counted.answer(reading, now_ms)).collect();
    let detail = refused_by.first().map_or_else(String::new, |first| first.message.clone());
    Refusal { code, detail, retry_after_ms, decision_id: present::decision_id(), refused_by, limits }
}

fn waiting_helps(code: RefusalCode) -> bool {
    matches!(code, RefusalCode::QuotaExceeded | RefusalCode::RateLimited)
}

fn left_of(counted: &Counted<'_>, reading: &CounterReading) -> Units {
    counted.capacity(reading).saturating_sub(reading.consumed).saturating_sub(reading.reserved)
}

/// One that refuses: it has less left than `least`, the smallest amount that would have been granted.
fn refused_by_one(
    counted: &Counted<'_>,
    reading: &CounterReading,
    needed: Units,
    least: Units,
    now_ms: i64,
) -> (RefusedBy, RefusalCode) {
    let decimals = counted.decimals();
    let limit = counted.answer(reading, now_ms);
    let capacity = counted.capacity(reading);
    let left = left_of(counted, reading);
    let held_only = least <= capacity.saturating_sub(reading.consumed);
    let too_much = least > capacity;
    let code = match (too_much, counted.is_rate()) {
        (true, _) => RefusalCode::ExceedsPlan,
        (false, true) => RefusalCode::RateLimited,
        (false, false) => RefusalCode::QuotaExceeded,
    };
    let to_reset_ms = (counted.window_end_ms() - now_ms).max(0);
    let next_hold_ms = reading.next_hold_ends_at_ms.map(|ends_ms| (ends_ms - now_ms).max(0));
    let wait_ms = match held_only {
        true => next_hold_ms.unwrap_or(UNKNOWN_HOLD_WAIT_MS).min(to_reset_ms),
        false => to_reset_ms,
    };
    let cause = if held_only { Cause::Reserved } else { Cause::Consumed };
    let message = counted.message().map_or_else(
        || {
            let needs = present::amount(needed, decimals);
            let has = format!("{} of {} left in this {}", limit.remaining, limit.capacity, limit.window);
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
        retry_after_ms: (!too_much).then_some(wait_ms),
        next_hold_ends_at: reading.next_hold_ends_at_ms.map(present::instant),
        message,
        limit,
    };
    (refused, code)
}
