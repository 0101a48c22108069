//! A refusal explains itself: every limit that refuses, whether its units are used up or only held, and how long to wait.

use super::answers::{Refusal, RefusalCode, RefusedBy};
use super::present::{self, Counted};
use crate::domain::amount::Units;
use crate::gate::CounterReading;

/// The refusal of a request that asks `amounts` (per line) of the counters `all`, given their readings and which refuse.
pub(super) fn refusal(
    amounts: &[Units],
    all: &[Counted<'_>],
    readings: &[CounterReading],
    refusing: &[usize],
    now_ms: i64,
) -> Refusal {
    let mut code = RefusalCode::RateLimited;
    let mut longest = None;
    let mut refused_by = Vec::with_capacity(refusing.len());
    for index in refusing {
        let (Some(counted), Some(reading)) = (all.get(*index), readings.get(*index)) else { continue };
        let needed = amounts.get(counted.line()).copied().unwrap_or_default();
        let (one, one_code) = refused_by_one(counted, reading, needed, now_ms);
        code = code.min(one_code);
        longest = longest.max(one.retry_after_ms);
        refused_by.push(one);
    }
    let limits = all.iter().zip(readings).map(|(counted, reading)| counted.answer(reading, now_ms)).collect();
    let detail = refused_by.first().map_or_else(String::new, |first| first.message.clone());
    let waiting_helps = matches!(code, RefusalCode::QuotaExceeded | RefusalCode::RateLimited);
    Refusal {
        code,
        detail,
        retry_after_ms: if waiting_helps { longest } else { None },
        decision_id: present::decision_id(),
        refused_by,
        limits,
    }
}

fn refused_by_one(
    counted: &Counted<'_>,
    reading: &CounterReading,
    needed: Units,
    now_ms: i64,
) -> (RefusedBy, RefusalCode) {
    let decimals = counted.decimals();
    let limit = counted.answer(reading, now_ms);
    let capacity = counted.capacity(reading);
    let free_of_holds = capacity.saturating_sub(reading.consumed);
    let left = free_of_holds.saturating_sub(reading.reserved);
    let held_only = needed <= free_of_holds;
    let too_much = needed > capacity;
    let code = match (too_much, counted.is_rate()) {
        (true, _) => RefusalCode::ExceedsPlan,
        (false, true) => RefusalCode::RateLimited,
        (false, false) => RefusalCode::QuotaExceeded,
    };
    let to_reset_ms = (counted.window_end_ms() - now_ms).max(0);
    let next_hold_ms = reading.next_hold_ends_at_ms.map(|ends_ms| (ends_ms - now_ms).max(0));
    let wait_ms = if held_only { next_hold_ms.unwrap_or(to_reset_ms).min(to_reset_ms) } else { to_reset_ms };
    let cause = if held_only { "reserved" } else { "consumed" };
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
        cause: cause.into(),
        needed: present::amount(needed, decimals),
        shortfall: present::amount(needed.saturating_sub(left), decimals),
        retry_after_ms: (!too_much).then_some(wait_ms),
        next_hold_ends_at: reading.next_hold_ends_at_ms.map(present::instant),
        message,
        limit,
    };
    (refused, code)
}
